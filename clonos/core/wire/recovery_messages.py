"""Messages of a recovery: requests for logs, their replies, and what a failed task reports (protocol 6)."""

from __future__ import annotations

import msgspec

from clonos.core.model.ids import ChannelId, Incarnation, SlotId, TaskId, ViewNumber
from clonos.core.wire.fields import Text
from clonos.core.wire.log_delta import Count
from clonos.core.wire.log_delta import Delta as Delta
from clonos.core.wire.log_delta import Length as Length
from clonos.core.wire.shadow_messages import FeedAck as FeedAck
from clonos.core.wire.shadow_messages import FeedShadow as FeedShadow


class LogRequest(msgspec.Struct, frozen=True, array_like=True, tag="question"):
    """A recovering task to the slot of each holder: asks for its own log, and for the replicas that it should hold.

    ``holder``: the task asked, or for a keeper the task that it keeps for, with ``is_keeper``. Answered by
    ``LogReply``, repeated at the heartbeat until then.
    """

    task: TaskId
    incarnation: Incarnation
    view: ViewNumber
    holder: TaskId
    is_keeper: bool


class LogReply(msgspec.Struct, frozen=True, array_like=True, tag="answer"):
    """Holder to recovering task: what it has of the logs asked for, each from where it begins."""

    task: TaskId
    incarnation: Incarnation
    view: ViewNumber
    holder: TaskId
    is_keeper: bool
    slot: SlotId
    replicas: tuple[Delta, ...]


class LogLost(msgspec.Struct, frozen=True, array_like=True, tag="log_lost"):
    """Task to coordinator: its log is lost (the lost-log rule), so the generation must end. Repeated until it does."""

    task: TaskId
    incarnation: Incarnation
    channel: ChannelId
    position: Count
    claim: Count


class TaskFailed(msgspec.Struct, frozen=True, array_like=True, tag="task_failed"):
    """Slot to coordinator: user code raised. ``channel`` is -1 for a source or a timer. Repeated until a view ends it.

    The step covered elements ``first_seq .. first_seq + count - 1``; count 1 pins the record.
    """

    task: TaskId
    incarnation: Incarnation
    channel: int
    first_seq: int
    count: int
    step: Text
    record: Text
    error: Text
    traceback: Text
    is_fatal: bool  # no second try helps: a divergence, a value that no codec carries
    is_environment: bool = False  # a disk, a network, a service or a file is at fault, not the job
    is_unrestorable: bool = False  # what the store has of its state is damaged or gone; a standby may hold it


class AnnounceStep(msgspec.Struct, frozen=True, array_like=True, tag="approaching"):
    """Slot to coordinator: a cautious task is about to take this element, of which its process may die.

    ``channel`` is -1 for a source. The task waits for ``AnnounceAck``; repeated until it comes.
    """

    task: TaskId
    incarnation: Incarnation
    channel: int
    first_seq: Count


class AnnounceAck(msgspec.Struct, frozen=True, array_like=True, tag="noted"):
    """Coordinator to a slot: it knows what ``AnnounceStep`` says. A repeated question gets the same answer."""

    task: TaskId
    incarnation: Incarnation
    channel: int
    first_seq: Count
