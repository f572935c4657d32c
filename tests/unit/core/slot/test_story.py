"""A slot remembers its last events, and an internal error tells them."""

from __future__ import annotations

import sys
import traceback
import tracemalloc

import pytest

from clonos.core.model.element_kind import ElementKind
from clonos.core.model.errors import InternalError
from clonos.core.model.ids import ChannelId, CheckpointId, Incarnation, SlotId, TaskId, ThreadId
from clonos.core.model.plan import Edge, Partitioning, Plan, Vertex
from clonos.core.slot import story
from clonos.core.slot.slot_events import LogEndReached, MessageReceived, PeerGone
from clonos.core.wire.channel_messages import Batch, ChannelHandshake
from tests.harnesses.sample_plans import number
from tests.harnesses.slot_dialogue import SlotDialogue

LIFE = Incarnation(number(1))
THREAD = ThreadId(1)


def living() -> SlotDialogue:
    """A slot whose task ``b`` is live."""
    dialogue = SlotDialogue()
    for command in ("slot 2", "view 1  a 1@1 fresh  b 1@2 fresh  c 1@3 fresh", "handshake b->c", "ends b"):
        dialogue.run(command)
    return dialogue


def test_the_story_of_a_task_has_its_events_in_order_with_their_numbers() -> None:
    dialogue = living()
    dialogue.run("batch a->b xyz first=0 log=a[0!:r3]")
    dialogue.run("emission b log=s3 out=ab consumed=195")
    handshake, *lines = [line.partition(": ")[2] for line in dialogue.slot.story.lines(TaskId(1))]
    assert handshake.startswith("ChannelHandshake from slot 3: ChannelHandshake(channel=1,")
    assert lines == [
        "LogEndReached(task=1, thread=1, positions={1: 0}, accepted='')",
        "batch from slot 1 on channel 0, session 1, message 0: 3 elements from 0, 3 bytes, 1 deltas",
        "step of thread 1: 2 bytes of log, 1 outputs, consumed ((0, 3, 195),), snapshot None",
    ]
    assert [line.split(",")[0] for line in dialogue.slot.story.lines()] == ["#1", "#2", "#3", "#4", "#5"]


def test_a_busy_task_does_not_push_out_the_story_of_another() -> None:
    dialogue = living()
    dialogue.run("view 2  a 1@1  b 1@2  c 2@2")
    before = dialogue.slot.story.lines(TaskId(2))
    for turn in range(story.STORY_EVENTS_MAX + 5):
        dialogue.run(f"batch a->b x first={turn}")
    assert dialogue.slot.story.lines(TaskId(2)) == before
    assert len(dialogue.slot.story.lines(TaskId(1))) == story.STORY_EVENTS_MAX


def test_the_story_keeps_no_payload_alive() -> None:
    dialogue = living()
    payload = bytes(10_000)
    references = sys.getrefcount(payload)
    batch = Batch(ChannelId(0), LIFE, LIFE, 7, 0, 0, ElementKind.ROWS, 1, CheckpointId(0), ())
    dialogue.post(MessageReceived(SlotId(1), batch, payload))
    assert "10000 bytes" in dialogue.slot.story.lines(TaskId(1))[-1]
    assert sys.getrefcount(payload) == references


@pytest.mark.parametrize("channel", [-1, 99, 1 << 40])
def test_an_event_that_names_an_unknown_task_is_recorded_among_those_of_no_task(channel: int) -> None:
    latest = story.Story(living().slot.plan)
    handshake = ChannelHandshake(ChannelId(channel), number(1), LIFE, LIFE, 1, 0, 0, 0, ())
    latest.note(MessageReceived(SlotId(3), handshake))
    batch = Batch(ChannelId(channel), LIFE, LIFE, 7, 0, 0, ElementKind.ROWS, 1, CheckpointId(0), ())
    latest.note(MessageReceived(SlotId(3), batch))
    assert len(latest.lines()) == 2
    assert latest.lines(TaskId(0)) == latest.lines(TaskId(1)) == []


def test_an_internal_error_has_the_story_as_its_note(monkeypatch: pytest.MonkeyPatch) -> None:
    dialogue = living()
    hosted = dialogue.slot.hosted[TaskId(1)]

    def fail(_slot: SlotId) -> None:
        raise InternalError("two copies of a log differ")

    monkeypatch.setattr(hosted.inputs, "take_in", lambda *_: fail(SlotId(0)))
    batch = Batch(ChannelId(0), LIFE, LIFE, 1, 0, 0, ElementKind.ROWS, 1, CheckpointId(0), ())
    with pytest.raises(InternalError) as failed:
        dialogue.post(MessageReceived(SlotId(1), batch, b"x"))
    text = "".join(traceback.format_exception(failed.value))
    assert "two copies of a log differ\nThe last events of this slot, oldest first:" in text
    assert "batch from slot 1 on channel 0, session 1, message 0: 1 elements from 0, 1 bytes" in text
    assert text.count("\n#") == 4


def test_a_story_takes_no_memory_for_tasks_and_channels_without_events() -> None:
    wide = Plan("wide", (Vertex("a", 50, is_source=True), Vertex("b", 50)), (Edge(0, 1, Partitioning.HASH, 0),))
    assert len(wide.channels) == 2_500
    tracemalloc.start()
    try:
        latest = story.Story(wide)
        for task in (-1, 100, 1 << 40):
            latest.note(LogEndReached(TaskId(task), THREAD, {}))
        assert tracemalloc.get_traced_memory()[0] < 10_000
    finally:
        tracemalloc.stop()


def test_a_long_story_is_cut() -> None:
    dialogue = living()
    for slot in range(story.STORY_EVENTS_MAX + 5):
        dialogue.post(PeerGone(SlotId(slot + 1000)))
    assert len(str(dialogue.slot.story).splitlines()) <= 1 + story.STORY_LINES_MAX
    assert str(dialogue.slot.story).splitlines()[-1].startswith(f"#{3 + story.STORY_EVENTS_MAX + 5},")
