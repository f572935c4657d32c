"""Benchmark: the pause of a job while its widths change, beside Flink's on the same job.

Keys of 1,000 bytes are counted, 10,000 a second, with about 100 MB of state. The width of the count changes 2 -> 4 -> 2
while the job runs. The pause is the longest silence of the results after a request. Each line in a hundred has a mark,
so the picture shows the latency of every change. Each row must come once, with the right count.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from benchmarks.harness import plots
from benchmarks.harness.ab_session import Session
from benchmarks.harness.result_counter import WrongResult
from benchmarks.harness.timestamp_sink import MARK, Entry, TimestampFile, TimestampSink, entries, file_of
from benchmarks.peers.running import ENVIRONMENTS
from benchmarks.workloads.paced import OPTIONS, Pace, PacedLines, PacedReader
from clonos import Job, WriterIdentity
from clonos.operators.connector_contract import Registration

CHANGES: Final = 20
CHANGES_QUICK: Final = 4
EVERY_S: Final = 4.0
FILL_S: Final = 25.0
SPARE_S: Final = 40.0
"""Input beyond the planned changes: on a busy machine they take longer."""

AFTER_NS: Final = 500_000_000
"""Time after a change whose rows count for it."""

ROWS_PER_S: Final = 10_000
KEYS: Final = 100_000
KEY_BYTES: Final = 1_000
MARK_EVERY: Final = 100
WIDTH_MAX: Final = 4
STEP: Final = "count"
UNIT: Final = "ms"


class WideReader(PacedReader):
    """Reader of keys in an order that looks like one of chance."""

    def prepare(self) -> None:
        """Loads nothing."""

    def records(self, first: int, end: int) -> list[Any]:
        """Returns the keys from ``first`` up to ``end``, with their marks."""
        every, reader = self._pace.mark_every, self._reader
        return [
            f"{MARK}{reader}.{place // every}" if place % every == 0 else key_of(place, reader)
            for place in range(first, end)
        ]


def key_of(place: int, reader: int) -> str:
    """Returns the key of a line."""
    return f"{(place * 2_654_435_761 + reader * 97) % KEYS:0{KEY_BYTES}}"


@dataclass(frozen=True, slots=True)
class WideKeys(PacedLines):
    """Source of wide keys."""

    def reader(self) -> PacedReader:
        """Makes the reader of a split."""
        return WideReader(self.pace)


class ManyGenerations(TimestampFile):
    """File that another generation goes on with, because a change of widths loses no output."""

    def register(self, identity: WriterIdentity, restored_number: int) -> Registration:
        """Takes the file over."""
        file_of(self._folder, identity.task_name).with_suffix(".generation").unlink(missing_ok=True)
        return TimestampFile.register(self, identity, restored_number)


@dataclass(frozen=True, slots=True)
class RescaledSink(TimestampSink):
    """Sink of a job whose widths change."""

    def immediate_writer(self) -> TimestampFile:
        """Makes a connection to the file of the task that registers."""
        return ManyGenerations(Path(self.folder))


def rescaled_job(pace: Pace) -> Job:
    """Makes the job lines -> count -> sink."""
    job = Job("rescaled")
    counts = job.source(WideKeys(pace), name="lines").key_by(str).count(name=STEP)
    counts.sink(RescaledSink(pace.folder), name="sink")
    return job


def run(session: Session) -> None:
    """Measures the pauses of Clonos, and those of Flink where it is installed."""
    changes = session.kills or (CHANGES_QUICK if session.is_quick else CHANGES)
    with tempfile.TemporaryDirectory(prefix="clonos-bench-") as name:
        seconds = FILL_S + (changes + 1) * EVERY_S + SPARE_S
        lines = round(ROWS_PER_S / 2 * seconds)
        pace = Pace(name, ROWS_PER_S / 2, lines, MARK_EVERY)
        session.progress(f"{changes} changes of widths, 2 to {WIDTH_MAX} and back")
        asked_ns, took_ms = _changed(pace, changes)
        written = _written(pace)
        _draw(session, pace, written, asked_ns)
    instants = sorted(entry.at_ns for entry in written)
    ends = [at + round(ms * 1e6) + AFTER_NS for at, ms in zip(asked_ns, took_ms, strict=True)]
    pauses = [_silence_ms(instants, at, end) for at, end in zip(asked_ns, ends, strict=True)]
    quiet = _silence_ms(instants, asked_ns[0] - round(EVERY_S * 1e9), asked_ns[0])
    session.figure("rescale: longest silence without a change", quiet, UNIT)
    session.figure("rescale: changes", len(pauses), "")
    session.figure("rescale: pause p50", statistics.median(pauses), UNIT, "<= 150")
    session.figure("rescale: pause worst", max(pauses), UNIT, "<= 400")
    session.figure("rescale: from request to end p50", statistics.median(took_ms), UNIT)
    _beside_flink(session, changes, statistics.median(pauses))


def _changed(pace: Pace, changes: int) -> tuple[list[int], list[float]]:
    """Runs the job and changes its widths. Returns when each change was asked for, and how long it took."""
    asked_ns, took_ms = [], []
    with rescaled_job(pace).start(store=str(Path(pace.folder) / "store"), overwrite=True, **OPTIONS) as handle:
        time.sleep(FILL_S)
        for number in range(changes):
            asked_ns.append(time.monotonic_ns())
            handle.rescale({STEP: WIDTH_MAX if number % 2 == 0 else 2, "sink": WIDTH_MAX if number % 2 == 0 else 2})
            took_ms.append((time.monotonic_ns() - asked_ns[-1]) / 1e6)
            time.sleep(max(2 * AFTER_NS / 1e9, EVERY_S - took_ms[-1] / 1e3))
        handle.wait()
    return asked_ns, took_ms


def _written(pace: Pace) -> list[Entry]:
    """Returns the entries of all sinks. Raises WrongResult: the output is not exactly-once."""
    files = [file_of(Path(pace.folder), f"{step}/{index}") for step in ("sink", STEP) for index in range(WIDTH_MAX)]
    found = [list(entries(file)) for file in files]
    for of_task in found:
        if any(after.first_number != before.first_number + before.rows for before, after in pairwise(of_task)):
            raise WrongResult("the rows of a task are not numbered one after the other")
    every = [entry for of_task in found for entry in of_task]
    places = (place for place in range(pace.lines) if place % pace.mark_every)
    counts = Counter(key_of(place, reader)[-8:] for place in places for reader in range(pace.readers))
    marks = pace.readers * -(-pace.lines // pace.mark_every)
    expected = (counts.total() + marks, sum(n * (n + 1) // 2 for n in counts.values()) + marks)
    seen = (sum(entry.rows for entry in every), sum(entry.weight for entry in every))
    if seen != expected:
        raise WrongResult(f"(rows, sum of counts) of the output are {seen}, not {expected}")
    return every


def _silence_ms(instants: list[int], from_ns: int, until_ns: int) -> float:
    """Returns the longest pause that overlaps a span."""
    return max((b - a for a, b in pairwise(instants) if b > from_ns and a < until_ns), default=0) / 1e6


def _draw(session: Session, pace: Pace, written: list[Entry], asked_ns: list[int]) -> None:
    begun_ns = pace.begun_ns()
    points = sorted(
        ((pace.due_ns(number) - begun_ns) / 1e9, (entry.at_ns - pace.due_ns(number)) / 1e6)
        for entry in written
        for _, number in entry.marks
        if pace.due_ns(number) > asked_ns[0] - 5e9
    )
    instants = [(at - begun_ns) / 1e9 for at in asked_ns]
    plots.lines(
        session.results / "rescale-latency.png",
        {"latency": points},
        "Latency while the width changes 2 to 4 and back (red: the request)",
        ("s", "ms"),
        instants=instants,
    )


def _beside_flink(session: Session, changes: int, own_ms: float) -> None:
    """Measures Flink's pause on the same job in the same session."""
    found = sorted((ENVIRONMENTS / "flink").glob("lib/python*/site-packages/pyflink"))
    if not found:
        session.leave_out("rescale beside Flink", "benchmarks/peers/setup flink makes its environment")
        return
    session.progress("the same changes in Flink")
    command = [sys.executable, "-m", "benchmarks.peers.flink_rescale", str(found[0]), str(changes)]
    printed = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    pauses = json.loads(printed.stdout.splitlines()[-1])
    session.figure("rescale in Flink: pause p50", pauses["p50_s"] * 1e3, UNIT)
    session.figure("rescale in Flink: pause worst", pauses["worst_s"] * 1e3, UNIT)
    session.figure("rescale, pause p50: Clonos / Flink", own_ms / (pauses["p50_s"] * 1e3), "times", "<= 1")
