"""A job between two folders of an S3 server, under kills of its tasks, of the driver, and an outage of the server."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from clonos.api.graph import JobGraph
from clonos.connectors import collect, files
from clonos.core.coordinator.coordinator_effects import Ending, JobDone
from clonos.core.model.ids import TaskId
from clonos.core.model.options import Options
from clonos_services import random
from tests.connectors.object_stores.objects import contents, put
from tests.harnesses.s3_server import S3Server
from tests.processes.harness.drawing_job import is_quiescent, kill, wait_for_checkpoint, wait_for_successors
from tests.processes.harness.running_job import RunningJob, running

pytestmark = [pytest.mark.connectors, pytest.mark.keeps_sockets, pytest.mark.timeout(240)]

OPTIONS = Options(checkpoint_every_ms=500, heartbeat_ms=50)
FILES, LINES = 6, 400


class CopyingJob:
    """Objects that appear in a folder -> draw -> x 2 objects of another folder; the draws are collected too."""

    def __init__(self, s3: S3Server, name: str) -> None:
        self.s3, self.name, self.given = s3, name, 0
        self.graph = JobGraph("copying")
        self.collected = collect()
        numbers = self.graph.source(files.jsonl(s3.url(f"{name}/in/*.jsonl"), watch="100ms"), name="numbers")
        drawn = numbers.map(lambda n: {"n": n, "draw": random.getrandbits(30)})
        drawn.sink(self.collected)
        drawn.rebalance().map(dict, name="row", parallelism=2).sink(files.jsonl(s3.url(f"{name}/out")))
        plan = self.graph.compile(OPTIONS).plan
        self.source = TaskId(0)
        self.writers = [task for task in plan.tasks if task != self.source]

    def give(self) -> None:
        """Puts another object into the input."""
        lines = "".join(f"{n}\n" for n in range(self.given * LINES, (self.given + 1) * LINES))
        put(self.s3, f"{self.name}/in/{self.given}.jsonl", lines.encode())
        self.given += 1

    def rows(self) -> list[tuple[int, int]]:
        """Rows of the objects that others see."""
        found = contents(self.s3, f"{self.name}/out").values()
        return [(row["n"], row["draw"]) for content in found for row in map(json.loads, content.splitlines())]

    def stop(self, job: RunningJob) -> None:
        """Waits for all rows, ends the job after a last checkpoint, and compares object by object."""
        job.wait_for(lambda _: len(self.rows()) >= self.given * LINES)
        job.driver.stop(drain=True)
        done = job.end()
        assert isinstance(done, JobDone)
        assert done.ending is Ending.DRAINED
        assert sorted(n for n, _ in self.rows()) == list(range(self.given * LINES))
        manifests = {part.path.partition("?")[0].rpartition("/")[2] for part in files.committed(self.output)}
        assert set(contents(self.s3, f"{self.name}/out")) == manifests
        read = sorted((row["n"], row["draw"]) for row in files.read_committed(self.output))
        assert read == sorted(self.rows())
        state = contents(self.s3, f"{self.name}/.out.clonos")
        assert [name for name in state if name.startswith("parts/")] == []

    @property
    def output(self) -> str:
        return self.s3.url(f"{self.name}/out")


def _kill_one(job: RunningJob, task: TaskId) -> None:
    before = job.incarnations()
    kill(job, task)
    wait_for_successors(job, before, task)


def test_kills_of_tasks_and_an_outage_leave_each_row_in_one_object(tmp_path: Path, s3: S3Server) -> None:
    copying = CopyingJob(s3, "kills")
    with running(copying.graph, tmp_path, OPTIONS) as job:
        job.wait_for(is_quiescent)
        copying.give()
        wait_for_checkpoint(job)
        for task in (*copying.writers, copying.source):
            copying.give()
            _kill_one(job, task)
        copying.give()
        with s3.outage(requests=10):
            job.wait_for(lambda _: s3.refused >= 10)
        copying.stop(job)
    drawn = sorted((row["n"], row["draw"]) for row in copying.collected.rows)
    assert drawn == sorted(copying.rows())


def test_a_resume_after_the_death_of_all_processes_leaves_each_row_in_one_object(tmp_path: Path, s3: S3Server) -> None:
    copying = CopyingJob(s3, "resumed")
    with running(copying.graph, tmp_path, OPTIONS) as job:
        job.wait_for(is_quiescent)
        copying.give()
        wait_for_checkpoint(job)
        copying.give()
        job.wait_for(lambda _: len(copying.rows()) >= LINES)
    again = CopyingJob(s3, "resumed")
    again.given = copying.given
    with running(again.graph, tmp_path, OPTIONS, resume=True) as job:
        job.wait_for(is_quiescent)
        again.give()
        again.stop(job)
