"""False messages of a slot to the coordinator cost its connection and change nothing."""

from __future__ import annotations

import msgspec
import pytest

from clonos.core.coordinator.coordinator_effects import JobFailed, Send
from clonos.core.coordinator.coordinator_events import Begin, Ticked
from clonos.core.model.element_kind import ElementKind
from clonos.core.model.errors import Blame, MessageMalformed
from clonos.core.model.ids import ChannelId, CheckpointId, Incarnation, LogId, SlotId, TaskId, view_number
from clonos.core.model.options import Options
from clonos.core.model.progress import TaskPhase
from clonos.core.wire.capture_messages import CapturedElements, CapturedLog, CaptureElements, CaptureLog
from clonos.core.wire.channel_messages import Batch, ChannelHandshake, Position
from clonos.core.wire.control_messages import (
    Completed,
    Hold,
    Peek,
    Peeked,
    Register,
    Release,
    TaskStatus,
    TriggerCheckpoint,
)
from clonos.core.wire.messages import Message
from clonos.core.wire.recovery_messages import (
    AnnounceAck,
    AnnounceStep,
    JournalLost,
    LogLost,
    LogReply,
    LogRequest,
    Recourse,
    SinkFenced,
)
from clonos.core.wire.replication_messages import AppendAck, AppendLog, StandbyUpdate
from clonos.core.wire.shadow_messages import FeedAck, FeedShadow
from clonos.core.wire.stack_messages import SampleTask, ShowThreads, StacksShown
from clonos.core.wire.trace_messages import StepsTraced
from tests.harnesses.coordinator_harness import CoordinatorHarness, live_chain, of_kind

LIFE = Incarnation(view_number(1, 1))
NOBODYS = SlotId(99)

OF_SLOTS = (
    Batch(ChannelId(0), LIFE, LIFE, 0, 0, 0, ElementKind.ROWS, 1, CheckpointId(0), ()),
    Position(ChannelId(0), LIFE, LIFE, 0, 0, 0, 0, ()),
    ChannelHandshake(ChannelId(0), view_number(1, 1), LIFE, LIFE, 1, 0, 0, 0, ()),
    LogRequest(TaskId(0), LIFE, view_number(1, 1), TaskId(0), False),
    LogReply(TaskId(0), LIFE, view_number(1, 1), TaskId(0), False, SlotId(1), ()),
    AppendLog(TaskId(0), LIFE, True, ()),
    AppendAck(TaskId(0), LIFE, SlotId(1), True, ()),
    StandbyUpdate(TaskId(0), LIFE, CheckpointId(1), None, ("name",)),
    FeedShadow(TaskId(0), LIFE, 0, 0, CheckpointId(0), ChannelId(0), 0, ElementKind.ROWS, 0, 0, CheckpointId(0), ()),
    FeedAck(TaskId(0), LIFE, SlotId(1), 0, 0),
)
OF_COORDINATORS = (
    TriggerCheckpoint(TaskId(0), LIFE, CheckpointId(1), False),
    AnnounceAck(TaskId(0), LIFE, ChannelId(0), 0),
    Hold(SlotId(1)),
    Peek(TaskId(0), "step", 5, 1),
    CaptureLog(TaskId(0), LIFE, LogId(0), 0, 1, 1),
    CaptureElements(ChannelId(0), TaskId(0), LIFE, 0, 1, False, 1),
    CapturedLog(TaskId(0), LIFE, LogId(0), 0, 0, 0, b"", 1),
    CapturedElements(ChannelId(0), TaskId(0), LIFE, 0, 0, 0, 1),
    Peeked(TaskId(0), 1, b""),
    ShowThreads(1),
    SampleTask(TaskId(0), 100, 1),
    StacksShown(1, b""),
    StepsTraced(()),
    Completed(CheckpointId(1), 1, ()),
    Release(SlotId(1), ""),
)


def _name(message: object) -> str:
    return type(message).__name__


@pytest.mark.parametrize("message", [*OF_SLOTS, *OF_COORDINATORS], ids=_name)
@pytest.mark.parametrize("slot", [SlotId(1), NOBODYS])
def test_a_message_type_that_slots_do_not_send_is_malformed_and_the_job_continues(
    message: Message, slot: SlotId
) -> None:
    harness = live_chain(has_effects=True)
    with pytest.raises(MessageMalformed, match=f"slot {slot} .* may not send {_name(message)} to the coordinator"):
        harness.receive(slot, message)
    assert harness.coordinator.phase == "running"
    harness.complete(1)


def test_a_registration_in_the_name_of_another_slot_is_malformed() -> None:
    harness = live_chain(has_effects=True)
    register = Register(NOBODYS, "domain", "host", "ipc://x", "ipc://x", b"key", "token", 1, ())
    with pytest.raises(MessageMalformed, match=r"slot 1 .* speaks for slot 99"):
        harness.receive(1, register)
    assert NOBODYS not in harness.coordinator.lives()


