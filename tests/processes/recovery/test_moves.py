"""A task that acts outside of the job moves out of a shared process under load: nothing is repeated or in doubt."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from clonos import http, web
from clonos.api.graph import JobGraph
from clonos.connectors import collect
from clonos.core.coordinator.coordinator import Coordinator
from clonos.core.coordinator.coordinator_effects import JobDone
from clonos.core.model.options import Options
from tests.processes.harness.drawing_job import kill, wait_for_checkpoint, wait_for_successors
from tests.processes.harness.gated_source import Gate, GatedNumbers
from tests.processes.harness.running_job import running
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
