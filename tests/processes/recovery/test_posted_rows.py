"""Rows that are posted while the task that posts them is killed: each arrives, and one key never has two contents."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from clonos import web
from clonos.api.graph import JobGraph
from clonos.core.coordinator.coordinator_effects import JobDone
from clonos.core.model.options import Options
from clonos_services import random
from tests.processes.harness.drawing_job import wait_for_successors
from tests.processes.harness.gated_source import Gate, GatedNumbers
from tests.processes.harness.running_job import running
from tests.unit.connectors.web.receiving_server import Receiver, receiver

pytestmark = pytest.mark.processes

OPTIONS = Options(checkpoint_every_ms=60_000, heartbeat_ms=50)
ROWS = 400
"""Records of each of the two splits."""
KILLS = 3


@pytest.fixture
def server() -> Iterator[Receiver]:
    with receiver() as found:
        yield found


def test_rows_arrive_although_the_task_that_posts_them_is_killed(server: Receiver, tmp_path: Path) -> None:
    gate = Gate(tmp_path / "gate")
    graph = JobGraph("posting")
    drawn = graph.source(GatedNumbers(gate), parallelism=2).map(lambda n: {"n": n, "draw": random.getrandbits(60)})
    drawn.rebalance().map(dict, name="add").sink(web.post(server.url, batch=20, key_field="key"), parallelism=1)
    with running(graph, tmp_path, OPTIONS) as job:
        task = graph.compile(OPTIONS).plan.tasks[-1]
        for kill in range(1, KILLS + 1):
            arrived = len(server.received)
            gate.open_to(ROWS * kill // (KILLS + 1))
            server.wait_for(arrived + 2)
            before = job.incarnations()
            os.kill(job.pid_of(task), signal.SIGKILL)
            wait_for_successors(job, before, task)
        gate.end(ROWS)
        assert isinstance(job.end(), JobDone)
    rows = [row for one in server.accepted for row in one.value]
    draws: dict[str, set[int]] = {}
    for row in rows:
        draws.setdefault(row["key"], set()).add(row["draw"])
    assert len(rows) > 2 * ROWS, "a successor sends the rows since the last checkpoint again"
    assert {len(drawn) for drawn in draws.values()} == {1}
    assert len(draws) == len({row["n"] for row in rows}) == 2 * ROWS
