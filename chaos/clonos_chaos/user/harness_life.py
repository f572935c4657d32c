"""One incarnation of the task that a harness drives: a greenlet that runs until it waits."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any, NoReturn

from greenlet import getcurrent, greenlet

from clonos.core.channel.output_budget import UNLIMITED
from clonos.core.model.ids import ChannelId, TaskId
from clonos.core.model.options import Options
from clonos.core.model.plan import Plan
from clonos.core.ports.operator_chain import Chain
from clonos.core.ports.task_port import Activation, Command, Finished, PartReported, TaskEmission, TaskStopped
from clonos.core.task.task import Task


@dataclass
class HarnessContext:
    """State shared by all incarnations of a task. ``now_ns``: the clock, which only the harness advances."""

    plan: Plan
    task: TaskId
    options: Options
    rng: Random
    now_ns: int
    new_chain: Callable[[], Chain]
    commands: deque[Command] = field(default_factory=deque)


class Life:
    """``TaskPort`` of one incarnation. Every wait of the task returns control to the harness."""

    def __init__(self, around: HarnessContext, activation: Activation, is_first: bool) -> None:
        self.around = around
        self.emissions: list[TaskEmission] = []
        self.error: Exception | None = None
        self.is_at_log_end = False
        self.may_live = is_first
        self.waits_until_ns: int | None = None
        self.performed = 0
        self.activation = activation
        self._is_over = False
        self._hub: Any = None
        self._life = greenlet(self._main)

    def _main(self) -> None:
        around = self.around
        try:
            chain = around.new_chain()
            Task(around.plan, around.task, chain, self, self.activation, around.options).run()
        except TaskStopped:
            pass
        except Exception as error:  # noqa: BLE001  the harness raises it
            self.error = error

    def resume(self) -> None:
        """Runs the task until it waits."""
        if not self._life.dead:
            self._hub = getcurrent()
            self._life.switch()

    def stop(self) -> None:
        """Ends the incarnation, wherever it waits."""
        self._is_over = True
        if self._life and not self._life.dead:
            self._life.throw(TaskStopped)

    def _wait(self) -> None:
        self._hub.switch()
        if self._is_over:
            raise TaskStopped

    # ------------------------------------------------------------------ TaskPort

    def receive(self, until_ns: int | None) -> Command | None:
        while True:
            if self.around.commands:
                return self.around.commands.popleft()
            if until_ns is not None and until_ns <= self.around.now_ns:
                return None
            self.waits_until_ns = until_ns
            self._wait()
            self.waits_until_ns = None

    def emit(self, emission: TaskEmission) -> None:
        self.emissions.append(emission)

    def budget_bytes(self) -> int:
        return UNLIMITED

    def needs(self, channel: ChannelId, next_seq: int) -> None:
        pass

    def go_live(self, positions: dict[ChannelId, int], accepted: str = "") -> None:
        self.is_at_log_end = True
        while not self.may_live:
            self._wait()

    def await_replicated(self, log_end_bytes: int) -> None:
        pass

    def announce_step(self, channel: ChannelId | None, first_seq: int) -> None:
        pass

    def open_journal(self) -> None:
        raise AssertionError("a harness gives records itself")

    def lose_journal(self) -> NoReturn:
        raise AssertionError("a harness gives records itself")

    def now_ns(self) -> int:
        return self.around.now_ns

    def cost_clock_ns(self) -> int:
        return 0

    def entropy(self, count: int) -> bytes:
        return self.around.rng.randbytes(count)

    def perform(self, function: Any, key: str) -> object:
        self.performed += 1
        return function(key)

    def begin_call(self, number: int, function: Callable[[str], bytes], key: str) -> None:
        self.performed += 1
        self.around.commands.append(Finished(number, function(key)))

    def report_part(self, number: int, asked: int, data: bytes, *, waits: bool) -> bool:
        self.around.commands.append(PartReported(number, asked, data))
        return True

    def end_calls(self) -> None: ...

    def when_replicated(self, log_end_bytes: int, act: Callable[[], None]) -> None:
        act()
