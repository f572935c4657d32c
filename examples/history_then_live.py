"""Sum up what each customer has spent since the first order: old orders come from files, newer ones from Kafka.

Gives a JSON line per order with the total so far, and each customer's orders in their order. The files end at the time
that CUT names, where the topic `orders` goes on. Its values are JSON with `customer` and `cents`. The job goes on until
it is stopped, and after a stop in either half it resumes there.

A broker for a trial is started by `python -m tests.connectors.servers start kafka`, in a checkout of Clonos. The
variable KAFKA names its address, if it is not localhost:9092.

    clonos run examples/history_then_live.py
"""

from __future__ import annotations

import json
import os
from datetime import datetime
from pathlib import Path
from typing import Any

from clonos import Job, files, kafka
from clonos.agg import count, sum_

HISTORY = Path(__file__).with_name("data") / "purchases.jsonl"
BROKERS = os.environ.get("KAFKA", "localhost:9092")
CUT = datetime.fromisoformat(os.environ.get("CUT", "2026-11-28T00:00:00+00:00"))
"""Time at which the files end."""


def total_of(customer: str, total: dict[str, Any]) -> dict[str, Any]:
    return {"customer": customer, **total}


def make_job(live: Any) -> Job:
    job = Job("history_then_live", parallelism=2, checkpoint_every="1s")
    orders = job.source(files.jsonl(HISTORY).then(live), name="orders")
    totals = orders.key_by("customer").aggregate(cents=sum_("cents"), orders=count(), name="totals")
    totals.map(lambda total: total_of(*total), name="rows").sink(files.jsonl("out/spent"), name="spent")
    return job


job = make_job(kafka.source("orders", servers=BROKERS, decode=json.loads, start=CUT))
