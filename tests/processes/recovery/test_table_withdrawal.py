"""Tables on real processes after losses that no keeper survives: each row is there once, readers see whole prefixes.

A writer dies at the same moment as its keepers, or all processes do. The job rolls back, rows after the checkpoint are
withdrawn task by task, and others come in their place.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from clonos.api.graph import JobGraph
from clonos.connectors import collect, dbapi, sqlite
from clonos.core.coordinator.coordinator import Coordinator
from clonos.core.coordinator.coordinator_effects import JobDone
from clonos.core.model.ids import TaskId
from clonos.core.model.options import Options
from clonos_services import random
from tests.processes.harness.drawing_job import ON_REQUEST_MS, is_quiescent, take_checkpoint, wait_for_successors
from tests.processes.harness.gated_source import Gate, GatedNumbers
from tests.processes.harness.running_job import LIMIT_S, RunningJob, running

pytestmark = pytest.mark.processes

OPTIONS = Options(checkpoint_every_ms=ON_REQUEST_MS, heartbeat_ms=50)
STEP = 150
"""Records of each of the two splits between two kills."""

KEYS = 5
DRAWN, COUNTED = ["n", "draw"], {"key": "INTEGER", "seen": "INTEGER", "total": "INTEGER"}

Row = dict[str, int]


def counted(_key: int, so_far: Row | None, row: Row) -> tuple[Row, Row]:
    """Number of records of a key, and the sum of their draws."""
    before = so_far or {"seen": 0, "total": 0}
    now = {"key": row["n"] % KEYS, "seen": before["seen"] + 1, "total": before["total"] + row["draw"]}
    return now, now


class WritingJob:
    """source x 2 -> draw -> x 2 a table that rows are added to; by key -> count -> x 2 a table of one row a key."""

    def __init__(self, folder: Path, kind: str) -> None:
        self.gate, self.file, self.reach = Gate(folder / "gate"), folder / "tables.db", 0
        self.graph = JobGraph("writing")
        self.collected: Any = collect()
        drawn = self.graph.source(GatedNumbers(self.gate), parallelism=2).map(
            lambda n: {"n": n, "draw": random.getrandbits(30)}, parallelism=2
        )
        drawn.rebalance().map(dict, name="add", parallelism=2).sink(self._sink(kind, "drawn", DRAWN))
        counts = drawn.key_by(lambda row: row["n"] % KEYS).stateful_map(counted, parallelism=1)
        counts.key_by("key").sink(self._sink(kind, "counted", COUNTED, upsert="key"), parallelism=2)
        drawn.sink(self.collected)

    def _sink(self, kind: str, table: str, columns: Any, **options: Any) -> Any:
        file = str(self.file)
        if kind == "sqlite":
            return sqlite(file, table, columns, **options)
        types = columns if isinstance(columns, dict) else dict.fromkeys(columns, "INTEGER")
        return dbapi(lambda: sqlite3.connect(file, timeout=10), table, types, **options)

    @property
    def writers(self) -> list[TaskId]:
        """Tasks that write to a table, and of whose log nobody but their keepers knows."""
        plan = self.graph.compile(OPTIONS).plan
        return [task for task in plan.tasks if any(channel.receiver is None for channel in plan.outputs[task])]

    def advance(self) -> int:
        """Lets each split give further records; how many it may have given by then."""
        self.reach += STEP
        self.gate.open_to(self.reach)
        return self.reach

    def check(self) -> None:
        """Checks that nothing is lost or repeated, and that all outputs have the same draws."""
        records = self.reach
        with closing(sqlite3.connect(self.file)) as connection:
            added = connection.execute("SELECT n, draw FROM drawn").fetchall()
            rows = connection.execute("SELECT key, seen, total FROM counted ORDER BY key").fetchall()
        drawn = {row["n"]: row["draw"] for row in self.collected.rows}
        assert sorted(drawn) == list(range(2 * records))
        assert Counter(n for n, _ in added) == Counter(range(2 * records))
        assert dict(added) == drawn
        totals = Counter[int]()
        for n, draw in drawn.items():
            totals[n % KEYS] += draw
        assert rows == [(key, 2 * records // KEYS, totals[key]) for key in range(KEYS)]


class Reader:
    """Looks at the tables again and again, each time in one transaction, and notes what must never be seen."""

    def __init__(self, file: Path) -> None:
        self.looks = self.withdrawals = 0
        self.wrong: list[str] = []
        self.rows: dict[str, list[tuple[int, int]]] = {}  # by task, in the order of their numbers
        self.counts: dict[int, int] = {}  # records seen, by key
        self._settled_counts: dict[int, int] = {}
        self._settled: dict[str, list[tuple[int, int]]] = {}
        self._file = file
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run)

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Reads within the block."""
        self._thread.start()
        try:
            yield
        finally:
            self._end.set()
            self._thread.join()
        assert not self.wrong, self.wrong[:3]

    def wait(self, job: RunningJob, count: int) -> None:
        """Waits until both tables have ``count`` records, and each task and each key has more than when settled."""
        job.wait_for(lambda _: self._has(count))

    def _has(self, count: int) -> bool:
        rows, counts = self.rows, self.counts
        if min(sum(map(len, rows.values())), sum(counts.values())) < count:
            return False
        has_more = all(len(found) > len(self._settled.get(task, ())) for task, found in rows.items())
        return has_more and all(seen > self._settled_counts.get(key, 0) for key, seen in counts.items())

    def settle(self) -> None:
        """Checks that the last rows seen precede a completed checkpoint, so they stay."""
        self._settled, self._settled_counts = dict(self.rows), dict(self.counts)

    def _run(self) -> None:
        while not self._end.wait(0.002):
            if self._file.exists():
                # Not read-only: a connection that may write rolls back what a killed process left half written.
                with closing(sqlite3.connect(self._file, timeout=20)) as connection:
                    self._look(connection)

    def _look(self, connection: sqlite3.Connection) -> None:
        connection.execute("BEGIN")
        tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        if not {"drawn", "counted"} <= tables:
            return
        found = connection.execute("SELECT clonos_task, clonos_number, n, draw FROM drawn ORDER BY 1, 2").fetchall()
        counts = connection.execute("SELECT key, seen FROM counted").fetchall()
        keys = Counter(key for key, _ in counts)
        self.looks += 1
        rows: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for task, number, n, draw in found:
            if number != len(rows[task]):
                self.wrong.append(f"{task} has {number} after {len(rows[task])} rows")
            rows[task].append((n, draw))
        for task, before in self.rows.items():
            self.withdrawals += rows[task][: len(before)] != before
            settled = self._settled.get(task, [])
            if rows[task][: len(settled)] != settled:
                self.wrong.append(f"{task} has lost rows that lay before a completed checkpoint")
        if any(times > 1 for times in keys.values()):
            self.wrong.append(f"keys that are there twice: {keys}")
        self.rows, self.counts = dict(rows), dict(counts)


