"""A task with a hot standby loses its process: the standby takes over with nothing left to replay."""

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
from clonos.job import Handle, Job
from clonos.status import TaskState
from tests.processes.harness.gated_source import Gate, GatedNumbers
from tests.speed import scaled

pytestmark = pytest.mark.processes

LIMIT_S = scaled(40.0)
READ_BEFORE, READ_IN_ALL = 400, 600


class Marking:
    """Counts by key, and notes in a file of its process each number that it takes."""

    def __init__(self, folder: Path) -> None:
        self.folder = str(folder)

    def __call__(self, _key: int, seen: int | None, number: int) -> tuple[int, dict[str, int]]:
        # clonos: ok the test looks at what each process has taken
        with open(f"{self.folder}/{os.getpid()}", "a", encoding="utf-8") as marks:
            marks.write(f"{number}\n")
        return (seen or 0) + 1, {"n": number, "seen": (seen or 0) + 1}


def _marks(folder: Path, pid: int) -> list[int]:
    path = folder / str(pid)
    return [int(line) for line in path.read_text("utf-8").split()] if path.exists() else []


def _wait(handle: Handle, condition: Callable[[TaskState], object]) -> TaskState:
    """Until the counting task looks so."""
    waiting = threading.Event()
    for _ in range(int(LIMIT_S * 50)):
        found = next((task for task in handle.status().tasks if task.name == "count/0"), None)
        if found is not None and condition(found):
            return found
        waiting.wait(0.02)
    raise AssertionError(handle.status())


def test_the_hot_standby_of_a_killed_task_takes_over_with_nothing_left_to_replay(tmp_path: Path) -> None:
    gate, marks = Gate(tmp_path / "gate"), tmp_path / "marks"
    marks.mkdir()
    gate.open_to(100)
    # A busy machine pauses processes: with the usual lease a healthy one may count as dead beside the killed one.
    store, lease = tmp_path / "store", f"{LIMIT_S:g}s"
    job = Job("hot", slots="process", spare_slots=2, checkpoint_every="100ms", lease=lease, store=store)
    counted: Any = job.source(GatedNumbers(gate), name="read").key_by(lambda number: number % 3)
    counted.stateful_map(Marking(marks), name="count", standby="hot").sink(files.jsonl(tmp_path / "output"))
    with job.start() as handle:
        before = _wait(handle, lambda task: task.hot_standbys == 1)
        gate.open_to(READ_BEFORE)
        _wait(handle, lambda task: len(_marks(marks, before.pid)) == READ_BEFORE)
        (follower,) = _followers(marks, before.pid, READ_BEFORE)
        done = _marks(marks, follower)
        os.kill(before.pid, signal.SIGKILL)
        after = _wait(handle, lambda task: task.incarnation != before.incarnation and task.phase == "live")
        assert after.pid == follower
        gate.end(READ_IN_ALL)
        assert handle.wait(LIMIT_S).ending is Ending.FINISHED
    # No number was processed twice: the standby did not repeat any work from before the kill.
    taken = _marks(marks, follower)
    assert taken[: len(done)] == done
    assert taken == list(range(taken[0], READ_IN_ALL))
    rows = list(files.read_committed(tmp_path / "output"))
    assert sorted(row["n"] for row in rows) == list(range(READ_IN_ALL))
    for key in range(3):
        seen = [row["seen"] for row in rows if row["n"] % 3 == key]
        assert sorted(seen) == list(range(1, READ_IN_ALL // 3 + 1))


def _followers(folder: Path, pid: int, count: int) -> list[int]:
    """The other processes that have come as far."""
    waiting = threading.Event()
    for _ in range(int(LIMIT_S * 50)):
        others = [int(path.name) for path in folder.iterdir() if int(path.name) != pid]
        there = [other for other in others if _marks(folder, other)[-1:] == [count - 1]]
        if there:
            return there
        waiting.wait(0.02)
    raise AssertionError({path.name: path.read_text("utf-8")[-20:] for path in folder.iterdir()})
