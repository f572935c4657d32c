"""Benchmark: latency of windows in event time at half load, from the watermark that ends one to its rows outside.

Events are due at fixed times, and their timestamps rise likewise. The watermark of a reader follows from what it has
read; a window ends when the watermarks of all readers have passed its end. Its rows count from the read after which
the last of these watermarks left, so that the step of the source is part of the latency.
"""

from __future__ import annotations

import tempfile
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import msgspec

from benchmarks.harness import plots
from benchmarks.harness.ab_session import Session
from benchmarks.harness.result_counter import WrongResult
from benchmarks.harness.timestamp_sink import MARK, Entry, TimestampSink, entries, file_of
from benchmarks.measures.latency import percentile
from benchmarks.workloads import paced
from clonos import Job, Timestamps, Tumbling

SECONDS: Final = 20.0
SECONDS_QUICK: Final = 5.0
WARM_S: Final = 2.0
EVENTS: Final = 3_000_000
EVENTS_QUICK: Final = 400_000
KEYS: Final = 1_000
WINDOW_NS: Final = 200_000_000
EVERY_NS: Final = 10_000_000
BASE_NS: Final = 1_700_000_000_000_000_000
"""Timestamp of the first event; a multiple of the length of a window."""
UNLIMITED_PER_S: Final = 200_000.0
"""Events of a reader per second of event time where the rate is not limited."""


@dataclass(frozen=True, slots=True)
class Events(paced.Pace):
    """Rate of the input; a line is an event. ``per_s``: events of a reader per second of event time."""

    per_s: float = UNLIMITED_PER_S

    def timestamp_ns(self, number: int) -> int:
        """Returns the timestamp of an event."""
        return BASE_NS + int(number / self.per_s * 1e9)

    def windows(self) -> int:
        """Returns the number of windows that end before the last timestamp of the readers."""
        return (self.timestamp_ns(self.lines - 1) - BASE_NS) // WINDOW_NS


@dataclass(frozen=True, slots=True)
class PacedEvents:
    """Source of events (key, timestamp in ns) at a fixed rate."""

    events: Events

    def splits(self, parallelism: int) -> list[bytes]:
        """Returns one split per reader."""
        return [b"%d" % reader for reader in range(self.events.readers)]

    def reader(self) -> EventReader:
        """Makes the reader of a split."""
        return EventReader(self.events)


class EventReader(paced.PacedReader):
    """Reader of the events that are due."""

    def __init__(self, events: Events) -> None:
        super().__init__(events)
        self._events = events

    def prepare(self) -> None:
        """Loads nothing."""

    def records(self, first: int, end: int) -> list[tuple[int, int]]:
        """Returns the events from ``first`` up to ``end``."""
        return [(number % KEYS, self._events.timestamp_ns(number)) for number in range(first, end)]


def key_of(event: tuple[int, int]) -> int:
    """Returns the key of an event."""
    return event[0]


def time_of(event: tuple[int, int]) -> int:
    """Returns the timestamp of an event."""
    return event[1]


def windowed_job(events: Events) -> Job:
    """Makes the job: events of each key counted in windows, into a timestamp sink."""
    job = Job("windowed")
    stamps = Timestamps(time_of, unit="ns", watermark_every=EVERY_NS / 1e9, future_max=None)
    counts = job.source(PacedEvents(events), name="events", timestamps=stamps).key_by(key_of)
    results = counts.window(Tumbling(WINDOW_NS / 1e9)).count(name="count")
    results.map(_row, name="row").sink(TimestampSink(events.folder), name="sink")
    return job


def _row(result: Any) -> tuple[str, int]:
    number = round((result.end.timestamp() * 1e9 - BASE_NS) / WINDOW_NS)
    return f"{MARK}{number}.{result.key}", result.value


