"""Prepared output of the transactional Kafka sink, as the driver reads it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from clonos.connectors import kafka
from clonos.connectors.kafka.transactional import TransactionalKafkaSink, outputs_of, transaction_ms
from clonos.core.model.errors import InternalError
from clonos.operators.connector_contract import WriterContext


def parts_of(index: int, *rows: list[Any]) -> list[bytes]:
    """Parts of one task, each with two batches."""
    sink = kafka.sink("out", servers="127.0.0.1:9", mode="transactional")
    assert isinstance(sink, TransactionalKafkaSink)
    writer = sink.writer()
    writer.open(WriterContext("job", f"out/{index}", index, 2, 1))
    found = []
    for checkpoint, each in enumerate(rows, 1):
        writer.write(each[:1])
        writer.write(each[1:])
        found.append(writer.prepare(checkpoint) or b"")
    return found


def test_messages_are_in_the_order_of_checkpoints_and_by_task() -> None:
    first = parts_of(0, ["a", "b", "c"], ["d", "e"])
    outputs = outputs_of([*reversed(first), *parts_of(1, ["z"])])
    assert {index: [message.value for message in output] for index, output in outputs.items()} == {
        0: [b"a", b"b", b"c", b"d", b"e"],
        1: [b"z"],
    }
    assert [message.value for message in outputs[0][1:4]] == [b"b", b"c", b"d"]
    assert [outputs[0][index].value for index in (4, 0, 2)] == [b"e", b"a", b"c"]
    assert outputs[0].size_bytes > 0


def test_a_batch_with_another_number_of_messages_is_refused() -> None:
    version, index, checkpoint, ((count, size, frame),) = msgspec.msgpack.decode(parts_of(0, ["a"])[0])
    part = msgspec.msgpack.encode([version, index, checkpoint, [[count + 1, size, frame]]])
    with pytest.raises(InternalError, match="it has 1 messages, not 2"):
        list(outputs_of([part])[0])


def test_a_number_of_messages_that_a_batch_cannot_hold_is_refused_before_memory_is_taken_for_it() -> None:
    version, index, checkpoint, ((_, size, frame),) = msgspec.msgpack.decode(parts_of(0, ["a"])[0])
    for count, length in ((1 << 40, 1 << 42), (size + 1, size)):
        part = msgspec.msgpack.encode([version, index, checkpoint, [[count, length, frame]]])
        with pytest.raises(InternalError, match="bytes cannot hold"):
            outputs_of([part])


def test_a_transaction_has_time_for_its_output_within_what_brokers_allow() -> None:
    assert transaction_ms(0) == 60_000
    assert transaction_ms(100 << 20) > 200_000
    assert transaction_ms(10 << 30) == 900_000
