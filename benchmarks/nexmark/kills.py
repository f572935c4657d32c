"""Benchmark: the queries on Spark while each task is killed. Their results must equal those of DuckDB.

Queries run in groups. A group is one job over one source, so that a kill of a source task concerns all its queries.
Each task of a job is killed once, in the middle of an epoch, with input before and after the kill.
"""

from __future__ import annotations

import os
import signal
import tempfile
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

from benchmarks.harness.ab_session import Session
from benchmarks.harness.isolated_run import ROOT
from benchmarks.nexmark.gated import Gate, GatedFiles
from benchmarks.nexmark.generator import FILES, Events, prepared
from benchmarks.nexmark.jobs.house import OUT_OF_ORDER, House
from benchmarks.nexmark.one_run import builder
from benchmarks.nexmark.oracle import Oracle
from benchmarks.nexmark.queries import QUERIES
from benchmarks.nexmark.results import Results, ResultSink
from clonos import Job, Stream, Timestamps
from clonos.api.graph import JobGraph
from clonos.demo.kills import is_live
from clonos.job import Handle
from clonos.status import Phase, Status, TaskState

GROUPS: Final = (
    ("q5", "q11", "q0", "q1", "q2", "q14", "q22"),
    ("q8", "q7"),
    ("q3", "q12"),
    ("q4", "q9"),
    ("q16", "q17"),
    ("q18", "q19"),
    ("q20",),
)
"""Queries that run as one job, which has few tasks: each needs a slot."""

BUILD: Final = ROOT / "build"
MASTER: Final = "local-cluster[2,7,1024]"
HASH_SEED: Final = "3141592653"
EVENTS_KILLED: Final = 50_000
SECONDS: Final = 100
"""Event time of the input: enough windows end between two kills."""

OPTIONS: Final[dict[str, Any]] = {
    "parallelism": 2,
    "standbys": 1,
    "spare_slots": 1,
    "checkpoint_every": "400ms",
    "overwrite": True,
}
LIMIT_S: Final = 240.0
INPUT_S: Final = 10.0
"""Time in which a task gets input, unless its steps need little; then it is killed without."""

LOOK_EVERY_S: Final = 0.01


class JobStuck(Exception):
    """The job makes no progress."""


@dataclass
class Killed:
    """Kills of a job. ``lost``: the records that each killed task had taken since the last checkpoint, by task."""

    queries: tuple[str, ...]
    lost: dict[str, int] = field(default_factory=dict)
    rollbacks: int = 0
    seconds: float = 0.0


class _Graph(JobGraph):
    """Graph of several queries: the name of a step begins with that of its query."""

    query = ""

    def free_name(self, kind: str, name: str | None) -> str:
        """Returns the name of a new step."""
        return super().free_name(kind, f"{self.query}-{name}" if name and self.query else name)


class _Job(Job):
    """Job of several queries."""

    def __init__(self, name: str, **options: Any) -> None:
        super().__init__(name, **options)
        self._graph = self.graph = _Graph(name)


@dataclass(frozen=True)
class SharedHouse(House):
    """Auction house whose events have one source for all queries, with all columns.

    It has event time if the first query of the job needs it.
    """

    gate: Gate
    streams: list[Stream[Any]] = field(default_factory=list)

    def events(self, *columns: str, is_timed: bool = False) -> Stream[Any]:
        """Returns all events."""
        if not self.streams:
            timestamps = Timestamps("date_time", out_of_order=OUT_OF_ORDER) if is_timed else None
            source = GatedFiles(str(self.folder / "*.parquet"), self.gate)
            self.streams.append(self.job.source(source, name="events", timestamps=timestamps))
        return self.streams[0]


