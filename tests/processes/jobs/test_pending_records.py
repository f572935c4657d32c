"""What waits at the source of a running job is in its status."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from clonos.connectors.in_memory import blackhole, values
from clonos.core.model.progress import TaskCounter
from clonos.job import Job
from tests.processes.jobs.test_width_changes import LIMIT_S, wait_until

pytestmark = pytest.mark.processes

RECORDS = 100_000


def _held(gate: Path, record: int) -> int:
    """Waits until the gate is open."""
    wait_until(gate.exists)  # clonos: ok it delays the record and does not change it
    return record


def test_the_status_has_the_records_that_wait_at_a_source(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    job = Job("waiting", slots="process", store=str(tmp_path / "store"))
    held = job.source(values(range(RECORDS)), name="read").map(partial(_held, gate), name="held")
    held.sink(blackhole(), name="out")
    with job.start() as handle:
        wait_until(lambda: any(TaskCounter.PENDING_RECORDS in task.counters for task in handle.status().tasks))
        [waiting] = [task.counters[TaskCounter.PENDING_RECORDS] for task in handle.status().tasks]
        assert RECORDS // 2 < waiting <= RECORDS
        gate.touch()
        handle.wait(LIMIT_S)
