"""Snapshot of a task at a barrier: what its thread hands over and a successor starts from (protocol 5)."""

from __future__ import annotations

import msgspec

from clonos.core.model.ids import ChannelId, CheckpointId, Incarnation, TaskId
from clonos.core.wire.log_delta import Count


class Snapshot(msgspec.Struct, frozen=True, array_like=True):
    """All that a new incarnation needs besides the causal log.

    ``inputs``: per input channel the number of the first element behind the barrier; ``outputs``: per output channel
    the number of the next element behind it. ``ended``: input channels at end of stream. ``changes`` builds on the
    snapshot of ``previous``; without one it is full. ``chain_length``: objects that restore it; of one that was
    restored, as many as it took, since one that was to begin a new chain may never have been stored.
    ``records_in``: what the task has taken in since the job's start. ``calls``: how often a source's task has called
    each service. ``journal_offset_bytes``: up to where a source's state has its journal, read or not.
    """

    format: int
    task: TaskId
    incarnation: Incarnation
    checkpoint: CheckpointId
    previous: CheckpointId | None
    inputs: tuple[tuple[ChannelId, Count], ...]
    outputs: tuple[tuple[ChannelId, Count], ...]
    ended: tuple[ChannelId, ...]
    log_offset_bytes: Count
    instant_ns: Count
    final: bool
    position: bytes
    changes: bytes
    chain_length: Count = 1
    records_in: Count = 0
    journal_offset_bytes: Count = 0
    calls: tuple[tuple[str, Count], ...] = ()
