"""Late records in the counters and the summary of a job on slot processes, one of which is killed."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import pytest

from clonos.api.event_time import Timestamps
from clonos.api.windows import Tumbling
from clonos.connectors import files
from clonos.job import Job
from clonos.operators.tags import Tag
from tests.processes.harness.gated_source import Gate, GatedNumbers
from tests.speed import scaled

pytestmark = pytest.mark.processes

LIMIT_S = scaled(40.0)
START = 1_700_000_000
LATE = Tag[int]("late")


def _timestamp(number: int) -> int:
    return START if number % 10 == 9 else START + number


def test_late_records_are_counted_once_though_the_task_of_a_window_is_killed(tmp_path: Path) -> None:
    gate = Gate(tmp_path / "gate")
    job = Job("clicks", slots="process", parallelism=1, checkpoint_every="100ms", store=tmp_path / "store")
    numbers = job.source(GatedNumbers(gate), timestamps=Timestamps(_timestamp, watermark_every="1ms"))
    counted = numbers.key_by(lambda number: number % 3).window(Tumbling("5s"), late=LATE).count(name="counted")
    counted.map(lambda result: {"n": result.value}).sink(files.jsonl(tmp_path / "on time"))
    counted.side_output(LATE).map(lambda number: {"n": number}).sink(files.jsonl(tmp_path / "late"))
    waiting = threading.Event()

    def late() -> int:
        return len(list(files.read_committed(tmp_path / "late"))) if (tmp_path / "late").exists() else 0

    with job.start() as handle:
        for count in (200, 400):
            before = late()
            gate.open_to(count)
            for _ in range(int(LIMIT_S * 50)):
                if late() > before:
                    break
                waiting.wait(0.02)
            (task,) = (task for task in handle.status().tasks if task.name.startswith("counted"))
            if count == 200:
                os.kill(task.pid, signal.SIGKILL)
        gate.end(600)
        result = handle.wait(LIMIT_S)
        summary = "\n".join(handle.summary())
    assert len(result.status.recoveries) == 1
    assert result.counter("late_records") == late() > 40
    assert f"600 in, late: counted {late()}" in summary
    assert sum(task.late_records.get("counted", 0) for task in result.status.tasks) == late()
