"""Messages of replication: logs to keepers, snapshots to standbys, input and log to hot standbys (protocol 3 and 5)."""

from __future__ import annotations

import msgspec

from clonos.core.model.ids import CheckpointId, Incarnation, SlotId, TaskId
from clonos.core.wire.fields import Objects
from clonos.core.wire.log_delta import Count
from clonos.core.wire.log_delta import Delta as Delta
from clonos.core.wire.log_delta import Length as Length
from clonos.core.wire.shadow_messages import FeedAck as FeedAck
from clonos.core.wire.shadow_messages import FeedShadow as FeedShadow


class AppendLog(msgspec.Struct, frozen=True, array_like=True, tag="append_log"):
    """A task with effects outside to its keeper: deltas of its own log and of every log that it holds.

    ``is_whole``: they are all that the keeper lacks of all that the task holds. ``journal_start_bytes``: what lies
    before it in the task's journal is in completed checkpoints. ``ordinal``: number of the message on its way to this
    keeper; behind one that was lost only a whole one counts, or an entry would be held without its causes.
    """

    task: TaskId
    incarnation: Incarnation
    is_whole: bool
    deltas: tuple[Delta, ...]
    journal_start_bytes: Count = 0
    ordinal: Count = 0


class AppendAck(msgspec.Struct, frozen=True, array_like=True, tag="append_ack"):
    """Keeper to its task: how far it holds each log. Sent on each ``AppendLog`` and at the heartbeat.

    ``is_ready``: it has had a whole ``AppendLog`` of this incarnation. Otherwise ``lengths`` is all that it has:
    whatever else was acknowledged is held no more.
    """

    task: TaskId
    incarnation: Incarnation
    slot: SlotId
    is_ready: bool
    lengths: tuple[Length, ...]


class StandbyUpdate(msgspec.Struct, frozen=True, array_like=True, tag="standby_update"):
    """Task's slot to its standbys: the encoded snapshot is the payload; ``previous`` is the one that it builds on,
    None for a full one."""

    task: TaskId
    incarnation: Incarnation
    checkpoint: CheckpointId
    previous: CheckpointId | None  # None: the snapshot is full
    objects: Objects  # the chain to restore this checkpoint from, oldest (full) first
