"""Samples of the tests of in-flight logs."""

from __future__ import annotations

from clonos.core.checkpoint.snapshot import SNAPSHOT_FORMAT
from clonos.core.model.ids import ChannelId, CheckpointId, Incarnation, TaskId
from clonos.core.ports.task_snapshot import Snapshot


def snapshot(checkpoint: int, outputs: tuple[tuple[int, int], ...], task: int = 0, incarnation: int = 1) -> Snapshot:
    """A full snapshot of a task without state."""
    return Snapshot(
        format=SNAPSHOT_FORMAT,
        task=TaskId(task),
        incarnation=Incarnation(incarnation),
        checkpoint=CheckpointId(checkpoint),
        previous=None,
        inputs=(),
        outputs=tuple((ChannelId(channel), seq) for channel, seq in outputs),
        ended=(),
        log_offset_bytes=0,
        instant_ns=0,
        final=False,
        position=b"",
        changes=b"",
    )
