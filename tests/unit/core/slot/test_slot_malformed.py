"""A message that no slot of this job would send costs the connection of its sender, not the process."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from clonos.core.channel.sender import HANDSHAKE_TICKS_MAX
from clonos.core.model.element_kind import ElementKind
from clonos.core.model.errors import Blame, MessageMalformed
from clonos.core.model.ids import COORDINATOR, ChannelId, CheckpointId, Incarnation, LogId, SlotId, TaskId
from clonos.core.slot.slot import EARLY_MESSAGES_MAX
from clonos.core.slot.slot_events import MessageReceived
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
    TriggerCheckpoint,
    View,
    Warned,
)
from clonos.core.wire.log_delta import Length
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
from tests.harnesses.sample_plans import number
from tests.harnesses.slot_dialogue import SlotDialogue

LIFE = Incarnation(number(1))
BATCH = Batch(ChannelId(0), LIFE, LIFE, 1, 0, 0, ElementKind.ROWS, 1, CheckpointId(0), ())
POSITION = Position(ChannelId(0), LIFE, LIFE, 1, 0, 0, 5, ())
HANDSHAKE = ChannelHandshake(ChannelId(1), number(1), LIFE, LIFE, 2, 0, 0, 77, ())
QUESTION = LogRequest(TaskId(0), LIFE, number(1), TaskId(1), False)


def living_slot() -> SlotDialogue:
    dialogue = SlotDialogue()
    dialogue.run("slot 2")
    dialogue.run("view 1  a 1@1 fresh  b 1@2 fresh  c 1@3 fresh")
    dialogue.run("handshake b->c")
    return dialogue


def test_every_valid_message_of_a_peer_is_processed() -> None:
    dialogue = living_slot()
    inputs, sender = (
        dialogue.slot.hosted[TaskId(1)].inputs,
        dialogue.slot.hosted[TaskId(1)].outputs.senders[ChannelId(1)],
    )
    dialogue.post(MessageReceived(SlotId(1), POSITION))
    assert inputs.backlog == 5
    dialogue.post(MessageReceived(SlotId(1), msgspec.structs.replace(BATCH, ordinal=1), b"x"))
    dialogue.post(MessageReceived(SlotId(3), HANDSHAKE))
    assert (sender.session, sender.credit_bytes) == (2, 77)
    dialogue.post(MessageReceived(SlotId(1), QUESTION))
    assert dialogue.shell.lines == ["b.1 <- x (1) on a->b", "slot 1 <- log reply to a.1 from b: nothing"]


@pytest.mark.parametrize(
    ("message", "changes"),
    [
        (BATCH, {"channel": 3}),
        (BATCH, {"channel": -1}),
        (BATCH, {"channel": 2}),  # it leaves the job
        (BATCH, {"count": 0}),
        (BATCH, {"kind": ElementKind.BARRIER, "count": 2, "checkpoint": 1}),
        (BATCH, {"kind": ElementKind.BARRIER}),
        (BATCH, {"kind": ElementKind.WATERMARK}),  # its payload is no watermark
        (POSITION, {"channel": 99}),
        (HANDSHAKE, {"channel": -2}),
        (HANDSHAKE, {"channel": 2}),
        (QUESTION, {"task": 3}),
        (QUESTION, {"task": -1}),
    ],
)
def test_a_message_with_ids_outside_the_plan_is_malformed_and_names_the_peer(
    message: Message, changes: dict[str, Any]
) -> None:
    dialogue = living_slot()
    with pytest.raises(MessageMalformed, match="slot 77"):
        dialogue.post(MessageReceived(SlotId(77), msgspec.structs.replace(message, **changes), b""))
    assert dialogue.run("tick")[-1].endswith("b.1 replaying")


# ------------------------------------------------------------------ senders

OF_COORDINATOR = (
    View(number(9), 1, "job", (), ()),
    TriggerCheckpoint(TaskId(1), LIFE, CheckpointId(1), False),
    AnnounceAck(TaskId(1), LIFE, ChannelId(0), 0),
    Hold(SlotId(2)),
    Peek(TaskId(1), "step", 5, 1),
    ShowThreads(1),
    SampleTask(TaskId(1), 100, 1),
    CaptureLog(TaskId(1), LIFE, LogId(1), 0, 1, 1),
    CaptureElements(ChannelId(0), TaskId(0), LIFE, 0, 1, False, 1),
    Completed(CheckpointId(1), 1, ()),
    Release(SlotId(2), "end yourself"),
)
TO_COORDINATOR = (
    Register(SlotId(1), "domain", "host", "tcp://x", "tcp://x", b"", "token", 1, ()),
    SlotStatus(SlotId(1), number(1), CheckpointId(0), (), (), ()),
    Snapshotted(TaskId(0), LIFE, CheckpointId(1), ("name",), 0, (), False),
    LogLost(TaskId(0), LIFE, ChannelId(0), 0, 0),
    JournalLost(TaskId(0), LIFE),
    SinkFenced(TaskId(0), LIFE, number(1), Incarnation(number(2))),
    TaskFailed(TaskId(0), LIFE, InputRange(ChannelId(0), 0, 1), "", "", "", "", Blame.JOB, Recourse.RETRY),
    AnnounceStep(TaskId(0), LIFE, ChannelId(0), 0),
    Suspicion(SlotId(1), SlotId(2), number(1), True),
    Warned(SlotId(1), "text", ()),
    Logged(SlotId(1), 30, "clonos", "text"),
    Peeked(TaskId(1), 1, b""),
    StacksShown(1, b""),
    CapturedLog(TaskId(1), LIFE, LogId(1), 0, 0, 0, b"", 1),
    CapturedElements(ChannelId(0), TaskId(0), LIFE, 0, 0, 0, 1),
)
KEEP = AppendLog(TaskId(0), LIFE, True, ())
UPDATE = StandbyUpdate(TaskId(0), LIFE, CheckpointId(1), None, ("name",))
FOLLOW = FeedShadow(
    TaskId(0), LIFE, 0, 0, CheckpointId(0), ChannelId(0), 0, ElementKind.ROWS, 0, 0, CheckpointId(0), ()
)
ANSWER = LogReply(TaskId(1), LIFE, number(1), TaskId(2), False, SlotId(3), ())
APPEND_ACK = AppendAck(TaskId(1), LIFE, SlotId(3), True, ())
FOLLOWING = FeedAck(TaskId(1), LIFE, SlotId(3), 1, 0)


def named(message: object) -> str:
    return type(message).__name__


@pytest.mark.parametrize("message", OF_COORDINATOR, ids=named)
def test_a_coordinator_message_from_a_slot_is_malformed(message: Message) -> None:
    for sender in (1, 2, 3, 77):
        dialogue = living_slot()
        with pytest.raises(MessageMalformed, match=f"slot {sender} .* may not send {named(message)} to a slot"):
            dialogue.post(MessageReceived(SlotId(sender), message))
        assert dialogue.shell.lines == []
        assert dialogue.run("tick")[-1].endswith("view 1, completed 0: b.1 replaying")


@pytest.mark.parametrize("message", TO_COORDINATOR, ids=named)
def test_a_message_for_the_coordinator_is_malformed_in_a_slot(message: Message) -> None:
    for sender in (0, 1):
        with pytest.raises(MessageMalformed, match=f"may not send {named(message)} to a slot"):
            living_slot().post(MessageReceived(SlotId(sender), message))


@pytest.mark.parametrize("message", [BATCH, POSITION, HANDSHAKE, QUESTION, KEEP, UPDATE, FOLLOW], ids=named)
def test_a_message_about_a_task_that_its_sender_does_not_host_is_malformed(message: Message) -> None:
    dialogue = living_slot()
    with pytest.raises(MessageMalformed, match=r"slot 77 .* speaks for task \d.1.1, which runs in slot"):
        dialogue.post(MessageReceived(SlotId(77), message, b"x"))
    assert dialogue.shell.lines == []


@pytest.mark.parametrize("message", [ANSWER, APPEND_ACK, FOLLOWING], ids=named)
def test_a_reply_in_the_name_of_another_slot_is_malformed(message: Message) -> None:
    dialogue = living_slot()
    with pytest.raises(MessageMalformed, match=r"slot 77 .* speaks for slot 3"):
        dialogue.post(MessageReceived(SlotId(77), message, b"x"))
    assert dialogue.shell.lines == []
    dialogue.post(MessageReceived(SlotId(3), message, b"x"))


def test_a_message_of_an_incarnation_that_the_view_does_not_name_is_ignored() -> None:
    living_slot().post(MessageReceived(SlotId(77), msgspec.structs.replace(BATCH, sender=number(7)), b"x"))


# ------------------------------------------------------------------ contradicting fields


@pytest.mark.parametrize("selection", [slice(2), slice(0), slice(1, 3)])
def test_a_view_of_another_plan_is_malformed_and_the_installed_one_stays(selection: slice) -> None:
    dialogue = living_slot()
    placements = dialogue.slot.view.placements[selection]
    with pytest.raises(MessageMalformed, match=r"the coordinator is malformed: View names . placements"):
        dialogue.post(MessageReceived(COORDINATOR, View(number(9), 1, "job", (), placements)))
    assert dialogue.run("tick")[-1].endswith("view 1, completed 0: b.1 replaying")


def test_a_handshake_below_the_completed_checkpoint_is_malformed() -> None:
    dialogue = SlotDialogue()
    for command in (
        "slot 2",
        "view 1  a 1@1 fresh  b 1@2 restore=1 of=1  c 1@3 fresh",
        "read task b.1 1 out=5",
        "log_reply b.1 c from=3",
    ):
        dialogue.run(command)
    with pytest.raises(MessageMalformed, match="asks for element 4, the log begins with 5"):
        dialogue.run("handshake b->c next=4")


def dialogue_below_the_completed_checkpoint() -> SlotDialogue:
    dialogue = SlotDialogue()
    for command in (
        "slot 2",
        "view 1  a 1@1 fresh  b 1@2 restore=1 of=1  c 1@3 fresh",
        "read task b.1 1 out=5",
        "log_reply b.1 c from=3",
    ):
        dialogue.run(command)
    return dialogue


def test_a_handshake_that_repeats_without_progress_fails_the_job_and_names_both_tasks() -> None:
    dialogue = dialogue_below_the_completed_checkpoint()
    for tick in range(HANDSHAKE_TICKS_MAX):
        assert not failures(dialogue.run("tick")), tick
        assert not failures(dialogue.run("tick")), "a receiver that says nothing is recovering or slow"
        for _ in range(3):
            with pytest.raises(MessageMalformed):
                dialogue.run("handshake b->c next=4")
    (failed,) = failures(dialogue.run("tick"))
    assert "from b/0 to c/0 makes no progress: c/0 asks for element 4, the log begins with 5" in failed
    report = dialogue.slot.hosted[TaskId(1)].reports.failed
    assert report is not None
    assert report.recourse is Recourse.NONE


def test_a_handshake_that_is_met_starts_the_count_over() -> None:
    dialogue = dialogue_below_the_completed_checkpoint()
    for session in (1, 2, 3):
        for _ in range(HANDSHAKE_TICKS_MAX - 1):
            with pytest.raises(MessageMalformed):
                dialogue.run(f"handshake b->c session={session} next=4")
            assert not failures(dialogue.run("tick"))
        dialogue.run(f"handshake b->c session={session} next=5")


def test_a_sender_that_begins_each_session_with_a_gap_fails_the_receiver_and_names_both_tasks() -> None:
    dialogue = living_slot()
    for _ in range(HANDSHAKE_TICKS_MAX):
        assert not failures(dialogue.run("tick"))
        dialogue.run("batch a->b 1,2 first=7")
    (failed,) = failures(dialogue.run("tick"))
    assert "from a/0 to b/0 makes no progress: b/0 asks for element 0, and gets others or other causes" in failed
    report = dialogue.slot.hosted[TaskId(1)].reports.failed
    assert report is not None
    assert report.recourse is Recourse.RETRY


def test_a_gap_now_and_then_is_no_failure() -> None:
    dialogue = living_slot()
    for _ in range(3):
        for _ in range(HANDSHAKE_TICKS_MAX - 1):
            dialogue.run("batch a->b 1,2 first=7")
            assert not failures(dialogue.run("tick"))
        dialogue.run("position a->b next=0")


def failures(trace: list[str]) -> list[str]:
    return [line for line in trace if line.startswith("coordinator <- failed")]


def test_a_standby_update_without_an_object_is_malformed() -> None:
    with pytest.raises(MessageMalformed, match="in no object of the store"):
        living_slot().post(MessageReceived(SlotId(1), msgspec.structs.replace(UPDATE, objects=())))


def test_more_log_lengths_than_logs_are_malformed() -> None:
    lengths = tuple(Length(LogId(n % 3), 0) for n in range(7))
    with pytest.raises(MessageMalformed, match="7 lengths of logs of 3 tasks"):
        living_slot().post(MessageReceived(SlotId(3), msgspec.structs.replace(HANDSHAKE, lengths=lengths)))


def test_a_holder_outside_the_plan_is_malformed() -> None:
    with pytest.raises(MessageMalformed, match="task 99, the plan has 3"):
        living_slot().post(MessageReceived(SlotId(1), msgspec.structs.replace(QUESTION, holder=TaskId(99))))


# ------------------------------------------------------------------ early messages


def test_of_early_messages_the_latest_per_sender_and_subject_is_stored() -> None:
    dialogue = living_slot()
    for n in range(2, 10_050):
        dialogue.post(MessageReceived(SlotId(3), msgspec.structs.replace(HANDSHAKE, view=number(n))))
    latest = msgspec.structs.replace(HANDSHAKE, view=number(10_049))
    assert dialogue.slot.early_messages.take() == [(SlotId(3), latest)]


def test_the_number_of_early_messages_is_limited() -> None:
    dialogue = living_slot()
    early = msgspec.structs.replace(HANDSHAKE, view=number(2))
    for sender in range(5, 5 + EARLY_MESSAGES_MAX + 1):
        dialogue.post(MessageReceived(SlotId(sender), early))
    later = msgspec.structs.replace(HANDSHAKE, view=number(3))
    dialogue.post(MessageReceived(SlotId(5), later))
    found = dialogue.slot.early_messages.take()
    assert found[0] == (SlotId(5), later)
    assert [sender for sender, _ in found] == list(range(5, 5 + EARLY_MESSAGES_MAX))


def test_a_false_message_that_arrived_before_its_view_does_not_change_it() -> None:
    dialogue = living_slot()
    dialogue.post(MessageReceived(SlotId(77), msgspec.structs.replace(HANDSHAKE, view=number(2))))
    dialogue.run("view 2  a 1@1  b 1@2  c 1@3")
    assert dialogue.run("tick")[-1].endswith("view 2, completed 0: b.1 replaying")