def _of_task_0(harness: CoordinatorHarness) -> tuple[Message, ...]:
    life = harness.of(0).incarnation
    return (
        harness.acknowledgement(0, 1),
        LogLost(TaskId(0), life, ChannelId(0), 1, 2),
        JournalLost(TaskId(0), life),
        SinkFenced(TaskId(0), life, view_number(2, 1), Incarnation(view_number(2, 1))),
        harness.failure(0, recourse=Recourse.NONE),
        AnnounceStep(TaskId(0), life, ChannelId(0), 0),
    )


@pytest.mark.parametrize(
    "number", range(6), ids=["Snapshotted", "LogLost", "JournalLost", "SinkFenced", "TaskFailed", "AnnounceStep"]
)
def test_a_message_about_a_task_of_another_slot_is_malformed(number: int) -> None:
    harness = live_chain(has_effects=True)
    message = _of_task_0(harness)[number]
    home = harness.of(0).hosting_slot
    other = next(slot for slot in harness.view_slots() if slot != home)
    with pytest.raises(MessageMalformed, match=f"slot {other} .* task 0.1.1, which runs in slot {home}"):
        harness.receive(other, message)
    assert harness.coordinator.phase == "running"
    assert not harness.coordinator.recoveries
    harness.receive(home, message)


def test_a_keeper_may_report_only_that_its_slot_exceeded_a_limit() -> None:
    harness = live_chain(has_effects=True)
    task = next(p.task for p in harness.view.placements if p.keepers)
    keeper = harness.of(task).keepers[0]
    of_user_code = harness.failure(task, recourse=Recourse.NONE)
    with pytest.raises(MessageMalformed, match="which runs in slot"):
        harness.receive(keeper, of_user_code)
    exceeded = msgspec.structs.replace(of_user_code, at=None, blame=Blame.ENVIRONMENT)
    assert of_kind(harness.receive(keeper, exceeded), JobFailed)


def test_a_status_of_tasks_of_another_slot_is_ignored() -> None:
    harness = live_chain(has_effects=True)
    liar = next(slot for slot in harness.view_slots() if slot != harness.of(0).hosting_slot)
    honest = harness.slots[liar].status()
    tasks = (*honest.tasks, TaskStatus(TaskId(0), harness.of(0).incarnation, TaskPhase.LOST, ()))
    harness.receive(liar, msgspec.structs.replace(honest, tasks=tasks))
    assert harness.coordinator.phases[TaskId(0)] == TaskPhase.LIVE


@pytest.mark.parametrize("task", [6, -7, 1 << 40])
def test_a_status_of_unknown_backups_does_not_change_the_view(task: int) -> None:
    harness = live_chain(has_effects=True)
    liar = harness.of(5).hosting_slot
    output = msgspec.structs.replace(
        harness.slots[liar].status(),
        keepers=((TaskId(task), LIFE),),
        standbys=((TaskId(task), CheckpointId(1)),),
        shadows=(TaskId(task),),
        tasks=(TaskStatus(TaskId(task), LIFE, TaskPhase.LIVE, ()),),
    )
    harness.slots[liar].is_mute = True
    harness.receive(liar, output)
    before = harness.number
    assert of_kind(harness.gone(harness.of(0).hosting_slot), Send)
    assert harness.number > before


def test_a_new_coordinator_does_not_adopt_a_view_of_another_plan() -> None:
    harness = live_chain(has_effects=True)
    harness.complete(1)
    again = CoordinatorHarness(harness.plan, Options())
    again.do(Ticked(0))
    again.do(Begin(2, "job-1", len(harness.slots), harness.coordinator.completed, awaits_slots=True))
    again.slots = harness.slots
    liar = harness.of(0).hosting_slot
    lie = msgspec.structs.replace(
        harness.view, number=view_number(1, 1000), placements=(*harness.view.placements, harness.view.placements[0])
    )
    again.receive(liar, lie)
    again.tick(5_000)
    assert again.view.placements == harness.view.placements


def test_a_new_coordinator_ignores_a_status_that_contradicts_the_view() -> None:
    harness = live_chain(has_effects=True)
    harness.complete(1)
    again = CoordinatorHarness(harness.plan, Options())
    again.do(Ticked(0))
    again.do(Begin(2, "job-1", len(harness.slots), harness.coordinator.completed, awaits_slots=True))
    lost, liar = harness.of(2), harness.of(0).hosting_slot
    again.slots = harness.slots
    again.tick(300)
    output = {slot: again.slots[slot].status() for slot in (lost.hosting_slot, liar)}
    lie = (*output[liar].tasks, TaskStatus(lost.task, lost.incarnation, TaskPhase.LIVE, ()))
    for slot, tasks in ((lost.hosting_slot, ()), (liar, lie)):
        again.slots[slot].is_mute = True
        again.receive(slot, msgspec.structs.replace(output[slot], tasks=tasks))
    again.tick(4_700)
    assert [p.task for p in again.view.placements if p.incarnation == again.number] == [2]
