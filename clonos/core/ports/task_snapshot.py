"""Snapshot of a task at a barrier: what its thread hands over and a successor starts from (protocol 5)."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from clonos.core.model.ids import ChannelId, CheckpointId, Incarnation, TaskId
from clonos.core.model.metric_series import MetricFamily
from clonos.core.model.watermark import Instant
from clonos.core.wire.log_delta import Count


class ChannelTime(msgspec.Struct, frozen=True, array_like=True):
    """Event time of an input channel: its watermark, None if only its activity is known, and whether it is idle."""

    channel: ChannelId
    reached_ns: Instant | None
    is_idle: bool


class EventTime(msgspec.Struct, frozen=True, array_like=True):
    """Event time of a task: its watermark, None before the first one, whether it is idle, and its channels."""

    own_ns: Instant | None
    is_idle: bool
    channels: tuple[ChannelTime, ...]


class StateSource(msgspec.Struct, frozen=True, array_like=True):
    """State of the steps of a task that it takes from task ``index`` of the ``width`` tasks of a vertex of an earlier
    plan, which is in the next ``objects`` of the chain.
    """

    vertex: str
    index: Count
    width: Count
    objects: Count


SINK_DIGEST_BYTES: Final = 4


class SinkRows(msgspec.Struct, frozen=True, array_like=True):
    """Rows that a sink of a task was given between two barriers. ``since``: the checkpoint of the first one.
    ``digests``: of the first rows, one after the other, for a replay; zeros for a row without encoding."""

    step: str
    since: CheckpointId
    rows: Count
    digests: bytes


class Snapshot(msgspec.Struct, frozen=True, array_like=True):
    """State from which a new incarnation starts, together with the causal log.

    ``inputs`` has, per input channel, the number of the first element after the barrier; ``outputs``, per output
    channel, the number of the next element after it. ``ended`` lists the input channels at end of stream. ``changes``
    builds on the snapshot of ``previous`` and is full without one. ``chain_length`` is the number of objects that
    restore it, including those of a chain that was restored, because the start of a new chain may never have been
    stored. ``records_in`` counts the task's input since the job's start. ``calls`` counts the calls of a source's task
    per service. ``journal_offset_bytes`` is the end of the part of the journal that the state contains, read or not.
    ``event_time`` is None until the first watermark comes. ``blocked`` has the channels that wait behind the barrier of
    a later checkpoint, and that checkpoint. The job stops at the barrier of ``stops_at`` and all later ones; 0: at none
    that is known. ``sources`` says what of the state in the objects before it a task of another plan takes; the
    snapshot after it is full. ``waiting`` names the state in which records wait: another number of tasks cannot
    take them. ``sinks`` has what the sinks of a recorded task were given since the barrier before.
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
    event_time: EventTime | None = None
    blocked: tuple[tuple[ChannelId, CheckpointId], ...] = ()
    metrics: tuple[MetricFamily, ...] = ()  # of user code, and late records, since the job's start
    stops_at: Annotated[CheckpointId, msgspec.Meta(ge=0)] = CheckpointId(0)
    sources: tuple[StateSource, ...] = ()
    waiting: tuple[str, ...] = ()  # "step/name of the state"
    sinks: tuple[SinkRows, ...] = ()

    @property
    def is_at_stop(self) -> bool:
        """Whether the job stops at its barrier, so that no later output of an immediate sink leaves."""
        return 0 < self.stops_at <= self.checkpoint


def stops_at(snapshot: Snapshot | None, generation: int) -> CheckpointId:
    """Returns at which checkpoint the job stops as far as a restored snapshot knows: one of an earlier generation knows
    nothing of this one."""
    return snapshot.stops_at if snapshot is not None and snapshot.incarnation >= generation else CheckpointId(0)
