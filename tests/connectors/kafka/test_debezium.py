"""Debezium's messages through a topic: changes and tombstones as they were written, and changes written back."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from clonos import codecs
from clonos.connectors import collect, kafka
from clonos.job import Job
from tests.connectors.kafka.producing import produce
from tests.connectors.servers.kafka import KafkaServer

pytestmark = pytest.mark.connectors

DECIMAL = "org.apache.kafka.connect.data.Decimal"
FIELDS = [
    {"field": "id", "type": "int32", "optional": False},
    {"field": "price", "type": "bytes", "optional": True, "name": DECIMAL, "parameters": {"scale": "2"}},
]


def message(operation: str, before: Any, after: Any) -> bytes:
    """A message as the connector of PostgreSQL writes it with ``schemas.enable``."""
    parts = [{"field": part, "type": "struct", "optional": True, "fields": FIELDS} for part in ("before", "after")]
    schema = {"type": "struct", "name": "shop.public.orders.Envelope", "fields": parts}
    source = {"connector": "postgresql", "schema": "public", "table": "orders", "lsn": 1}
    payload = {"before": before, "after": after, "source": source, "op": operation, "ts_ms": 1_764_324_000_000}
    return json.dumps({"schema": schema, "payload": payload}).encode()


MESSAGES = [
    message("r", None, {"id": 1, "price": "fQ=="}),
    message("c", None, {"id": 2, "price": None}),
    message("u", {"id": 1, "price": "fQ=="}, {"id": 1, "price": "gw=="}),
    message("d", {"id": 2, "price": None}, None),
    None,  # the tombstone of the deletion
]
ROWS = [
    ("read", {"id": 1, "price": Decimal("1.25")}, None),
    ("insert", {"id": 2, "price": None}, None),
    ("update", {"id": 1, "price": Decimal("-1.25")}, {"id": 1, "price": Decimal("1.25")}),
    ("delete", None, {"id": 2, "price": None}),
]


def test_changes_of_a_topic_come_as_they_were_written_and_are_written_back(tmp_path: Path, broker: KafkaServer) -> None:
    given, copied = broker.create_topic("debezium"), broker.create_topic("debezium-copied")
    produce(broker, given, MESSAGES)
    orders = codecs.debezium(columns={"price": "Decimal(2)"})
    found, again = collect(), collect()
    job = Job("changes", slots="process", store=tmp_path / "store")
    source = kafka.source(given, servers=broker.servers, decode=orders, until="latest")
    changes = job.source(source, name="orders").filter(lambda change: change is not None)
    changes.sink(found, name="found")
    changes.sink(kafka.sink(copied, servers=broker.servers, encode=orders), name="copied")
    job.run()
    assert [(each.kind, each.row, each.old) for each in found.rows] == ROWS
    assert {each.table for each in found.rows} == {"public.orders"}
    reading = Job("copies", slots="process", store=tmp_path / "again")
    reading.source(kafka.source(copied, servers=broker.servers, decode=orders, until="latest"), name="orders").sink(
        again
    )
    reading.run()
    assert again.rows == found.rows
