"""Conformance D on real processes: each kind of task is killed at each named point, with a standby and without one.

(19) Source, keyed window, two-input union into a process function, sink; before the first checkpoint, in mid-epoch,
during alignment, between barrier and complete, right after complete and before the standby has applied it.
"""

from __future__ import annotations

import os
import signal
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from clonos.api.graph import JobGraph
from clonos.api.windows import Tumbling
from clonos.connectors import collect, sqlite
from clonos.core.coordinator.coordinator import Coordinator
from clonos.core.coordinator.coordinator_effects import JobDone, Milestone
from clonos.core.model.ids import TaskId
from clonos.core.model.options import Options
from clonos.operators.state.state_descriptors import ValueState
from clonos.operators.steps.context import Context
from clonos_chaos.real.fault_point_server import Breakpoint, FaultPointServer
from clonos_services import random
from tests.processes.harness.gated_source import Gate, GatedNumbers
from tests.processes.harness.running_job import LIMIT_S, RunningJob, running

pytestmark = [pytest.mark.processes, pytest.mark.timeout(150)]

STEP = 40
"""Records of each split that are let in before each kill."""

SLOTS = 9
"""More than tasks: a process that is held at a point must not hold another task with it."""

SOURCE, WINDOW, PROCESS, SINK = "left/0", "window/0", "process/0", "table/0"
KINDS = (SOURCE, WINDOW, PROCESS, SINK)


class Numbering:
    """Numbers what comes, of whichever input."""

    seen = ValueState("seen", default=0)

    def process(self, row: dict[str, Any], context: Context[None, dict[str, Any]]) -> None:
        seen = context.state(self.seen)
        seen.value += 1
        context.emit({**row, "number": seen.value})


class Strait:
    """Two sources that draw; one into keyed windows, both by union into a process function and on into a table."""

    def __init__(self, folder: Path) -> None:
        self.gates = {side: Gate(folder / side) for side in ("left", "right")}
        self.table = folder / "table.db"
        self.windows: Any = collect()
        self.graph = JobGraph("strait")
        left, right = (self._drawn(side, tasks) for side, tasks in (("left", 2), ("right", 1)))
        keyed = left.key_by(lambda row: row["n"] % 3).window(Tumbling("50ms"))
        keyed.aggregate(list, lambda rows, row: rows.append((row["n"], row["draw"])), name="window").sink(self.windows)
        numbered = left.union(right).process(Numbering, name="process").rebalance()
        columns = {"side": "TEXT", "n": "INTEGER", "draw": "INTEGER", "number": "INTEGER"}
        numbered.sink(sqlite(self.table, "numbered", columns), name="table")
        self.reach = 0

    def _drawn(self, side: str, tasks: int) -> Any:
        numbers = self.graph.source(GatedNumbers(self.gates[side]), name=side, parallelism=tasks)
        return numbers.map(lambda n: {"side": side, "n": n, "draw": random.getrandbits(40)}, parallelism=tasks)

    def advance(self) -> None:
        """Lets more records in."""
        self.reach += STEP
        for gate in self.gates.values():
            gate.open_to(self.reach)

    def end(self) -> None:
        """Ends the input."""
        for gate in self.gates.values():
            gate.end(self.reach)

    def check(self) -> None:
        """Checks that each record is once in each output with one draw, and that windows and numbers have no gap."""
        with closing(sqlite3.connect(self.table)) as connection:
            stored = connection.execute("SELECT side, n, draw, number FROM numbered").fetchall()
        wanted = {("left", n) for n in range(2 * self.reach)} | {("right", n) for n in range(self.reach)}
        assert Counter((side, n) for side, n, _, _ in stored) == Counter(wanted)
        assert sorted(number for *_, number in stored) == list(range(1, len(wanted) + 1))
        rows = self.windows.rows
        assert set(Counter((window.key, window.start) for window in rows).values()) <= {1}
        windowed = [found for window in rows for found in window.value]
        assert Counter(n for n, _ in windowed) == Counter(range(2 * self.reach))
        assert dict(windowed) == {n: draw for side, n, draw, _ in stored if side == "left"}


class Siege:
    """A running job and a breakpoint: kills a task at a fault point, and waits until its successor has caught up."""

    def __init__(self, strait: Strait, job: RunningJob, fault_point_server: FaultPointServer) -> None:
        self.strait, self.job, self.fault_point_server = strait, job, fault_point_server

    def task_of(self, name: str) -> TaskId:
        """The task of this name."""
        return self.job.driver.ask(lambda it: next(task for task in it.plan.tasks if it.plan.task_name(task) == name))

    def kill(self, name: str) -> None:
        """The process in which a task lives."""
        os.kill(self.job.pid_of(self.task_of(name)), signal.SIGKILL)

    @contextmanager
    def renewing(self, name: str) -> Iterator[None]:
        """Within it the task dies; afterwards all tasks live, this one as a later incarnation."""
        task, before = self.task_of(name), self.job.incarnations()
        self.strait.advance()
        yield
        self.job.wait_for(lambda it: _is_renewed(it, task, before[task]))

    def inject(self, name: str, point: str) -> None:
        """Kills a task at a point that it reaches itself."""
        pause_point = self.fault_point_server.set_breakpoint(point, name)
        with self.renewing(name):
            pause_point.kill(LIMIT_S)

    def inject_during_alignment(self, name: str) -> None:
        """Kills a task while the process function waits for the barrier of a source; that one is held until then.

        In this order: of one barrier both are caught, or that source at the one after it. Were both traps laid at
        once, that one could be caught at a barrier that the other has just passed: then all had long been aligning.
        """
        next_to_last = self.fault_point_server.set_breakpoint("aligned", "right/0")
        with self.renewing(name):
            next_to_last.wait(LIMIT_S)
            late = self.fault_point_server.set_breakpoint("aligned", SOURCE)
            late.wait(LIMIT_S)
            aligning = self.fault_point_server.set_breakpoint("aligning", PROCESS)
            next_to_last.release()
            try:
                aligning.wait(LIMIT_S / 8)
            except TimeoutError:  # seen on a busy machine: then of a barrier that nothing holds
                late.release()
                aligning.wait(LIMIT_S)
            self.kill(name)
            late.release()
            aligning.release()

    def inject_right_after_complete(self, name: str) -> None:
        """Kills a task when its checkpoint is complete, and its standby, or else its own slot, has not been told."""
        task = self.task_of(name)
        home, standby = self.job.driver.ask(lambda it: _slots_of(it, task))
        untold = self.fault_point_server.set_breakpoint(
            "completed delivered", where=lambda reached: reached.detail == f"{standby or home:x}"
        )
        with self.renewing(name):
            untold.wait(LIMIT_S)
            before = self.job.incarnations()[task]
            self.kill(name)
            self.job.wait_for(lambda it: _incarnation(it, task) > before)
            untold.release()


