"""Send each large order to a shop by HTTP, and set aside those that it refuses.

Each order is sent at least once, under a key of its own in the header `Idempotency-Key`. A server that ignores a key
that it has seen, as `shop_server.py` does, has each order once. SHOP_URL names another server.

    python examples/shop_server.py &
    clonos run examples/http_post.py

A server that asks for a token: web.post(..., headers={"Authorization": secrets.env("SHOP_TOKEN")}).
"""

from __future__ import annotations

import os
from pathlib import Path

from clonos import Job, files, web

ORDERS = Path(__file__).with_name("data") / "orders.jsonl"
URL = os.environ.get("SHOP_URL", "http://localhost:8099/orders")

job = Job("http-post")
orders = job.source(files.jsonl(str(ORDERS)), name="orders")
large = orders.filter(lambda order: order["quantity"] >= 3, name="large")
large.sink(web.post(URL, dead_letters="out/refused_orders"), name="out")
