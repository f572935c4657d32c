"""Add a price from an HTTP service to each order, ask for each product once a minute, and place each order once.

Gives the orders with their price and the receipt of the shop. `http.get` may be repeated after a failure, but the job
uses one reply. `http.post` changes the shop: it is announced in the log before it is made, and `idempotent=True` allows
a successor to repeat it under the same `Idempotency-Key`, by which the shop recognises it.

    python examples/shop_server.py &
    clonos run examples/enrich.py
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from clonos import Context, Job, ValueState, clock, files, http

ORDERS = Path(__file__).with_name("data") / "orders.jsonl"
FRESH_S = 60.0

Order = dict[str, Any]
shop = http.session(base_url="http://localhost:8099", timeout=2, retries=2)


class Prices:
    """Looks up the price of a product, and keeps it for a minute."""

    price = ValueState("price", default=0.0)
    asked_at = ValueState("asked_at", default=0.0)

    def process(self, order: Order, context: Context[str, Order]) -> None:
        price, asked_at = context.state(self.price), context.state(self.asked_at)
        if clock.time() - asked_at.value > FRESH_S:
            price.value = shop.get(f"/prices/{context.key}").raise_for_status().json()["price"]
            asked_at.value = clock.time()
        context.emit({**order, "price": price.value})


def place(order: Order) -> Order:
    reply = shop.post("/orders", json=order, idempotent=True).raise_for_status()
    return {**order, "receipt": reply.json()["receipt"]}


job = Job("enrich", checkpoint_every="1s")
priced = job.source(files.jsonl(ORDERS), name="orders").key_by("product").process(Prices, name="prices")
priced.rebalance().map(place, name="place", effects=True).sink(files.jsonl("out/placed"), name="placed")
