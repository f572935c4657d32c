"""On real processes: a task that is live again but has a backlog has not caught up."""

from __future__ import annotations

import fcntl
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from clonos.api.graph import JobGraph
from clonos.connectors import collect
from clonos.core.coordinator.coordinator import Coordinator
from clonos.core.coordinator.coordinator_effects import JobDone, Milestone
from clonos.core.model.ids import TaskId
from clonos.core.model.options import Options
from clonos.core.model.progress import TaskCounter
from tests.processes.harness.gated_source import Gate, GatedNumbers
from tests.processes.harness.running_job import running

pytestmark = pytest.mark.processes

PILED_UP = 1_000
TASK, SINK = TaskId(1), TaskId(2)


class Hold:
    """A step that stands still at record 0, or at all others, while the test holds a lock."""

    def __init__(self, folder: Path) -> None:
        self.first, self.others = str(folder / "first"), str(folder / "others")

    def __call__(self, number: int) -> int:
        with open(self.others if number else self.first, "w") as file:  # clonos: ok the test holds the lock
            fcntl.flock(file, fcntl.LOCK_SH)
        return number


@contextmanager
def _held(path: str) -> Iterator[None]:
    with open(path, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _is_behind(coordinator: Coordinator, phase: str) -> bool:
    """The task is in this phase, and all that has piled up waits for it, but perhaps for a step that it stands in."""
    counters = coordinator.counters.get(TASK, {})
    return coordinator.phases[TASK] == phase and counters.get(TaskCounter.BACKLOG_ELEMENTS, 0) > PILED_UP // 2


def _has_come_through(coordinator: Coordinator) -> bool:
    """The first record has, the task's log with it, and the task has reported what waits for it."""
    task, sink = (coordinator.counters.get(TaskId(n), {}) for n in (TASK, SINK))
    return TaskCounter.BACKLOG_ELEMENTS in task and sink.get("records_in") == 1


@pytest.mark.usefixtures("first_checkpoint_by_time")
def test_a_live_task_has_caught_up_when_its_backlog_is_processed(tmp_path: Path) -> None:
    gate, output = Gate(tmp_path / "gate"), collect()
    graph = JobGraph("held")
    hold = Hold(tmp_path)
    graph.source(GatedNumbers(gate)).rebalance().map(hold).rebalance().sink(output)
    with running(graph, tmp_path, Options(checkpoint_every_ms=600_000, heartbeat_ms=50)) as job:
        gate.open_to(1)
        job.wait_for(_has_come_through)
        with _held(hold.others):
            with _held(hold.first):
                os.kill(job.pid_of(TASK), signal.SIGKILL)
                gate.open_to(PILED_UP)
                job.wait_for(lambda it: _is_behind(it, "replaying"))
            job.wait_until_reached(Milestone.REPLAYED)
            job.wait_for(lambda it: _is_behind(it, "live"))
            assert job.count_reached(Milestone.CAUGHT_UP) == 0
        job.wait_until_reached(Milestone.CAUGHT_UP)
        assert job.driver.ask(lambda it: it.counters[TASK][TaskCounter.BACKLOG_ELEMENTS]) <= 1
        gate.end(PILED_UP)
        assert isinstance(job.end(), JobDone)
    assert sorted(output.rows) == list(range(PILED_UP))
