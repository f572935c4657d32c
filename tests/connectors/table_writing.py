"""A job that appends to a table of a lake while its tasks, or all its processes, are killed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow

from clonos.api.graph import JobGraph
from clonos.connectors import collect, files
from clonos.core.coordinator.coordinator_effects import Ending, JobDone
from clonos.core.model.ids import TaskId
from clonos.core.model.options import Options
from clonos_services import random
from tests.processes.harness.drawing_job import is_quiescent, kill, wait_for_checkpoint, wait_for_successors
from tests.processes.harness.running_job import RunningJob, running

OPTIONS = Options(checkpoint_every_ms=500, heartbeat_ms=50)
LINES = 400
SCHEMA = pyarrow.schema([("n", pyarrow.int64()), ("draw", pyarrow.int64()), ("kind", pyarrow.string())])


class TableJob(ABC):
    """Files that appear in a folder -> draw -> x 2 tasks into a table; the draws are collected too."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.given = folder, 0
        (folder / "in").mkdir(exist_ok=True)
        self.graph = JobGraph("writing")
        self.collected = collect()
        numbers = self.graph.source(files.jsonl(folder / "in" / "*.jsonl", watch="100ms"), name="numbers")
        drawn = numbers.map(lambda n: {"n": n, "draw": random.getrandbits(30), "kind": "even" if n % 2 == 0 else "odd"})
        drawn.sink(self.collected)
        drawn.rebalance().map(dict, name="row", parallelism=2).sink(self.sink())
        plan = self.graph.compile(OPTIONS).plan
        self.source = TaskId(0)
        self.writers = [task for task in plan.tasks if task != self.source]

    @abstractmethod
    def sink(self) -> Any:
        """The sink, of ``SCHEMA`` and partitioned by ``kind``."""

    @abstractmethod
    def found(self) -> list[Any]:
        """The rows of the table as another program reads them."""

    def give(self) -> None:
        """Moves another file into the input."""
        new = self.folder / f"{self.given}.new"
        new.write_text("".join(f"{n}\n" for n in range(self.given * LINES, (self.given + 1) * LINES)))
        new.rename(self.folder / "in" / f"{self.given}.jsonl")
        self.given += 1

    def rows(self) -> list[tuple[int, int]]:
        """Rows of the table as others see it."""
        found = self.found()
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


def kill_one(job: RunningJob, task: TaskId) -> None:
    """Kills a task, and waits for its successor."""
    before = job.incarnations()
    kill(job, task)
    wait_for_successors(job, before, task)


def kill_each_task(writing: TableJob) -> None:
    """Kills each task of the job; each row is in the table once."""
    with running(writing.graph, writing.folder, OPTIONS) as job:
        job.wait_for(is_quiescent)
        writing.give()
        wait_for_checkpoint(job)
        for task in (*writing.writers, writing.source):
            writing.give()
            kill_one(job, task)
        writing.give()
        writing.stop(job)
    assert sorted((row["n"], row["draw"]) for row in writing.collected.rows) == writing.rows()


def kill_all_and_resume(begin: Callable[[], TableJob]) -> None:
    """Kills all processes of the job, and resumes it; each row is in the table once."""
    writing = begin()
    with running(writing.graph, writing.folder, OPTIONS) as job:
        job.wait_for(is_quiescent)
        writing.give()
        wait_for_checkpoint(job)
        writing.give()
        job.wait_for(lambda _: len(writing.rows()) >= LINES)
    before = writing.rows()
    again = begin()
    again.given = writing.given
    with running(again.graph, again.folder, OPTIONS, resume=True) as job:
        job.wait_for(is_quiescent)
        again.give()
        again.stop(job)
    assert set(before) <= set(again.rows())
