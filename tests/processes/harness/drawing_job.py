"""A job whose two outputs must agree on every random draw, and the waits and kills that its tests share."""

from __future__ import annotations

import os
import signal
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

from clonos.api.graph import JobGraph
from clonos.connectors import collect, sqlite
from clonos.core.coordinator.coordinator import Coordinator
from clonos.core.coordinator.coordinator_events import CheckpointReleased, CheckpointRequested
from clonos.core.model.ids import TaskId
from clonos.core.model.options import Options
from clonos_services import random
from tests.processes.harness.gated_source import Gate, GatedNumbers
from tests.processes.harness.running_job import RunningJob

OPTIONS = Options(checkpoint_every_ms=100, heartbeat_ms=50)
ON_REQUEST_MS = 3_600_000
"""Interval of checkpoints of a test that asks for each: none completes between the last row and a kill."""

STEP = 200
"""Records of each split between two kills."""


class DrawingJob:
    """source x 2 -> draw a number, to a table at once -> by key -> remember, collected by epoch."""

    def __init__(self, folder: Path) -> None:
        self.gate = Gate(folder / "gate")
        self.table = folder / "table.db"
        self.graph = JobGraph("drawing")
        self.collected: Any = collect()
        drawn = self.graph.source(GatedNumbers(self.gate)).map(lambda n: {"n": n, "draw": random.getrandbits(30)})
        keyed = drawn.key_by(lambda row: row["n"] % 5)
        keyed.stateful_map(lambda _, count, row: ((count or 0) + 1, (row["n"], row["draw"]))).sink(self.collected)
        drawn.sink(sqlite(self.table, "drawn", {"n": "INTEGER", "draw": "INTEGER"}))

    def advance(self, reach: int) -> int:
        """Lets each source read a step further."""
        self.gate.open_to(reach + STEP)
        return reach + STEP

    def check(self, count: int) -> None:
        """Checks that each number is once in both outputs, with one draw."""
        collected = list(self.collected.rows)
        with closing(sqlite3.connect(self.table)) as connection:
            stored = connection.execute("SELECT n, draw FROM drawn").fetchall()
        assert Counter(n for n, _ in collected) == Counter(range(2 * count))
        assert Counter(n for n, _ in stored) == Counter(range(2 * count))
        assert sorted(collected) == sorted(stored)


def is_quiescent(coordinator: Coordinator) -> bool:
    """Whether all tasks are live, no latest recovery of a task is under way, and all keepers are ready.

    Without its keeper a task with effects must not die: its output could not be restored exactly once.
    """
    phases = coordinator.phases
    latest = {recovery.task: recovery for recovery in coordinator.recoveries}
    is_live = bool(phases) and set(phases.values()) == {"live"} and all(found.is_over for found in latest.values())
    return is_live and all(coordinator.keepers_ready(task) for task in coordinator.plan.with_keepers)


def wait_for_checkpoint(job: RunningJob) -> None:
    """Waits until a checkpoint that has not begun yet completes, and the job is quiescent."""
    begun = job.driver.ask(lambda coordinator: max((coordinator.checkpoint, *coordinator.pending)))
    job.wait_for(lambda coordinator: coordinator.checkpoint > begun and is_quiescent(coordinator))


def take_checkpoint(job: RunningJob, request: int) -> None:
    """Asks for a checkpoint, with a number of its own, and waits until it has completed and the job is quiescent."""
    job.driver.post(CheckpointRequested(request))
    job.wait_for(lambda coordinator: coordinator.committed(request) is not None and is_quiescent(coordinator))
    job.driver.post(CheckpointReleased(request))


def kill(job: RunningJob, *tasks: int) -> None:
    """SIGKILL to the processes in which these tasks live, at once."""
    for pid in {job.pid_of(task) for task in tasks}:
        os.kill(pid, signal.SIGKILL)


def kill_task(job: RunningJob, task: TaskId) -> None:
    """SIGKILL to the process of a task; waits for its successor."""
    before = job.incarnations()
    kill(job, task)
    wait_for_successors(job, before, task)


def wait_for_successors(job: RunningJob, before: dict[TaskId, int], *tasks: TaskId) -> None:
    """Waits until these tasks have later incarnations and the job is quiescent."""

    def have_successors(coordinator: Coordinator) -> bool:
        assert coordinator.view is not None
        placements = coordinator.view.placements
        return all(placements[task].incarnation > before[task] for task in tasks) and is_quiescent(coordinator)

    job.wait_for(have_successors)
