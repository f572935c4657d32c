"""Benchmark: a job that scales itself, on processes, under a load that rises tenfold and falls again.

A step waits 4 ms for each record, as for the answer of a service, so its tasks need no processors. Records are due by a
clock whatever the job does, and the source tells how many wait. All times of the scaling are a tenth of the defaults.
Each record must be in the output once.
"""

from __future__ import annotations

import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.harness import plots
from benchmarks.harness.ab_session import Session
from benchmarks.harness.result_counter import WrongResult
from clonos import Job, PendingInput, ScalingEvent, ScalingOutcome, files
from clonos.core.model.progress import TaskCounter
from clonos.job import Handle

STEP: Final = "serve"
SERVICE_S: Final = 0.004
LOW_PER_S: Final = 100.0
HIGH_PER_S: Final = 1_000.0
PHASES_S: Final = (30.0, 90.0, 150.0)
PHASES_QUICK_S: Final = (20.0, 60.0, 90.0)
SPLITS: Final = 2
WINDOW_S: Final = 3.0
CATCH_UP_S: Final = 12.0
WORKED_OFF_S: Final = 1.0
"""Lag that has gone: what arrives in a second."""

LOOK_EVERY_S: Final = 0.5
OPTIONS: Final[dict[str, Any]] = {
    "slots": "process",
    "checkpoint_every": "1s",
    "scale": {STEP: (1, 8)},
    "scale_window": "3s",
    "scale_down_after": "1min",
    "scale_catch_up": "12s",
}


@dataclass(frozen=True, slots=True)
class Tide:
    """Source of the numbers of records that are due: low, high and low again. ``begun_ns``: when the first one was."""

    begun_ns: int
    phases_s: tuple[float, ...]

    def due(self, at_ns: int) -> int:
        """Returns how many records are due in all splits."""
        left_s, found = (at_ns - self.begun_ns) / 1e9, 0.0
        for phase_s, rate in zip(self.phases_s, (LOW_PER_S, HIGH_PER_S, LOW_PER_S), strict=True):
            found += max(0.0, min(left_s, phase_s)) * rate
            left_s -= phase_s
        return int(found)

    @property
    def total(self) -> int:
        """Number of records."""
        return self.due(self.begun_ns + round(sum(self.phases_s) * 1e9) + 1)

    def splits(self, parallelism: int) -> list[bytes]:
        """Returns the splits, between which the records alternate."""
        return [b"%d" % number for number in range(SPLITS)]

    def reader(self) -> TideReader:
        """Makes the reader of a split."""
        return TideReader(self)


