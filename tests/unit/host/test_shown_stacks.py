"""Thread dumps and samples of a job: what its driver makes of the answers of slots, and of those that are missing."""

from __future__ import annotations

import os
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from clonos.core.model.errors import MessageMalformed
from clonos.core.model.ids import SlotId, TaskId
from clonos.core.wire.stack_messages import SampleTask, ShowThreads, StacksShown
from clonos_standby.driver.shown_stacks import ShownStacks, StacksMissing
from clonos_standby.stacks import ProcessStacks, StackSamples, ThreadStack, encode_stacks

THREAD = ThreadStack("task ask/0 1.1", "ask/0", "ask", False, (("n", "7"),), ("job.py:1 in ask",))
ASK = TaskId(0)


class Slots:
    """Slots that answer with what the test sets, by their ids; others are silent."""

    def __init__(self, **answers: Any) -> None:
        self.answers = {int(name.removeprefix("slot")): answer for name, answer in answers.items()}
        registers = tuple(SimpleNamespace(slot=SlotId(each), pid=100 + each, host="vm") for each in (1, 2))
        view = SimpleNamespace(placements=[SimpleNamespace(slot=SlotId(1)), SimpleNamespace(slot=None)])
        self.coordinator: Any = SimpleNamespace(slots=registers, view=view)
        self.stacks = ShownStacks(self._ask, self._send, answer_s=0.01)

    def _ask(self, question: Callable[[Any], Any]) -> Any:
        return question(self.coordinator)

    def _send(self, slot: SlotId, asked: ShowThreads | SampleTask) -> None:
        if (answer := self.answers.get(slot)) is not None:
            shown = answer if isinstance(answer, bytes) else encode_stacks(answer)
            self.stacks.on_shown(slot, StacksShown(asked.number, shown))
            self.stacks.on_shown(slot, StacksShown(asked.number + 1, shown))  # to no request


def test_a_dump_has_the_driver_and_each_slot() -> None:
    processes = ProcessStacks(101, "vm", (THREAD,)), ProcessStacks(102, "vm", ())
    found = Slots(slot1=processes[0], slot2=processes[1]).stacks.dump()
    assert found.processes[0].pid == os.getpid()
    assert (found.processes[1:], found.silent) == (processes, ())


def test_a_process_that_does_not_answer_is_named() -> None:
    found = Slots(slot1=ProcessStacks(101, "vm", ())).stacks.dump()
    (silent,) = found.silent
    assert silent.startswith("process 102 on vm did not answer within 0.01 s")


def test_slots_that_are_threads_of_the_driver_are_shown_once() -> None:
    own = ProcessStacks(os.getpid(), "vm", (THREAD,))
    assert [each.pid for each in Slots(slot1=own, slot2=own).stacks.dump().processes] == [os.getpid()]


def test_samples_come_from_the_slot_of_the_task() -> None:
    samples = StackSamples(3, {"run;ask": 3})
    assert Slots(slot1=samples, slot2=StackSamples(9, {})).stacks.sample(ASK, "ask/0", 0.01) == samples


@pytest.mark.parametrize(
    ("slots", "task", "reason"),
    [
        (Slots(), ASK, "its process did not answer"),
        (Slots(), TaskId(1), "it has no process now"),
        (Slots(slot1=StackSamples(0, {})), ASK, "no thread of it runs in its process"),
    ],
)
def test_a_task_that_cannot_be_sampled_is_named_with_the_reason(slots: Slots, task: TaskId, reason: str) -> None:
    with pytest.raises(StacksMissing, match=f"the stack of ask/0 was not sampled: {reason}"):
        slots.stacks.sample(task, "ask/0", 0.01)


def test_an_answer_that_cannot_be_read_is_malformed() -> None:
    with pytest.raises(MessageMalformed, match="StacksShown that cannot be read"):
        Slots(slot1=b"\xff").stacks.dump()
