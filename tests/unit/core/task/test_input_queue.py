"""Input queues: which delivered elements are taken as one batch."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from clonos.core.model.element_kind import ElementKind
from clonos.core.model.ids import ChannelId, CheckpointId
from clonos.core.model.plan import Channel
from clonos.core.ports.task_port import Delivered
from clonos.core.task.inputs import InputQueue
from clonos.core.values import encode_columns

INTS = pa.record_batch({"x": pa.array([1, 2], pa.int64())})
FLOATS = pa.record_batch({"x": pa.array([0.5, 1.5], pa.float64())})
NAMED = INTS.replace_schema_metadata({"form": "other"})


def queue_of(*batches: Any) -> InputQueue:
    queue = InputQueue(Channel(ChannelId(0), 0, 0, 0), 0, 0, False)  # type: ignore[arg-type]
    for batch in batches:
        queue.put(Delivered(ChannelId(0), ElementKind.COLUMNS, 2, 0, CheckpointId(0), encode_columns(batch)))
    return queue


@pytest.mark.parametrize("other", [FLOATS, NAMED])
def test_columns_are_taken_up_to_the_next_change_of_their_schema(other: Any) -> None:
    queue = queue_of(INTS, INTS, other, INTS)
    found = []
    while queue.next_seq < 7:
        found.append(queue.take(7 - queue.next_seq)[1])
    assert [batch.schema.metadata for batch in found] == [None, other.schema.metadata, None]
    assert [batch.column("x").to_pylist() for batch in found] == [[1, 2, 1, 2], other.column("x").to_pylist(), [1]]
    assert queue.waiting_count == 1
