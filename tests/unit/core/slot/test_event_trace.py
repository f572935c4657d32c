"""A slot's events as bytes: read back as they were, torn anywhere, and replayed into the same slot."""

from __future__ import annotations

import msgspec
import pytest

from clonos.core.channel.output_channels import OutputChannels
from clonos.core.model.errors import InternalError
from clonos.core.model.ids import TaskId
from clonos.core.slot.event_trace import RECORD_LENGTH_BYTES, TraceDiffers, TracedSlot, TraceUnreadable, replay
from clonos.core.slot.hosted_task import HostedTask
from clonos.core.slot.slot_events import Event
from clonos.core.wire.decoding import FormatUnknown
from tests.harnesses.slot_dialogue import SlotDialogue

COMMANDS = (
    "view 1  a 1@1 fresh  b 1@2 fresh  c 1@3 fresh",
    "handshake b->c",
    "ends b",
    "batch a->b xyz first=0 log=a[0!:r3]",
    "emission b log=s3 out=ab consumed=195",
    "tick",
    "gone 3",
)


class Traced(SlotDialogue):
    """A dialogue whose slot writes a trace."""

    def __init__(self) -> None:
        super().__init__()
        self.trace = bytearray()
        self.run("slot 2")
        self.traced = TracedSlot(self.slot, self.trace.extend)

    def post(self, event: Event) -> None:
        self.shell.perform(self.traced.step(event))


def traced() -> Traced:
    """A slot that has handled all commands."""
    dialogue = Traced()
    for command in COMMANDS:
        dialogue.run(command)
    return dialogue


def test_a_replayed_slot_has_the_same_story() -> None:
    dialogue = traced()
    assert replay(bytes(dialogue.trace)).story.lines() == dialogue.slot.story.lines()


def test_bytes_that_the_machine_never_reads_are_not_in_the_trace() -> None:
    trace = bytes(traced().trace)
    assert b"xyz" not in trace
    assert b"BatchReceived" not in trace
    assert trace.count(b"MessageReceived") == 3


def test_a_trace_that_is_torn_anywhere_leads_to_a_slot_that_has_handled_what_is_whole() -> None:
    trace = bytes(traced().trace)
    header_bytes = RECORD_LENGTH_BYTES + int.from_bytes(trace[:RECORD_LENGTH_BYTES], "little")
    handled = [len(replay(trace[:end]).story.lines()) for end in range(header_bytes, len(trace) + 1)]
    assert handled[0] == 0
    assert handled == sorted(handled)
    assert handled[-1] == len(COMMANDS)


@pytest.mark.parametrize("end", [0, 3, 50])
def test_a_trace_without_a_whole_header_is_refused(end: int) -> None:
    with pytest.raises(TraceUnreadable, match=f"its {end} bytes end within the header"):
        replay(bytes(traced().trace)[:end])


@pytest.mark.parametrize(
    ("header", "reason"),
    [
        (b"not a trace", "its header is damaged"),
        (msgspec.msgpack.encode({"format": 2}), "its header is damaged"),
        (msgspec.msgpack.encode({"format": 99, "slots": []}), "the trace of the slot has format 99"),
    ],
)
def test_a_file_with_another_header_is_refused(header: bytes, reason: str) -> None:
    with pytest.raises((TraceUnreadable, FormatUnknown), match=reason):
        replay(len(header).to_bytes(RECORD_LENGTH_BYTES, "little") + header)


@pytest.mark.parametrize(
    "event",
    [
        msgspec.msgpack.encode(["StepEmitte%", 1]),
        msgspec.msgpack.encode(["StepEmitted", 1]),
        msgspec.msgpack.encode(["MessageReceived", 1, b"no message", 0]),
        msgspec.msgpack.encode({"no": "event"}),
        b"\xc1",
    ],
    ids=["unknown event", "missing fields", "no message", "no list", "no msgpack"],
)
def test_a_damaged_event_is_refused_with_its_number(event: bytes) -> None:
    whole = bytes(traced().trace)
    header_bytes = RECORD_LENGTH_BYTES + int.from_bytes(whole[:RECORD_LENGTH_BYTES], "little")
    with pytest.raises(TraceUnreadable, match="event 0 is damaged"):
        replay(whole[:header_bytes] + len(event).to_bytes(RECORD_LENGTH_BYTES, "little") + event)


def test_a_machine_that_goes_another_way_is_noticed_at_the_event_where_it_does(monkeypatch: pytest.MonkeyPatch) -> None:
    trace = bytes(traced().trace)
    monkeypatch.setattr(OutputChannels, "pump", lambda self, sender: None)
    with pytest.raises(TraceDiffers, match=r"event 4 of the trace \(StepEmitted\)"):
        replay(trace)


def test_a_trace_that_ends_in_a_bug_shows_it_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise InternalError("two copies of a log differ")

    dialogue = traced()
    monkeypatch.setattr(HostedTask, "on_emission", fail)
    with pytest.raises(InternalError):
        dialogue.run("emission b log=s3 consumed=0")
    whole_but_for_the_last = len(dialogue.slot.story.lines(TaskId(1)))
    assert whole_but_for_the_last == 5
    monkeypatch.undo()
    replayed = replay(bytes(dialogue.trace))
    assert len(replayed.story.lines(TaskId(1))) == 5
