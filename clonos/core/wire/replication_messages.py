"""Messages of replication: logs to keepers and snapshots to standbys (protocol 3 and 5)."""

from __future__ import annotations

import msgspec

from clonos.core.model.ids import CheckpointId, Incarnation, SlotId, TaskId
from clonos.core.wire.log_delta import Count
from clonos.core.wire.log_delta import Delta as Delta
from clonos.core.wire.log_delta import Length as Length
from clonos.core.wire.message_fields import Objects
from clonos.core.wire.shadow_messages import FeedAck as FeedAck
from clonos.core.wire.shadow_messages import FeedShadow as FeedShadow


class AppendLog(msgspec.Struct, frozen=True, array_like=True, tag="append_log"):
    """Task with external effects to its keeper: deltas of its own log and of every log that it holds.

    ``is_whole``: the deltas are all that the keeper lacks of the task's logs. ``journal_start_bytes``: earlier bytes of
    the task's journal belong to completed checkpoints. ``ordinal`` numbers the messages to this keeper: after a lost
    one the keeper accepts only a whole one, or it would hold an entry without its causes.
    """

    task: TaskId
    incarnation: Incarnation
    is_whole: bool
    deltas: tuple[Delta, ...]
    journal_start_bytes: Count = 0
    ordinal: Count = 0


class AppendAck(msgspec.Struct, frozen=True, array_like=True, tag="append_ack"):
    """Keeper to its task: how far it holds each log. Sent on each ``AppendLog`` and at the heartbeat.

    ``is_ready``: it has received a whole ``AppendLog`` of this incarnation. Otherwise ``lengths`` is all that it holds
    and earlier acknowledgements are void.
    """

    task: TaskId
    incarnation: Incarnation
    slot: SlotId
    is_ready: bool
    lengths: tuple[Length, ...]


class StandbyUpdate(msgspec.Struct, frozen=True, array_like=True, tag="standby_update"):
    """Slot of a task to its standbys: the encoded snapshot is the payload and builds on the snapshot ``previous``."""

    task: TaskId
    incarnation: Incarnation
    checkpoint: CheckpointId
    previous: CheckpointId | None  # None: the snapshot is full
    objects: Objects  # chain to restore this checkpoint from, oldest (full) first
