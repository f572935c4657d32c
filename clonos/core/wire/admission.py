"""Admission of decoded messages: every id in a message must exist in this job's plan (protocol 4).

The types of the fields limit single values; the checks here add what the plan and several fields together allow. A peer
that breaks them runs another job or lies, and its connection is closed. Whether a report is true is up to the handlers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from clonos.core.model.errors import MessageMalformed
from clonos.core.model.ids import COORDINATOR, LogId, SlotId, TaskId, journal_of, log_name, log_of
from clonos.core.model.plan import Channel, Plan
from clonos.core.model.watermark import is_watermark
from clonos.core.wire.authorization import sender_name
from clonos.core.wire.capture_messages import CaptureElements, CaptureLog
from clonos.core.wire.channel_messages import Batch, ChannelHandshake, Position
from clonos.core.wire.control_messages import (
    Completed,
    Peek,
    Register,
    SlotStatus,
    Snapshotted,
    Suspicion,
    TriggerCheckpoint,
    View,
    WarmUp,
)
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
from clonos.core.wire.stack_messages import SampleTask


def check_for_slot(plan: Plan, sender: SlotId, message: Message) -> None:
    """Checks a message that a slot received.

    Raises: MessageMalformed, if it names something that this job does not have.
    """
    check = _FOR_SLOTS.get(type(message))
    if check is None:
        return
    try:
        check(plan, message)
    except _Wrong as wrong:
        raise _malformed(sender, message, wrong) from None


def check_watermark(sender: SlotId, payload: bytes | memoryview) -> None:
    """Checks the payload of a batch of a watermark.

    Raises: MessageMalformed, if it is none.
    """
    if not is_watermark(payload):
        raise MessageMalformed(sender_name(sender), f"a watermark of {len(payload)} bytes, {bytes(payload[:16]).hex()}")


def check_for_coordinator(plan: Plan | None, sender: SlotId, message: Message) -> None:
    """Checks a message that the coordinator received, and that its sender may send it. ``plan``: whose ids it has; None
    if that is not known, so that they are not checked.

    Raises: MessageMalformed, if it names something that this job does not have, or is not meant for a coordinator.
    """
    check = _FOR_COORDINATORS.get(type(message))
    if check is None or sender <= COORDINATOR:
        raise MessageMalformed(sender_name(sender), f"{type(message).__name__} is not for a coordinator")
    try:
        if plan is not None:
            check(plan, message)
    except _Wrong as wrong:
        raise _malformed(sender, message, wrong) from None
    if isinstance(message, _NAMES_ITS_SENDER) and message.slot != sender:
        raise MessageMalformed(sender_name(sender), f"{type(message).__name__} in the name of slot {message.slot}")


class _Wrong(Exception):
    """Violation that a check found."""


def _malformed(sender: SlotId, message: Message, wrong: _Wrong) -> MessageMalformed:
    return MessageMalformed(sender_name(sender), f"{type(message).__name__} names {wrong}")


def _channel_of_any(plan: Plan, number: int) -> Channel:
    if not 0 <= number < len(plan.channels):
        raise _Wrong(f"channel {number}, the plan has {len(plan.channels)}")
    return plan.channels[number]


def _channel(plan: Plan, number: int) -> Channel:
    channel = _channel_of_any(plan, number)
    if channel.receiver is None:
        raise _Wrong(f"channel {number}, which leaves the job and has no receiving task")
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
    """Checks the deltas of one message in one loop, because every batch passes here.

    ``journal`` is allowed beside the causal logs. The log of ``receiver`` is not, because only its task appends to it.
    """
    count = len(plan.tasks)
    own = None if receiver is None else log_of(receiver)
    for delta in deltas:
        log = delta.log
        if not 0 <= log < count and log != journal:
            raise _Wrong(f"{log_name(log)}, the plan has {count} tasks")
        if log == own:
            raise _Wrong(f"{log_name(log)}, to which only the receiver itself appends")
        if delta.offset_bytes + len(delta.data) > COUNT_MAX:
            raise _Wrong(f"a log of more than {COUNT_MAX} bytes, the limit")


def _elements(first_seq: int, count: int) -> None:
    if first_seq + count > COUNT_MAX:
        raise _Wrong(_ABOVE_LIMIT)


_ABOVE_LIMIT: Final = f"an element above number {COUNT_MAX}, the limit"


# ------------------------------------------------------------------ for slots


def _batch(plan: Plan, batch: Batch) -> None:
    kind, count, checkpoint = batch.kind, batch.count, batch.checkpoint
    if batch.first_seq + count > COUNT_MAX:
        raise _Wrong(_ABOVE_LIMIT)
    if count < 1 or (count > 1 and kind.is_control) or not (checkpoint > 0 if kind.has_checkpoint else not checkpoint):
        raise _Wrong(f"{count} elements of kind {kind.name} with checkpoint {checkpoint}")
    receiver = _channel(plan, batch.channel).receiver
    if batch.deltas:
        _deltas(plan, batch.deltas, receiver=receiver)


def _position(plan: Plan, position: Position) -> None:
    receiver = _channel(plan, position.channel).receiver
    if position.deltas:
        _deltas(plan, position.deltas, receiver=receiver)


def _check_view(view: int) -> None:
    if view < 1:
        raise _Wrong(f"view {view}, but views are numbered from 1")


def _handshake(plan: Plan, handshake: ChannelHandshake) -> None:
    _check_view(handshake.view)
    _channel(plan, handshake.channel)
    _lengths(plan, handshake.lengths)


def _log_request(plan: Plan, request: LogRequest) -> None:
    _check_view(request.view)
    _tasks(plan, (request.task, request.holder))


def _log_reply(plan: Plan, reply: LogReply) -> None:
    _tasks(plan, (reply.task, reply.holder))
    _deltas(plan, reply.replicas, journal_of(reply.task))


def _append_log(plan: Plan, message: AppendLog) -> None:
    _tasks(plan, (message.task,))
    _deltas(plan, message.deltas, journal_of(message.task))


def _append_ack(plan: Plan, acknowledgement: AppendAck) -> None:
    _tasks(plan, (acknowledgement.task,))
    _lengths(plan, acknowledgement.lengths, journal_of(acknowledgement.task))


def _feed_shadow(plan: Plan, feed: FeedShadow) -> None:
    _tasks(plan, (feed.task,))
    _elements(feed.first_seq, feed.count)
    _deltas(plan, feed.deltas)


def _view(plan: Plan, view: View) -> None:
    """Checks the placements of a view. Number 0 without placements requests the installed view, or says there is
    none.
    """
    if not view.number and not view.placements:
        return
    _widths(plan, view.widths)
    if tuple([placement.task for placement in view.placements]) != plan.tasks:
        raise _Wrong(f"{len(view.placements)} placements, not one for each of {len(plan.tasks)} tasks in their order")
    for placement in view.placements:
        if not 0 < placement.incarnation <= view.number:
            raise _Wrong(f"incarnation {placement.incarnation} of task {placement.task} in view {view.number}")


def _warm_up(plan: Plan, message: WarmUp) -> None:
    _widths(plan, message.widths)


def _widths(plan: Plan, widths: Iterable[tuple[str, int]]) -> None:
    for name, width in widths:
        if not plan.can_have({name: width}):
            names = sorted(vertex.name for vertex in plan.vertices)
            raise _Wrong(f"{width} tasks of {name!r}, the plan has {', '.join(names)}")


def _completed(plan: Plan, completed: Completed) -> None:
    if tuple([task for task, _, _ in completed.tasks]) != plan.tasks:
        raise _Wrong(f"{len(completed.tasks)} tasks, the plan has {len(plan.tasks)}")


def _one_task(plan: Plan, message: Any) -> None:
    _tasks(plan, (message.task,))


def _capture_elements(plan: Plan, asked: CaptureElements) -> None:
    _tasks(plan, (asked.task,))
    if _channel_of_any(plan, asked.channel).sender != asked.task:
        raise _Wrong(f"channel {asked.channel} of task {asked.task}, which does not send on it")


_FOR_SLOTS: Final[dict[type, Callable[[Plan, Any], None]]] = {
    Batch: _batch,
    Position: _position,
    ChannelHandshake: _handshake,
    LogRequest: _log_request,
    LogReply: _log_reply,
    AppendLog: _append_log,
    AppendAck: _append_ack,
    StandbyUpdate: _one_task,
    FeedShadow: _feed_shadow,
    FeedAck: _one_task,
    View: _view,
    WarmUp: _warm_up,
    TriggerCheckpoint: _one_task,
    Completed: _completed,
    AnnounceAck: _one_task,
    Peek: _one_task,
    CaptureLog: _one_task,
    CaptureElements: _capture_elements,
    SampleTask: _one_task,
}


# ------------------------------------------------------------------ for the coordinator


def _status(plan: Plan, status: SlotStatus) -> None:
    _tasks(plan, (reported.task for reported in status.tasks))
    _tasks(plan, (task for task, _ in (*status.standbys, *status.keepers)))
    _tasks(plan, status.shadows)


def _anything(_plan: Plan, _message: object) -> None:
    """Accepts every message, because this kind names nothing of the plan."""


_NAMES_ITS_SENDER: Final = (Register, SlotStatus, Suspicion)

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
