"""A task that acts outside of the job moves out of a shared process under load: nothing is repeated or in doubt."""

from __future__ import annotations

import fcntl
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from clonos import http, web
from clonos.api.graph import JobGraph
from clonos.connectors import collect
from clonos.core.coordinator.coordinator import Coordinator
from clonos.core.coordinator.coordinator_effects import Alarm, JobDone
from clonos.core.model.options import Options
from tests.processes.harness.drawing_job import kill, wait_for_checkpoint, wait_for_successors
from tests.processes.harness.gated_source import Gate, GatedNumbers
from tests.processes.harness.running_job import RunningJob, running
from tests.unit.connectors.web.receiving_server import Receiver, receiver

pytestmark = pytest.mark.processes

OPTIONS = Options(checkpoint_every_ms=300, heartbeat_ms=50)
BEFORE, STEP = 50, 20
"""Records before the kill; records that are read together until the task has moved."""


@pytest.fixture
def server() -> Iterator[Receiver]:
    with receiver() as found:
        yield found


def posting(gate: Gate, url: str) -> JobGraph:
    """A sink posts each row. No server says which rows it has, so a successor repeats those since the checkpoint."""
    graph = JobGraph("posting")
    rows = graph.source(GatedNumbers(gate), parallelism=1).map(lambda n: {"n": n}, name="row")
    rows.rebalance().map(dict, name="task").sink(web.post(url, batch=1, key_field="key"), parallelism=1)
    return graph


def calling(gate: Gate, url: str) -> JobGraph:
    """A step makes a call for each record. A call in doubt raises, which ends the job."""

    def call(n: int) -> int:
        http.post(url, json={"n": n}).raise_for_status()
        return n

    graph = JobGraph("calling")
    numbers = graph.source(GatedNumbers(gate), parallelism=1).rebalance()
    numbers.map(call, name="task", effects=True, parallelism=1).sink(collect())
    return graph


def has_moved(coordinator: Coordinator) -> bool:
    """Whether a task has moved and has caught up, so that no task shares a process."""
    return any(recovery.is_move and recovery.is_over for recovery in coordinator.recoveries)


@pytest.mark.parametrize("make", [posting, calling])
def test_a_task_with_effects_moves_and_repeats_nothing(make: Any, server: Receiver, tmp_path: Path) -> None:
    gate = Gate(tmp_path / "gate")
    graph = make(gate, server.url)
    plan = graph.compile(OPTIONS).plan
    task = plan.tasks[-1]
    assert plan.with_keepers == (task,)
    with running(graph, tmp_path, OPTIONS, slots_needed=len(plan.tasks)) as job:
        gate.open_to(BEFORE)
        server.wait_for(BEFORE)
        wait_for_checkpoint(job)  # no call is under way
        before = job.incarnations()
        kill(job, task)
        wait_for_successors(job, before, task)  # in the process of another task
        reach = BEFORE
        while not job.driver.ask(has_moved):
            reach += STEP
            gate.open_to(reach)
            server.wait_for(reach)
        gate.end(reach)
        assert isinstance(job.end(), JobDone)
        moved = [recovery.task for recovery in job.driver.ask(lambda coordinator: coordinator.recoveries)]
    assert task in moved
    counts = Counter(one.value["n"] for one in server.accepted)
    assert set(counts) == set(range(reach))
    assert {counts[n] for n in range(BEFORE, reach)} == {1}, "only rows before the kill may be repeated"


HELD = BEFORE + 5
"""Number whose call waits for the lock of a file."""


def waiting(gate: Gate, url: str, answer: Path) -> JobGraph:
    """A step makes calls, one of which is not answered while the test has locked a file."""

    def call(n: int) -> dict[str, int]:
        if n == HELD:
            with answer.open() as file:
                fcntl.flock(file, fcntl.LOCK_SH)
        return {"n": n}

    graph = JobGraph("waiting")
    numbers = graph.source(GatedNumbers(gate), parallelism=1).rebalance()
    called = numbers.map_async(call, ordered=False, capacity=4, name="task", parallelism=1)
    called.rebalance().map(dict, name="row").sink(web.post(url, batch=1, key_field="key"), parallelism=1)
    return graph


def has_given_up(job: RunningJob) -> bool:
    """Whether an alarm says that a task goes on in the process that it shares."""
    return any(isinstance(each, Alarm) and "Raise move_timeout" in each.text for each in tuple(job.progress))


def test_a_task_with_a_call_that_is_not_answered_goes_on_after_the_limit(server: Receiver, tmp_path: Path) -> None:
    gate, answer = Gate(tmp_path / "gate"), tmp_path / "answer"
    options = replace(OPTIONS, move_timeout_ms=300)
    graph = waiting(gate, server.url, answer)
    plan = graph.compile(options).plan
    (task,) = (task for task in plan.tasks if plan.task_name(task).startswith("task"))
    with answer.open("w") as locked, running(graph, tmp_path, options, slots_needed=len(plan.tasks)) as job:
        fcntl.flock(locked, fcntl.LOCK_EX)
        gate.open_to(BEFORE)
        server.wait_for(BEFORE)
        wait_for_checkpoint(job)
        before = job.incarnations()
        kill(job, task)
        gate.open_to(HELD + 1)
        wait_for_successors(job, before, task)
        job.wait_for(lambda _: has_given_up(job))
        gate.open_to(HELD + STEP)
        server.wait_for(HELD + STEP - 1)  # all but the one whose call is under way
        assert HELD not in {one.value["n"] for one in server.accepted}
        fcntl.flock(locked, fcntl.LOCK_UN)
        gate.end(HELD + STEP)
        assert isinstance(job.end(), JobDone)
    counts = Counter(one.value["n"] for one in server.accepted)
    assert counts == Counter(range(HELD + STEP))