Victims = Callable[[Coordinator], set[int]]
"""Slots that are killed at one moment."""


def with_keepers(task: TaskId) -> Victims:
    """Processes of a task and of its keepers."""

    def find(coordinator: Coordinator) -> set[int]:
        assert coordinator.view is not None
        placement = coordinator.view.placements[task]
        return {placement.hosting_slot, *placement.keepers}

    return find


def everything(coordinator: Coordinator) -> set[int]:
    """All slot processes."""
    return {register.slot for register in coordinator.slots}


def inject(job: RunningJob, victims: Victims) -> bool:
    """SIGKILL to all of these at one moment; waits until all is well again. Whether the job has rolled back."""
    generation, before = job.generation, job.incarnations()

    def find(coordinator: Coordinator) -> tuple[list[int], list[TaskId]]:
        assert coordinator.view is not None
        slots = victims(coordinator)
        pids = [register.pid for register in coordinator.slots if register.slot in slots]
        return pids, [placement.task for placement in coordinator.view.placements if placement.slot in slots]

    pids, tasks = job.driver.ask(find)
    assert len(pids) > 1
    assert all(pid > 0 for pid in pids)
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    wait_for_successors(job, before, *tasks)
    return job.generation > generation


def run_and_inject(folder: Path, kind: str, whom: str) -> Reader:
    """One run with two kills after which the job rolls back: of writers with their keepers, or of all tasks."""
    writing = WritingJob(folder, kind)
    reader = Reader(writing.file)
    with reader.reading(), running(writing.graph, folder, OPTIONS, parallelism=2) as job:
        job.wait_for(is_quiescent)
        pairs = [with_keepers(task) for task in writing.writers[::2]]
        for number, victims in enumerate(pairs if whom == "pairs" else [everything] * 2, 1):
            reader.wait(job, 2 * writing.advance())
            take_checkpoint(job, number)
            reader.settle()
            reader.wait(job, 2 * writing.advance() - STEP)
            assert inject(job, victims), "the job has not rolled back"
        assert number == 2
        writing.gate.end(writing.reach)
        assert isinstance(job.end(), JobDone)
    writing.check()
    return reader


@pytest.mark.timeout(4 * LIMIT_S)
@pytest.mark.parametrize("kind", ["sqlite", "dbapi"])
def test_a_writer_that_dies_with_its_keepers_leaves_each_row_in_the_tables_once(tmp_path: Path, kind: str) -> None:
    reader = run_and_inject(tmp_path, kind, "pairs")
    assert reader.withdrawals > 0
    assert reader.looks > 10


@pytest.mark.timeout(4 * LIMIT_S)
def test_a_death_of_all_tasks_leaves_each_row_in_the_tables_once(tmp_path: Path) -> None:
    reader = run_and_inject(tmp_path, "sqlite", "all")
    assert reader.withdrawals > 0
