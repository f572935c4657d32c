"""Messages of recovery: log requests and replies, lost logs, failed tasks and announced steps (protocol 6)."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final

import msgspec

from clonos.core.model.errors import Blame
from clonos.core.model.ids import ChannelId, Incarnation, SlotId, TaskId, ViewNumber
from clonos.core.wire.log_delta import COUNT_MAX, NUMBER, Count
from clonos.core.wire.log_delta import Delta as Delta
from clonos.core.wire.log_delta import Length as Length
from clonos.core.wire.message_fields import Text
from clonos.core.wire.shadow_messages import FeedAck as FeedAck
from clonos.core.wire.shadow_messages import FeedShadow as FeedShadow


class LogRequest(msgspec.Struct, frozen=True, array_like=True, tag="log_request"):
    """Recovering task to the slot of each holder: asks for the task's own log and for the replicas that it should hold.

    ``holder`` is the task that is asked or, with ``is_keeper``, the task whose keeper is asked. Answered by
    ``LogReply``, repeated at the heartbeat until then.
    """

    task: TaskId
    incarnation: Incarnation
    view: ViewNumber
    holder: TaskId
    is_keeper: bool


class LogReply(msgspec.Struct, frozen=True, array_like=True, tag="log_reply"):
    """Holder to recovering task: what the holder has of the requested logs, each from where its copy begins."""

    task: TaskId
    incarnation: Incarnation
    view: ViewNumber
    holder: TaskId
    is_keeper: bool
    slot: SlotId
    replicas: tuple[Delta, ...]


RECEIVED_UNKNOWN: Final = COUNT_MAX
"""High-water mark of an external system that does not say what it has, where no copy of the task's log is left."""


class LogLost(msgspec.Struct, frozen=True, array_like=True, tag="log_lost"):
    """Task to coordinator: its log ends before what others have received from it, so the generation must end.

    The receiver of ``channel`` has output up to sequence number ``received_up_to``, but the log ends at ``position``.
    ``RECEIVED_UNKNOWN``: an external system that does not say what it has may have more than the log shows.
    Without a channel both are byte offsets of the log itself, of which a holder has a longer copy. Repeated until a
    view ends the generation. See: protocol 6, rule 8.
    """

    task: TaskId
    incarnation: Incarnation
    channel: ChannelId | None
    position: Count
    received_up_to: Count


class JournalLost(msgspec.Struct, frozen=True, array_like=True, tag="journal_lost"):
    """Task to coordinator: the log of a source reads bytes that no keeper of its journal has.

    The generation must end. Repeated until a view ends it.
    """

    task: TaskId
    incarnation: Incarnation


class SinkFenced(msgspec.Struct, frozen=True, array_like=True, tag="sink_fenced"):
    """Task to coordinator: the external system of a sink has registered a later incarnation, ``by``, and refuses this.

    ``generation`` is that of ``by``. Repeated until a view ends the incarnation.
    """

    task: TaskId
    incarnation: Incarnation
    generation: Count
    by: Annotated[Incarnation, NUMBER]


class Recourse(StrEnum):
    """Measure that may still let a failed task succeed."""

    RETRY = "retry"  # another incarnation
    STANDBY = "standby"  # another incarnation on a standby, because the state in the store is damaged or missing
    ELSEWHERE = "elsewhere"  # another incarnation, if possible on a standby, because the process lacks a resource
    ROLLBACK = "rollback"  # another generation, because the replay of every other incarnation would diverge too
    NONE = "none"  # no retry can succeed, as with a value that cannot be encoded


class InputRange(msgspec.Struct, frozen=True, array_like=True):
    """Elements ``first_seq .. first_seq + count - 1`` of a channel, at least one.

    Without a channel they are records of a source, numbered from the job's start.
    """

    channel: ChannelId | None
    first_seq: Count
    count: Annotated[int, msgspec.Meta(ge=1, le=COUNT_MAX)]

    def overlaps(self, other: InputRange) -> bool:
        """Returns whether both ranges have an element in common."""
        return (
            self.channel == other.channel
            and self.first_seq < other.first_seq + other.count
            and other.first_seq < self.first_seq + self.count
        )


class TaskFailed(msgspec.Struct, frozen=True, array_like=True, tag="task_failed"):
    """Slot to coordinator: user code raised in a task. Repeated until a view ends the incarnation.

    ``at`` is the input of the failed step, a single element if the record is known. It is None for timers, for the end
    of the stream and for everything else that is no step. ``frames`` are the frames of user code in ``traceback``.
    """

    task: TaskId
    incarnation: Incarnation
    at: InputRange | None
    step: Text
    record: Text
    error: Text
    traceback: Text
    blame: Blame
    recourse: Recourse
    frames: Text = ""


class AnnounceStep(msgspec.Struct, frozen=True, array_like=True, tag="announce_step"):
    """Slot to coordinator: a task in single-step mode is about to process this element, which may kill its process.

    Without a channel it is a record of a source. The task waits for ``AnnounceAck``; repeated until that arrives.
    """

    task: TaskId
    incarnation: Incarnation
    channel: ChannelId | None
    first_seq: Count


class AnnounceAck(msgspec.Struct, frozen=True, array_like=True, tag="announce_ack"):
    """Coordinator to a slot: acknowledges ``AnnounceStep``. A repeated announcement gets the same acknowledgement."""

    task: TaskId
    incarnation: Incarnation
    channel: ChannelId | None
    first_seq: Count
