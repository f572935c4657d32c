"""Targets: what Kafka's connectors read of the store and of a group that others may write to."""

from __future__ import annotations

from typing import Any

from clonos.connectors import kafka
from clonos.connectors.connector_errors import SplitMalformed
from clonos.connectors.kafka.kafka_errors import GroupForeign
from clonos.connectors.kafka.numbering import Stamp, committed_of
from clonos.connectors.kafka.partitions import Partition
from clonos.connectors.kafka.transactional import TransactionalKafkaSink, outputs_of
from clonos.core.model.errors import InternalError
from clonos.operators.connector_contract import WriterContext
from tests.fuzz.target import Target, of_bytes, of_json, of_msgpack

SERVERS = "127.0.0.1:9"


def targets() -> list[Target]:
    """All targets of Kafka."""
    return [_splits(), _metadata(), _parts()]


def _splits() -> Target:
    source = kafka.source("orders", servers=SERVERS)
    samples = [Partition("orders", 0, 0, -1, "").encoded(), Partition("orders", 11, 7, 9, "id").encoded()]
    return Target("partitions of Kafka", of_json(samples), source.check_split, (SplitMalformed,))


def _metadata() -> Target:
    samples = [Stamp(1, 1, 0, False).text().encode(), Stamp(1 << 32 | 7, 40, 12_345, True).text().encode()]

    def read(data: bytes) -> object:
        return committed_of(7, data.decode("utf-8", "replace"), "group")

    return Target("metadata of Kafka offsets", of_bytes(samples), read, (GroupForeign,))


def _parts() -> Target:
    sink: Any = kafka.sink("orders", servers=SERVERS, mode="transactional", key=str, headers=lambda row: {"n": row})
    assert isinstance(sink, TransactionalKafkaSink)
    writer = sink.writer()
    writer.open(WriterContext("job", "out/0", 0, 1, 1))
    made: list[bytes] = []
    for rows in ([1, "a", None], [{"b": 2}], ["x" * 500]):
        writer.write(rows)
        made.append(writer.prepare(len(made) + 1) or b"")
    return Target(
        "parts for Kafka",
        of_msgpack(made),
        lambda data: [list(output) for output in outputs_of([data]).values()],
        (InternalError,),
    )
