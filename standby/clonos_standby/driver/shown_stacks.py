"""Thread dumps and flame graphs of a job: requests to its slots, and what they send back.

The I/O thread of a slot takes a request, and a thread of its own answers it, so that a task that is stuck in user code
is shown like any other. A slot whose process is stopped, or in which C code holds the global interpreter lock, does not
answer; it is named.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from queue import Empty, SimpleQueue
from typing import Any, Final

import msgspec

from clonos.core.coordinator.coordinator import Coordinator
from clonos.core.model.errors import EnvironmentFault, MessageMalformed
from clonos.core.model.ids import SlotId, TaskId
from clonos.core.wire.authorization import sender_name
from clonos.core.wire.control_messages import Register
from clonos.core.wire.decoding import DECODE_ERRORS
from clonos.core.wire.stack_messages import SampleTask, ShowThreads, StacksShown
from clonos_standby.stacks import ProcessStacks, StackSamples, decode_process, decode_samples, process_stacks

SAMPLE_S_MAX: Final = 60.0
ANSWER_S: Final = 5.0
"""Seconds in which a slot must have answered, after the time for which it samples."""


Answers = SimpleQueue[tuple[SlotId, bytes]]
"""Slots that have answered, with their stacks."""


class StacksMissing(EnvironmentFault):
    """A task cannot be sampled."""

    task: str
    reason: str

    def __str__(self) -> str:
        return f"the stack of {self.task} was not sampled: {self.reason}."


class ThreadDump(msgspec.Struct, frozen=True):
    """Processes of a job and what their threads are at; that of the driver comes first. ``silent``: processes that did
    not answer, with the reason."""

    processes: tuple[ProcessStacks, ...]
    silent: tuple[str, ...] = ()


class ShownStacks:
    """Requests of one driver. ``on_shown`` runs in the coordinator's thread, the others in any other."""

    def __init__(
        self,
        ask: Callable[[Callable[[Coordinator], Any]], Any],
        send: Callable[[SlotId, ShowThreads | SampleTask], object],
        answer_s: float = ANSWER_S,
    ) -> None:
        """Takes how to run a function in the coordinator's thread, and how to send from there."""
        self._ask, self._send, self._answer_s = ask, send, answer_s
        self._numbers = count(1)
        self._answers: dict[int, Answers] = {}

    def on_shown(self, sender: SlotId, message: StacksShown) -> None:
        """Takes an answer; that to a request that has ended is dropped."""
        if (answers := self._answers.get(message.number)) is not None:
            answers.put((sender, message.stacks))

    @contextmanager
    def _answers_to(self) -> Iterator[tuple[int, Answers]]:
        """Gives the number of a new request, and where the answers to it arrive while it is open."""
        number = next(self._numbers)
        self._answers[number] = answers = Answers()
        try:
            yield number, answers
        finally:
            del self._answers[number]

    def dump(self) -> ThreadDump:
        """Returns what all threads of the driver and of the slots are at."""
        with self._answers_to() as (number, answers):
            missing = {each.slot: each for each in self._ask(lambda each: self._request_all(each, number))}
            processes = {(own := process_stacks()).pid: own}
            deadline_s = time.monotonic() + self._answer_s
            with suppress(Empty):
                while missing:
                    slot, stacks = answers.get(timeout=max(0.0, deadline_s - time.monotonic()))
                    if missing.pop(slot, None) is not None:
                        found: ProcessStacks = _decoded(slot, decode_process, stacks)
                        processes.setdefault(found.pid, found)  # slots that are threads share a process
        return ThreadDump(tuple(processes.values()), tuple(map(self._why_silent, missing.values())))

    def _request_all(self, coordinator: Coordinator, number: int) -> tuple[Register, ...]:
        slots = coordinator.slots
        for register in slots:
            self._send(register.slot, ShowThreads(number))
        return slots

    def _why_silent(self, register: Register) -> str:
        return (
            f"process {register.pid} on {register.host} did not answer within {self._answer_s:g} s: it is stopped, or"
            " ends, or C code in it holds the global interpreter lock"
        )

    def sample(self, task: TaskId, name: str, length_s: float) -> StackSamples:
        """Returns what the thread of a task was at during the next ``length_s`` seconds.

        Raises: StacksMissing: the task has no process now, or it does not answer.
        """
        with self._answers_to() as (number, answers):
            asked = SampleTask(task, round(length_s * 1000), number)
            if not self._ask(lambda coordinator: self._request(coordinator, asked)):
                raise StacksMissing(name, "it has no process now")
            try:
                sender, stacks = answers.get(timeout=length_s + self._answer_s)
            except Empty:
                reason = (
                    "its process did not answer: it was replaced, or C code in it holds the global interpreter lock"
                )
                raise StacksMissing(name, reason) from None
        found: StackSamples = _decoded(sender, decode_samples, stacks)
        if not found.samples:
            raise StacksMissing(name, "no thread of it runs in its process")
        return found

    def _request(self, coordinator: Coordinator, asked: SampleTask) -> bool:
        """Sends a request to the slot of its task; returns whether there is one."""
        view = coordinator.view
        if view is None or asked.task >= len(view.placements) or (slot := view.placements[asked.task].slot) is None:
            return False
        self._send(slot, asked)
        return True


def _decoded(sender: SlotId, decode: Callable[[bytes], Any], stacks: bytes) -> Any:
    try:
        return decode(stacks)
    except DECODE_ERRORS as error:
        raise MessageMalformed(sender_name(sender), f"StacksShown that cannot be read: {error}") from None
