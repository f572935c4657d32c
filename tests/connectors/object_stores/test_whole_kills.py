"""A file for a file, under kills of the tasks and of all processes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from clonos.api.graph import JobGraph
from clonos.connectors import collect, files
from clonos.connectors.filesystem.durable_files import WRITING
from clonos.core.coordinator.coordinator_effects import Ending, JobDone
from clonos.core.model.options import Options
from clonos_services import random
from tests.processes.harness.drawing_job import is_quiescent, kill, wait_for_checkpoint, wait_for_successors
from tests.processes.harness.running_job import RunningJob, running

pytestmark = [pytest.mark.connectors, pytest.mark.timeout(240)]

OPTIONS = Options(checkpoint_every_ms=300, heartbeat_ms=50)
STEP = 20


class Place:
    """A folder in which the job reads and writes, and what others see there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "in").mkdir()

    def path(self, name: str) -> str:
        """The path of a file or a folder."""
        return str(self.folder / name)

    def put(self, name: str, content: bytes) -> None:
        """Lets a file appear at once."""
        hidden = self.folder / f"in/.{Path(name).name}"
        hidden.write_bytes(content)
        hidden.rename(self.folder / name)

    def contents(self, name: str) -> dict[str, bytes]:
        """The files below a folder."""
        found = (path for path in (self.folder / name).rglob("*") if path.is_file())
        return {str(path.relative_to(self.folder / name)): path.read_bytes() for path in found}


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """An empty folder."""
    return Place(tmp_path)


class FileForFile:
    """Files that appear -> what was drawn for each -> a file of the same name; the draws are collected too."""

    def __init__(self, place: Place, given: int = 0) -> None:
        self.place, self.given = place, given
        self.graph = JobGraph("file-for-file")
        self.collected = collect()
        source = self.graph.source(files.whole(place.path("in/*.json"), watch="100ms"), name="files", parallelism=2)
        drawn = source.map(lambda file: {"name": file[0].rpartition("/")[2], "draw": random.getrandbits(30)})
        drawn.sink(self.collected)
        written = drawn.rebalance().map(lambda row: (f"done/{row['name']}", json.dumps(row)), name="row", parallelism=2)
        written.sink(files.whole(place.path("out")))
        self.tasks = self.graph.compile(OPTIONS).plan.tasks

    def give(self) -> None:
        """Lets further files appear."""
        for number in range(self.given, self.given + STEP):
            self.place.put(f"in/{number}.json", b"%d" % number)
        self.given += STEP

    def stop(self, job: RunningJob) -> None:
        """Waits for all files, ends the job after a last checkpoint, and compares file by file."""
        job.wait_for(lambda _: len(self.place.contents("out")) >= self.given)
        job.driver.stop(drain=True)
        done = job.end()
        assert isinstance(done, JobDone)
        assert done.ending is Ending.DRAINED
        found = self.place.contents("out")
        assert sorted(found) == sorted(f"done/{number}.json" for number in range(self.given))
        assert all(json.loads(content)["name"] == name.removeprefix("done/") for name, content in found.items())
        assert dict(files.read_committed(self.place.path("out"))) == found
        hidden = self.place.contents(".out.clonos")  # a task that was killed may have left an unfinished file
        assert [name for name in hidden if name.startswith("parts/") and not name.endswith(WRITING)] == []


def test_kills_of_tasks_leave_a_whole_file_for_each_file(tmp_path: Path, place: Place) -> None:
    copying = FileForFile(place)
    with running(copying.graph, tmp_path, OPTIONS) as job:
        job.wait_for(is_quiescent)
        for task in copying.tasks:
            copying.give()
            before = job.incarnations()
            kill(job, task)
            wait_for_successors(job, before, task)
        wait_for_checkpoint(job)
        copying.give()
        copying.stop(job)
    drawn = {row["name"]: row["draw"] for row in copying.collected.rows}
    assert len(drawn) == len(copying.collected.rows)
    found = map(json.loads, place.contents("out").values())
    assert {row["name"]: row["draw"] for row in found} == drawn


def test_a_resume_after_the_death_of_all_processes_leaves_a_file_for_each_file(tmp_path: Path, place: Place) -> None:
    copying = FileForFile(place)
    with running(copying.graph, tmp_path, OPTIONS) as job:
        job.wait_for(is_quiescent)
        copying.give()
        wait_for_checkpoint(job)
        copying.give()
        job.wait_for(lambda _: len(place.contents("out")) >= STEP)
    again = FileForFile(place, copying.given)
    with running(again.graph, tmp_path, OPTIONS, resume=True) as job:
        job.wait_for(is_quiescent)
        again.give()
        again.stop(job)
