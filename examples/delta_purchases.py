"""Append purchases to a Delta table that is partitioned by customer: each checkpoint is one transaction.

pip install 'clonos[delta]'
clonos run examples/delta_purchases.py
python -c "from deltalake import DeltaTable; print(DeltaTable('out/purchases').to_pyarrow_table())"
"""

from __future__ import annotations

from pathlib import Path

import pyarrow

from clonos import Job, delta, files

PURCHASES = Path(__file__).with_name("data") / "purchases.jsonl"
COLUMNS = pyarrow.schema([("customer", pyarrow.string()), ("item", pyarrow.string()), ("euros", pyarrow.float64())])

job = Job("delta_purchases", parallelism=2, checkpoint_every="1s")
purchases = job.source(files.jsonl(PURCHASES), name="purchases")
rows = purchases.map(
    lambda bought: {"customer": bought["customer"], "item": bought["item"], "euros": bought["cents"] / 100}, name="row"
)
rows.sink(delta.table("out/purchases", schema=COLUMNS, partition_by="customer"), name="output")
