"""Thread of one incarnation of a task, between user code and the slot's I/O thread.

A thread cannot be ended from outside: a stopped thread ends at its next call here. User code that blocks until then
does no harm, because its output is discarded by incarnation.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Event, Thread
from typing import Any, NoReturn

from clonos.core.channel.output_budget import OutputBudget
from clonos.core.log.replicated_acts import ReplicatedActs
from clonos.core.model.errors import is_shortage
from clonos.core.model.ids import ChannelId, TaskId, ThreadId, view_name
from clonos.core.model.metric_series import MetricFamily
from clonos.core.model.progress import TaskCounter
from clonos.core.ports.task_failure import failure_of
from clonos.core.ports.task_port import (
    Activation,
    BudgetChanged,
    Command,
    Finished,
    PartReported,
    Stopped,
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
from clonos.core.wire.control_messages import HotKey
from clonos.core.wire.recovery_messages import Recourse, TaskFailed
from clonos.core.wire.trace_messages import TracedStep
from clonos.io.process.exit_guard import guard_thread
from clonos.io.process.fault_points import FaultPoint, of_shadow
from clonos.io.system.entropy import random_bytes
from clonos.io.system.wall_clock import CostClock
from clonos.operators.chain import OperatorChain
from clonos_standby.slot.log_forwarding import THREAD_OF_CALL, THREAD_OF_TASK
from clonos_standby.slot.surroundings import SlotSurroundings

logger = logging.getLogger("clonos.slot")

WAIT_S_MAX = 3600.0
STATE_BYTES_EVERY_NS = 1_000_000_000
"""Time between measurements of the state in columns, which look at each of its tables."""
PENDING_EVERY_NS = 1_000_000_000
"""Time between questions to the readers of a source how much waits."""


class TaskThread:
    """``TaskPort`` for the task and ``TaskHandle`` for the slot. ``put`` enqueues a command and never blocks."""

    def __init__(
        self,
        context: SlotSurroundings,
        task: TaskId,
        thread: ThreadId,
        activation: Activation,
        folder: Path,
    ) -> None:
        self._post, self._handle, self._inbox = context.post, context.handle, context.inbox
        self._image = context.image
        self._clock, self._faults = context.clock, context.faults
        self._task, self._thread_id, self.incarnation = task, thread, activation.incarnation
        self._activation: Activation | None = activation
        self._folder = folder
        self._commands: SimpleQueue[Command] = SimpleQueue()
        self.put: Callable[[Command], None] = self._commands.put
        self._is_stopped = False
        self._live = Event()
        self._replicated_moved = Event()
        self._announced = Event()
        self._replicated_bytes = -1
        self._ends_calls = False
        self._waiting: list[SimpleQueue[bool]] = []  # of calls that wait until the keepers have a part
        self._acts = ReplicatedActs()
        self.output_budget = OutputBudget(lambda: self._commands.put(BudgetChanged()))
        self.budget_bytes: Callable[[], int] = self.output_budget.left_bytes
        self._running: Task | None = None
        self._chain: OperatorChain | None = None
        self._is_shadow = activation.is_shadow  # a shadow that has not taken over
        life = "shadow" if activation.is_shadow else view_name(activation.incarnation)
        self.task_name = context.image.plan.task_name(task)
        self.name = f"{self.task_name} {life}"
        self.turns = 0  # grows with each call of the task's code for input or with output
        self._began_ns = time.monotonic_ns()
        self._idle_ns = self._idle_since_ns = 0  # time without input; since when it waits for some, 0 while it works
        self._blocked_ns = 0  # the part of it in which receivers took no output
        self._is_blocked = False
        self._executed_calls = 0
        self._state_bytes = self._state_bytes_ns = 0  # the latest measurement, and when the next one is due
        self._pending: list[tuple[TaskCounter, int]] = []
        self._pending_ns = 0  # when it is due again
        self._calls = CallThreads(self.name)
        self.journal_cursor: bytes | None = None  # after the journal that this incarnation has found
        self._cost_clock: CostClock | None = None
        self.thread = Thread(target=self._run_and_report, name=f"{THREAD_OF_TASK}{self.name}", daemon=True)

    # ------------------------------------------------------------------ the slot's side

    def stop(self) -> None:
        """Ends the incarnation at its next call."""
        self._is_stopped = True
        self.end_calls()
        self._commands.put(Stopped())
        self._live.set()
        self._replicated_moved.set()
        self._announced.set()

    def release(self) -> None:
        """Lets ``go_live`` return."""
        self._live.set()

    def note(self) -> None:
        """Lets ``announce_step`` return."""
        self._announced.set()

    def replicate_to(self, end_bytes: int) -> None:
        """Lets ``await_replicated`` return for log ends up to ``end_bytes``."""
        self._replicated_bytes = max(self._replicated_bytes, end_bytes)
        self._replicated_moved.set()
        self._acts.reach(end_bytes)

    def peek(self, step: str, rows_max: int, show: Callable[[bytes], None]) -> None:
        """Shows the last rows of the next batch that a step of the task emits."""
        if self._chain is not None:
            self._chain.peek(step, rows_max, show)

    def hot_key(self) -> HotKey | None:
        """Returns the key of which most of the latest input is; None if no key stands out."""
        found = None if self._chain is None else self._chain.hottest_key()
        return None if found is None else HotKey(*found)

    def metrics(self) -> tuple[MetricFamily, ...]:
        """Returns the metrics of user code."""
        return () if self._running is None else self._running.log.metric_table.families()

    def latencies(self) -> tuple[MetricFamily, ...]:
        """Returns the latencies that the task has measured."""
        return () if self._running is None else self._running.marks.families()

    def take_traced(self) -> list[TracedStep]:
        """Returns what traced records have passed in this task since the last call."""
        running = self._running
        found = [] if running is None else running.marks.take_passages()
        name_of = self._image.plan.task_name
        return [
            TracedStep(
                self.task_name,
                self.incarnation,
                each.source,
                each.read_ns,
                "" if each.sender is None else name_of(each.sender),
                each.sent_ns,
                each.taken_ns,
                each.ended_ns,
                each.call_ns,
                each.records,
            )
            for each in found
        ]

    def state_bytes(self) -> int:
        """Returns the memory of the task's state in columns, which is measured once per second."""
        if self._chain is not None and (now_ns := time.monotonic_ns()) >= self._state_bytes_ns:
            self._state_bytes, self._state_bytes_ns = self._chain.state_bytes(), now_ns + STATE_BYTES_EVERY_NS
        return self._state_bytes

    def pending(self) -> list[tuple[TaskCounter, int]]:
        """Returns how much input of a source waits in the external system, as it was within the last second."""
        if self._chain is not None and (now_ns := time.monotonic_ns()) >= self._pending_ns:
            found, self._pending_ns = self._chain.pending(), now_ns + PENDING_EVERY_NS
            figures = () if found is None else (found.records, found.bytes)
            names = (TaskCounter.PENDING_RECORDS, TaskCounter.PENDING_BYTES)
            self._pending = [(name, value) for name, value in zip(names, figures, strict=False) if value is not None]
        return self._pending

    def busy_us(self) -> int:
        """Returns the time in which the task did not wait for input, in microseconds."""
        now_ns, since_ns = time.monotonic_ns(), self._idle_since_ns
        idle_ns = self._idle_ns + (now_ns - since_ns if since_ns else 0)
        return max(0, now_ns - self._began_ns - idle_ns) // 1_000

    def blocked_us(self) -> int:
        """Returns the time in which the task waited for its receivers to take output, in microseconds."""
        now_ns, since_ns = time.monotonic_ns(), self._idle_since_ns
        return (self._blocked_ns + (now_ns - since_ns if since_ns and self._is_blocked else 0)) // 1_000

    def figures(self) -> list[tuple[TaskCounter, int]]:
        """Returns the counters that this thread measures."""
        found = [(TaskCounter.BUSY_US, self.busy_us()), (TaskCounter.BLOCKED_US, self.blocked_us())]
        if state_bytes := self.state_bytes():
            found.append((TaskCounter.STATE_BYTES, state_bytes))
        found += self.pending()
        if self._running is not None and (replayed := self._running.log.replayed_calls):
            found.append((TaskCounter.REPLAYED_CALLS, replayed))
        if self._executed_calls:
            found.append((TaskCounter.EXECUTED_CALLS, self._executed_calls))
        return found

    # ------------------------------------------------------------------ the thread

    def _run_and_report(self) -> None:
        guard_thread()
        if self._faults is not None:
            self._reach(FaultPoint.START)
        task: Task | None = None
        activation, self._activation = self._activation, None
        assert activation is not None, self.name
        try:
            chain = self._chain = self._image.new_chain(self._image.plan.vertex_of[self._task])
            self._folder.mkdir(mode=0o700, exist_ok=True)
            task = Task(
                self._image.plan,
                self._task,
                chain,
                self,
                activation._replace(local_folder=str(self._folder)),
                self._image.options,
            )
            del activation
            self._running = task
            task.run()
        except TaskStopped:
            return
        except BaseException as error:  # user code may raise anything; the coordinator decides
            if self._is_stopped:
                logger.debug("task %s raised after it was stopped", self.name, exc_info=True)
                return
            failed = describe_failure(task, error) if task is not None else self._describe_start_failure(error)
            self._post(ThreadRaised(self._thread_id, failed, task.log.unfinished if task is not None else b""))
        finally:
            self._calls.close()
            if self._cost_clock is not None:
                self._cost_clock.close()

    def _describe_start_failure(self, error: BaseException) -> TaskFailed:
        recourse = Recourse.ELSEWHERE if isinstance(error, OSError) or is_shortage(error) else Recourse.NONE
        return failure_of(self._task, self.incarnation, error, recourse)

    # ------------------------------------------------------------------ TaskPort

    def receive(self, until_ns: int | None) -> Command | None:
        """Returns the next command, or None when ``until_ns`` has come first; None waits without a limit, 0 does not
        wait.

        Raises: TaskStopped when the incarnation was stopped.
        """
        if self._is_stopped:
            raise TaskStopped
        self.turns += 1
        try:
            command = self._commands.get_nowait() if until_ns == 0 else self._wait_for_command(until_ns)
        except Empty:
            return None
        finally:
            self.turns += 1
        if type(command) is Stopped:
            raise TaskStopped
        return command

    def _wait_for_command(self, until_ns: int | None) -> Command:
        """Waits for the next command. Raises: Empty when ``until_ns`` has come first."""
        since_ns = self._idle_since_ns = time.monotonic_ns()
        self._is_blocked = self.budget_bytes() <= 0
        try:
            if until_ns is None:
                return self._commands.get()
            wait_s = (until_ns - self._clock.now_ns()) / 1e9
            return self._commands.get(timeout=min(max(wait_s, 0.0), WAIT_S_MAX))
        finally:
            self._idle_since_ns = 0
            waited_ns = time.monotonic_ns() - since_ns
            self._idle_ns += waited_ns
            self._blocked_ns += waited_ns if self._is_blocked else 0

    def emit(self, emission: TaskEmission) -> None:
        """Passes the emission to the I/O thread; blocks only while that is overloaded."""
        self.turns += 1
        if self._faults is not None:
            snapshot = emission.snapshot
            self._reach(self._point_of(emission), str(emission.records_in if snapshot is None else snapshot.checkpoint))
        self.output_budget.spend(emission.cost_bytes)
        self._inbox.put(self._handle, StepEmitted(self._task, self._thread_id, emission))
        self._inbox.wait_for_space()

    def needs(self, channel: ChannelId, next_seq: int) -> None:
        """Requests credit up to ``next_seq``."""
        self._post(ElementsNeeded(self._task, self._thread_id, channel, next_seq))

    def go_live(self, positions: dict[ChannelId, int], accepted: str = "") -> None:
        """Blocks until new determinants may be recorded. Raises: TaskStopped when the incarnation was stopped."""
        self._is_shadow = False
        if self._faults is not None:
            self._reach(FaultPoint.LOG_END)
        self._post(LogEndReached(self._task, self._thread_id, positions, accepted))
        self._live.wait()
        if self._is_stopped:
            raise TaskStopped
        if self._faults is not None:
            self._reach(FaultPoint.LIVE)

    def await_replicated(self, log_end_bytes: int) -> None:
        """Blocks until the keepers have the log up to ``log_end_bytes``. Raises: TaskStopped when the incarnation was
        stopped."""
        if self._faults is not None:
            self._reach(FaultPoint.INTENT)
        self._post(ReplicationAwaited(self._task, self._thread_id, log_end_bytes))
        while True:
            self._replicated_moved.clear()  # before the check, so that no later change is missed
            if self._is_stopped:
                raise TaskStopped
            if self._replicated_bytes >= log_end_bytes:
                return
            self._replicated_moved.wait()

    def announce_step(self, channel: ChannelId | None, first_seq: int) -> None:
        """Blocks until the coordinator knows which element the task takes next. Raises: TaskStopped when it was
        stopped."""
        self._announced.clear()
        self._post(StepAnnounced(self._task, self._thread_id, channel, first_seq))
        if not self._is_stopped:
            self._announced.wait()
        if self._is_stopped:
            raise TaskStopped

    def open_journal(self) -> None:
        """Requests more input of the source; it arrives as ``Journalled`` commands."""
        assert self._chain is not None, self.name
        self.journal_cursor = self._chain.journal_cursor()
        self._post(JournalWanted(self._task, self._thread_id))

    def lose_journal(self) -> NoReturn:
        """Reports that the journal is lost, and blocks until the incarnation is stopped. Raises: TaskStopped in any
        case."""
        self._post(JournalMissed(self._task, self._thread_id))
        self._live.wait()
        raise TaskStopped

    def now_ns(self) -> int:
        """Returns the slewed wall clock."""
        return self._clock.now_ns()

    def cost_clock_ns(self) -> int:
        """Returns the cost clock of this thread; called only by the task's thread."""
        if self._cost_clock is None:
            self._cost_clock = CostClock()
        return self._cost_clock.now_ns()

    def entropy(self, count: int) -> bytes:
        """Returns random bytes of the operating system."""
        return random_bytes(count)

    def perform(self, function: Any, key: str) -> object:
        """Calls an external system. Raises: TaskStopped before or after the call when the incarnation was stopped."""
        if self._is_stopped:
            raise TaskStopped
        if self._faults is not None:
            self._reach(FaultPoint.CALL, key)
        self._executed_calls += 1
        outcome: object = function(key)
        if self._faults is not None:
            self._reach(FaultPoint.CALLED, key)
        if self._is_stopped:
            raise TaskStopped
        return outcome

    def begin_call(self, number: int, function: Callable[[str], bytes], key: str) -> None:
        """Starts a call in another thread; its outcome is dropped if the incarnation was stopped meanwhile."""

        self._executed_calls += 1

        def call() -> None:
            with suppress(TaskStopped):
                if self._is_stopped:
                    return
                if self._faults is not None:
                    self._reach(FaultPoint.CALL, key)
                outcome = function(key)
                if self._faults is not None:
                    self._reach(FaultPoint.CALLED, key)
                self._commands.put(Finished(number, outcome))

        self._calls.run(call)

    def report_part(self, number: int, asked: int, data: bytes, *, waits: bool) -> bool:
        """Passes a part of a call to the task. Raises: TaskStopped when the incarnation was stopped, or ends its
        calls."""
        answers: SimpleQueue[bool] = SimpleQueue()
        if waits:
            self._waiting.append(answers)
        elif self._faults is not None:
            self._reach(FaultPoint.CALLED)
        is_open = False
        if not self._ends_calls:
            self._commands.put(PartReported(number, asked, data, answers.put if waits else None))
            is_open = not waits or answers.get()
        if waits:
            self._waiting.remove(answers)
            if self._faults is not None:
                self._reach(FaultPoint.INTENT)
        if self._ends_calls:
            raise TaskStopped
        return is_open

    def end_calls(self) -> None:
        """Lets calls that wait in ``report_part`` end."""
        self._ends_calls = True
        for answers in list(self._waiting):
            answers.put(False)

    def when_replicated(self, log_end_bytes: int, act: Callable[[], None]) -> None:
        """Calls ``act`` when the keepers have the log up to ``log_end_bytes``."""
        self._acts.add(log_end_bytes, act)
        self._post(ReplicationAwaited(self._task, self._thread_id, log_end_bytes))

    # ------------------------------------------------------------------ fault points

    def _reach(self, point: FaultPoint, detail: str = "") -> None:
        assert self._faults is not None, point
        reached = of_shadow(point) if self._is_shadow else point
        self._faults.reach(reached, self._image.plan.task_name(self._task), detail)

    def _point_of(self, emission: TaskEmission) -> FaultPoint:
        """Returns the fault point of a step, by its emission."""
        if emission.snapshot is not None:
            return FaultPoint.END_OF_STREAM if emission.snapshot.final else FaultPoint.ALIGNED
        if emission.suspension:
            return FaultPoint.SUSPENDED
        queues = self._running.inputs if self._running is not None else []
        is_aligning = any(queue.blocked_by is not None for queue in queues)
        return FaultPoint.ALIGNING if is_aligning else FaultPoint.EMISSION


THREADS_MAX = 256
"""Threads of one task, whatever capacities its steps have."""


class CallThreads:
    """Threads for the asynchronous calls of one task, started on demand by its thread; most tasks have none.

    A call cannot be interrupted: a call that hangs keeps its thread until the process ends.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._idle: SimpleQueue[None] = SimpleQueue()  # one token per thread that waits for a call
        self._threads: list[Thread] = []

    def run(self, call: Callable[[], None]) -> None:
        """Runs ``call`` in one of the threads; ``call`` must not raise."""
        if self._idle.empty() and len(self._threads) < THREADS_MAX:
            name = f"{THREAD_OF_CALL}{self._name} {len(self._threads)}"
            self._threads.append(Thread(target=self._serve, name=name, daemon=True))
            self._threads[-1].start()
        elif not self._idle.empty():
            self._idle.get()
        self._calls.put(call)

    def close(self) -> None:
        """Ends the threads after their current calls."""
        for _ in self._threads:
            self._calls.put(None)

    def _serve(self) -> None:
        guard_thread()
        while (call := self._calls.get()) is not None:
            call()
            self._idle.put(None)
