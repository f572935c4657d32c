"""Lines from a socket through real slot processes: the source or its keeper dies, and each line is output once."""

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
from clonos.connectors import collect, sockets, sqlite
from clonos.core.coordinator.coordinator import Coordinator
from clonos.core.coordinator.coordinator_effects import Ending, JobDone
from clonos.core.model.ids import TaskId
from clonos.core.model.options import Options
from tests.processes.harness.line_server import LineServer
from tests.processes.harness.running_job import RunningJob, running

pytestmark = pytest.mark.processes

OPTIONS = Options(checkpoint_every_ms=200, heartbeat_ms=50)
SOURCE = TaskId(0)
STEP = 200


class LinesJob:
    """source -> a table at once, and by key -> counted, collected by epoch."""

    def __init__(self, folder: Path, port: int) -> None:
        self.table = folder / "table.db"
        self.collected: Any = collect()
        self.graph = JobGraph("lines")
        numbers = self.graph.source(sockets.lines("127.0.0.1", port, acknowledge=True)).map(int)
        numbers.map(lambda n: {"n": n}).sink(sqlite(self.table, "numbers", {"n": "INTEGER"}))
        keyed = numbers.key_by(lambda n: n % 3)
        keyed.stateful_map(lambda _, count, n: ((count or 0) + 1, n)).sink(self.collected)

    def check(self, count: int) -> None:
        """Checks that each line is once in both outputs."""
        with closing(sqlite3.connect(self.table)) as connection:
            stored = [n for (n,) in connection.execute("SELECT n FROM numbers")]
        assert Counter(stored) == Counter(range(count))
        assert Counter(self.collected.rows) == Counter(range(count))


def processes_of(job: RunningJob, *, keepers: bool) -> set[int]:
    """Slots of the source, or of its keepers."""

    def find(coordinator: Coordinator) -> set[int]:
        assert coordinator.view is not None
        placement = coordinator.view.placements[SOURCE]
        slots = placement.keepers if keepers else (placement.slot,)
        return {slot.pid for slot in coordinator.slots if slot.slot in slots}

    return job.driver.ask(find)


def wait_until_calm(job: RunningJob) -> None:
    """Whether all tasks are live and the source's keeper has the whole journal."""

    def is_calm(coordinator: Coordinator) -> bool:
        phases = coordinator.phases
        assert coordinator.view is not None
        placement = coordinator.view.placements[SOURCE]
        latest = {recovery.task: recovery for recovery in coordinator.recoveries}
        return (
            set(phases.values()) == {"live"}
            and len(phases) == len(coordinator.view.placements)
            and len(placement.keepers) == 1
            and all(found.is_over for found in latest.values())
        )

    job.wait_for(is_calm)


@pytest.mark.parametrize("keepers", [False, True], ids=["source", "keeper"])
def test_d_received_lines_are_output_once_when_the_source_or_its_keeper_dies(tmp_path: Path, keepers: bool) -> None:
    with LineServer() as server:
        lines = LinesJob(tmp_path, server.port)
        with running(lines.graph, tmp_path, OPTIONS) as job:
            server.let_out(range(STEP))
            server.wait_until_all_is_acknowledged()
            wait_until_calm(job)
            for pid in processes_of(job, keepers=keepers):
                os.kill(pid, signal.SIGKILL)
            server.let_out(range(STEP, 2 * STEP))
            server.wait_until_all_is_acknowledged()
            wait_until_calm(job)
            server.let_out(range(2 * STEP, 3 * STEP), has_ended=True)
            assert isinstance(job.end(), JobDone)
            assert job.generation == 1
    assert not server.complaints
    assert server.connections == (1 if keepers else 2)
    lines.check(3 * STEP)


def test_a_source_that_dies_after_its_keeper_was_replaced_recovers_its_whole_journal(tmp_path: Path) -> None:
    with LineServer() as server:
        lines = LinesJob(tmp_path, server.port)
        with running(lines.graph, tmp_path, OPTIONS) as job:
            server.let_out(range(STEP))
            server.wait_until_all_is_acknowledged()
            wait_until_calm(job)
            for pid in processes_of(job, keepers=True):
                os.kill(pid, signal.SIGKILL)
            server.let_out(range(STEP, 2 * STEP))
            server.wait_until_all_is_acknowledged()  # by a keeper that is new
            for pid in processes_of(job, keepers=False):
                os.kill(pid, signal.SIGKILL)
            server.let_out(range(2 * STEP, 3 * STEP), has_ended=True)
            assert isinstance(job.end(), JobDone)
            assert job.generation == 1
    assert not server.complaints
    lines.check(3 * STEP)


def test_a_resumed_job_has_every_line_that_it_acknowledged_before_the_drain(tmp_path: Path) -> None:
    count = 20_000
    with LineServer() as server:
        lines = LinesJob(tmp_path, server.port)
        server.let_out(range(count), has_ended=False)
        with running(lines.graph, tmp_path, OPTIONS) as job:
            job.wait_for(lambda coordinator: coordinator.counters.get(SOURCE, {}).get("records_in", 0) > 0)
            job.driver.stop(drain=True)
            done = job.end()
            assert isinstance(done, JobDone)
            assert done.ending is Ending.DRAINED
        with running(lines.graph, tmp_path, OPTIONS, resume=True) as job:
            server.let_out(range(count, count + STEP), has_ended=True)
            assert isinstance(job.end(), JobDone)
    assert not server.complaints
    lines.check(count + STEP)
