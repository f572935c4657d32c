"""What a task's slot and that of its hot standby tell each other."""

from __future__ import annotations

import msgspec

from clonos.core.model.element_kind import ElementKind
from clonos.core.model.ids import ChannelId, CheckpointId, Incarnation, SlotId, TaskId
from clonos.core.wire.log_delta import Count, Delta


class FeedShadow(msgspec.Struct, frozen=True, array_like=True, tag="feed_shadow"):
    """A task's slot to that of a hot standby: what the task has decided and taken in, in one order.

    ``deltas``: what this session has not carried of its own log, as far as it is through with the step, and of every
    log that it holds. Then ``count`` elements of ``channel``, payload in the next frame, the first ``skip`` of them not
    needed; 0: none. ``base``: the barrier with whose snapshot the session begins. Answered by ``FeedAck``.
    """

    task: TaskId
    incarnation: Incarnation
    session: Count
    ordinal: Count  # of this message in its session: one that was lost ends it
    base: CheckpointId
    channel: ChannelId
    first_seq: Count
    kind: ElementKind
    count: Count
    skip: Count
    checkpoint: CheckpointId
    deltas: tuple[Delta, ...]


class FeedAck(msgspec.Struct, frozen=True, array_like=True, tag="feed_ack"):
    """A hot standby's slot to that of its task: a session that has not begun shall begin at the next barrier.

    ``worked_bytes``: what the standby's shadow has worked off in it, a running total. Repeated at the heartbeat.
    """

    task: TaskId
    incarnation: Incarnation
    slot: SlotId
    session: Count
    worked_bytes: Count
