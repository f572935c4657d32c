"""On real processes: a service that a user's thread calls cannot be recorded, so it raises."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from clonos.api.graph import JobGraph
from clonos.connectors import collect, values
from clonos.core.coordinator.coordinator_effects import JobDone, JobFailed
from clonos.core.model.errors import Blame
from clonos_services import clock, random
from clonos_services.service import service
from tests.processes.harness.running_job import running

pytestmark = pytest.mark.processes


def _drawn_aside(number: int) -> float:
    """A user's function that draws in parallel threads."""
    with ThreadPoolExecutor(1) as threads:
        return threads.submit(random.random).result() + number  # clonos: ok the job must fail at it


@service
def _answer(number: int) -> int:
    """An external call: its outcome is recorded, with every service that it uses."""
    return number if clock.time() > 0 and random.random() < 1 else -1


def test_a_service_called_in_a_users_thread_fails_the_job_with_an_error_that_names_it(tmp_path: Path) -> None:
    graph = JobGraph("threaded")
    graph.source(values(range(10))).map(_drawn_aside, name="aside").sink(collect())
    with running(graph, tmp_path) as job:
        failed = job.end()
    assert isinstance(failed, JobFailed)
    assert (failed.blame, failed.step) == (Blame.JOB, "aside")
    assert failed.error.startswith("ServiceWithoutTask: random was used in a slot, but not by the thread of a task")


def test_services_inside_a_recorded_call_are_the_real_ones_in_every_thread(tmp_path: Path) -> None:
    graph, output = JobGraph("called"), collect()
    answered = graph.source(values(range(100))).map(_answer)
    answered.map_async(_answer).sink(output)
    with running(graph, tmp_path) as job:
        assert isinstance(job.end(), JobDone)
    assert sorted(output.rows) == list(range(100))
