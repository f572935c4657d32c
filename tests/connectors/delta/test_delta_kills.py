"""Jobs into a Delta table and from one, under kills of tasks and of all processes, read by deltalake too."""

from __future__ import annotations

from pathlib import Path

import pyarrow
import pytest
from deltalake import DeltaTable, write_deltalake

from clonos.api.graph import JobGraph
from clonos.connectors import collect, delta, files
from clonos.core.coordinator.coordinator_effects import Ending, JobDone
from clonos.core.model.ids import TaskId
from clonos.core.model.options import Options
from clonos_services import random
from tests.processes.harness.drawing_job import is_quiescent, kill, wait_for_checkpoint, wait_for_successors
from tests.processes.harness.running_job import RunningJob, running

pytestmark = [pytest.mark.connectors, pytest.mark.keeps_sockets, pytest.mark.timeout(240)]

OPTIONS = Options(checkpoint_every_ms=500, heartbeat_ms=50)
LINES = 400
SCHEMA = pyarrow.schema([("n", pyarrow.int64()), ("draw", pyarrow.int64()), ("kind", pyarrow.string())])


class AppendingJob:
    """Files that appear in a folder -> draw -> x 2 tasks into a table; the draws are collected too."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.given = folder, 0
        (folder / "in").mkdir(exist_ok=True)
        self.graph = JobGraph("appending")
        self.collected = collect()
        numbers = self.graph.source(files.jsonl(folder / "in" / "*.jsonl", watch="100ms"), name="numbers")
        drawn = numbers.map(lambda n: {"n": n, "draw": random.getrandbits(30), "kind": "even" if n % 2 == 0 else "odd"})
        drawn.sink(self.collected)
        table = delta.table(folder / "table", schema=SCHEMA, partition_by="kind")
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
        found = DeltaTable(self.folder / "table").to_pyarrow_table().to_pylist()
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
        # What a killed writer had begun to write stays until the next start; what was prepared does not.
        left = (self.folder / ".table.clonos").glob("*/.table.clonos/parts/*")
        assert [part.name for part in left if part.suffix != ".writing"] == []


def _kill_one(job: RunningJob, task: TaskId) -> None:
    before = job.incarnations()
    kill(job, task)
    wait_for_successors(job, before, task)


def test_kills_of_tasks_leave_each_row_in_the_table_once(tmp_path: Path) -> None:
    appending = AppendingJob(tmp_path)
    with running(appending.graph, tmp_path, OPTIONS) as job:
        job.wait_for(is_quiescent)
        appending.give()
        wait_for_checkpoint(job)
        for task in (*appending.writers, appending.source):
            appending.give()
            _kill_one(job, task)
        appending.give()
        appending.stop(job)
    assert sorted((row["n"], row["draw"]) for row in appending.collected.rows) == appending.rows()


def test_a_resume_after_the_death_of_all_processes_leaves_each_row_in_the_table_once(tmp_path: Path) -> None:
    appending = AppendingJob(tmp_path)
    with running(appending.graph, tmp_path, OPTIONS) as job:
        job.wait_for(is_quiescent)
        appending.give()
        wait_for_checkpoint(job)
        appending.give()
        job.wait_for(lambda _: len(appending.rows()) >= LINES)
    before = appending.rows()
    again = AppendingJob(tmp_path)
    again.given = appending.given
    with running(again.graph, tmp_path, OPTIONS, resume=True) as job:
        job.wait_for(is_quiescent)
        again.give()
        again.stop(job)
    assert set(before) <= set(again.rows())


class FollowingJob:
    """Changes of a table that is appended to and compacted -> 2 tasks -> draw -> collect."""

    def __init__(self, folder: Path) -> None:
        self.table, self.given = folder / "followed", 0
        self.give()
        self.graph = JobGraph("following")
        self.collected = collect()
        source = delta.changes(self.table, from_version=0, watch="50ms", ordered=False)
        changes = self.graph.source(source, name="changes", parallelism=2)
        changes.map(lambda row: (row["n"], row["_commit_version"], random.getrandbits(30))).sink(self.collected)

    def give(self) -> None:
        """Appends a version of three files, and compacts the table every other time."""
        numbers = range(self.given * LINES, (self.given + 1) * LINES)
        rows = pyarrow.table({"n": list(numbers), "part": [number % 3 for number in numbers]})
        write_deltalake(self.table, rows, mode="append", partition_by=["part"])
        if self.given % 2:
            DeltaTable(self.table).optimize.compact()
        self.given += 1


def test_kills_of_tasks_that_follow_a_table_leave_each_change_once(tmp_path: Path) -> None:
    following = FollowingJob(tmp_path)
    with running(following.graph, tmp_path, OPTIONS) as job:
        job.wait_for(is_quiescent)
        for task in (TaskId(0), TaskId(1)):
            following.give()
            wait_for_checkpoint(job)
            following.give()
            _kill_one(job, task)
        following.give()
        job.wait_for(lambda _: len(following.collected.rows) >= following.given * LINES)
        job.driver.stop(drain=True)
        assert isinstance(job.end(), JobDone)
    assert sorted(n for n, _, _ in following.collected.rows) == list(range(following.given * LINES))
