"""A log that grows and is rotated while the job runs, dies and resumes: each line is there once."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import pytest

from clonos.connectors import files
from clonos.core.coordinator.coordinator_effects import Ending
from clonos.job import Job
from tests.harnesses.log_rotation import ROTATIONS, append
from tests.speed import scaled

pytestmark = pytest.mark.processes

LIMIT_S = scaled(40.0)


def job_of(folder: Path) -> Job:
    job = Job("tailing", slots="process", checkpoint_every="100ms", store=folder / "store")
    lines = job.source(files.tail(folder / "*.log", watch="20ms", linger="100ms"), name="lines")
    lines.map(int, name="numbers").sink(files.jsonl(folder / "output"))
    return job


def test_lines_of_a_log_are_read_once_despite_rotations_a_kill_and_a_resume(tmp_path: Path) -> None:
    log, written, waiting = tmp_path / "app.log", 0, threading.Event()

    def write() -> None:
        """Ten lines and a rotation of each kind, then three lines; waits until they are committed, once."""
        nonlocal written
        for rotate in (*ROTATIONS.values(), None):
            append(log, "".join(f"{number}\n" for number in range(written, written + 10)))
            written += 10
            if rotate is not None:
                rotate(log)
        for _ in range(int(LIMIT_S * 50)):
            if (tmp_path / "output").exists() and len(list(files.read_committed(tmp_path / "output"))) >= written:
                break
            waiting.wait(0.02)
        assert sorted(files.read_committed(tmp_path / "output")) == list(range(written))

    append(log, "")
    with job_of(tmp_path).start() as handle:
        append(log, "0\n")
        written = 1
        write()
        os.kill(next(task.pid for task in handle.status().tasks if task.name.startswith("lines")), signal.SIGKILL)
        write()
        handle.stop(drain=True)
        assert handle.wait(LIMIT_S).ending is Ending.DRAINED
    with job_of(tmp_path).start(resume=True) as handle:
        write()
        handle.stop(drain=True)
        assert handle.wait(LIMIT_S).ending is Ending.DRAINED
