"""A job into an Iceberg table, under kills of its tasks and of all its processes, read by pyiceberg."""

from __future__ import annotations

from pathlib import Path

import pyarrow
import pytest

from clonos.api.graph import JobGraph
from clonos.connectors import collect, files, iceberg
from clonos.core.coordinator.coordinator_effects import Ending, JobDone
from clonos.core.model.ids import TaskId
from clonos.core.model.options import Options
from clonos_services import random
from tests.harnesses.iceberg_tables import NAME, catalog_in, opened
from tests.processes.harness.drawing_job import is_quiescent, kill, wait_for_checkpoint, wait_for_successors
from tests.processes.harness.running_job import RunningJob, running

pytestmark = [pytest.mark.connectors, pytest.mark.keeps_sockets, pytest.mark.timeout(240)]

OPTIONS = Options(checkpoint_every_ms=500, heartbeat_ms=50)
LINES = 400
SCHEMA = pyarrow.schema([("n", pyarrow.int64()), ("draw", pyarrow.int64()), ("kind", pyarrow.string())])


class SnapshotJob:
    """Files that appear in a folder -> draw -> x 2 tasks into a table; the draws are collected too."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.given = folder, 0
        (folder / "in").mkdir(exist_ok=True)
        self.graph = JobGraph("snapshots")
        self.collected = collect()
        numbers = self.graph.source(files.jsonl(folder / "in" / "*.jsonl", watch="100ms"), name="numbers")
        drawn = numbers.map(lambda n: {"n": n, "draw": random.getrandbits(30), "kind": "even" if n % 2 == 0 else "odd"})
        drawn.sink(self.collected)
        table = iceberg.table(NAME, catalog=catalog_in(folder), schema=SCHEMA, partition_by="kind")
        drawn.rebalance().map(dict, name="row", parallelism=2).sink(table)
        plan = self.graph.compile(OPTIONS).plan
        self.source = TaskId(0)
        self.writers = [task for task in plan.tasks if task != self.source]

    def give(self) -> None:
        """Moves another file into the input."""
        new = self.folder / f"{self.given}.new"
        new.write_text("".join(f"{n}\n" for n in range(self.given * LINES, (self.given + 1) * LINES)))
        new.rename(self.folder / "in" / f"{self.given}.jsonl")
        self.given += 1

    def rows(self) -> list[tuple[int, int]]:
        """Rows of the table as others see it."""
        found = opened(catalog_in(self.folder)).scan().to_arrow().to_pylist()
        assert all(row["kind"] == ("even" if row["n"] % 2 == 0 else "odd") for row in found)
        return sorted((row["n"], row["draw"]) for row in found)

    def stop(self, job: RunningJob) -> None:
        """Waits for all rows, and ends the job after a last checkpoint."""
        job.wait_for(lambda _: len(self.rows()) >= self.given * LINES)
        job.driver.stop(drain=True)
        done = job.end()
        assert isinstance(done, JobDone)
        assert done.ending is Ending.DRAINED
        assert [n for n, _ in self.rows()] == list(range(self.given * LINES))


def _kill_one(job: RunningJob, task: TaskId) -> None:
    before = job.incarnations()
    kill(job, task)
    wait_for_successors(job, before, task)


def test_kills_of_tasks_leave_each_row_in_the_table_once(tmp_path: Path) -> None:
    writing = SnapshotJob(tmp_path)
    with running(writing.graph, tmp_path, OPTIONS) as job:
        job.wait_for(is_quiescent)
        writing.give()
        wait_for_checkpoint(job)
        for task in (*writing.writers, writing.source):
            writing.give()
            _kill_one(job, task)
        writing.give()
        writing.stop(job)
    assert sorted((row["n"], row["draw"]) for row in writing.collected.rows) == writing.rows()


def test_a_resume_after_the_death_of_all_processes_leaves_each_row_in_the_table_once(tmp_path: Path) -> None:
    writing = SnapshotJob(tmp_path)
    with running(writing.graph, tmp_path, OPTIONS) as job:
        job.wait_for(is_quiescent)
        writing.give()
        wait_for_checkpoint(job)
        writing.give()
        job.wait_for(lambda _: len(writing.rows()) >= LINES)
    before = writing.rows()
    again = SnapshotJob(tmp_path)
    again.given = writing.given
    with running(again.graph, tmp_path, OPTIONS, resume=True) as job:
        job.wait_for(is_quiescent)
        again.give()
        again.stop(job)
    assert set(before) <= set(again.rows())
