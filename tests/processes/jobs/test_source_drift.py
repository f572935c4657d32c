"""Two sources on slot processes, one of which is far ahead: it waits."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from clonos.api.event_time import Timestamps
from clonos.connectors import files
from clonos.core.model.progress import TaskCounter
from clonos.job import Job
from tests.processes.harness.gated_source import Gate, GatedNumbers
from tests.speed import scaled

pytestmark = pytest.mark.processes

LIMIT_S = scaled(40.0)
START = 1_700_000_000
FAST, SLOW = 200_000, 50
HELD_MAX = 5_000
"""Records that the fast source may read while the slow one waits: an hour's are 36, and a batch has 1,000."""


def _job(folder: Path, **options: Any) -> tuple[Job, Gate, Gate]:
    """A job whose fast source has a record every 1,000 seconds, and whose slow source has one every second."""
    fast, slow = Gate(folder / "fast"), Gate(folder / "slow")
    job = Job("drift", slots="process", checkpoint_every="100ms", store=folder / "store", **options)
    behind = job.source(GatedNumbers(slow), name="slow", timestamps=Timestamps(lambda number: START + number))
    ahead = job.source(
        GatedNumbers(fast, 1_000), name="fast", timestamps=Timestamps(lambda number: START + 100 * number)
    )
    both = behind.rebalance().union(ahead.rebalance())
    both.map(lambda number: {"n": number}, name="row").sink(files.jsonl(folder / "out"))
    return job, fast, slow


def _wait_for(condition: Callable[[], object]) -> None:
    waiting = threading.Event()
    for _ in range(int(LIMIT_S * 50)):
        if condition():
            return
        waiting.wait(0.02)
    raise AssertionError("the condition did not hold in time")


def test_a_source_far_ahead_waits_for_the_slow_one_even_while_that_recovers(tmp_path: Path) -> None:
    job, fast, slow = _job(tmp_path, watermark_drift_max="1h")
    fast.end(FAST)
    with job.start() as handle:

        def counter(name: str, counter: TaskCounter = TaskCounter.RECORDS_IN) -> int:
            return sum(task.counters.get(counter, 0) for task in handle.status().tasks if task.name == f"{name}/0")

        slow.open_to(SLOW)
        _wait_for(lambda: counter("slow") == SLOW and counter("fast") > 0)
        os.kill(next(task.pid for task in handle.status().tasks if task.name == "slow/0"), signal.SIGKILL)
        _wait_for(lambda: handle.status().recoveries and counter("slow", TaskCounter.WATERMARK_NS))
        assert 0 < counter("fast") < HELD_MAX
        assert counter("slow", TaskCounter.WATERMARK_NS) == (START + SLOW - 1) * 10**9
        slow.end(SLOW)
        result = handle.wait(LIMIT_S)
    assert len(result.status.recoveries) == 1
    assert len(list(files.read_committed(tmp_path / "out"))) == FAST + SLOW
