"""Targets: the machines of a slot and of the coordinator, amid golden dialogues, with false messages.

An input is the name of a dialogue and what happens: its own commands in their order, and between them messages of
anybody and heartbeats. A machine answers each with what it does, or with the error that is declared for it.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, Final

import msgspec

from clonos.core.checkpoint.checkpoint_metadata import decode_metadata, encode_metadata
from clonos.core.coordinator.coordinator_effects import Effect, Send, WriteMetadata
from clonos.core.coordinator.coordinator_events import Received
from clonos.core.model.errors import LogDiverged, LogMalformed, MessageMalformed
from clonos.core.model.ids import ChannelId, SlotId
from clonos.core.model.plan import Plan
from clonos.core.ports.slot_effects import (
    PutCommand,
    ReadSnapshots,
    SendMessage,
    SetOutputBudget,
    StartTask,
    WriteToSink,
)
from clonos.core.slot.slot import Slot
from clonos.core.slot.slot_events import MessageReceived
from clonos.core.wire.admission import check_for_coordinator
from clonos.core.wire.control_messages import Suspicion
from clonos.core.wire.messages import Message
from clonos.core.wire.recovery_messages import AnnounceStep, LogLost
from tests.fuzz.hostile import Sent, as_sent, hostile, message_of
from tests.fuzz.target import Several, Target
from tests.harnesses.coordinator_dialogue import CoordinatorDialogue
from tests.harnesses.recording_shell import RecordingShell
from tests.harnesses.slot_dialogue import SlotDialogue
from tests.unit.core.wire.test_messages import KINDS, example

TESTS: Final = Path(__file__).parents[2]
TRACES: Final = {
    **{path.stem: path for path in sorted((TESTS / "traces").glob("slot_*.txt"))},
    **{path.stem: path for path in sorted((TESTS / "traces").glob("coordinator_*.txt"))},
}
SENDERS: Final = (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 77, 1 << 62)
MESSAGES_EACH: Final = 16

Step = list[Any]
"""``["run", command]``, ``["hear", sender, message, payload]`` or ``["tick"]``."""

DECLARED: Final = (MessageMalformed, LogDiverged, LogMalformed)


def targets() -> list[Target]:
    """Targets of this file."""
    slots = [name for name in TRACES if name.startswith("slot_")]
    coordinators = [name for name in TRACES if name.startswith("coordinator_")]
    return [
        Target("slots", lambda random: _made(random, slots), _play_slot, (), 6, _shrunk),
        Target("coordinators", lambda random: _made(random, coordinators), _play_coordinator, (), 3, _shrunk),
    ]


@cache
def _commands(name: str) -> list[str]:
    lines = TRACES[name].read_text("utf-8").splitlines()
    return [line.removeprefix("> ") for line in lines if line.startswith("> ")]


def _made(random: Random, names: list[str]) -> bytes:
    name = random.choice(names)
    commands, samples = _commands(name), _samples(name)
    steps: list[Step] = [["run", command] for command in commands]
    first = random.randint(1, len(commands))
    for _ in range(MESSAGES_EACH):
        at = random.randint(first, len(steps)) if random.random() < 0.7 else first
        message = ["tick"] if random.random() < 0.1 else ["hear", *hostile(random, samples, SENDERS)]
        steps.insert(at, message)
    return msgspec.msgpack.encode([name, *steps])


@cache
def _samples(name: str) -> list[Sent]:
    """All messages of a dialogue, and one more of each kind."""
    seen: list[Sent] = []
    table = _Slot(seen) if name.startswith("slot_") else _Coordinator(seen)
    for command in _commands(name):
        table.run(command)
    return [*seen, *OTHERS]


OTHERS: Final = [as_sent(9, example(kind, Random(1)), b"payload") for kind in KINDS]


class _Shell(RecordingShell):
    """Notes what is sent, and says nothing of it: for messages that lie there are no words."""

    def __init__(self, plan: Plan, seen: list[Sent]) -> None:
        super().__init__(plan)
        self.seen = seen
        for silent in (StartTask, PutCommand, SetOutputBudget, ReadSnapshots, WriteToSink):
            self.performers[silent] = _ignore

    def send(self, asked: SendMessage) -> None:
        sent = as_sent(9, asked.message, asked.payload)
        assert message_of(sent) is not None, "what a slot sends can be read"
        self.seen.append(sent)


def _ignore(_asked: object) -> None:
    pass


class _Slot(SlotDialogue):
    """``seen``: what the slot hears and says."""

    def __init__(self, seen: list[Sent]) -> None:
        super().__init__()
        self.seen = seen

    def do_slot(self, words: list[str], given: dict[str, str]) -> None:
        super().do_slot(words, given)
        old = self.slot
        self.shell = _Shell(old.plan, self.seen)
        self.slot = Slot(old.id, old.plan, old.options, self.shell.new_mirror)

    def deliver(self, sender: int, message: Message, payload: bytes = b"") -> None:
        self.seen.append(as_sent(sender, message, payload))
        super().deliver(sender, message, payload)

    def take(self, sender: int, message: Message, payload: bytes) -> None:
        """A message of anybody."""
        self.post(MessageReceived(SlotId(sender), message, memoryview(payload)))


class _Coordinator(CoordinatorDialogue):
    """``seen``: what slots say."""

    def __init__(self, seen: list[Sent]) -> None:
        super().__init__()
        self.seen = seen

    def run(self, command: str) -> list[str]:
        name, *words = command.split()
        for effect in self._commands[name](words):
            self._check(effect)
        for slot in self.harness.slots.values():
            self.seen.append(as_sent(slot.slot, slot.status(), b""))
            if slot.view.number:
                self.seen.append(as_sent(slot.slot, slot.view, b""))
        if self.harness.coordinator.view is not None:
            for task in self.harness.plan.tasks:
                place = self.harness.of(task)
                assert place.slot is not None
                output = (self.harness.acknowledgement(task, 1), self.harness.failure(task))
                reported = (
                    AnnounceStep(task, place.incarnation, ChannelId(0), 3),
                    LogLost(task, place.incarnation, None, 3, 4),
                )
                self.seen += [as_sent(place.slot, message, b"") for message in (*output, *reported)]
                self.seen.append(
                    as_sent(place.slot, Suspicion(place.slot, SlotId(2), self.harness.view.number, True), b"")
                )
        return []

    def _check(self, effect: Effect) -> None:
        if isinstance(effect, Send):
            assert message_of(as_sent(0, effect.message, b"")) is not None, "what a coordinator sends can be read"
        elif isinstance(effect, WriteMetadata):
            decode_metadata(encode_metadata(effect.metadata), "entry")

    def take(self, sender: int, message: Message, payload: bytes) -> None:
        """A message of anybody, as the driver hands it over."""
        check_for_coordinator(self.harness.plan, SlotId(sender), message)
        for effect in self.harness.do(Received(SlotId(sender), message)):  # type: ignore[arg-type]
            self._check(effect)


# ------------------------------------------------------------------ playing


def _play_slot(data: bytes) -> Several:
    return _play(data, _Slot([]))


def _play_coordinator(data: bytes) -> Several:
    return _play(data, _Coordinator([]))


LOCAL: Final = frozenset(
    {
        *("emission", "ends", "wants", "in", "broken", "needs", "await", "opened", "confirmed", "written", "read"),
        *("raised", "approaches", "reads_what_is_not_there"),
    }
)
"""Commands that stand for what a slot's own threads tell: after a lie they need not fit what the slot has done."""


