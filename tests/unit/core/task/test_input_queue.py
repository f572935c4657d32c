"""Input queues: which delivered elements are taken as one batch."""

from __future__ import annotations

from typing import Any
from weakref import ref

import pyarrow as pa
import pytest

from clonos.core.model.element_kind import ElementKind
from clonos.core.model.ids import ChannelId, CheckpointId
from clonos.core.model.plan import Channel
from clonos.core.ports.operator_chain import ROWS_AT_ONCE
from clonos.core.ports.task_port import Delivered
from clonos.core.task.inputs import InputQueue
from clonos.core.values import ValueMalformed, encode_columns, encode_rows, encode_timed_rows
from clonos.kernels import choice

INTS = pa.record_batch({"x": pa.array([1, 2], pa.int64())})
FLOATS = pa.record_batch({"x": pa.array([0.5, 1.5], pa.float64())})
NAMED = INTS.replace_schema_metadata({"form": "other"})


def queue_of(*batches: Any) -> InputQueue:
    queue = InputQueue(Channel(ChannelId(0), 0, 0, 0), 0, 0, False)  # type: ignore[arg-type]
    for batch in batches:
        queue.put(Delivered(ChannelId(0), ElementKind.COLUMNS, 2, 0, CheckpointId(0), encode_columns(batch)))
    return queue


@pytest.mark.parametrize("is_timed", [False, True])
@pytest.mark.parametrize("made", [lambda each: (each, "text"), lambda each: {"n": each}], ids=["tuples", "dicts"])
def test_rows_are_taken_in_parts_whatever_the_batches_in_which_they_came(made: Any, is_timed: bool) -> None:
    queue = InputQueue(Channel(ChannelId(0), 0, 0, 0), 0, 3, False)  # type: ignore[arg-type]
    first, skip = 0, 3
    for count in (700, 20, 1, 900):
        numbers = range(first, first + count)
        given = [made(number) for number in numbers]
        data = encode_timed_rows(given, numbers) if is_timed else encode_rows(given)
        queue.put(Delivered(ChannelId(0), ElementKind.ROWS, count, skip, CheckpointId(0), data))
        first, skip = first + count, 0
    taken = []
    while queue.next_seq < first - 10:
        _, batch = queue.take(first - 10 - queue.next_seq)
        taken.append(batch)
    found = [batch.rows if is_timed else batch for batch in taken]
    assert [*map(len, found)] == [ROWS_AT_ONCE] * 3 + [first - 13 - 3 * ROWS_AT_ONCE]
    assert [row for rows in found for row in rows] == [made(number) for number in range(3, first - 10)]
    if is_timed:
        assert [time for batch in taken for time in batch.times] == [*range(3, first - 10)]
    assert queue.waiting_count == 10


@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize("kind", [ElementKind.ROWS, ElementKind.COLUMNS])
def test_a_batch_whose_records_are_not_as_many_as_its_count_is_malformed(kind: ElementKind, count: int) -> None:
    three = pa.record_batch({"x": pa.array([1, 2, 3], pa.int64())})
    data = encode_rows([1, 2, 3]) if kind is ElementKind.ROWS else encode_columns(three)
    queue = InputQueue(Channel(ChannelId(0), 0, 0, 0), 0, 0, False)  # type: ignore[arg-type]
    queue.put(Delivered(ChannelId(0), kind, count, 0, CheckpointId(0), data))
    with pytest.raises(ValueMalformed, match=f"3 records for {count} elements"):
        queue.take(count)


@pytest.mark.skipif(choice.native is None, reason="all rows stay where the native kernels are not in use")
def test_the_rows_of_a_part_are_freed_before_the_next_one() -> None:
    queue = InputQueue(Channel(ChannelId(0), 0, 0, 0), 0, 0, False)  # type: ignore[arg-type]
    count = 4 * ROWS_AT_ONCE
    data = encode_rows([{number} for number in range(count)])  # the kernel does not read sets
    queue.put(Delivered(ChannelId(0), ElementKind.ROWS, count, 0, CheckpointId(0), data))
    passed: list[Any] = []
    while queue.pieces:
        passed += map(ref, queue.take(count)[1])
        assert not any(each() for each in passed)


@pytest.mark.parametrize("other", [FLOATS, NAMED])
def test_columns_are_taken_up_to_the_next_change_of_their_schema(other: Any) -> None:
    queue = queue_of(INTS, INTS, other, INTS)
    found = []
    while queue.next_seq < 7:
        found.append(queue.take(7 - queue.next_seq)[1])
    assert [batch.schema.metadata for batch in found] == [None, other.schema.metadata, None]
    assert [batch.column("x").to_pylist() for batch in found] == [[1, 2, 1, 2], other.column("x").to_pylist(), [1]]
    assert queue.waiting_count == 1
