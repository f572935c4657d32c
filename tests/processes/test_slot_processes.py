"""Jobs on real slot processes: what is killed comes back, nothing is lost or doubled, all agree on every draw."""

from __future__ import annotations

import os
import signal
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from clonos.api.graph import JobGraph
from clonos.connectors import collect, sqlite, values
from clonos.core import coordination as c
from clonos.core.coordinator import Coordinator
from clonos.core.options import Options
from clonos_services import random
from tests.processes.gated_source import Gate, GatedNumbers
from tests.processes.running_job import RunningJob, running

pytestmark = pytest.mark.processes

OPTIONS = Options(checkpoint_every_ms=100, heartbeat_ms=50, lease_ms=2_000)
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

    def check(self, count: int) -> None:
        """Each number is once in both outputs, with one draw."""
        collected = list(self.collected.rows)
        with closing(sqlite3.connect(self.table)) as connection:
            stored = connection.execute("SELECT n, draw FROM drawn").fetchall()
        assert Counter(n for n, _ in collected) == Counter(range(2 * count))
        assert Counter(n for n, _ in stored) == Counter(range(2 * count))
        assert sorted(collected) == sorted(stored)


def read(coordinator: Coordinator, tasks: int) -> int:
    """Records that living incarnations have read, as their slots told last."""
    return sum(coordinator.counters.get(task, {}).get("records_in", 0) for task in range(tasks))  # type: ignore[call-overload]


def is_calm(coordinator: Coordinator) -> bool:
    """All tasks live, and no recovery is under way."""
    phases = coordinator.phases
    return bool(phases) and set(phases.values()) == {"live"} and all(r.is_over for r in coordinator.recoveries)


def wait_for_checkpoint(job: RunningJob) -> None:
    """Waits until one completes that has not begun yet."""
    now = job.driver.ask(lambda coordinator: coordinator.checkpoint)
    job.wait_for(lambda coordinator: coordinator.checkpoint > now + 1 and is_calm(coordinator))


def kill(job: RunningJob, *tasks: int) -> None:
    """SIGKILL to the processes in which these tasks live, at once."""
    for pid in {job.pid_of(task) for task in tasks}:
        os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("tcp", [False, True], ids=["ipc", "curve"])
def test_every_task_is_killed_once_and_all_outputs_agree(tmp_path: Path, tcp: bool) -> None:
    drawing = DrawingJob(tmp_path)
    with running(drawing.graph, tmp_path, OPTIONS, parallelism=2, tcp=tcp) as job:
        tasks = job.incarnations() or None
        job.wait_for(is_calm)
        tasks = job.incarnations()
        reach = 0
        for task in tasks:
            reach += STEP
            drawing.gate.open_to(reach)
            wait_for_checkpoint(job)
            before = job.incarnations()
            reach += STEP
            drawing.gate.open_to(reach)
            kill(job, task)
            job.wait_for(lambda _, task=task, before=before: job_incarnation(_, task) > before[task] and is_calm(_))
        drawing.gate.end(reach)
        assert isinstance(job.end(), c.JobDone)
    drawing.check(reach)


def job_incarnation(coordinator: Coordinator, task: int) -> int:
    """The incarnation of a task in the view that stands."""
    assert coordinator.view is not None
    return coordinator.view.placements[task].incarnation


def test_a_simple_job_ends_by_itself_with_its_output_and_leaves_no_file(tmp_path: Path) -> None:
    graph, output = JobGraph("simple"), collect()
    graph.source(values(range(1_000))).map(lambda n: n * n).sink(output)
    with running(graph, tmp_path, parallelism=2) as job:
        assert job.end() == c.JobDone(c.Ending.FINISHED, job.driver.ask(lambda coordinator: coordinator.checkpoint))
    assert sorted(output.rows) == [n * n for n in range(1_000)]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["store"]
