"""Call a slow service for every record, up to 32 calls at once in each task.

Gives each product with its price, in the order of the input. What each call returned is recorded: after a failure only
calls without a recorded outcome are made again, under the same idempotency key.

    python examples/shop_server.py &
    clonos run examples/async_calls.py
"""

from __future__ import annotations

from clonos import Job, http, stdout, values

PRODUCTS = ["tea", "coffee", "milk", "sugar", "cocoa", "honey", "lemon", "mint"]
shop = http.session(base_url="http://localhost:8099", timeout=2)


def price(product: str) -> tuple[str, float]:
    return product, shop.get(f"/prices/{product}").raise_for_status().json()["price"]


job = Job("async_calls", checkpoint_every="1s")
job.source(values(PRODUCTS), name="products").map_async(price, capacity=32, name="price").sink(stdout())