def run(session: Session) -> None:
    """Kills the tasks of the chosen queries; a group that fails does not stop the others."""
    from clonos.spark.session import OwnContext

    count = session.events or EVENTS_KILLED
    shape = "rows" if session.rows else "columns"
    events = prepared(Events(count, per_s=max(1, count // SECONDS)), BUILD)
    with closing(OwnContext.start("nexmark-kills", MASTER, HASH_SEED)) as own:
        for group in groups(session.queries):
            label = " ".join(group)
            try:
                with tempfile.TemporaryDirectory(prefix="clonos-bench-") as folder:
                    killed = kill_each(group, events, Path(folder), shape, spark=own.context)
            except Exception as error:  # noqa: BLE001  reported at the end; other groups still run
                session.fail(label, error)
                continue
            session.figure(f"{label}: kills after which the results were DuckDB's", len(killed.lost), "")
            session.figure(f"{label}: rollbacks", killed.rollbacks, "", "0")


def groups(queries: Collection[str]) -> list[tuple[str, ...]]:
    """Returns the groups with the queries that are chosen."""
    found = [tuple(name for name in group if name in queries) for group in GROUPS]
    return [group for group in found if group]


def kill_each(queries: Sequence[str], events: Path, folder: Path, shape: str = "columns", **where: Any) -> Killed:
    """Runs queries as one job while each of its tasks is killed, and compares the results.

    Raises: WrongResult: a result differs. JobStuck: a killed task does not recover.
    """
    gate = Gate(folder / "gate")
    job = _Job("-".join(queries), **OPTIONS)
    house = SharedHouse(job, events, gate)
    sinks = {}
    for name in queries:
        job.graph.query = name
        (folder / name).mkdir()
        sinks[name] = ResultSink(QUERIES[name], folder / name)
        builder(name, shape)(house).sink(sinks[name], name="results")
    oracle = Oracle(events)
    killed = Killed(tuple(queries))
    begun_s = time.monotonic()
    with job.start(store=str(folder / "store"), **where) as handle:
        _kill_in_turn(handle, gate, oracle.events // FILES, killed)
        gate.open()
        _await(handle, lambda now: now.phase is Phase.ENDED)
        result = handle.wait(LIMIT_S)
    killed.seconds = time.monotonic() - begun_s
    killed.rollbacks = result.status.generation - 1
    for name, sink in sinks.items():
        oracle.check(QUERIES[name], Results.read(sink.parts))
        assert oracle.rows(QUERIES[name]), f"{name} has no results: a comparison shows nothing"
    return killed


def _kill_in_turn(handle: Handle, gate: Gate, rows: int, killed: Killed) -> None:
    """Kills each task once, evenly over the input of ``rows`` rows per split."""
    status = _await(handle, _is_whole)
    names = [task.name for task in status.tasks]
    for turn, name in enumerate(names, 1):
        status = _await(handle, _is_whole)
        status = _await(handle, partial(_has_checkpoint_after, status.checkpoint))
        before = _records_in(status, name)
        gate.open_to(rows * turn // (len(names) + 1))
        status = _await(handle, partial(_has_more_than, before, name, time.monotonic() + INPUT_S))
        victim = next(task for task in status.tasks if task.name == name)
        os.kill(victim.pid, signal.SIGKILL)
        killed.lost[name] = _records_in(status, name) - before
        _await(handle, partial(_has_recovered, victim))


def _has_checkpoint_after(checkpoint: int, status: Status) -> bool:
    return status.checkpoint > checkpoint


def _has_more_than(records: int, name: str, until_s: float, status: Status) -> bool:
    return _records_in(status, name) > records or time.monotonic() > until_s


def _records_in(status: Status, name: str) -> int:
    return next(task.counters.get("records_in", 0) for task in status.tasks if task.name == name)


def _is_whole(status: Status) -> bool:
    """Returns whether all tasks are live and have standbys."""
    return is_live(status) and all(task.standbys for task in status.tasks)


def _has_recovered(victim: TaskState, status: Status) -> bool:
    failed = {(one.task, one.failed_incarnation) for one in status.recoveries}
    return (victim.name, victim.incarnation) in failed and is_live(status)


def _await(handle: Handle, condition: Callable[[Status], bool]) -> Status:
    until_s = time.monotonic() + LIMIT_S
    while not condition(status := handle.status()):
        if status.phase is Phase.ENDED:
            handle.wait(LIMIT_S)
            raise JobStuck("the job has ended before its input")
        if time.monotonic() > until_s:
            states = [f"{task.name} {task.phase.value}, {task.standbys} standbys" for task in status.tasks]
            late = f"job {status.phase.value}, checkpoint {status.checkpoint}; {'; '.join(states)}"
            raise JobStuck(f"nothing has happened for {LIMIT_S:.0f} s: {late}")
        time.sleep(LOOK_EVERY_S)
    return status
