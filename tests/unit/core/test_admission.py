"""Admission of messages: a peer may name only what its job has, and a false message harms only its sender."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from clonos.core.model.element_kind import ElementKind
from clonos.core.model.errors import Blame, MessageMalformed
from clonos.core.model.ids import (
    COORDINATOR,
    ChannelId,
    CheckpointId,
    Incarnation,
    LogId,
    SlotId,
    TaskId,
    ViewNumber,
    journal_of,
)
from clonos.core.model.progress import TaskPhase
from clonos.core.slot.slot_events import MessageReceived
from clonos.core.wire.admission import check_for_coordinator, check_for_slot
from clonos.core.wire.channel_messages import Batch, ChannelHandshake, Position
from clonos.core.wire.control_messages import (
    Completed,
    Hold,
    Register,
    Release,
    SlotStatus,
    Snapshotted,
    Suspicion,
    TaskStatus,
    TriggerCheckpoint,
    View,
)
from clonos.core.wire.log_delta import COUNT_MAX, Delta, Length
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
from tests.harnesses.sample_plans import chain_of, number, placement, view
from tests.harnesses.slot_dialogue import SlotDialogue

PLAN = chain_of(3, is_journalled=True)
LIFE = Incarnation(number(1))
ONE = CheckpointId(1)
PEER = SlotId(77)

DELTA = Delta(LogId(0), 5, False, b"\x80\x01")
FOREIGN = Delta(LogId(3), 5, False, b"")
LONG = Delta(LogId(0), COUNT_MAX, False, b"x")
LENGTH = Length(LogId(1), 9)
BATCH = Batch(ChannelId(0), LIFE, LIFE, 1, 0, 0, ElementKind.ROWS, 1, CheckpointId(0), (DELTA,))
POSITION = Position(ChannelId(0), LIFE, LIFE, 1, 0, 0, 0, (DELTA,))
HANDSHAKE = ChannelHandshake(ChannelId(1), number(1), LIFE, LIFE, 1, 0, 0, 0, (LENGTH,))
QUESTION = LogRequest(TaskId(0), LIFE, number(1), TaskId(1), False)
ANSWER = LogReply(TaskId(0), LIFE, number(1), TaskId(1), False, PEER, (DELTA,))
KEEP = AppendLog(TaskId(0), LIFE, True, (DELTA,))
APPEND_ACK = AppendAck(TaskId(0), LIFE, PEER, True, (LENGTH,))
UPDATE = StandbyUpdate(TaskId(0), LIFE, ONE, None, ("a",))
FOLLOW = FeedShadow(TaskId(1), LIFE, 1, 0, ONE, ChannelId(0), 0, ElementKind.ROWS, 0, 0, CheckpointId(0), (DELTA,))
FOLLOWING = FeedAck(TaskId(0), LIFE, PEER, 1, 0)
TRIGGER = TriggerCheckpoint(TaskId(0), LIFE, ONE, False)
COMPLETED = Completed(ONE, 1, tuple((task, LIFE, 0) for task in PLAN.tasks))
ANNOUNCE_ACK = AnnounceAck(TaskId(0), LIFE, None, 0)
VIEW = view(1, [placement(task, LIFE, 1) for task in PLAN.tasks])
OLD = Incarnation(0)

STATUS = SlotStatus(PEER, number(1), ONE, (TaskStatus(TaskId(0), LIFE, TaskPhase.LIVE, ()),), ((TaskId(1), ONE),), ())
SNAPSHOTTED = Snapshotted(TaskId(0), LIFE, ONE, ("a",), 0, (), False)
LOST = LogLost(TaskId(0), LIFE, None, 0, 0)
JOURNAL_LOST = JournalLost(TaskId(0), LIFE)
FENCED = SinkFenced(TaskId(0), LIFE, number(1), Incarnation(number(2)))
FAILED = TaskFailed(TaskId(0), LIFE, InputRange(None, 0, 1), "", "", "", "", Blame.JOB, Recourse.RETRY)
ANNOUNCE_STEP = AnnounceStep(TaskId(0), LIFE, None, 0)
SUSPICION = Suspicion(PEER, SlotId(1), number(1), True)
REGISTER = Register(PEER, "d", "h", "", "", b"", "", 1, ())

FOR_SLOTS = (
    *(BATCH, POSITION, HANDSHAKE, QUESTION, ANSWER, KEEP, APPEND_ACK, UPDATE, FOLLOW, FOLLOWING, TRIGGER, COMPLETED),
    *(ANNOUNCE_ACK, VIEW, Hold(PEER), Release(PEER, "")),
)
FOR_COORDINATORS = (REGISTER, STATUS, SNAPSHOTTED, LOST, JOURNAL_LOST, FENCED, FAILED, ANNOUNCE_STEP, SUSPICION, VIEW)


def named(found: object) -> str:
    return type(found).__name__


@pytest.mark.parametrize("message", FOR_SLOTS, ids=named)
def test_every_valid_message_for_a_slot_is_admitted(message: Message) -> None:
    check_for_slot(PLAN, PEER, message)


@pytest.mark.parametrize("message", FOR_COORDINATORS, ids=named)
def test_every_valid_message_for_a_coordinator_is_admitted(message: Message) -> None:
    check_for_coordinator(PLAN, PEER, message)


def test_a_view_with_number_0_is_a_request_and_names_nothing() -> None:
    check_for_slot(PLAN, PEER, View(ViewNumber(0), 0, "", (), ()))


@pytest.mark.parametrize(
    "message",
    [
        msgspec.structs.replace(BATCH, deltas=(Delta(LogId(0), COUNT_MAX - 1, False, b"x"),)),
        msgspec.structs.replace(BATCH, first_seq=COUNT_MAX - 1),
        msgspec.structs.replace(FOLLOW, first_seq=COUNT_MAX),
    ],
)
def test_a_log_and_a_channel_of_exactly_the_largest_count_are_admitted(message: Message) -> None:
    check_for_slot(PLAN, PEER, message)


@pytest.mark.parametrize(
    ("kind", "count", "checkpoint"),
    [
        *((kind, 0, 0) for kind in ElementKind),
        *((kind, 1, 1) for kind in ElementKind if kind is not ElementKind.BARRIER),
        (ElementKind.BARRIER, 1, 0),
        (ElementKind.BARRIER, 1, -1),
        (ElementKind.BARRIER, 2, 1),
        (ElementKind.END, 2, 0),
        (ElementKind.ROWS, 1, -1),
    ],
)
def test_a_batch_with_a_count_or_a_checkpoint_that_its_kind_cannot_have_is_malformed(
    kind: ElementKind, count: int, checkpoint: int
) -> None:
    batch = msgspec.structs.replace(BATCH, kind=kind, count=count, checkpoint=CheckpointId(checkpoint))
    with pytest.raises(MessageMalformed, match=f"Batch names {count} elements of kind {kind.name} with checkpoint"):
        check_for_slot(PLAN, PEER, batch)


@pytest.mark.parametrize(
    ("kind", "count", "checkpoint"),
    [
        (ElementKind.ROWS, 2, 0),
        (ElementKind.COLUMNS, 2, 0),
        (ElementKind.BARRIER, 1, 1),
        (ElementKind.END, 1, 0),
    ],
)
def test_a_batch_of_each_kind_is_admitted_with_its_count_and_checkpoint(
    kind: ElementKind, count: int, checkpoint: int
) -> None:
    check_for_slot(
        PLAN, PEER, msgspec.structs.replace(BATCH, kind=kind, count=count, checkpoint=CheckpointId(checkpoint))
    )


OUT_OF_THE_PLAN = (3, -1, -2, 1 << 40, (1 << 64) - 1)


@pytest.mark.parametrize("task", OUT_OF_THE_PLAN)
@pytest.mark.parametrize(
    ("message", "field"),
    [
        *(
            (found, "task")
            for found in (QUESTION, ANSWER, KEEP, APPEND_ACK, UPDATE, FOLLOW, FOLLOWING, TRIGGER, ANNOUNCE_ACK)
        ),
        *((found, "holder") for found in (QUESTION, ANSWER)),
    ],
    ids=lambda found: found if isinstance(found, str) else named(found),
)
def test_an_unknown_task_is_malformed_for_a_slot(message: Message, field: str, task: int) -> None:
    with pytest.raises(MessageMalformed, match=rf"slot 77 is malformed: {named(message)} names task {task}, the plan"):
        check_for_slot(PLAN, PEER, msgspec.structs.replace(message, **{field: task}))


@pytest.mark.parametrize("task", OUT_OF_THE_PLAN)
@pytest.mark.parametrize("message", [SNAPSHOTTED, LOST, JOURNAL_LOST, FENCED, FAILED, ANNOUNCE_STEP], ids=named)
def test_an_unknown_task_is_malformed_for_a_coordinator(message: Message, task: int) -> None:
    with pytest.raises(MessageMalformed, match=f"names task {task}"):
        check_for_coordinator(PLAN, PEER, msgspec.structs.replace(message, task=task))


@pytest.mark.parametrize(
    ("message", "changes"),
    [
        (BATCH, {"channel": 3}),
        (BATCH, {"channel": -1}),
        (BATCH, {"channel": 2}),  # the external channel
        (BATCH, {"first_seq": COUNT_MAX}),
        (BATCH, {"deltas": (FOREIGN,)}),
        (BATCH, {"deltas": (LONG,)}),
        (BATCH, {"deltas": (Delta(LogId(1), 0, True, b""),)}),  # its receiver's own log
        (BATCH, {"deltas": (Delta(journal_of(TaskId(0)), 0, True, b""),)}),
        (POSITION, {"channel": 2}),
        (POSITION, {"deltas": (DELTA, FOREIGN)}),
        (HANDSHAKE, {"channel": 2}),
        (HANDSHAKE, {"view": 0}),
        (HANDSHAKE, {"lengths": (Length(LogId(3), 1),)}),
        (QUESTION, {"view": 0}),
        (QUESTION, {"view": -1}),
        (ANSWER, {"replicas": (Delta(journal_of(TaskId(1)), 0, True, b""),)}),
        (ANSWER, {"replicas": (LONG,)}),
        (KEEP, {"deltas": (FOREIGN,)}),
        (APPEND_ACK, {"lengths": (Length(journal_of(TaskId(1)), 1),)}),
        (FOLLOW, {"first_seq": COUNT_MAX, "count": 1}),
        (FOLLOW, {"deltas": (FOREIGN,)}),
        (VIEW, {"placements": VIEW.placements[:2]}),
        (VIEW, {"placements": (*VIEW.placements, VIEW.placements[2])}),
        (VIEW, {"placements": VIEW.placements[::-1]}),
        (VIEW, {"placements": ()}),
        (VIEW, {"placements": (msgspec.structs.replace(VIEW.placements[0], incarnation=OLD), *VIEW.placements[1:])}),
        (VIEW, {"number": number(1) - 1}),
        (COMPLETED, {"tasks": COMPLETED.tasks[:2]}),
        (COMPLETED, {"tasks": COMPLETED.tasks[::-1]}),
    ],
    ids=lambda found: named(found) if isinstance(found, msgspec.Struct) else None,
)
def test_contradicting_fields_are_malformed(message: Message, changes: dict[str, Any]) -> None:
    with pytest.raises(MessageMalformed, match=f"slot 77 is malformed: {named(message)} names"):
        check_for_slot(PLAN, PEER, msgspec.structs.replace(message, **changes))


def test_a_journal_is_admitted_together_with_the_logs_of_its_task() -> None:
    journal = Delta(journal_of(TaskId(0)), 0, True, b"bytes")
    check_for_slot(PLAN, PEER, msgspec.structs.replace(KEEP, deltas=(DELTA, journal)))
    check_for_slot(PLAN, PEER, msgspec.structs.replace(ANSWER, replicas=(journal,)))
    check_for_slot(PLAN, PEER, msgspec.structs.replace(APPEND_ACK, lengths=(Length(journal_of(TaskId(0)), 5),)))


@pytest.mark.parametrize(
    ("message", "changes"),
    [
        (STATUS, {"tasks": (TaskStatus(TaskId(3), LIFE, TaskPhase.LIVE, ()),)}),
        (STATUS, {"standbys": ((TaskId(3), ONE),)}),
        (STATUS, {"keepers": ((TaskId(-1), LIFE),)}),
        (STATUS, {"shadows": (TaskId(3),)}),
        (STATUS, {"slot": SlotId(1)}),
        (SUSPICION, {"slot": SlotId(1)}),
        (REGISTER, {"slot": SlotId(1)}),
        (VIEW, {"placements": VIEW.placements[:2]}),
    ],
    ids=lambda found: named(found) if isinstance(found, msgspec.Struct) else None,
)
def test_messages_of_another_job_or_about_another_slot_are_malformed_for_a_coordinator(
    message: Message, changes: dict[str, Any]
) -> None:
    with pytest.raises(MessageMalformed, match="slot 77"):
        check_for_coordinator(PLAN, PEER, msgspec.structs.replace(message, **changes))


@pytest.mark.parametrize("message", [BATCH, QUESTION, KEEP, TRIGGER, COMPLETED, Release(PEER, "")], ids=named)
def test_a_message_for_slots_is_malformed_for_a_coordinator(message: Message) -> None:
    with pytest.raises(MessageMalformed, match="is not for a coordinator"):
        check_for_coordinator(PLAN, PEER, message)


def test_a_message_from_a_coordinator_is_malformed_for_a_coordinator() -> None:
    with pytest.raises(MessageMalformed):
        check_for_coordinator(PLAN, COORDINATOR, msgspec.structs.replace(REGISTER, slot=COORDINATOR))


# ------------------------------------------------------------------ checks that need the machine's state


def test_a_slot_without_a_view_sends_no_reply() -> None:
    dialogue = SlotDialogue()
    dialogue.run("slot 2")
    assert dialogue.slot.step(MessageReceived(PEER, msgspec.structs.replace(QUESTION, view=ViewNumber(0)))) == []


def _sender_of_c() -> SlotDialogue:
    """b lives here: it has sent three elements, of which a checkpoint covers two."""
    dialogue = SlotDialogue()
    for command in (
        "slot 2",
        "view 1  a 1@1 fresh  b 1@2 fresh  c 1@3 fresh",
        "handshake b->c",
        "emission b out=x",
        "emission b log=s1 out=y snapshot=1 in=1 out_at=3",
        "written snapshots/1/000000000001-100000001-full",
        "emission b out=z",
        "completed 1 b=2",
    ):
        dialogue.run(command)
    return dialogue


def test_a_handshake_for_elements_before_the_checkpoint_is_malformed() -> None:
    dialogue = _sender_of_c()
    with pytest.raises(MessageMalformed, match=r"channel 1 .* asks for element 0, the log begins with 3"):
        dialogue.run("handshake b->c session=2 next=0")
    assert dialogue.run("handshake b->c session=3 next=3")[0].endswith("z (1) from 3 with b[2!]")


def test_an_early_handshake_for_elements_before_the_checkpoint_is_ignored() -> None:
    dialogue = SlotDialogue()
    for command in ("slot 5", "view 2  a 1@1  b 2@5 restore=1 log=7 of=1  c 1@3", "read task b.2 1 in=4 out=3"):
        dialogue.run(command)
    dialogue.run("handshake b->c next=1 received=1")
    dialogue.run("log_reply b.2 c from=3 has=b[7!:s1]")
    assert dialogue.run("handshake b->c session=2 next=3 received=3")[-1].endswith("b.2 replaying")


def test_a_checkpoint_completed_too_early_ends_the_session_of_a_receiver_that_lacks_it() -> None:
    dialogue = SlotDialogue()
    for command in (
        "slot 2",
        "view 1  a 1@1 fresh  b 1@2 fresh  c 1@3 fresh",
        "handshake b->c credit=0",
        "emission b out=x",
        "emission b log=s1 out=y snapshot=1 in=1 out_at=3",
        "written snapshots/1/000000000001-100000001-full",
        "completed 1 b=2",
    ):
        dialogue.run(command)
    dialogue.run("handshake b->c credit=1000")
    assert not dialogue.slot.hosted[TaskId(1)].outputs.senders[ChannelId(1)].session


def test_a_log_copy_that_begins_after_the_checkpoint_is_malformed() -> None:
    dialogue = SlotDialogue()
    for command in ("slot 5", "view 2  a 1@1  b 2@5 restore=1 log=7 of=1  c 1@3"):
        dialogue.run(command)
    with pytest.raises(MessageMalformed, match=r"slot 3 .* begins at 8, after 7"):
        dialogue.run("log_reply b.2 c from=3 has=b[8!:s1]")
    assert dialogue.run("log_reply b.2 c from=3 has=b[7!:s1]") == []


@pytest.mark.parametrize("payload", [b"\xc1", b"\x91\xc4\x01\x00", b"\x91" * 5_000])
def test_a_standby_without_a_sent_snapshot_fetches_it_from_the_store(payload: bytes) -> None:
    dialogue = SlotDialogue()
    for command in ("slot 5", "view 1  a 1@1 fresh  b 1@2 fresh standbys=5  c 1@3 fresh"):
        dialogue.run(command)
    dialogue.post(MessageReceived(SlotId(2), StandbyUpdate(TaskId(1), LIFE, ONE, None, ("object-1",)), payload))
    assert dialogue.run("completed 1 b=7")[0] == "read for the standby b.1: object-1"


def test_a_standby_with_a_wrong_sent_snapshot_fetches_its_own_from_the_store() -> None:
    dialogue = SlotDialogue()
    for command in ("slot 5", "view 1  a 1@1 fresh  b 1@2 fresh standbys=5  c 1@3 fresh", "update b.1 1"):
        dialogue.run(command)
    (update, data), *_ = dialogue.slot.backups.standbys[TaskId(1)].held
    dialogue.slot.backups.standbys[TaskId(1)].held = [
        (msgspec.structs.replace(update, checkpoint=CheckpointId(2)), data)
    ]
    assert dialogue.run("completed 2 b=7")[0] == "read for the standby b.1: object-1"
