"""What is checked of a decoded message before a machine acts on it: that all that it names can exist in this job.

A type says what one field may be; here is what the plan says, and what fields say together. A peer that breaks it lies
or runs another job: ``MessageMalformed``, which costs it the connection. Whether what it says is true is the handlers'
to find out, from what they know.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from clonos.core.model.errors import MessageMalformed
from clonos.core.model.ids import COORDINATOR, LogId, SlotId, TaskId, journal_of, log_name, log_of
from clonos.core.model.plan import Channel, Plan
from clonos.core.wire.authorization import sender_name
from clonos.core.wire.channel_messages import Batch, ChannelHandshake, Position
from clonos.core.wire.control_messages import Completed, Register, SlotStatus, Snapshotted, Suspicion, Trigger, View
from clonos.core.wire.log_delta import COUNT_MAX, Delta, Length
from clonos.core.wire.messages import Message
from clonos.core.wire.recovery_messages import (
    AnnounceAck,
    AnnounceStep,
    JournalLost,
    LogLost,
    LogReply,
    LogRequest,
    SinkFenced,
    TaskFailed,
)
from clonos.core.wire.replication_messages import AppendAck, AppendLog, StandbyUpdate
from clonos.core.wire.shadow_messages import FeedAck, FeedShadow


def check_for_slot(plan: Plan, sender: SlotId, message: Message) -> None:
    """Raises ``MessageMalformed`` for what no slot of this job can be told."""
    check = _FOR_SLOTS.get(type(message))
    if check is not None:
        _run(check, plan, sender, message)


def check_for_coordinator(plan: Plan, sender: SlotId, message: Message) -> None:
    """Raises ``MessageMalformed`` for what no coordinator of this job can be told."""
    check = _FOR_COORDINATORS.get(type(message))
    if check is None or sender <= COORDINATOR:
        raise MessageMalformed(sender_name(sender), f"{type(message).__name__} is not for a coordinator")
    _run(check, plan, sender, message)
    if isinstance(message, _SPEAKS_FOR_ITSELF) and message.slot != sender:
        raise MessageMalformed(sender_name(sender), f"{type(message).__name__} of slot {message.slot}")


class _Wrong(Exception):
    """What is wrong with a message."""


def _run(check: Callable[[Plan, Any], None], plan: Plan, sender: SlotId, message: Message) -> None:
    try:
        check(plan, message)
    except _Wrong as wrong:
        raise MessageMalformed(sender_name(sender), f"{type(message).__name__} names {wrong}") from None


def _channel(plan: Plan, number: int) -> Channel:
    if not 0 <= number < len(plan.channels):
        raise _Wrong(f"channel {number}, the plan has {len(plan.channels)}")
    channel = plan.channels[number]
    if channel.receiver is None:
        raise _Wrong(f"channel {number} leads out of the job")
    return channel


def _tasks(plan: Plan, tasks: Iterable[TaskId]) -> None:
    count = len(plan.tasks)
    for task in tasks:
        if not 0 <= task < count:
            raise _Wrong(f"task {task}, the plan has {count}")


def _lengths(plan: Plan, lengths: tuple[Length, ...], journal: LogId | None = None) -> None:
    count = len(plan.tasks)
    for length in lengths:
        if not 0 <= length.log < count and length.log != journal:
            raise _Wrong(f"{log_name(length.log)}, the plan has {count} tasks")


def _deltas(
    plan: Plan, deltas: tuple[Delta, ...], journal: LogId | None = None, receiver: TaskId | None = None
) -> None:
    """Checks the deltas of one message in one loop, since every batch passes here.

    ``journal`` is allowed beside the causal logs. The log of ``receiver`` is not, since only its task appends to it.
    """
    count = len(plan.tasks)
    own = None if receiver is None else log_of(receiver)
    for delta in deltas:
        log = delta.log
        if not 0 <= log < count and log != journal:
            raise _Wrong(f"{log_name(log)}, the plan has {count} tasks")
        if log == own:
            raise _Wrong(f"{log_name(log)}, to which only that task appends")
        if delta.offset_bytes + len(delta.data) > COUNT_MAX:
            raise _Wrong(f"a log of more than {COUNT_MAX} bytes")


def _elements(first_seq: int, count: int) -> None:
    if first_seq + count > COUNT_MAX:
        raise _Wrong(f"more than {COUNT_MAX} elements")


# ------------------------------------------------------------------ for slots


def _batch(plan: Plan, batch: Batch) -> None:
    _elements(batch.first_seq, batch.count)
    _position(plan, batch)


def _position(plan: Plan, message: Position | Batch) -> None:
    receiver = _channel(plan, message.channel).receiver
    if message.deltas:
        _deltas(plan, message.deltas, receiver=receiver)


def _asked_under(view: int) -> None:
    if view < 1:
        raise _Wrong(f"view {view}, and the first one is 1")


def _statement(plan: Plan, statement: ChannelHandshake) -> None:
    _asked_under(statement.view)
    _channel(plan, statement.channel)
    _lengths(plan, statement.lengths)


def _question(plan: Plan, question: LogRequest) -> None:
    _asked_under(question.view)
    _tasks(plan, (question.task, question.holder))


def _answer(plan: Plan, answer: LogReply) -> None:
    _tasks(plan, (answer.task, answer.holder))
    _deltas(plan, answer.replicas, journal_of(answer.task))


def _keep(plan: Plan, keep: AppendLog) -> None:
    _tasks(plan, (keep.task,))
    _deltas(plan, keep.deltas, journal_of(keep.task))


def _kept(plan: Plan, kept: AppendAck) -> None:
    _tasks(plan, (kept.task,))
    _lengths(plan, kept.lengths, journal_of(kept.task))


def _follow(plan: Plan, follow: FeedShadow) -> None:
    _tasks(plan, (follow.task,))
    _elements(follow.first_seq, follow.count)
    _deltas(plan, follow.deltas)


def _view(plan: Plan, view: View) -> None:
    """One without placements is a question, or nothing yet: it has number 0."""
    if not view.number and not view.placements:
        return
    if tuple([placement.task for placement in view.placements]) != plan.tasks:
        raise _Wrong(f"{len(view.placements)} placements, not one for each of {len(plan.tasks)} tasks in their order")
    for placement in view.placements:
        if not 0 < placement.incarnation <= view.number:
            raise _Wrong(f"incarnation {placement.incarnation} of task {placement.task} in view {view.number}")


def _completed(plan: Plan, completed: Completed) -> None:
    if tuple([task for task, _, _ in completed.tasks]) != plan.tasks:
        raise _Wrong(f"{len(completed.tasks)} tasks, the plan has {len(plan.tasks)}")


def _one_task(plan: Plan, message: Any) -> None:
    _tasks(plan, (message.task,))


_FOR_SLOTS: Final[dict[type, Callable[[Plan, Any], None]]] = {
    Batch: _batch,
    Position: _position,
    ChannelHandshake: _statement,
    LogRequest: _question,
    LogReply: _answer,
    AppendLog: _keep,
    AppendAck: _kept,
    StandbyUpdate: _one_task,
    FeedShadow: _follow,
    FeedAck: _one_task,
    View: _view,
    Trigger: _one_task,
    Completed: _completed,
    AnnounceAck: _one_task,
}


# ------------------------------------------------------------------ for the coordinator


def _status(plan: Plan, status: SlotStatus) -> None:
    _tasks(plan, (said.task for said in status.tasks))
    _tasks(plan, (task for task, _ in (*status.standbys, *status.keepers)))
    _tasks(plan, status.shadows)


def _anything(_plan: Plan, _message: object) -> None:
    """It names nothing of the plan."""


_SPEAKS_FOR_ITSELF: Final = (Register, SlotStatus, Suspicion)

_FOR_COORDINATORS: Final[dict[type, Callable[[Plan, Any], None]]] = {
    Register: _anything,
    SlotStatus: _status,
    Snapshotted: _one_task,
    LogLost: _one_task,
    JournalLost: _one_task,
    SinkFenced: _one_task,
    TaskFailed: _one_task,
    AnnounceStep: _one_task,
    Suspicion: _anything,
    View: _view,
}
