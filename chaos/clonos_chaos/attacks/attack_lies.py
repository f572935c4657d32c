"""Forged messages of a slot with a valid key: each must cost its connection, or have no effect."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from clonos.core.model.element_kind import ElementKind
from clonos.core.model.errors import Blame
from clonos.core.model.ids import (
    ChannelId,
    CheckpointId,
    Incarnation,
    LogId,
    SlotId,
    TaskId,
    ViewNumber,
    log_of,
    view_number,
)
from clonos.core.model.progress import TaskCounter, TaskPhase
from clonos.core.wire.capture_messages import CapturedElements, CapturedLog, CaptureElements, CaptureLog
from clonos.core.wire.channel_messages import Batch, ChannelHandshake, Position
from clonos.core.wire.control_messages import (
    Completed,
    Hold,
    Logged,
    Peek,
    Peeked,
    Register,
    Release,
    SlotStatus,
    Snapshotted,
    Suspicion,
    TaskStatus,
    TriggerCheckpoint,
    View,
    Warned,
)
from clonos.core.wire.log_delta import Delta, Length
from clonos.core.wire.messages import Message
from clonos.core.wire.recovery_messages import (
    AnnounceAck,
    AnnounceStep,
    InputRange,
    JournalLost,
    LogLost,
    LogReply,
    LogRequest,
    Recourse,
    SinkFenced,
    TaskFailed,
)
from clonos.core.wire.replication_messages import AppendAck, AppendLog, StandbyUpdate
from clonos.core.wire.shadow_messages import FeedAck, FeedShadow
from clonos.core.wire.stack_messages import SampleTask, ShowThreads, StacksShown
from clonos.core.wire.trace_messages import StepsTraced, TracedStep

FAR: Final = 1 << 40
"""Number beyond all numbers of the job."""

LATER_TERM: Final = 1 << 20
FORGED: Final = "text\n2026-01-01 00:00:00,000 CRITICAL clonos.coordinator: forged \x1b[31m"


class TaskLocation(NamedTuple):
    """Location of a task: its incarnation, and the slot in which it runs."""

    task: int
    incarnation: int
    slot: int | None


class AttackedJob(NamedTuple):
    """Knowledge of a liar: tasks by number, and the tasks at both ends of each channel (None: external)."""

    assignment: list[TaskLocation]
    channels: list[tuple[int, int | None]]


def lies_to_slot(liar: SlotId, victim: SlotId, job: AttackedJob) -> Iterator[Message]:
    """Yields messages that only a coordinator sends, messages of other slots, and invalid messages.

    None is about the liar's own tasks, because reports of a slot about its own tasks are trusted.
    """
    yield Release(victim, "your neighbour says so")
    yield View(view_number(LATER_TERM, 1), 1, "job", (), ())
    yield Completed(CheckpointId(FAR), 1, ())
    yield Hold(liar)
    yield Peek(TaskId(FAR), FORGED[:900], FAR, FAR)
    yield ShowThreads(FAR)
    yield SampleTask(TaskId(FAR), FAR, FAR)
    yield CaptureLog(TaskId(FAR), Incarnation(1), LogId(FAR), FAR, FAR, FAR)
    yield CaptureElements(ChannelId(FAR), TaskId(FAR), Incarnation(1), FAR, FAR, True, FAR)
    yield SlotStatus(liar, ViewNumber(1), CheckpointId(0), (), (), ())
    for location in job.assignment:
        task, life = TaskId(location.task), Incarnation(location.incarnation)
        yield TriggerCheckpoint(task, life, CheckpointId(FAR), True)
        yield AnnounceAck(task, life, ChannelId(0), 0)
        if location.slot is None or location.slot == liar:
            continue
        delta = (Delta(log_of(task), 0, True, b"\xff" * 100),)
        yield LogRequest(task, life, ViewNumber(1), task, False)
        yield LogReply(task, life, ViewNumber(1), task, False, SlotId(location.slot), delta)
        yield AppendLog(task, life, True, delta)
        yield AppendAck(task, life, SlotId(location.slot), True, (Length(log_of(task), FAR),))
        yield StandbyUpdate(task, life, CheckpointId(FAR), None, ())
        yield FeedShadow(
            task, life, 1, 0, CheckpointId(1), ChannelId(0), 0, ElementKind.ROWS, 0, 0, CheckpointId(0), delta
        )
        yield FeedAck(task, life, SlotId(location.slot), FAR, FAR)
    for number, (sender, receiver) in enumerate(job.channels):
        channel = ChannelId(number)
        if job.assignment[sender].slot != liar:
            yield from _as_sender(channel, job.assignment[sender].incarnation)
        if receiver is not None and job.assignment[receiver].slot != liar:
            yield _as_receiver(channel, job.assignment[receiver].incarnation)
    for number in (-1, len(job.channels), FAR):
        yield from _as_sender(ChannelId(number), 1)
        yield _as_receiver(ChannelId(number), 1)
    lengths = tuple(Length(LogId(number), FAR) for number in range(10_000))
    yield ChannelHandshake(ChannelId(0), ViewNumber(FAR), Incarnation(1), Incarnation(1), 1, 0, 0, 0, lengths)


def _as_sender(channel: ChannelId, incarnation: int) -> Iterator[Message]:
    life = Incarnation(incarnation)
    yield Batch(channel, life, life, 1, 0, 0, ElementKind.END, 1, CheckpointId(0), ())
    yield Position(channel, life, life, 1, 0, FAR, FAR, ())


def _as_receiver(channel: ChannelId, incarnation: int) -> Message:
    life = Incarnation(incarnation)
    return ChannelHandshake(channel, ViewNumber(1), life, life, FAR, FAR, FAR, FAR, ())


def lies_to_coordinator(liar: SlotId, job: AttackedJob) -> Iterator[Message]:
    """Yields messages between slots, messages of other slots, and invalid messages."""
    yield Batch(ChannelId(0), Incarnation(1), Incarnation(1), 1, 0, 0, ElementKind.ROWS, 1, CheckpointId(0), ())
    yield Release(liar, "forged")
    yield Completed(CheckpointId(FAR), 1, ())
    yield Register(SlotId(FAR), "domain", FORGED[:900], "inproc://x", "tcp://", b"", "token", 1, ())
    yield Warned(liar, FORGED, (("field", FORGED),))
    yield Peeked(TaskId(FAR), FAR, b"\xff" * 100)
    yield StacksShown(FAR, b"\xff" * 100)
    yield StepsTraced((TracedStep(FORGED[:900], Incarnation(1), FAR, FAR, FORGED[:900], FAR, 0, 0, FAR, FAR),))
    yield CapturedLog(TaskId(FAR), Incarnation(1), LogId(FAR), FAR, 0, FAR, b"\xff", FAR)
    yield CapturedElements(ChannelId(FAR), TaskId(FAR), Incarnation(1), FAR, 0, FAR, FAR)
    yield Logged(liar, FAR, "no.logger.of.ours", FORGED)
    nowhere = ((TaskId(FAR), Incarnation(1)), (TaskId(-1), Incarnation(1)))
    backups = tuple((task, CheckpointId(FAR)) for task, _ in nowhere)
    yield SlotStatus(liar, ViewNumber(1), CheckpointId(0), (), backups, nowhere, False, (TaskId(FAR),))
    somewhere = InputRange(ChannelId(0), 0, 1)
    for location in job.assignment:
        task, life = TaskId(location.task), Incarnation(location.incarnation)
        if location.slot == liar:
            continue
        statuses = (TaskStatus(task, life, TaskPhase.LOST, ((TaskCounter.RECORDS_IN, FAR),)),)
        yield SlotStatus(liar, ViewNumber(1), CheckpointId(0), statuses, (), ())
        yield Snapshotted(task, life, CheckpointId(FAR), ("../../etc/passwd",), FAR, (), True)
        yield LogLost(task, life, ChannelId(0), 0, FAR)
        yield JournalLost(task, life)
        yield SinkFenced(task, life, FAR, Incarnation(view_number(LATER_TERM, 1)))
        yield TaskFailed(task, life, somewhere, "step", FORGED, FORGED, FORGED, Blame.JOB, Recourse.NONE)
        yield AnnounceStep(task, life, ChannelId(0), FAR)
    yield Suspicion(SlotId(FAR), SlotId(FAR), ViewNumber(1), True)
    yield TaskFailed(TaskId(FAR), Incarnation(1), somewhere, "", "", "", "", Blame.JOB, Recourse.NONE)
