"""Messages between the slot of a task and the slots of its hot standbys (protocol 6.10)."""

from __future__ import annotations

import msgspec

from clonos.core.model.element_kind import ElementKind
from clonos.core.model.ids import ChannelId, CheckpointId, Incarnation, SlotId, TaskId
from clonos.core.wire.log_delta import Count, Delta


class FeedShadow(msgspec.Struct, frozen=True, array_like=True, tag="feed_shadow"):
    """Slot of a task to the slot of a hot standby: input and log of the task, in one order.

    ``deltas`` are what this session has not carried of its own log, up to its last completed step, and of every log
    that it holds. They are followed by ``count`` elements of ``channel`` with the payload in the next frame, of which
    the shadow skips the first ``skip``; 0: no elements. ``base`` is the barrier with whose snapshot the session begins.
    Answered by ``FeedAck``.
    """

    task: TaskId
    incarnation: Incarnation
    session: Count
    ordinal: Count  # number of this message in its session; a lost message ends the session
    base: CheckpointId
    channel: ChannelId
    first_seq: Count
    kind: ElementKind
    count: Count
    skip: Count
    checkpoint: CheckpointId
    deltas: tuple[Delta, ...]


class FeedAck(msgspec.Struct, frozen=True, array_like=True, tag="feed_ack"):
    """Slot of a hot standby to the slot of its task: asks for a session at the next barrier, or reports progress.

    ``worked_bytes`` is what the shadow has processed in the session, a running total. Repeated at the heartbeat.
    """

    task: TaskId
    incarnation: Incarnation
    slot: SlotId
    session: Count
    worked_bytes: Count
