"""False messages of a slot to the coordinator cost its connection and change nothing."""

from __future__ import annotations

import msgspec
import pytest

from clonos.core.coordinator.coordinator_effects import Send
from clonos.core.coordinator.coordinator_events import Begin, Ticked
from clonos.core.model.element_kind import ElementKind
from clonos.core.model.errors import MessageMalformed
from clonos.core.model.ids import ChannelId, CheckpointId, Incarnation, SlotId, TaskId, view_number
from clonos.core.model.options import Options
from clonos.core.model.progress import TaskPhase
from clonos.core.wire.channel_messages import Batch, ChannelHandshake, Position
from clonos.core.wire.control_messages import Completed, Hold, Register, Release, TaskStatus, Trigger
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
from tests.harnesses.coordinator_harness import Desk, live_chain, of_kind

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
    Trigger(TaskId(0), LIFE, CheckpointId(1), False),
    AnnounceAck(TaskId(0), LIFE, ChannelId(0), 0),
    Hold(SlotId(1)),
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
    desk = live_chain(has_effects=True)
    with pytest.raises(MessageMalformed, match=f"slot {slot} .* may not send {_name(message)} to the coordinator"):
        desk.say(slot, message)
    assert desk.coordinator.phase == "running"
    desk.complete(1)


def test_a_registration_in_the_name_of_another_slot_is_malformed() -> None:
    desk = live_chain(has_effects=True)
    register = Register(NOBODYS, "domain", "host", "ipc://x", "ipc://x", b"key", "token", 1, ())
    with pytest.raises(MessageMalformed, match=r"slot 1 .* speaks for slot 99"):
        desk.say(1, register)
    assert NOBODYS not in desk.coordinator.lives()


def _of_task_0(desk: Desk) -> tuple[Message, ...]:
    life = desk.of(0).incarnation
    return (
        desk.acknowledgement(0, 1),
        LogLost(TaskId(0), life, ChannelId(0), 1, 2),
        JournalLost(TaskId(0), life),
        SinkFenced(TaskId(0), life, view_number(2, 1), Incarnation(view_number(2, 1))),
        desk.failure(0, recourse=Recourse.NONE),
        AnnounceStep(TaskId(0), life, ChannelId(0), 0),
    )


@pytest.mark.parametrize(
    "number", range(6), ids=["Snapshotted", "LogLost", "JournalLost", "SinkFenced", "TaskFailed", "AnnounceStep"]
)
def test_a_message_about_a_task_of_another_slot_is_malformed(number: int) -> None:
    desk = live_chain(has_effects=True)
    message = _of_task_0(desk)[number]
    home = desk.of(0).hosting_slot
    other = next(slot for slot in desk.view_slots() if slot != home)
    with pytest.raises(MessageMalformed, match=f"slot {other} .* task 0.1.1, which runs in slot {home}"):
        desk.say(other, message)
    assert desk.coordinator.phase == "running"
    assert not desk.coordinator.recoveries
    desk.say(home, message)


def test_a_status_of_tasks_of_another_slot_is_ignored() -> None:
    desk = live_chain(has_effects=True)
    liar = next(slot for slot in desk.view_slots() if slot != desk.of(0).hosting_slot)
    honest = desk.slots[liar].status()
    tasks = (*honest.tasks, TaskStatus(TaskId(0), desk.of(0).incarnation, TaskPhase.LOST, ()))
    desk.say(liar, msgspec.structs.replace(honest, tasks=tasks))
    assert desk.coordinator.phases[TaskId(0)] == TaskPhase.LIVE


@pytest.mark.parametrize("task", [6, -7, 1 << 40])
def test_a_status_of_unknown_backups_does_not_change_the_view(task: int) -> None:
    desk = live_chain(has_effects=True)
    liar = desk.of(5).hosting_slot
    said = msgspec.structs.replace(
        desk.slots[liar].status(),
        keepers=((TaskId(task), LIFE),),
        standbys=((TaskId(task), CheckpointId(1)),),
        shadows=(TaskId(task),),
        tasks=(TaskStatus(TaskId(task), LIFE, TaskPhase.LIVE, ()),),
    )
    desk.slots[liar].is_mute = True
    desk.say(liar, said)
    before = desk.number
    assert of_kind(desk.gone(desk.of(0).hosting_slot), Send)
    assert desk.number > before


def test_a_new_coordinator_does_not_adopt_a_view_of_another_plan() -> None:
    desk = live_chain(has_effects=True)
    desk.complete(1)
    again = Desk(desk.plan, Options())
    again.do(Ticked(0))
    again.do(Begin(2, "job-1", len(desk.slots), desk.coordinator.completed, awaits_slots=True))
    again.slots = desk.slots
    liar = desk.of(0).hosting_slot
    lie = msgspec.structs.replace(
        desk.view, number=view_number(1, 1000), placements=(*desk.view.placements, desk.view.placements[0])
    )
    again.say(liar, lie)
    again.tick(5_000)
    assert again.view.placements == desk.view.placements


def test_a_new_coordinator_ignores_a_status_that_contradicts_the_view() -> None:
    desk = live_chain(has_effects=True)
    desk.complete(1)
    again = Desk(desk.plan, Options())
    again.do(Ticked(0))
    again.do(Begin(2, "job-1", len(desk.slots), desk.coordinator.completed, awaits_slots=True))
    lost, liar = desk.of(2), desk.of(0).hosting_slot
    again.slots = desk.slots
    again.tick(300)
    said = {slot: again.slots[slot].status() for slot in (lost.hosting_slot, liar)}
    lie = (*said[liar].tasks, TaskStatus(lost.task, lost.incarnation, TaskPhase.LIVE, ()))
    for slot, tasks in ((lost.hosting_slot, ()), (liar, lie)):
        again.slots[slot].is_mute = True
        again.say(slot, msgspec.structs.replace(said[slot], tasks=tasks))
    again.tick(4_700)
    assert [p.task for p in again.view.placements if p.incarnation == again.number] == [2]
