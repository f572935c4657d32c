"""Drives a transactional sink as the runtime does."""

from typing import Any

from clonos.operators.connector_contract import TransactionalSink, TransactionalWriter, WriterContext

JOB = "wordcount-0123456789abcdef"


def writer_of(
    sink: TransactionalSink, index: int = 0, incarnation: int = 1, generation: int = 0
) -> TransactionalWriter:
    """An opened writer of one life of one task."""
    writer = sink.writer()
    writer.open(WriterContext(JOB, f"count words/{index}", index, generation, incarnation))
    return writer


def part_of(sink: TransactionalSink, checkpoint: int, rows: list[Any], index: int = 0, incarnation: int = 1) -> bytes:
    """Prepares a part as a task that wrote these rows would; its writer is closed afterwards."""
    writer = writer_of(sink, index, incarnation)
    writer.write(rows)
    part = writer.prepare(checkpoint)
    writer.close()
    assert part is not None
    return part
