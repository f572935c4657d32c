"""Jobs into a Delta table and from one, under kills of tasks and of all processes, read by deltalake too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow
import pytest
from deltalake import DeltaTable, write_deltalake

from clonos.api.graph import JobGraph
from clonos.connectors import collect, delta
from clonos.core.coordinator.coordinator_effects import JobDone
from clonos.core.model.ids import TaskId
from clonos_services import random
from tests.connectors.delta.test_delta_objects import delta_options
from tests.connectors.table_writing import (
    LINES,
    OPTIONS,
    SCHEMA,
    TableJob,
    kill_all_and_resume,
    kill_each_task,
    kill_one,
)
from tests.harnesses.s3_server import S3Server
from tests.processes.harness.drawing_job import is_quiescent, wait_for_checkpoint
from tests.processes.harness.running_job import RunningJob, running

pytestmark = [pytest.mark.connectors, pytest.mark.keeps_sockets, pytest.mark.timeout(240)]


class DeltaJob(TableJob):
    """A job into a Delta table."""

    def sink(self) -> Any:
        return delta.table(self.folder / "table", schema=SCHEMA, partition_by="kind")

    def found(self) -> list[Any]:
        return DeltaTable(self.folder / "table").to_pyarrow_table().to_pylist()  # type: ignore[no-any-return]

    def stop(self, job: RunningJob) -> None:
        super().stop(job)
        # What a killed writer had begun to write stays until the next start; what was prepared does not.
        left = (self.folder / ".table.clonos").glob("*/.table.clonos/parts/*")
        assert [part.name for part in left if part.suffix != ".writing"] == []


def test_kills_of_tasks_leave_each_row_in_the_table_once(tmp_path: Path) -> None:
    kill_each_task(DeltaJob(tmp_path))


def test_a_resume_after_the_death_of_all_processes_leaves_each_row_in_the_table_once(tmp_path: Path) -> None:
    kill_all_and_resume(lambda: DeltaJob(tmp_path))


class FollowingJob:
    """Changes of a table that is appended to and compacted -> 2 tasks -> draw -> collect."""

    def __init__(self, table: str, store: dict[str, str] | None = None) -> None:
        """``store``: options of the library for a table in an object store."""
        self.table, self.store, self.given = table, store, 0
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
        place = self.table.partition("?")[0]
        write_deltalake(place, rows, mode="append", partition_by=["part"], storage_options=self.store)
        if self.given % 2:
            DeltaTable(place, storage_options=self.store).optimize.compact()
        self.given += 1


@pytest.mark.parametrize("place", ["folder", "store"])
def test_kills_of_tasks_that_follow_a_table_leave_each_change_once(tmp_path: Path, s3: S3Server, place: str) -> None:
    in_store = place == "store"
    table = s3.url("lake/followed-by-delta") if in_store else str(tmp_path / "followed")
    following = FollowingJob(table, delta_options(s3) if in_store else None)
    with running(following.graph, tmp_path, OPTIONS) as job:
        job.wait_for(is_quiescent)
        for task in (TaskId(0), TaskId(1)):
            following.give()
            wait_for_checkpoint(job)
            following.give()
            kill_one(job, task)
        following.give()
        job.wait_for(lambda _: len(following.collected.rows) >= following.given * LINES)
        job.driver.stop(drain=True)
        assert isinstance(job.end(), JobDone)
    assert sorted(n for n, _, _ in following.collected.rows) == list(range(following.given * LINES))
