"""Placement of tasks on child processes: by a rule of a step, after a take-over, and refused where it cannot hold."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from clonos.api.graph_errors import InvalidJob
from clonos.connectors import files, values
from clonos.core.model.errors import JobError
from clonos.job import Job
from tests.processes.harness.gated_source import Gate, GatedNumbers
from tests.processes.jobs.test_savepoints import LIMIT_S, wait_until

pytestmark = pytest.mark.processes


def _task(handle: Any, name: str) -> Any:
    return next((task for task in handle.status().tasks if task.name.startswith(name)), None)


def test_a_step_runs_on_its_domain_and_again_after_its_process_was_killed(tmp_path: Path) -> None:
    gate = Gate(tmp_path / "gate")
    job = Job(
        "placed", slots="process", domains=3, spare_slots=3, checkpoint_every="200ms", store=str(tmp_path / "store")
    )
    numbers = job.source(GatedNumbers(gate), name="read", parallelism=1)
    counts = numbers.map(lambda n: n + 1, name="add").on(host="domain-2", exclusive=True)
    counts.key_by(lambda n: n % 2).count(name="count", parallelism=2).sink(files.jsonl(str(tmp_path / "out")))
    gate.open_to(50)
    with job.start() as handle:
        wait_until(lambda: (found := _task(handle, "add")) is not None and found.phase == "live")
        before = _task(handle, "add")
        assert before.domain == "domain-2"
        os.kill(before.pid, signal.SIGKILL)
        wait_until(lambda: (now := _task(handle, "add")).pid not in (0, before.pid) and now.phase == "live")
        after = _task(handle, "add")
        assert after.domain == "domain-2"
        assert [task.pid for task in handle.status().tasks].count(after.pid) == 1
        gate.end(100)
        assert handle.wait(LIMIT_S).has_finished
    assert len(list(files.read_committed(tmp_path / "out"))) == 100


def test_a_host_that_no_process_of_the_job_runs_on_is_refused_at_once(tmp_path: Path) -> None:
    job = Job("placed", slots="process", store=str(tmp_path / "store"))
    job.source(values([1]), name="read").map(lambda n: n, name="add").on(host="far-away").sink(files.jsonl("out"))
    with pytest.raises(JobError, match=r"the step add.* is to run on 'far-away', but the processes of this job run on"):
        job.run()


def test_a_rule_that_is_empty_or_contradicts_another_is_refused() -> None:
    job = Job("placed")
    step = job.source(values([1]), name="read").map(lambda n: n, name="add")
    wrong: list[dict[str, Any]] = [{}, {"place": "driver", "host": "a"}, {"place": "moon"}, {"host": ""}]
    for each in wrong:
        with pytest.raises(InvalidJob, match=r"\.on\(|name of a host"):
            step.on(**each)
    step.on(exclusive=True)
    with pytest.raises(InvalidJob, match="two rules"):
        step.on("driver")
