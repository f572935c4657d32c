"""Simulated thread of a task: a greenlet, so that user code can wait in virtual time and die anywhere."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, NoReturn

from greenlet import getcurrent, greenlet

from clonos.core.channel.output_budget import OutputBudget
from clonos.core.log.replicated_acts import ReplicatedActs
from clonos.core.model.ids import ChannelId, TaskId, ThreadId
from clonos.core.ports.task_port import (
    Activation,
    BudgetChanged,
    Command,
    Finished,
    PartReported,
    TaskEmission,
    TaskStopped,
)
from clonos.core.slot.slot_events import (
    ElementsNeeded,
    JournalMissed,
    JournalWanted,
    LogEndReached,
    ReplicationAwaited,
    StepAnnounced,
    StepEmitted,
    ThreadRaised,
)
from clonos.core.task.failure_report import describe_failure
from clonos.core.task.task import Task
from clonos.io.process.fault_points import FaultPoint, of_shadow
from clonos_chaos.sim.sim_process import SimProcess
from clonos_chaos.sim.virtual_clock import MILLISECOND_NS


class SimTask:
    """``TaskPort`` and ``TaskHandle`` of one incarnation. Waiting switches to the world's loop."""

    def __init__(self, host: SimProcess, task: TaskId, number: ThreadId, activation: Activation) -> None:
        self.host, self.world, self.clock = host, host.world, host.world.clock
        self.task, self.number, self.plan = task, number, host.slot.plan
        self.began_as_shadow = activation.is_shadow
        self.commands: deque[Command] = deque()
        self.is_dead = False
        self.output_budget = OutputBudget(lambda: self.put(BudgetChanged()))
        self._activation = activation
        self._life: greenlet | None = None
        self._awaited = 0  # number of the wake-up that the task waits for
        self._is_idle = False
        self._is_released = False
        self._replicated_bytes = -1
        self._acts = ReplicatedActs()
        self._calls: list[greenlet] = []  # asynchronous calls that run
        self._is_acknowledged = False
        self.announced: tuple[ChannelId | None, int] | None = None  # element announced last, in single-step mode
        self.acknowledged: tuple[ChannelId | None, int] | None = None  # announced, and known to the coordinator

    # ------------------------------------------------------------------ life

    def start(self) -> None:
        """Starts the task after a short delay, as a thread does."""
        self._life = greenlet(self._main)
        self._wake_after(self.clock.between(1_000, MILLISECOND_NS))

    def _main(self, *_: Any) -> None:
        world = self.world
        task: Task | None = None
        try:
            self._reach(FaultPoint.START)
            chain = world.job.new_chain(self.plan.vertex_of[self.task])
            task = Task(self.plan, self.task, chain, self, self._activation, world.options)
            self._activation = None  # type: ignore[assignment]
            task.run()
        except TaskStopped:
            pass
        except Exception as error:  # noqa: BLE001  reported to the slot, as a thread does
            if self.is_dead:
                return
            assert task is not None, error
            world.note(f"{self.plan.task_name(self.task)} raised {error!r}")
            if world.is_unexpected(error):
                world.crashes.append(error)
            self.host.later(
                self.host.handle, ThreadRaised(self.number, describe_failure(task, error), task.log.unfinished)
            )

    def _reach(self, point: FaultPoint) -> bool:
        """Announces a named point; a shadow announces it under another name."""
        hosted = self.host.slot.hosted.get(self.task)
        is_shadow = self.began_as_shadow and (hosted is None or hosted.thread != self.number)
        return self.world.reach(of_shadow(point) if is_shadow else point, self.task)

    def kill(self) -> None:
        """Ends the incarnation: its pending wait raises ``TaskStopped``."""
        if self.is_dead:
            return
        self.is_dead = True
        life = self._life
        if life is not None and life and life is not getcurrent():
            life.throw(TaskStopped)
        for call in self._calls:
            if call is not getcurrent() and call:
                call.throw(TaskStopped)

    def _wake_after(self, delay_ns: int) -> None:
        self._awaited += 1
        self.clock.after(delay_ns, self._wake, self._awaited)

    def _wake(self, number: int) -> None:
        if self.is_dead or number != self._awaited or self._life is None:
            return
        if self.host.paused_until_ns > self.clock.now_ns:
            self.clock.at(self.host.paused_until_ns, self._wake, number)
            return
        self._is_idle = False
        self._life.switch()

    def _sleep(self) -> None:
        self.world.hub.switch()
        if self.is_dead:
            raise TaskStopped

    def _pass_time(self, delay_ns: int) -> None:
        self._wake_after(delay_ns)
        self._sleep()

    def _idle(self, until_ns: int | None) -> None:
        """Waits for a command, a release or an instant of the wall clock."""
        self._is_idle = True
        self._awaited += 1
        if until_ns is not None:
            self.clock.at(until_ns - self.clock.epoch_ns, self._wake, self._awaited)
        self._sleep()

    def _stir(self) -> None:
        if self._is_idle:
            self._wake_after(self.clock.between(1_000, 50_000))

    # ------------------------------------------------------------------ the slot's side

    def put(self, command: Command) -> None:
        self.commands.append(command)
        self._stir()

    def release(self) -> None:
        """Lets ``go_live`` return."""
        self._is_released = True
        self._stir()

    def replicated_to(self, end_bytes: int) -> None:
        """Lets ``await_replicated`` return."""
        self._replicated_bytes = max(self._replicated_bytes, end_bytes)
        self._stir()
        self._acts.reach(end_bytes)

    def note(self) -> None:
        """Lets ``announce_step`` return."""
        self._is_acknowledged = True
        self._stir()

    # ------------------------------------------------------------------ TaskPort

    def receive(self, until_ns: int | None) -> Command | None:
        if self.is_dead:
            raise TaskStopped
        if self.commands:
            return self.commands.popleft()
        if until_ns == 0:
            return None
        while not self.commands:
            self._idle(until_ns)
            if until_ns is not None and self.clock.wall_ns >= until_ns:
                break
        return self.commands.popleft() if self.commands else None

    def emit(self, emission: TaskEmission) -> None:
        snapshot = emission.snapshot
        if snapshot is None:
            self._reach(FaultPoint.SUSPENDED if emission.suspension else FaultPoint.EMISSION)
        else:
            self._reach(FaultPoint.END_OF_STREAM if snapshot.final else FaultPoint.ALIGNED)
        self.output_budget.spend(emission.cost_bytes)
        self.host.later(self.host.handle, StepEmitted(self.task, self.number, emission))
        self._pass_time(self.clock.between(10_000, self.world.settings.step_ns_max))

    def budget_bytes(self) -> int:
        return self.output_budget.left_bytes()

    def needs(self, channel: ChannelId, next_seq: int) -> None:
        self.host.later(self.host.handle, ElementsNeeded(self.task, self.number, channel, next_seq))

    def go_live(self, positions: dict[ChannelId, int], accepted: str = "") -> None:
        self._reach(FaultPoint.LOG_END)
        self.host.later(self.host.handle, LogEndReached(self.task, self.number, positions, accepted))
        while not self._is_released:
            self._idle(None)

    def await_replicated(self, log_end_bytes: int) -> None:
        self._reach(FaultPoint.INTENT)
        self.host.later(self.host.handle, ReplicationAwaited(self.task, self.number, log_end_bytes))
        while self._replicated_bytes < log_end_bytes:
            self._idle(None)

    def announce_step(self, channel: ChannelId | None, first_seq: int) -> None:
        self._is_acknowledged = False
        self.announced = (channel, first_seq)
        self.host.later(self.host.handle, StepAnnounced(self.task, self.number, channel, first_seq))
        while not self._is_acknowledged:
            self._idle(None)
        self.acknowledged = self.announced

    def open_journal(self) -> None:
        self.host.later(self.host.handle, JournalWanted(self.task, self.number))

    def lose_journal(self) -> NoReturn:
        self.host.later(self.host.handle, JournalMissed(self.task, self.number))
        while True:
            self._idle(None)

    def now_ns(self) -> int:
        return self.clock.wall_ns

    def cost_clock_ns(self) -> int:
        return 0

    def entropy(self, count: int) -> bytes:
        return self.clock.rng.randbytes(count)

    def begin_call(self, number: int, function: Callable[[str], bytes], key: str) -> None:
        self._beside(self._ask, number, function, key)

    def _ask(self, number: int, function: Callable[[str], bytes], key: str) -> None:
        call = greenlet(self._call)
        self._calls.append(call)
        call.switch(number, function, key)

    def _call(self, number: int, function: Callable[[str], bytes], key: str) -> None:
        try:
            outcome = function(key)
        except TaskStopped:
            return
        self._calls.remove(getcurrent())
        self._beside(lambda: self.put(Finished(number, outcome)))

    def report_part(self, number: int, asked: int, data: bytes, *, waits: bool) -> bool:
        call = getcurrent()
        if call not in self._calls:  # the thread of an event loop, for which the world waits
            self.put(PartReported(number, asked, data))
            return True

        def go_on(is_open: bool) -> None:
            self._beside(call.switch, is_open)

        self.put(PartReported(number, asked, data, go_on if waits else None))
        if not waits:
            go_on(True)
        is_open: bool = self.world.hub.switch()
        return is_open

    def end_calls(self) -> None:
        """Does nothing: the greenlets of calls end with the incarnation."""

    def when_replicated(self, log_end_bytes: int, act: Callable[[], None]) -> None:
        self._acts.add(log_end_bytes, act)
        self.host.later(self.host.handle, ReplicationAwaited(self.task, self.number, log_end_bytes))

    def _beside(self, act: Callable[..., None], *arguments: Any) -> None:
        """Calls a function after a random delay, if this incarnation still lives."""
        delay_ns = self.clock.between(10_000, self.world.settings.call_ns_max)
        self.clock.after(delay_ns, lambda: None if self.is_dead else act(*arguments))

    def perform(self, function: Any, key: str) -> object:
        self._pass_time(self.clock.between(10_000, self.world.settings.call_ns_max))
        if self._reach(FaultPoint.CALL):
            self._pass_time(1)
        try:
            return function(key)
        finally:
            self._reach(FaultPoint.CALLED)
            self._pass_time(self.clock.between(10_000, self.world.settings.call_ns_max))
