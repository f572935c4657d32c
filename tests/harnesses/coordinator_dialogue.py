"""Dialogues with the coordinator as text: a command on its own line, then all its effects, indented.

    > gone 3
      alarm: slot 3 is gone: killed
      1 2 4 <- view 1.2 generation 1.1
          source/0 1.2 in 1 from 0, standbys 2

Messages that go to several slots stand on one line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from clonos.core.coordinator.coordinator_effects import (
    Alarm,
    Effect,
    JobDone,
    JobFailed,
    RecoveryEvent,
    ReleaseSlot,
    RequestSlots,
    Send,
    WriteMetadata,
)
from clonos.core.coordinator.coordinator_events import MetadataWritten, OutputCommitted, StopRequested, WriteOutcome
from clonos.core.model.ids import CheckpointId, SlotId, view_name
from clonos.core.model.options import Options
from clonos.core.model.progress import TaskPhase
from clonos.core.wire.control_messages import Completed, Hold, Placement, Release, TriggerCheckpoint, View
from clonos.core.wire.message_codec import decode_message, encode_message
from clonos.core.wire.messages import Message
from tests.harnesses.coordinator_harness import CoordinatorHarness, chain_plan

Words = list[str]


class CoordinatorDialogue:
    """The coordinator of one dialogue, and the meaning of its commands."""

    def __init__(self) -> None:
        self.harness = CoordinatorHarness()
        self._commands: dict[str, Callable[[Words], tuple[Effect, ...]]] = {
            "job": self._job,
            "begin": lambda words: self.harness.begin(slots=int(words[0])),
            "register": lambda words: self.harness.register(int(words[0]), words[1]),
            "tick": lambda words: self.harness.tick(int(words[0])),
            "gone": lambda words: self.harness.gone(*map(int, words)),
            "accuse": lambda words: self.harness.suspect(int(words[0]), int(words[1])),
            "ack": lambda words: self.harness.acknowledge(int(words[0]), *map(int, words[1:])),
            "final": lambda words: self.harness.acknowledge(int(words[0]), *map(int, words[1:]), final=True),
            "durable": lambda words: self.harness.durable(int(words[0])),
            "taken": lambda words: self.harness.do(MetadataWritten(CheckpointId(int(words[0])), WriteOutcome.TAKEN)),
            "committed": lambda words: self.harness.do(OutputCommitted(CheckpointId(int(words[0])))),
            "lost": lambda words: self.harness.lose_log(int(words[0])),
            "raise": lambda words: self.harness.raise_in(int(words[0]), first_seq=int(words[1]), count=int(words[2])),
            "drain": lambda words: self.harness.do(StopRequested(drain=True)),
            "set": self._set,
        }

    def _job(self, words: Words) -> tuple[Effect, ...]:
        """``job parallelism=1 effects standbys=1 ...``: a chain of source, map and sink."""
        given = dict(word.split("=") for word in words if "=" in word)
        plan = chain_plan(int(given.pop("parallelism", 1)), "effects" in words)
        self.harness = CoordinatorHarness(plan, Options(**{name: int(value) for name, value in given.items()}))  # type: ignore[arg-type]
        return ()

    def _set(self, words: Words) -> tuple[Effect, ...]:
        """``set 3 deaf``, ``set 3 phase=replaying``, ``set 3 hearing``, ``set 3 backups=no``."""
        slot = self.harness.slots[SlotId(int(words[0]))]
        name, _, value = words[1].partition("=")
        if name == "phase":
            slot.phase = TaskPhase(value)
        elif name == "backups":
            slot.are_backups_ready = value == "ready"
        else:
            slot.is_deaf = name == "deaf"
        return ()

    def run(self, command: str) -> list[str]:
        """Runs a command; returns the lines of its effects."""
        name, *words = command.split()
        return self._lines(self._commands[name](words))

    # ------------------------------------------------------------------ effects as lines

    def _lines(self, effects: Iterable[Effect]) -> list[str]:
        lines: list[tuple[str, list[str]]] = []
        for effect in effects:
            text = self._message(effect.message) if isinstance(effect, Send) else self._effect(effect)
            receiver = [str(effect.slot)] if isinstance(effect, Send) else []
            if receiver and lines and lines[-1][0] == text:
                lines[-1][1].extend(receiver)
            else:
                lines.append((text, receiver))
        found = []
        for text, receivers in lines:
            head = f"{' '.join(receivers)} <- " if receivers else ""
            found += f"{head}{text}".split("\n")
        return found

    def _message(self, message: Message) -> str:
        plan = self.harness.plan
        assert decode_message(encode_message(message), "the coordinator") == message
        match message:
            case View():
                return self._view(message)
            case TriggerCheckpoint(task, incarnation, checkpoint, then_pause):
                pause = ", then pause" if then_pause else ""
                return f"trigger {checkpoint} for {plan.task_name(task)} {view_name(incarnation)}{pause}"
            case Completed(checkpoint, generation, tasks):
                lives = " ".join(f"{plan.task_name(task)}={view_name(life)}:{offset}" for task, life, offset in tasks)
                return f"completed {checkpoint} generation {view_name(generation)}: {lives}"
            case Release(_, reason):
                return f"release: {reason}"
            case Hold(slot):
                return f"hold: {slot} is above its soft limit"
            case _:
                raise AssertionError(f"the coordinator never sends {message}")

    def _view(self, view: View) -> str:
        text = f"view {view_name(view.number)} generation {view_name(view.generation)}"
        return "\n".join([text, *(f"    {self._placement(p)}" for p in view.placements)])

    def _placement(self, placement: Placement) -> str:
        marks = " fresh" * placement.is_fresh + " single-step" * placement.is_single_step
        name = self.harness.plan.task_name(placement.task)
        text = f"{name} {view_name(placement.incarnation)} in {placement.slot} from {placement.restore}{marks}"
        for kind, slots in (("standbys", placement.standbys), ("keepers", placement.keepers)):
            if slots:
                text += f", {kind} {' '.join(map(str, slots))}"
        return text

    def _effect(self, effect: Effect) -> str:
        match effect:
            case RecoveryEvent(milestone, _, task, incarnation, cause):
                return f"recovery: {milestone} {self.harness.plan.task_name(task)} {view_name(incarnation)} ({cause})"
            case Alarm(text, _):
                return f"alarm: {text}"
            case RequestSlots(count, avoided):
                return f"request {count} slots" + (f" outside {' '.join(avoided)}" if avoided else "")
            case ReleaseSlot(slot, reason):
                return f"release slot {slot}: {reason}"
            case WriteMetadata(metadata):
                lives = " ".join(view_name(entry.incarnation) for entry in metadata.tasks)
                return f"write metadata {metadata.checkpoint} generation {view_name(metadata.generation)}: {lives}"
            case JobDone(ending, checkpoint):
                return f"done: {ending} at checkpoint {checkpoint}"
            case JobFailed(fault, reason):
                return f"failed ({fault}): {reason}"
            case _:
                return str(effect)