def run(session: Session) -> None:
    """Measures at half of the maximal load."""
    seconds = SECONDS_QUICK if session.is_quick else SECONDS
    with tempfile.TemporaryDirectory(prefix="clonos-bench-") as name:
        folder = Path(name)
        session.progress("the maximal load")
        readers = int(paced.OPTIONS["parallelism"])
        lines = (EVENTS_QUICK if session.is_quick else EVENTS) // readers
        unlimited = Events(name, 0, lines, 1, readers)
        maximal = lines * readers / _spent_s(folder, unlimited, _run(folder, unlimited))
        session.figure("window latency, maximal load", maximal, "events/s")
        per_s = maximal / 2 / readers
        pace = replace(unlimited, lines_per_s=per_s, per_s=per_s, lines=int(per_s * seconds))
        session.progress(f"half of it: {maximal / 2:,.0f} events/s for {seconds:g} s")
        found = latencies_ms(folder, pace)
        rows = [latency for of_window in found for latency in of_window]
        last = [max(of_window) for of_window in found]
        session.figure("window latency, windows", len(found), f"of {len(rows) // len(found)} rows")
        for share, goal in ((50, ""), (99, "<= 100"), (100, "")):
            session.figure(f"window latency, p{share}", percentile(rows, share), "ms", goal)
            session.figure(f"window latency, last row of a window, p{share}", percentile(last, share), "ms")
        plots.histogram(session.results / "window_latency.png", {"half load": rows}, "ms from watermark to row outside")


def _run(folder: Path, events: Events) -> list[Entry]:
    """Runs the job; returns what was written. Raises WrongResult: a window is missing or written twice."""
    paced.begin_anew(folder)
    job = windowed_job(events)
    result = job.run(store=str(folder / "store"), overwrite=True, **paced.OPTIONS)
    tasks = [task.name for task in result.status.tasks]
    written = [entry for task in tasks for entry in entries(file_of(folder, task))]
    counted = sum(entry.weight for entry in written)
    marks = [mark for entry in written for mark in entry.marks]
    if counted != events.lines * events.readers or len(set(marks)) != len(marks):
        raise WrongResult(f"{counted} of {events.lines * events.readers} events are in {len(set(marks))} results")
    return written


def _spent_s(folder: Path, events: Events, written: list[Entry]) -> float:
    begun_ns = min(given[0][1] for given in _given(folder, events))
    return (max(entry.at_ns for entry in written) - begun_ns) / 1e9


def _given(folder: Path, events: Events) -> Iterator[list[tuple[int, int]]]:
    for reader in range(events.readers):
        yield msgspec.msgpack.decode((folder / f"given-{reader}").read_bytes(), type=list[tuple[int, int]])


def latencies_ms(folder: Path, events: Events) -> list[list[float]]:
    """Returns the latency of each row of each window that ended by a watermark after the warm-up."""
    written = _run(folder, events)
    watermarks = [list(watermarks_of(events, given)) for given in _given(folder, events)]
    warm_ns = events.begun_ns() + round(WARM_S * 1e9)
    found: dict[int, list[float]] = {}
    ended: dict[int, int] = {}
    for number in range(1, events.windows() + 1):
        end_ns = BASE_NS + number * WINDOW_NS
        firsts = [bisect_left(of_reader, (end_ns, 0)) for of_reader in watermarks]
        if all(first < len(of_reader) for first, of_reader in zip(firsts, watermarks, strict=True)):
            ended[number] = max(of_reader[first][1] for first, of_reader in zip(firsts, watermarks, strict=True))
    for entry in written:
        for number, _ in entry.marks:
            if ended.get(number, 0) > warm_ns:
                found.setdefault(number, []).append((entry.at_ns - ended[number]) / 1e6)
    return list(found.values())


def watermarks_of(events: Events, given: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yields the watermarks of a reader, each with the time of the read that it follows."""
    sent_ns: int | None = None
    for end, at_ns in given:
        reached_ns = events.timestamp_ns(end - 1)
        if sent_ns is None or reached_ns >= sent_ns + EVERY_NS:
            sent_ns = reached_ns
            yield reached_ns, at_ns