class TideReader:
    """Reader of one split."""

    def __init__(self, tide: Tide) -> None:
        self._tide = tide
        self._next = 0

    def open(self, split: bytes, mark: bytes | None) -> None:
        """Starts at the mark."""
        self._next = int(mark or split)

    def read(self, records_max: int) -> list[int] | None:
        """Returns the records that are due, at most ``records_max``."""
        if self._next >= self._tide.total:
            return None
        due = self._tide.due(time.monotonic_ns())
        found = list(range(self._next, due, SPLITS))[:records_max]
        self._next += len(found) * SPLITS
        return found

    def pending(self) -> PendingInput:
        """Returns how many records are due and were not read."""
        return PendingInput(max(0, self._tide.due(time.monotonic_ns()) - self._next) // SPLITS)

    def mark(self) -> bytes:
        """Returns the number of the next record."""
        return b"%d" % self._next

    def close(self) -> None:
        """Does nothing, because nothing is open."""


def serve(number: int) -> int:
    """Waits for a service."""
    time.sleep(SERVICE_S)
    return number


class Course:
    """Course of a run. Points are (seconds since the begin, value)."""

    def __init__(self, tide: Tide) -> None:
        self._tide = tide
        self.widths: list[tuple[float, float]] = []
        self.lags: list[tuple[float, float]] = []
        self.changes: list[tuple[float, ScalingEvent]] = []

    def now_s(self) -> float:
        """Returns the time since the begin."""
        return (time.monotonic_ns() - self._tide.begun_ns) / 1e9

    def report(self, event: ScalingEvent) -> None:
        """Notes a decision."""
        if event.outcome is ScalingOutcome.CHANGED:
            self.changes.append((self.now_s(), event))

    def look(self, handle: Handle, over: threading.Event) -> None:
        """Notes the width and the lag until the run has ended."""
        while not over.wait(LOOK_EVERY_S):
            tasks = handle.status().tasks
            at_s = self.now_s()
            served = sum(task.counters.get(TaskCounter.RECORDS_IN, 0) for task in tasks if task.name.startswith(STEP))
            self.widths.append((at_s, float(sum(task.name.startswith(STEP) for task in tasks))))
            waiting = [task.counters.get(TaskCounter.PENDING_RECORDS) for task in tasks if task.name.startswith("tide")]
            if served and None not in waiting:
                self.lags.append((at_s, float(sum(each or 0 for each in waiting))))

    def count(self, grows: bool) -> int:
        """Returns the number of changes up, or down."""
        return sum((event.tasks_wanted > event.tasks_before) == grows for _, event in self.changes)

    def seconds_behind(self) -> float:
        """Returns the time from the last change up until the lag had gone."""
        last_s = max(at_s for at_s, event in self.changes if event.tasks_wanted > event.tasks_before)
        gone = [at_s for at_s, lag in self.lags if at_s > last_s and lag <= HIGH_PER_S * WORKED_OFF_S]
        return min(gone) - last_s


def run(session: Session) -> None:
    """Runs the job once through all phases. Raises WrongResult: the output is not exactly-once."""
    phases_s = PHASES_QUICK_S if session.is_quick else PHASES_S
    with tempfile.TemporaryDirectory(prefix="clonos-bench-") as name:
        tide = Tide(time.monotonic_ns(), phases_s)
        session.progress(
            f"{sum(phases_s):.0f} s: {LOW_PER_S:g} records/s, {HIGH_PER_S:g} for {phases_s[1]:g} s, and back"
        )
        course = _run(tide, Path(name))
        written = sorted(files.read_committed(Path(name, "out")))
    if written != list(range(tide.total)):
        raise WrongResult(f"{len(written)} records were written, of which {len({*written})} differ, not {tide.total}")
    for at_s, event in course.changes:
        session.progress(f"at {at_s:.0f} s, in {event.duration_s:.1f} s: {event.step}: {event.text}")
    session.figure("self-scaling: changes up", course.count(grows=True), "", "<= 3")
    session.figure("self-scaling: changes down", course.count(grows=False), "", "<= 2")
    session.figure("self-scaling: most tasks", max(width for _, width in course.widths), "")
    session.figure("self-scaling: largest lag", max(lag for _, lag in course.lags), "records")
    limit_s = CATCH_UP_S + WINDOW_S
    session.figure("self-scaling: lag gone after the last change up", course.seconds_behind(), "s", f"<= {limit_s:g}")
    _draw(session, course, phases_s)


def _run(tide: Tide, folder: Path) -> Course:
    course, over = Course(tide), threading.Event()
    job = Job("tides", store=str(folder / "store"), on_scale=course.report, **OPTIONS)
    served = job.source(tide, name="tide").rebalance().map(serve, name=STEP)
    served.sink(files.jsonl(str(folder / "out")), name="out")
    with job.start() as handle:
        observer = threading.Thread(target=course.look, args=(handle, over))
        observer.start()
        try:
            handle.wait()
        finally:
            over.set()
            observer.join()
    return course


def _draw(session: Session, course: Course, phases_s: tuple[float, ...]) -> None:
    rise_s, fall_s = phases_s[0], phases_s[0] + phases_s[1]
    end_s = sum(phases_s)
    load = [(0.0, LOW_PER_S), (rise_s, LOW_PER_S), (rise_s, HIGH_PER_S), (fall_s, HIGH_PER_S)]
    load += [(fall_s, LOW_PER_S), (end_s, LOW_PER_S)]
    plots.lines(
        session.results / "self-scaling.png",
        {
            "records/s that arrive": load,
            "records that wait": course.lags,
            "tasks x 100": [(at_s, width * 100) for at_s, width in course.widths],
        },
        "A load that rises tenfold and falls: the job changes its width (red)",
        ("s", ""),
        instants=[at_s for at_s, _ in course.changes],
    )