def _play(data: bytes, table: _Slot | _Coordinator) -> Several:
    _, *steps = msgspec.msgpack.decode(data)
    lies = 0
    for step in steps:
        lies += step[0] == "hear"
        if lies and step[0] == "run" and step[1].split()[0] in LOCAL:
            continue
        try:
            _do(table, step)
        except DECLARED:
            continue
        except Exception as error:
            if _is_of_tests(error):  # a command that has become impossible
                break
            raise
    return Several(max(1, lies))


def _do(table: _Slot | _Coordinator, step: Step) -> None:
    match step:
        case ["run", command]:
            table.run(command)
        case ["tick"]:
            table.run("tick" if isinstance(table, _Slot) else "tick 100")
        case ["hear", sender, data, payload]:
            message = message_of((sender, data, payload))
            if message is not None:
                table.take(sender, message, payload)


def _is_of_tests(error: Exception) -> bool:
    last = traceback.extract_tb(error.__traceback__)[-1]
    return last.filename.startswith(str(TESTS))


def _shrunk(data: bytes, fails: Callable[[bytes], bool]) -> bytes:
    """Drops the steps that the failure does not need."""
    name, *steps = msgspec.msgpack.decode(data)
    at = len(steps) - 1
    while at >= 0:
        smaller = [*steps[:at], *steps[at + 1 :]]
        if fails(msgspec.msgpack.encode([name, *smaller])):
            steps = smaller
        at -= 1
    return msgspec.msgpack.encode([name, *steps])
