"""Append purchases to an Iceberg table, read a snapshot of it, and go on with what is appended later.

Gives a JSON line per purchase, with what its customer has spent so far, in `out/spent/`. The snapshot has the purchases
of the morning. Those of the afternoon are appended after it, and each counts once. Without `until="latest"` the last
job would go on with what is appended from then on. Another run appends all purchases again.

    pip install 'clonos[iceberg]'
    python examples/iceberg_purchases.py
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow
from pyiceberg.catalog import load_catalog

from clonos import Job, col, files, iceberg
from clonos.agg import count, sum_

PURCHASES = Path(__file__).with_name("data") / "purchases.jsonl"
COLUMNS = pyarrow.schema(
    [
        ("number", pyarrow.int64()),
        ("customer", pyarrow.string()),
        ("item", pyarrow.string()),
        ("cents", pyarrow.int64()),
    ]
)
NOON = 200
"""The first purchase of the afternoon."""

TABLE = "shop.purchases"
CATALOG = {"type": "sql", "uri": "sqlite:///catalog.db", "warehouse": f"file://{Path.cwd()}/out/lake"}


def total_of(customer: str, total: dict[str, Any]) -> dict[str, Any]:
    return {"customer": customer, **total}


def append(name: str, chosen: Any) -> Job:
    """Appends some purchases: each checkpoint is one snapshot."""
    job = Job(name, parallelism=2, checkpoint_every="1s")
    purchases = job.source(files.jsonl(PURCHASES, schema=COLUMNS), name="purchases").filter(chosen, name="chosen")
    purchases.sink(iceberg.table(TABLE, catalog=CATALOG, schema=COLUMNS, partition_by="customer"), name="output")
    return job


def spent_since(snapshot: int) -> Job:
    """Sums up a snapshot, and then what was appended after it."""
    job = Job("iceberg_spent", parallelism=2, checkpoint_every="1s")
    stored = iceberg.read(TABLE, catalog=CATALOG, snapshot=snapshot)
    appended = iceberg.changes(TABLE, catalog=CATALOG, after_snapshot=snapshot, until="latest")
    purchases = job.source(stored.then(appended), name="stored")
    totals = purchases.key_by("customer").aggregate(cents=sum_("cents"), purchases=count(), name="totals")
    totals.map(lambda total: total_of(*total), name="rows").sink(files.jsonl("out/spent"), name="spent")
    return job


if __name__ == "__main__":
    append("iceberg_morning", col("number") < NOON).run(slots="process", overwrite=True)
    morning: Any = load_catalog(**CATALOG).load_table(TABLE).current_snapshot()
    append("iceberg_afternoon", col("number") >= NOON).run(slots="process", overwrite=True)
    spent_since(morning.snapshot_id).run(slots="process", overwrite=True)
