"""Latency of q3, q8 and a synthetic job over time, while a task is killed once and three times.

Events come at a fixed rate. The latency of a result is the time from when the last event that it needs was due to its
visibility in an immediate sink.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.harness import plots
from benchmarks.harness.ab_session import Session
from benchmarks.harness.isolated_run import ROOT
from benchmarks.harness.kill_loop import Kill, KillLoop
from benchmarks.harness.result_counter import WrongResult
from benchmarks.harness.timestamp_sink import MARK, Entry, TimestampFile, TimestampSink, entries
from benchmarks.nexmark.generator import FILES, Events, prepared
from benchmarks.nexmark.one_run import builder
from benchmarks.nexmark.oracle import Oracle
from benchmarks.nexmark.paced_events import Arrivals, PacedHouse
from benchmarks.nexmark.queries import QUERIES
from benchmarks.workloads import paced, words
from benchmarks.workloads.paced import Pace
from benchmarks.workloads.staged_job import LAST, Stages
from clonos import Job
from clonos.status import Status

BUILD: Final = ROOT / "build"
KILLS: Final = (1, 3)
EVENTS_PER_S: Final = 4_000
WORDS_PER_S: Final = 10_000
MARKS_PER_S: Final = 200
SECONDS_A_KILL: Final = 6.5
SECONDS_BESIDE: Final = 8.0
"""Time of a run besides its kills: the start, and what follows the last kill."""

WATCHED_S: Final = 4.0
LABELS: Final = ("s from the first event", "latency in ms")

Points = list[tuple[float, float]]


@dataclass(frozen=True)
class Curve:
    """Latencies in ms by the time at which a result was visible, in seconds, and the times of the kills."""

    points: Points
    kills_s: list[float]

    def usual_ms(self) -> float:
        """Returns the median before the first kill."""
        return statistics.median([ms for at, ms in self.points if at < self.kills_s[0]] or [0.0])

    def highest_ms(self) -> float:
        """Returns the highest latency within a few seconds of a kill."""
        near = [ms for at, ms in self.points if any(0 <= at - kill < WATCHED_S for kill in self.kills_s)]
        return max(near, default=0.0)


@dataclass(frozen=True, slots=True)
class MarkSink(TimestampSink):
    """Immediate sink that takes each result for a mark with the number in its field ``name``."""

    name: str

    def immediate_writer(self) -> MarkFile:
        """Makes a connection to the file of the task that registers."""
        return MarkFile(Path(self.folder), self.name)


class MarkFile(TimestampFile):
    """Registered connection to a file of marks."""

    def __init__(self, folder: Path, name: str) -> None:
        super().__init__(folder)
        self._name = name

    def write(self, first_number: int, rows: list[Any]) -> int:
        """Appends an entry with the marks of the rows; returns the next number."""
        return super().write(first_number, [(f"{MARK}0.{row[self._name]}", 1) for row in rows])


def run(session: Session, queries: tuple[str, ...] = ("q3", "q8")) -> None:
    """Draws the curves of the chosen queries and of the synthetic job; a job that fails does not stop the others."""
    stages = Stages.of(session.stages)
    runs: dict[str, Callable[[int, Path], Curve]] = {
        name: lambda kills, folder, name=name: of_query(name, kills, folder)  # type: ignore[misc]
        for name in queries
        if name in session.queries
    }
    runs["synthetic"] = lambda kills, folder: of_stages(stages, kills, folder)
    for name, curve_of in runs.items():
        title = str(stages) if name == "synthetic" else f"{name}, {EVENTS_PER_S:,} events a second"
        for kills in KILLS:
            label = f"{name}, {kills} kill{'s' * (kills > 1)}"
            session.progress(label)
            try:
                with tempfile.TemporaryDirectory(prefix="clonos-bench-") as folder:
                    curve = curve_of(kills, Path(folder))
            except Exception as error:  # noqa: BLE001  reported at the end; other curves are still drawn
                session.fail(label, error)
                continue
            session.figure(f"{label}: latency before", curve.usual_ms(), "ms")
            session.figure(f"{label}: highest latency after", curve.highest_ms(), "ms")
            file = session.results / f"curve-{name}-{kills}.png"
            plots.lines(file, {"latency": curve.points}, title, LABELS, instants=curve.kills_s)


def of_query(name: str, kills: int, folder: Path) -> Curve:
    """Runs a query and kills a task of its join; its results are those of DuckDB.

    Raises: WrongResult: a result differs.
    """
    seconds = SECONDS_BESIDE + kills * SECONDS_A_KILL
    count = int(EVENTS_PER_S * seconds)
    events = prepared(Events(count, per_s=EVENTS_PER_S), BUILD)
    pace = Pace(str(folder), EVENTS_PER_S / FILES, count // FILES, 1, FILES)
    make = builder(name, "columns")
    assert make is not None, f"{name} has a form in columns"
    job = Job(name)
    make(PacedHouse(job, events, pace)).sink(MarkSink(pace.folder, "auction_id" if name == "q3" else "id"))
    done, _ = _killed(job, pace, "sold" if name == "q3" else "sellers", kills, seconds)
    arrivals = Arrivals.of(events)
    due_of = arrivals.of_sold if name == "q3" else arrivals.of_seller
    seen = [(number, entry.at_ns) for entry in _entries(folder) for _, number in entry.marks]
    rows = Oracle(events).rows(QUERIES[name])
    wanted = sorted(row[-1] if name == "q3" else row[0] for row in rows)
    if sorted(number for number, _ in seen) != wanted:
        raise WrongResult(f"{name}: {len(seen)} results instead of {len(wanted)}")
    begun_ns = pace.begun_ns()
    due_ns = {number: begun_ns + round(due_of(number) / pace.lines_per_s * 1e9) for number, _ in seen}
    return _curve([(at_ns, due_ns[number]) for number, at_ns in seen], done, begun_ns)


def of_stages(stages: Stages, kills: int, folder: Path) -> Curve:
    """Runs the synthetic job and kills a task of its last stage.

    Raises: WrongResult: the counts differ.
    """
    words.prepare(folder)
    seconds = SECONDS_BESIDE + kills * SECONDS_A_KILL
    pace = paced.at_rate(Pace(str(folder), 1, 1, 1), WORDS_PER_S, seconds, MARKS_PER_S)
    done, status = _killed(stages.job(pace), pace, LAST, kills, seconds)
    found = paced.written(pace, status)
    marks = [
        (entry.at_ns, pace.due_ns(number))
        for of_task in found.values()
        for entry in of_task
        for _, number in entry.marks
    ]
    return _curve(marks, done, pace.begun_ns())


def _killed(job: Job, pace: Pace, step: str, kills: int, seconds: float) -> tuple[list[Kill], Status]:
    paced.begin_anew(Path(pace.folder))
    options: dict[str, Any] = {**paced.OPTIONS, "spare_slots": 2}
    with job.start(store=str(Path(pace.folder) / "store"), overwrite=True, **options) as handle:
        loop = KillLoop(handle, (step,), 1, seconds)
        done, recoveries = loop.kill_repeatedly(kills)
        return done, loop.finish(recoveries)


def _entries(folder: Path) -> list[Entry]:
    """Returns the entries of all sink tasks."""
    files = [path for path in folder.glob("ledger-*") if not path.suffix]
    return [entry for file in files for entry in entries(file)]


def _curve(marks: list[tuple[int, int]], kills: list[Kill], begun_ns: int) -> Curve:
    points = sorted(((at_ns - begun_ns) / 1e9, (at_ns - due_ns) / 1e6) for at_ns, due_ns in marks)
    return Curve(points, [(kill.at_ns - begun_ns) / 1e9 for kill in kills])
