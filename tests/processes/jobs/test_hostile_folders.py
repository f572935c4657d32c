"""Store, output and local folders that are links or open to all users: a task is killed, and the output is exact."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import pytest

from clonos.connectors import files
from clonos.core.coordinator.coordinator_effects import Ending
from clonos.job import Handle, Job
from clonos.status import TaskState
from tests.processes.harness.gated_source import Gate, GatedNumbers
from tests.speed import scaled

pytestmark = pytest.mark.processes

LIMIT_S = scaled(40.0)
BEFORE, IN_ALL = 100, 200


def _make_links(folder: Path) -> None:
    """The store and the output are links; the output's is a link to a link."""
    for name in ("store", "output"):
        (folder / "disk" / name).mkdir(parents=True)
    (folder / "store").symlink_to(folder / "disk" / "store")
    (folder / "between").symlink_to("disk/output")
    (folder / "output").symlink_to("between")


def _open_to_all(folder: Path) -> None:
    for name in ("store", "output"):
        (folder / name).mkdir()
        (folder / name).chmod(0o777)
    folder.chmod(0o777)


def _wait(handle: Handle, before: int) -> TaskState:
    """Until the counting task is live in an incarnation after ``before``, with a checkpoint."""
    waiting = threading.Event()
    for _ in range(int(LIMIT_S * 50)):
        status = handle.status()
        found = next((task for task in status.tasks if task.name == "count/0"), None)
        if found is not None and status.checkpoint and found.phase == "live" and found.incarnation > before:
            return found
        waiting.wait(0.02)
    raise AssertionError(handle.status())


@pytest.mark.parametrize("make", [_make_links, _open_to_all])
def test_a_killed_task_of_a_job_with_such_folders_goes_on_and_the_output_is_exact(make: object, tmp_path: Path) -> None:
    assert callable(make)
    make(tmp_path)
    gate = Gate(tmp_path / "gate")
    gate.open_to(BEFORE)
    job = Job("hostile", slots="process", spare_slots=1, checkpoint_every="100ms", store=tmp_path / "store")
    numbers = job.source(GatedNumbers(gate), name="read").key_by(lambda number: number % 3)
    counted = numbers.stateful_map(
        lambda _, seen, n: ((seen or 0) + 1, {"n": n, "seen": (seen or 0) + 1}), name="count"
    )
    counted.sink(files.jsonl(tmp_path / "output"))
    with job.start() as handle:
        found = _wait(handle, 0)
        os.kill(found.pid, signal.SIGKILL)
        _wait(handle, found.incarnation)
        gate.end(IN_ALL)
        assert handle.wait(LIMIT_S).ending is Ending.FINISHED
    rows = list(files.read_committed(tmp_path / "output"))
    assert sorted((row["n"] % 3, row["seen"]) for row in rows) == sorted((n % 3, n // 3 + 1) for n in range(IN_ALL))
    assert sorted(row["n"] for row in rows) == list(range(IN_ALL))
