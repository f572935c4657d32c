"""Files that arrive while the job runs: each is read once, by the incarnation that finds it."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from clonos.connectors import files
from clonos.core.coordinator.coordinator_effects import Ending
from clonos.io.store.store import CheckpointStore
from clonos.job import Job
from tests.speed import scaled

pytestmark = pytest.mark.processes

LIMIT_S = scaled(40.0)


class Watched:
    """A job that counts lines by key, and a folder of its input."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "input").mkdir()
        self.written = 0

    def job(self) -> Job:
        """A new description of the same job."""
        job = Job("watching", slots="process", parallelism=2, checkpoint_every="100ms", store=self.folder / "store")
        lines = job.source(files.lines(self.folder / "input" / "*.txt", watch="20ms"), name="lines")
        lines.map(int, name="numbers").sink(files.jsonl(self.folder / "output"))
        return job

    def add(self, count: int) -> None:
        """Files of ten lines each, moved in when they are complete."""
        for _ in range(count):
            numbers = range(self.written, self.written + 10)
            new = self.folder / f"{self.written}"
            new.write_text("".join(f"{number}\n" for number in numbers), "utf-8")
            new.rename(self.folder / "input" / f"{self.written}.txt")
            self.written += 10

    def wait(self) -> None:
        """Until all that was added is committed, once."""
        self.wait_for(lambda: (self.folder / "output").exists() and len(self.output()) >= self.written)
        assert self.output() == list(range(self.written))

    def wait_for(self, condition: Callable[[], bool]) -> None:
        """Asks again and again."""
        waiting = threading.Event()
        for _ in range(int(LIMIT_S * 50)):
            if condition():
                return
            waiting.wait(0.02)
        raise AssertionError(f"never: {condition}")

    def output(self) -> list[int]:
        """Committed rows."""
        return sorted(files.read_committed(self.folder / "output"))


def test_files_that_arrive_later_are_read_once_despite_kills_and_a_resume(tmp_path: Path) -> None:
    watched = Watched(tmp_path)
    with watched.job().start() as handle:
        watched.add(6)
        watched.wait()
        victim = next(task for task in handle.status().tasks if task.name.startswith("lines"))
        os.kill(victim.pid, signal.SIGKILL)
        watched.add(6)
        watched.wait()
        handle.stop(drain=True)
        assert handle.wait(LIMIT_S).ending is Ending.DRAINED
    watched.add(6)
    with watched.job().start(resume=True) as handle:
        watched.wait()
        handle.stop(drain=True)
        assert handle.wait(LIMIT_S).ending is Ending.DRAINED
    assert watched.output() == list(range(watched.written))


def test_files_that_arrive_around_changes_of_widths_are_read_once_also_from_before_the_changes(tmp_path: Path) -> None:
    watched, checkpoints = Watched(tmp_path), []
    for width in (4, 2, 4):
        watched.add(6)
        options: Any = {"widths": (f"lines={width}",), "checkpoint_every": "1s", "checkpoints_retained": 100}
        with watched.job().start(resume=True, **options) as handle:
            watched.add(6)
            watched.wait()
            handle.stop(drain=width == 4)
            handle.wait(LIMIT_S)
        store = CheckpointStore(str(tmp_path / "store"))
        store.find_job()
        checkpoints.append(store.checkpoints()[-1])
    watched.add(6)
    with watched.job().start(resume=True, checkpoint=checkpoints[0]) as handle:
        watched.add(6)
        watched.wait()
        handle.stop(drain=True)
        assert handle.wait(LIMIT_S).ending is Ending.DRAINED
    assert watched.output() == list(range(watched.written))
