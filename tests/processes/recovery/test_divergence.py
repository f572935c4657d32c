"""A job whose function asks for something else in its replay ends at once, and says what, where and why."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import pytest

from clonos import Job, collect, service, values
from clonos.job import JobCrashed
from tests.processes.harness.running_server import wait_for


@service
def rate(at_ns: int) -> int:
    return at_ns % 7


def priced(number: int) -> int:
    threading.Event().wait(0.001)  # so that the job lasts until its task is killed
    return number * rate(time.time_ns())  # clonos: ok to be detected


def test_a_call_with_other_arguments_ends_the_job_with_its_line_and_the_likely_cause(tmp_path: Path) -> None:
    job = Job("prices", checkpoint_every="10min", store=tmp_path / "store")
    job.source(values(range(1_000_000), batch=50), name="numbers").rebalance().map(
        priced, name="priced"
    ).rebalance().map(abs, name="absolute").sink(collect())
    with job.start(slots="process") as handle:

        def received() -> int:
            return sum(task.counters.get("records_in", 0) for task in handle.status().tasks if "absolute" in task.name)

        wait_for(lambda: received() >= 200, "200 prices")
        killed = next(task for task in handle.status().tasks if task.name == "priced/0")
        os.kill(killed.pid, signal.SIGKILL)
        with pytest.raises(JobCrashed) as raised:
            handle.wait(timeout=120)
    text = str(raised.value)
    assert "step priced, at the record" in text
    assert "asked for a call of rate; its replay asks for a call of rate, with other arguments" in text
    assert "Likely cause: test_divergence.py:" in text
    assert "calls time.time_ns (use clock.time_ns() of clonos), although a comment # clonos: ok silences it." in text
    assert "in priced\n    return number * rate(time.time_ns())" in text
