"""``postgres.table`` under load: kills of tasks, keepers, connections and the server lose and repeat nothing."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from clonos.api.graph import JobGraph
from clonos.connectors import collect
from clonos.connectors import postgres as pg
from clonos.core.coordinator.coordinator import Coordinator
from clonos.core.coordinator.coordinator_effects import JobDone
from clonos.core.model.ids import TaskId
from clonos.core.model.options import Options
from clonos_services import random
from tests.connectors.servers.postgres import PostgresServer
from tests.processes.harness.drawing_job import ON_REQUEST_MS, is_quiescent, take_checkpoint, wait_for_successors
from tests.processes.harness.gated_source import Gate, GatedNumbers
from tests.processes.harness.running_job import RunningJob, running

pytestmark = pytest.mark.connectors

OPTIONS = Options(checkpoint_every_ms=ON_REQUEST_MS, heartbeat_ms=50)
STEP, KEYS = 400, 5
"""Records of each of the two splits between two kills, and the keys of the second table."""

CUTS = 4

Row = dict[str, int]


def vector_of(number: int) -> list[float]:
    """A vector that belongs to a number."""
    return [number % 1_024 / 8, float(number >> 10 & 0xFFFF)]


def with_vector(row: Row) -> dict[str, Any]:
    """A row of a table, with the vector of what was drawn, or of the sum."""
    return {**row, "embedding": vector_of(row["draw"] if "draw" in row else row["total"])}


def counted(_key: int, so_far: Row | None, row: Row) -> tuple[Row, Row]:
    """Number of records of a key, and the sum of their draws."""
    before = so_far or {"seen": 0, "total": 0}
    now = {"key": row["n"] % KEYS, "seen": before["seen"] + 1, "total": before["total"] + row["draw"]}
    return now, now


class Writing:
    """source x 2 -> draw -> a table that rows are added to x 2; by key -> count -> a table of one row a key x 2.

    Both tables have a column of vectors.
    """

    def __init__(self, folder: Path, server: PostgresServer) -> None:
        self.server, self.gate, self.reach = server, Gate(folder / "gate"), 0
        self.graph = JobGraph("writing")
        self.collected: Any = collect()
        drawn = self.graph.source(GatedNumbers(self.gate), parallelism=2).map(
            lambda n: {"n": n, "draw": random.getrandbits(30)}, parallelism=2
        )
        added = pg.table(server.full_url, "drawn", {"n": "int", "draw": "int", "embedding": "vector(2)"})
        totals = {"key": "int", "seen": "int", "total": "bigint", "embedding": "vector(2)"}
        drawn.rebalance().map(with_vector, name="add", parallelism=2).sink(added)
        counts = drawn.key_by(lambda row: row["n"] % KEYS).stateful_map(counted, parallelism=1)
        rows = counts.map(with_vector, parallelism=1)
        rows.key_by("key").sink(pg.table(server.full_url, "counted", totals, upsert="key"), parallelism=2)
        drawn.sink(self.collected)
        plan = self.graph.compile(OPTIONS).plan
        self.writers = [task for task in plan.tasks if any(channel.receiver is None for channel in plan.outputs[task])]

    def advance(self) -> None:
        """Lets each split give further records."""
        self.reach += STEP
        self.gate.open_to(self.reach)

    def wait(self, job: RunningJob, count: int) -> None:
        """Waits until the table has that many rows, and the last count is that of as many records."""
        with self.server.connect() as connection:
            # Made by the tasks when their first rows come.
            find = "SELECT to_regclass('drawn') IS NOT NULL AND to_regclass('counted') IS NOT NULL"
            job.wait_for(lambda _: bool(connection.execute(find).fetchone()[0]))
            rows = "SELECT count(*) FROM drawn"
            job.wait_for(lambda _: int(connection.execute(rows).fetchone()[0]) >= count)

    def check(self) -> None:
        """Compares the tables, read by the server's own client, with what the job has collected."""
        drawn = {row["n"]: row["draw"] for row in self.collected.rows}
        assert sorted(drawn) == list(range(2 * self.reach))
        found = self.server.psql("SELECT n, draw, embedding FROM drawn")
        added = [(int(n), int(draw)) for n, draw, _ in found]
        assert all(json.loads(vector) == vector_of(int(draw)) for _, draw, vector in found)
        assert Counter(n for n, _ in added) == Counter(range(2 * self.reach))
        assert dict(added) == drawn
        totals = Counter[int]()
        for n, draw in drawn.items():
            totals[n % KEYS] += draw
        rows = self.server.psql("SELECT key, seen, total, embedding FROM counted ORDER BY key")
        assert [(*map(int, row[:3]), json.loads(row[3])) for row in rows] == [
            (key, 2 * self.reach // KEYS, totals[key], vector_of(totals[key])) for key in range(KEYS)
        ]


def kill(job: RunningJob, task: TaskId, with_keepers: bool) -> bool:
    """SIGKILL to the process of a task, perhaps with those of its keepers, and waits until all is well; whether the job
    has rolled back."""
    generation, before = job.generation, job.incarnations()

    def find(coordinator: Coordinator) -> tuple[list[int], list[TaskId]]:
        assert coordinator.view is not None
        placement = coordinator.view.placements[task]
        slots = {placement.hosting_slot, *(placement.keepers if with_keepers else ())}
        pids = [register.pid for register in coordinator.slots if register.slot in slots]
        return pids, [each.task for each in coordinator.view.placements if each.slot in slots]

    pids, tasks = job.driver.ask(find)
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    wait_for_successors(job, before, *tasks)
    return job.generation > generation


def test_kills_of_tasks_keepers_connections_and_the_server_lose_and_repeat_no_row(
    tmp_path: Path, with_vectors: PostgresServer
) -> None:
    postgres = with_vectors
    writing = Writing(tmp_path, postgres)
    with running(writing.graph, tmp_path, OPTIONS, parallelism=2) as job:
        job.wait_for(is_quiescent)
        writing.advance()
        take_checkpoint(job, 1)
        writing.wait(job, STEP // 2)  # the first kills come in the middle of the load
        kill(job, writing.writers[0], with_keepers=False)
        kill(job, writing.writers[-1], with_keepers=False)
        writing.advance()
        for part in range(1, CUTS + 1):
            writing.wait(job, 2 * STEP + part * STEP // CUTS)
            postgres.run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'clonos'")
        writing.advance()
        writing.wait(job, 4 * STEP + STEP // 2)
        postgres.kill()
        writing.advance()
        postgres.start()
        take_checkpoint(job, 2)
        writing.wait(job, 6 * STEP + STEP // 2)
        take_checkpoint(job, 3)
        before = 2 * writing.reach
        writing.advance()
        writing.wait(job, before + STEP + STEP // 2)  # of two tasks, so each has written
        assert kill(job, writing.writers[0], with_keepers=True), "the job has not rolled back"
        writing.gate.end(writing.reach)
        assert isinstance(job.end(), JobDone)
    writing.check()