def _incarnation(coordinator: Coordinator, task: TaskId) -> int:
    view = coordinator.view
    return 0 if view is None else view.placements[task].incarnation


def _restored(coordinator: Coordinator, task: TaskId) -> int:
    assert coordinator.view is not None
    return coordinator.view.placements[task].restore


def _slots_of(coordinator: Coordinator, task: TaskId) -> tuple[int, int]:
    """The slot of a task, and a slot that could take it over (0: there is none)."""
    assert coordinator.view is not None
    placement = coordinator.view.placements[task]
    return placement.hosting_slot, next((slot for slot in placement.standbys if slot != placement.slot), 0)


def _is_renewed(coordinator: Coordinator, task: TaskId, before: int) -> bool:
    phases = coordinator.phases
    is_calm = bool(phases) and set(phases.values()) == {"live"} and all(r.is_over for r in coordinator.recoveries)
    # Without its keeper a task with effects must not die as well: its output could not be restored exactly once.
    has_keepers = all(coordinator.keepers_ready(each) for each in coordinator.plan.with_keepers)
    # A task that shares a slot with another would be held with it at the next point.
    is_spread = len(coordinator.slots) >= SLOTS
    return is_calm and has_keepers and is_spread and _incarnation(coordinator, task) > before


@contextmanager
def besieged(folder: Path, options: Options) -> Iterator[Siege]:
    """Runs the job to its end after the block, which must be the end of its input, and checks what has come out."""
    strait = Strait(folder)
    with (
        FaultPointServer() as fault_point_server,
        running(strait.graph, folder, options, fault_points=fault_point_server.address, slots_needed=SLOTS) as job,
    ):
        job.wait_for(lambda it: bool(it.phases) and set(it.phases.values()) == {"live"})
        siege = Siege(strait, job, fault_point_server)
        yield siege
        strait.end()
        assert isinstance(job.end(), JobDone)
        assert job.generation == 1  # nothing was rolled back
    strait.check()


def _options(standbys: int, checkpoint_every_ms: int) -> Options:
    return Options(
        checkpoint_every_ms=checkpoint_every_ms,
        heartbeat_ms=50,
        standbys=standbys,
        failures_per_epoch_max=20,
    )


WITH_AND_WITHOUT = pytest.mark.parametrize("standbys", [0, 1], ids=["without a standby", "with a standby"])


@pytest.mark.usefixtures("first_checkpoint_by_time")
@WITH_AND_WITHOUT
def test_d19_each_kind_of_task_is_killed_before_the_first_checkpoint(tmp_path: Path, standbys: int) -> None:
    with besieged(tmp_path, _options(standbys, checkpoint_every_ms=3_600_000)) as siege:
        for name in KINDS:
            siege.inject(name, "emission")
            assert siege.job.driver.ask(lambda it: it.checkpoint) == 0


INJECTIONS: dict[str, Callable[[Siege, str], None]] = {
    "in mid-epoch": lambda siege, name: siege.inject(name, "emission"),
    "during alignment": Siege.inject_during_alignment,
    "between barrier and complete": lambda siege, name: siege.inject(name, "snapshot written"),
    "right after complete": Siege.inject_right_after_complete,
}


@WITH_AND_WITHOUT
def test_d19_each_kind_of_task_is_killed_at_each_point_of_a_checkpoint(tmp_path: Path, standbys: int) -> None:
    with besieged(tmp_path, _options(standbys, checkpoint_every_ms=150)) as siege:
        for inject in INJECTIONS.values():
            for name in KINDS:
                inject(siege, name)


def test_d19_a_view_waits_for_the_checkpoint_that_is_committing_when_a_task_dies(tmp_path: Path) -> None:
    with besieged(tmp_path, _options(1, checkpoint_every_ms=150)) as siege:
        begun: Breakpoint = siege.fault_point_server.set_breakpoint("metadata begun")
        with siege.renewing(PROCESS):
            committing = int(begun.wait(LIMIT_S).detail)
            task, before = siege.task_of(PROCESS), siege.job.incarnations()
            siege.kill(PROCESS)
            siege.job.wait_until_reached(Milestone.DETECTED)
            assert siege.job.incarnations() == before
            begun.release()
        assert siege.job.driver.ask(lambda it: _restored(it, task)) >= committing
