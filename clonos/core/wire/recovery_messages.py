"""Messages of a recovery: requests for logs, their replies, and what a failed task reports (protocol 6)."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import msgspec

from clonos.core.model.errors import Blame
from clonos.core.model.ids import ChannelId, Incarnation, SlotId, TaskId, ViewNumber
from clonos.core.wire.fields import Text
from clonos.core.wire.log_delta import COUNT_MAX, NUMBER, Count
from clonos.core.wire.log_delta import Delta as Delta
from clonos.core.wire.log_delta import Length as Length
from clonos.core.wire.shadow_messages import FeedAck as FeedAck
from clonos.core.wire.shadow_messages import FeedShadow as FeedShadow


class LogRequest(msgspec.Struct, frozen=True, array_like=True, tag="log_request"):
    """A recovering task to the slot of each holder: asks for its own log, and for the replicas that it should hold.

    ``holder``: the task asked, or for a keeper the task that it keeps for, with ``is_keeper``. Answered by
    ``LogReply``, repeated at the heartbeat until then.
    """

    task: TaskId
    incarnation: Incarnation
    view: ViewNumber
    holder: TaskId
    is_keeper: bool


class LogReply(msgspec.Struct, frozen=True, array_like=True, tag="log_reply"):
    """Holder to recovering task: what it has of the logs asked for, each from where it begins."""

    task: TaskId
    incarnation: Incarnation
    view: ViewNumber
    holder: TaskId
    is_keeper: bool
    slot: SlotId
    replicas: tuple[Delta, ...]


class LogLost(msgspec.Struct, frozen=True, array_like=True, tag="log_lost"):
    """Task to coordinator: its log ends before what others have seen of it (6.8), so the generation must end.

    The receiver of ``channel`` has output up to sequence number ``claim``, and the log ends at ``position``. Without a
    channel both are byte offsets of the log itself, of which somebody has a longer copy. Repeated until a view ends the
    generation.
    """

    task: TaskId
    incarnation: Incarnation
    channel: ChannelId | None
    position: Count
    claim: Count


class JournalLost(msgspec.Struct, frozen=True, array_like=True, tag="journal_lost"):
    """Task to coordinator: the log of a source reads what no keeper of its journal has, so the generation must end.

    Repeated until a view ends the generation.
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
    """What may still help a task that has failed."""

    RETRY = "retry"  # another incarnation
    STANDBY = "standby"  # one that holds its state: what the store has of it is damaged or gone
    NONE = "none"  # no second try helps: a divergence, a value that no codec carries


class InputRange(msgspec.Struct, frozen=True, array_like=True):
    """Elements ``first_seq .. first_seq + count - 1`` of a channel, at least one.

    Without a channel they are records of a source, numbered from the job's start.
    """

    channel: ChannelId | None
    first_seq: Count
    count: Annotated[int, msgspec.Meta(ge=1, le=COUNT_MAX)]

    def overlaps(self, other: InputRange) -> bool:
        """Whether they share an element."""
        return (
            self.channel == other.channel
            and self.first_seq < other.first_seq + other.count
            and other.first_seq < self.first_seq + self.count
        )


class TaskFailed(msgspec.Struct, frozen=True, array_like=True, tag="task_failed"):
    """Slot to coordinator: user code raised. Repeated until a view ends the incarnation.

    ``at``: what the step covered, a single element if the record is known; None for a timer, for the end of the stream
    and for all that is no step.
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


class AnnounceStep(msgspec.Struct, frozen=True, array_like=True, tag="announce_step"):
    """Slot to coordinator: a cautious task is about to take this element, of which its process may die.

    Without a channel it is a record of a source. The task waits for ``AnnounceAck``; repeated until it comes.
    """

    task: TaskId
    incarnation: Incarnation
    channel: ChannelId | None
    first_seq: Count


class AnnounceAck(msgspec.Struct, frozen=True, array_like=True, tag="announce_ack"):
    """Coordinator to a slot: it knows what ``AnnounceStep`` says. A repeated question gets the same answer."""

    task: TaskId
    incarnation: Incarnation
    channel: ChannelId | None
    first_seq: Count
