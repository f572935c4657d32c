"""Sums up orders of a Kafka topic: what each customer has spent so far, to another topic.

Reads the topic `orders` up to its present end. Its values are JSON with `customer` and `cents`; other bytes go to
`out/refused`. Each total is in the topic `totals` once for readers with `read_committed`, under the customer as its
key, so that a compacted topic has the last total of each customer.

A broker for a trial is started by `python -m tests.connectors.servers start kafka`, in a checkout of Clonos. The
variable KAFKA names its address, if it is not localhost:9092.

    clonos run examples/kafka_totals.py
"""

from __future__ import annotations

import json
import os

from clonos import Job, files, kafka
from clonos.agg import count, sum_

BROKERS = os.environ.get("KAFKA", "localhost:9092")

job = Job("kafka_totals", parallelism=2, errors=files.jsonl("out/refused"))
orders = job.source(kafka.source("orders", servers=BROKERS, decode=json.loads, until="latest"), name="orders")
totals = orders.key_by("customer").aggregate(cents=sum_("cents"), orders=count(), name="totals")
rows = totals.map(lambda total: {"customer": total[0], **total[1]}, name="rows")
rows.sink(kafka.sink("totals", servers=BROKERS, key="customer", mode="transactional"), name="out")
