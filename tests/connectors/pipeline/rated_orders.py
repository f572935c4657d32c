"""A pipeline with all kinds of connectors: Kafka -> keyed state -> an HTTP call -> Kafka, Kafka and PostgreSQL."""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fastavro

from clonos import Job, codecs, http, kafka
from clonos import postgres as pg
from clonos_chaos.connectors.tested_jobs import TESTED
from tests.connectors.servers.kafka import KafkaServer
from tests.unit.codecs.registry_server import Registry

SCHEMA = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "n", "type": "long"}, {"name": "customer", "type": "string"}],
}
CUSTOMERS = 7
ORDERS = "orders-to-rate"
Row = dict[str, Any]


@dataclass(frozen=True)
class Places:
    """Addresses of everything around the job, and the names of its topics and its table."""

    kafka: str
    registry: str
    rates: str
    postgres: str
    orders: str = ORDERS
    now: str = "rated-now"
    later: str = "rated-later"
    table: str = "rated"


def counted(_customer: str, so_far: int | None, order: Row) -> tuple[int, Row]:
    """Numbers the orders of a customer."""
    count = (so_far or 0) + 1
    return count, {"n": order["n"], "customer": order["customer"], "seen": count}


def rated_orders(places: Places, _folder: Path) -> Job:
    """Makes the job."""
    rates = http.session(base_url=places.rates, timeout=60, retries=60)

    def rated(row: Row) -> Row:
        return {**row, "rate": int(rates.get(f"/rate/{row['n']}").raise_for_status().text)}

    job = Job("rated-orders")
    decode = codecs.confluent_avro(places.registry)
    orders = job.source(kafka.source(places.orders, servers=places.kafka, decode=decode), name=TESTED)
    rows = orders.key_by("customer").stateful_map(counted, name="count", parallelism=2).map(rated, name="rate")
    now = kafka.sink(places.now, servers=places.kafka)
    later = kafka.sink(places.later, servers=places.kafka, mode="transactional")
    columns = {"n": "bigint", "customer": "text", "seen": "bigint", "rate": "bigint"}
    rows.rebalance().map(dict, name="now").sink(now, name="topic")
    rows.rebalance().map(dict, name="later").sink(later, name="committed")
    rows.rebalance().map(dict, name="table").sink(pg.table(places.postgres, places.table, columns), name="rows")
    return job


def order_messages(registry: Registry, numbers: Sequence[int]) -> list[bytes]:
    """Orders in the wire format of the registry, made without the library."""
    body = json.dumps({"schema": json.dumps(SCHEMA)}).encode()
    _, answer = registry.answer("POST", f"/subjects/{ORDERS}-value/versions", body)
    schema = fastavro.parse_schema(SCHEMA)
    messages = []
    for n in numbers:
        written = io.BytesIO()
        fastavro.schemaless_writer(written, schema, {"n": n, "customer": f"c{n % CUSTOMERS}"})
        messages.append(b"\0" + struct.pack(">I", answer["id"]) + written.getvalue())
    return messages


def produce_orders(server: KafkaServer, registry: Registry, numbers: Sequence[int]) -> None:
    """Writes orders; all of one customer into one partition."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": server.servers, "linger.ms": 5})
    for n, message in zip(numbers, order_messages(registry, numbers), strict=True):
        producer.produce(ORDERS, message, partition=n % CUSTOMERS % 2)
    assert producer.flush(60) == 0
