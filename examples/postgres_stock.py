"""Keep the stock of each item in PostgreSQL up to date while others book movements, exactly once.

Follows what is inserted into the table `movements (id, item, pieces)` by logical replication, and keeps one row per
item in the table `stock`. The database is a URL in $DATABASE_URL; a checkout starts one for a trial, and says its URL:
`python -m tests.connectors.servers start postgres`.

    clonos run examples/postgres_stock.py
"""

from __future__ import annotations

from typing import Any

from clonos import Job, postgres, secrets

DATABASE = secrets.env("DATABASE_URL")


def book(item: str, stock: int | None, movement: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    stock = (stock or 0) + movement["pieces"]
    return stock, {"item": item, "pieces": stock}  # the new state, and the result


job = Job("stock", checkpoint_every="1s")
changes = job.source(postgres.changes(DATABASE, "movements", slot="stock"), name="movements")
movements = changes.filter(lambda change: change.kind == "insert").map(lambda change: change.row, name="row")
stock = movements.key_by("item").stateful_map(book, name="book")
stock.key_by("item").sink(
    postgres.table(DATABASE, "stock", {"item": "text", "pieces": "bigint"}, upsert="item"), name="stock"
)
