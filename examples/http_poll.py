"""Ask an endpoint for new orders every few seconds, each counted once, and add up what each shop has sold.

An answer has the orders and the cursor after them. The cursor is journalled with the orders: a task that takes over
asks after it, so that no order is lost or counted twice. The job runs until it is stopped.

    clonos run examples/http_poll.py

ORDERS_URL names the endpoint. Its answers look like {"orders": [{"shop": "bern", "amount": 3}], "next": "17"}; the next
request ends with ?cursor=17. An endpoint that asks for a token: web.poll(..., token=secrets.env("ORDERS_TOKEN")).
"""

from __future__ import annotations

import os
from typing import Any

from clonos import Job, files, web

URL = os.environ.get("ORDERS_URL", "http://localhost:8090/orders")


def sold_so_far(shop: str, sold: int | None, order: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    total = (sold or 0) + order["amount"]
    return total, {"shop": shop, "sold": total}


job = Job("http-poll", checkpoint_every="500ms", errors=files.jsonl("out/http_poll_errors"))
orders = job.source(web.poll(URL, records="orders", cursor="next", every="1s"), name="orders")
totals = orders.key_by("shop").stateful_map(sold_so_far, name="sold_so_far")
totals.sink(files.jsonl("out/http_poll"), name="totals")
