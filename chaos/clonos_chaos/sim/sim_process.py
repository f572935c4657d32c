"""Process of the simulated world: a machine that handles one event after another, and may pause and die."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from clonos.core.model.ids import SlotId, TaskId
from clonos.core.ports.operator_chain import Mirror
from clonos.core.slot.slot import Slot
from clonos.core.slot.slot_events import Event
from clonos_chaos.sim.environment import SimEnvironment


class SimProcess:
    """Lives until it is killed; pauses hold back everything that would happen in it."""

    performers: dict[type, Callable[[Any], None]]
    """What performs each type of effect."""

    def __init__(self, world: SimEnvironment, slot_id: SlotId, domain: str) -> None:
        self.world, self.clock = world, world.clock
        self.id, self.domain = slot_id, domain
        self.is_dead = False
        self.paused_until_ns = 0
        self._held_back: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()
        self._inbox_due_ns = 0
        self.slot = Slot(slot_id, world.declared, world.options, self.new_mirror)
        self.step = self.slot.step  # or that of a trace

    def new_mirror(self, task: TaskId) -> Mirror:
        return self.world.job.new_mirror(self.slot.plan.vertex_of[task])

    def handle(self, event: Event) -> None:
        """Steps the machine and performs what it asks for."""
        for each in self.step(event):
            self.performers[type(each)](each)

    def run(self, call: Callable[..., None], *arguments: Any) -> None:
        """Something happens in this process: now, or when it is no longer paused, in the order in which it came."""
        if self.is_dead:
            return
        if self.paused_until_ns > self.clock.now_ns or self._held_back:
            self._held_back.append((call, arguments))
            self.clock.at(self.paused_until_ns, self._run_held_back)
            return
        self._make(call, arguments)

    def _make(self, call: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        call(*arguments)
        if self.world.is_validated:
            self.slot.validate()

    def _run_held_back(self) -> None:
        """Makes the first call that was held back, so that calls held through two pauses keep their order."""
        if self.is_dead or not self._held_back:
            return
        if self.paused_until_ns > self.clock.now_ns:
            self.clock.at(self.paused_until_ns, self._run_held_back)
            return
        self._make(*self._held_back.popleft())

    def pause(self, until_ns: int) -> None:
        """SIGSTOP, and SIGCONT at an instant; within another pause the later end counts."""
        self.paused_until_ns = max(self.paused_until_ns, until_ns)

    def resume(self) -> None:
        """SIGCONT."""
        self.paused_until_ns = 0
        for _ in range(len(self._held_back)):
            self._run_held_back()

    def later(self, call: Callable[..., None], *arguments: Any) -> None:
        """From a thread of the process to its slot's thread: soon, in order."""
        self._inbox_due_ns = max(self._inbox_due_ns, self.clock.now_ns + self.clock.between(1_000, 50_000))
        self.clock.at(self._inbox_due_ns, self.run, call, *arguments)
