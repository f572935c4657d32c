"""Benchmark: the pause of a job while its widths change, beside Flink's on the same job.

Keys of 1,000 bytes are counted, 10,000 a second, with about 100 MB of state. The width of the count changes 2 -> 4 -> 2
while the job runs. The pause is the longest silence of the results after a request. One line in ten has a mark, from
which the picture of latency over time is made. Each row must come once, with the right count. Clonos and Flink are
measured in turn, because the machine may be shared.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, replace
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

TURNS: Final = 2
"""Runs of each side."""

CHANGES: Final = 6
CHANGES_QUICK: Final = 4
EVERY_S: Final = 4.0
FILL_S: Final = 25.0
LINES_MAX: Final = 1 << 40
END: Final = "end"
"""File with the number of lines after which each reader ends."""

END_AFTER_S: Final = 1.0
"""Time until a reader has certainly seen that file."""

AFTER_NS: Final = 500_000_000
"""Time after a change whose rows count for it."""

ROWS_PER_S: Final = 10_000
KEYS: Final = 100_000
KEY_BYTES: Final = 1_000
MARK_EVERY: Final = 10
BIN_NS: Final = 100_000_000
"""Time of which the picture has a point."""

WIDTH_MAX: Final = 4
STEP: Final = "count"
UNIT: Final = "ms"


class WideReader(PacedReader):
    """Reader of keys in an order that looks like one of chance."""

    def prepare(self) -> None:
        """Loads nothing."""

    def read(self, records_max: int) -> list[Any] | None:
        """Returns the keys that are due; None after those that a file limits them to."""
        end = Path(self._pace.folder) / END
        if self._pace.lines == LINES_MAX and end.exists():
            self._pace = replace(self._pace, lines=int(end.read_text("ascii")))
        return super().read(records_max)

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


@dataclass(frozen=True, slots=True)
class Change:
    """A change of widths. Times are monotonic; ``cut_ns``: when the checkpoint began at which all tasks stop."""

    asked_ns: int
    cut_ns: int
    done_ns: int

    @property
    def took_ms(self) -> float:
        """Time from the request until all tasks ran."""
        return (self.done_ns - self.asked_ns) / 1e6


@dataclass(frozen=True, slots=True)
class Turn:
    """Results of one run of the job. ``pauses_ms``: of each change. ``quiet_ms``: before the first one."""

    changes: list[Change]
    pauses_ms: list[float]
    quiet_ms: float


def run(session: Session) -> None:
    """Measures the pauses of Clonos, and those of Flink where it is installed."""
    changes = session.kills or (CHANGES_QUICK if session.is_quick else CHANGES)
    turns: list[Turn] = []
    flink_ms: list[float] = []
    flink = sorted((ENVIRONMENTS / "flink").glob("lib/python*/site-packages/pyflink"))
    for _ in range(1 if session.is_quick else TURNS):
        session.progress(f"{changes} changes of widths, 2 to {WIDTH_MAX} and back")
        turns.append(_turn(session, changes))
        if flink:
            session.progress("the same changes in Flink")
            flink_ms += _flink_pauses_ms(flink[0], changes)
    pauses = [pause for turn in turns for pause in turn.pauses_ms]
    took = [change.took_ms for turn in turns for change in turn.changes]
    session.figure("rescale: longest silence without a change", max(turn.quiet_ms for turn in turns), UNIT)
    session.figure("rescale: changes", len(pauses), "")
    session.figure("rescale: pause p50", statistics.median(pauses), UNIT, "<= 150")
    session.figure("rescale: pause worst", max(pauses), UNIT, "<= 400")
    session.figure("rescale: from request to end p50", statistics.median(took), UNIT)
    if not flink:
        session.leave_out("rescale beside Flink", "benchmarks/peers/setup flink makes its environment")
        return
    session.figure("rescale in Flink: pause p50", statistics.median(flink_ms), UNIT)
    session.figure("rescale in Flink: pause worst", max(flink_ms), UNIT)
    ratio = statistics.median(pauses) / statistics.median(flink_ms)
    session.figure("rescale, pause p50: Clonos / Flink", ratio, "times", "<= 1")


def _turn(session: Session, count: int) -> Turn:
    """Runs the job and changes its widths. Draws its latency."""
    with tempfile.TemporaryDirectory(prefix="clonos-bench-") as name:
        pace = Pace(name, ROWS_PER_S / 2, LINES_MAX, MARK_EVERY)
        changes = _changed(pace, count)
        pace = replace(pace, lines=int((Path(name) / END).read_text("ascii")))
        written = _written(pace)
        _draw(session, pace, written, changes)
    instants = sorted(entry.at_ns for entry in written)
    pauses = [_silence_ms(instants, change.asked_ns, change.done_ns + AFTER_NS) for change in changes]
    first_ns = changes[0].asked_ns
    return Turn(changes, pauses, _silence_ms(instants, first_ns - round(EVERY_S * 1e9), first_ns))


def _changed(pace: Pace, count: int) -> list[Change]:
    """Runs the job, changes its widths, and ends its input."""
    changes = []
    with rescaled_job(pace).start(store=str(Path(pace.folder) / "store"), overwrite=True, **OPTIONS) as handle:
        time.sleep(FILL_S)
        for number in range(count):
            asked_ns = time.monotonic_ns()
            width = WIDTH_MAX if number % 2 == 0 else 2
            done = handle.rescale({STEP: width, "sink": width})
            done_ns, epoch_ns = time.monotonic_ns(), time.time_ns() - time.monotonic_ns()
            begun = {each.number: each.begun_ns - epoch_ns for each in handle.checkpoints()}
            changes.append(Change(asked_ns, begun[done.checkpoint], done_ns))
            time.sleep(max(2 * AFTER_NS / 1e9, EVERY_S - changes[-1].took_ms / 1e3))
        _end_input(pace)
        handle.wait()
    return changes


def _end_input(pace: Pace) -> None:
    """Lets each reader end after a line that none of them has come to."""
    due = (time.monotonic_ns() - pace.begun_ns()) / 1e9
    end, new = Path(pace.folder) / END, Path(pace.folder) / f"{END}.new"
    new.write_text(str(round((due + END_AFTER_S) * pace.lines_per_s)), "ascii")
    new.rename(end)


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


def _draw(session: Session, pace: Pace, written: list[Entry], changes: list[Change]) -> None:
    begun_ns, first_ns = pace.begun_ns(), changes[0].asked_ns - round(EVERY_S * 1e9)
    bins: dict[int, list[float]] = defaultdict(list)
    for number, at_ns in ((number, entry.at_ns) for entry in written for _, number in entry.marks):
        if (due_ns := pace.due_ns(number)) > first_ns:
            bins[(due_ns - begun_ns) // BIN_NS].append((at_ns - due_ns) / 1e6)
    points = sorted(((at + 0.5) * BIN_NS / 1e9, sorted(found)) for at, found in bins.items())
    curves = {f"p{share}": [(at_s, found[len(found) * share // 100]) for at_s, found in points] for share in (99, 50)}
    plots.lines(
        session.results / "rescale-latency.svg",
        curves,
        "Latency per 100 ms (red: the checkpoint at which the width changes)",
        ("s", "ms"),
        instants=[(change.cut_ns - begun_ns) / 1e9 for change in changes],
    )


def _flink_pauses_ms(found: Path, changes: int) -> list[float]:
    """Measures Flink's pauses on the same job."""
    command = [sys.executable, "-m", "benchmarks.peers.flink_rescale", str(found), str(changes)]
    printed = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return [seconds * 1e3 for seconds in json.loads(printed.stdout.splitlines()[-1])["pauses_s"]]
