"""Join orders with their shipments within three days, and find the orders that were not shipped in time.

Gives each order with its shipment, and each order without one as soon as event time shows that none can come in time.

    clonos run examples/shipped_orders.py
"""

from __future__ import annotations

from typing import Any

from clonos import Job, Tag, Timestamps, stdout, values

LATE = Tag[dict[str, Any]]("late")

ORDERS = [
    {"id": "o1", "item": "tea", "at": "2023-05-01T09:00:00Z"},
    {"id": "o2", "item": "milk", "at": "2023-05-01T10:00:00Z"},
    {"id": "o3", "item": "sugar", "at": "2023-05-02T08:00:00Z"},
    {"id": "o4", "item": "tea", "at": "2023-05-06T08:00:00Z"},
]
SHIPMENTS = [
    {"order": "o1", "at": "2023-05-01T17:00:00Z"},
    {"order": "o3", "at": "2023-05-04T12:00:00Z"},
    {"order": "o2", "at": "2023-05-05T10:00:00Z"},  # four days later: too late
    {"order": "o4", "at": "2023-05-06T09:00:00Z"},
]


def described(order: dict[str, Any], shipment: dict[str, Any] | None) -> dict[str, Any]:
    """Describes an order with its shipment, if there is one in time."""
    return {"order": order["id"], "item": order["item"], "shipped": None if shipment is None else shipment["at"]}


job = Job("shipped_orders", parallelism=2, checkpoint_every="1s")
in_order = Timestamps("at", out_of_order="1h")
orders = job.source(values(ORDERS), name="orders", timestamps=in_order, parallelism=1)
shipments = job.source(values(SHIPMENTS), name="shipments", timestamps=in_order, parallelism=1)
shipped = orders.join(
    shipments, on=("id", "order"), between=(0, "3d"), how="left", select=described, late=LATE, name="shipped"
)
shipped.sink(stdout(), name="described")
shipped.side_output(LATE).sink(stdout(), name="late")
