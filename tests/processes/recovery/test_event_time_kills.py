"""A job in event time on real slot processes: every task is killed, and its outputs equal those of a dumb twin."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from clonos.api.graph import JobGraph
from clonos.core.coordinator.coordinator_effects import JobDone
from clonos.core.model.ids import TaskId
from tests.processes.harness.drawing_job import OPTIONS, is_quiescent, kill, wait_for_checkpoint, wait_for_successors
from tests.processes.harness.running_job import RunningJob, running
from tests.processes.harness.timed_job import OUTPUTS, TimedJob, check

pytestmark = pytest.mark.processes

PARALLELISM = 2


def _victims(job: RunningJob) -> Iterator[tuple[TaskId, ...]]:
    """Each task alone, then the first source with each task that it feeds."""
    tasks = sorted(job.incarnations())
    yield from ((task,) for task in tasks)
    yield from ((tasks[0], task) for task in tasks[2 * PARALLELISM :])


def test_windows_joins_and_sessions_equal_their_twin_after_every_task_was_killed(tmp_path: Path) -> None:
    timed = TimedJob(JobGraph("timed"), tmp_path)
    with running(timed.job, tmp_path, OPTIONS, parallelism=PARALLELISM) as job:
        job.wait_for(is_quiescent)
        for victims in _victims(job):
            timed.advance()
            wait_for_checkpoint(job)
            before = job.incarnations()
            timed.advance()
            kill(job, *victims)
            wait_for_successors(job, before, *victims)
        timed.end()
        assert isinstance(job.end(), JobDone)
        assert job.generation == 1
    outputs = timed.outputs()
    check(outputs, PARALLELISM * timed.reach)
    for name in OUTPUTS:
        for wrong in (outputs[name][:-1], [*outputs[name], outputs[name][-1]]):
            with pytest.raises(AssertionError):
                check({**outputs, name: wrong}, PARALLELISM * timed.reach)
