"""Word count at a fixed rate into an immediate sink, with marks among the words that give input and output times.

Line k of a reader is due at the start + k / rate in any case: a source that stalled has to catch up, and its delay
counts. One in ``mark_every`` lines begins with a mark, a unique word.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import msgspec

from benchmarks.harness.result_counter import WrongResult
from benchmarks.harness.timestamp_sink import MARK, Entry, TimestampSink, entries, file_of
from benchmarks.workloads.words import Workload
from clonos import Job
from clonos.api.common import StandbyMode
from clonos.status import Status

MARK_BYTES: Final = 8
FIRST_INSTANT: Final = "begun"
LEAD_NS: Final = 200_000_000
"""Time from the first open of a reader to line 0."""

OPTIONS: Final[Mapping[str, Any]] = {"checkpoint_every": "1s", "standbys": 1, "parallelism": 2, "slots": "process"}


@dataclass(frozen=True, slots=True)
class Pace:
    """Rate of the input. ``lines_per_s`` and ``lines``: of each reader; a rate of 0 is unlimited. Marks: one in
    ``mark_every`` lines."""

    folder: str
    lines_per_s: float
    lines: int
    mark_every: int
    readers: int = 2

    def begun_ns(self) -> int:
        """Returns when line 0 was due, equal for all readers and incarnations."""
        path = Path(self.folder) / FIRST_INSTANT
        try:
            with open(path, "x", encoding="ascii") as file:
                file.write(str(time.monotonic_ns() + LEAD_NS))
        except FileExistsError:
            while not (text := path.read_text("ascii")):
                pass  # the other reader is writing it
            return int(text)
        return int(path.read_text("ascii"))

    def due_ns(self, mark: int) -> int:
        """Returns when the line of a mark was due."""
        return self.begun_ns() + round(mark * self.mark_every / self.lines_per_s * 1e9)

    def expected(self) -> tuple[int, int]:
        """Returns the number of output rows, and the sum of their counts."""
        counted: Counter[str] = Counter()
        for reader in range(self.readers):
            pool = Workload(self.folder).share(reader).lines
            turns, rest = divmod(self.lines, len(pool))
            for word, count in Counter(" ".join(pool).split()).items():
                counted[word] += count * turns
            counted.update(" ".join(pool[:rest]).split())
        marks = self.readers * -(-self.lines // self.mark_every)
        return counted.total() + marks, sum(n * (n + 1) // 2 for n in counted.values()) + marks


@dataclass(frozen=True, slots=True)
class PacedLines:
    """Source of lines at a fixed rate."""

    pace: Pace

    def splits(self, parallelism: int) -> list[bytes]:
        """Returns one split per reader."""
        return [b"%d" % reader for reader in range(self.pace.readers)]

    def reader(self) -> PacedReader:
        """Makes the reader of a split."""
        return PacedReader(self.pace)


class PacedReader:
    """Reader of the lines that are due. At the end it writes to a file when it read which lines."""

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self._given: list[tuple[int, int]] = []  # (line after the last, ns)

    def open(self, split: bytes, mark: bytes | None) -> None:
        """Starts at the mark."""
        self._reader = int(split)
        self._next = int.from_bytes(mark or b"", "big")
        self._begun_ns = self._pace.begun_ns()
        self.prepare()

    def prepare(self) -> None:
        """Loads the lines."""
        self._pool = Workload(self._pace.folder).share(self._reader).lines

    def read(self, records_max: int) -> list[Any] | None:
        """Returns the records that are due, at most ``records_max``."""
        pace, first = self._pace, self._next
        if first >= pace.lines:
            data = msgspec.msgpack.encode(self._given)
            (Path(pace.folder) / f"given-{self._reader}").write_bytes(data)
            return None
        end = min(first + records_max, pace.lines)
        if pace.lines_per_s:
            due = int((time.monotonic_ns() - self._begun_ns) * pace.lines_per_s / 1e9)
            end = min(end, max(first, due))
        records = self.records(first, end)
        self._next += len(records)
        if records:
            self._given.append((self._next, time.monotonic_ns()))
        return records

    def records(self, first: int, end: int) -> list[Any]:
        """Returns the lines from ``first`` up to ``end``, or up to the end of the pool, with their marks."""
        at = first % len(self._pool)
        lines = self._pool[at : at + end - first]
        every = self._pace.mark_every
        for number in range(-(-first // every), -(-(first + len(lines)) // every)):
            place = number * every - first
            lines[place] = f"{MARK}{self._reader}.{number} {lines[place]}"
        return lines

    def mark(self) -> bytes:
        """Returns the number of lines read."""
        return self._next.to_bytes(MARK_BYTES, "big")

    def close(self) -> None:
        """Does nothing, because no file is open."""


def paced_job(pace: Pace, standby: StandbyMode = "passive", sink_of: type[TimestampSink] = TimestampSink) -> Job:
    """Makes a word count into a timestamp sink. ``standby``: of the counting tasks; if hot, the sink is separate."""
    job = Job("paced")
    lines = job.source(PacedLines(pace), name="lines")
    counts = lines.flat_map(str.split).key_by(lambda word: word).count(name="count", standby=standby)
    counts.sink(sink_of(pace.folder))
    return job


def written(pace: Pace, status: Status) -> dict[str, list[Entry]]:
    """Returns the entries of each sink task. Raises WrongResult: the output is not exactly-once."""
    names = [task.name for task in status.tasks]
    step = "sink" if any(name.startswith("sink") for name in names) else "count"
    tasks = [name for name in names if name.startswith(step)]
    found = {task: list(entries(file_of(Path(pace.folder), task))) for task in tasks}
    for task, of_task in found.items():
        ends = [0, *(entry.first_number + entry.rows for entry in of_task)]
        if any(entry.first_number != end for entry, end in zip(of_task, ends, strict=False)):
            raise WrongResult(f"the rows of {task} are not numbered one after the other")
    every = [entry for of_task in found.values() for entry in of_task]
    seen = (sum(entry.rows for entry in every), sum(entry.weight for entry in every))
    if seen != pace.expected():
        raise WrongResult(f"(rows, sum of counts) of the output are {seen}, not {pace.expected()}")
    marks = Counter(mark for entry in every for mark in entry.marks)
    if set(marks.values()) != {1}:
        raise WrongResult("a mark was written more than once")
    return found


def maximal_words_per_s(folder: Path, words: float, build: Callable[[Pace], Job] = paced_job) -> float:
    """Measures the rate of a job whose source is not limited."""
    lines = int(words / 20)
    pace = Pace(str(folder), 0, lines, mark_every=100)
    begin_anew(folder)
    result = build(pace).run(store=str(folder / "store"), overwrite=True, **OPTIONS)
    found = written(pace, result.status)
    given: list[Sequence[tuple[int, int]]] = [
        msgspec.msgpack.decode((folder / f"given-{reader}").read_bytes()) for reader in range(pace.readers)
    ]
    begun_ns = min(of_reader[0][1] for of_reader in given)
    ended_ns = max(of_task[-1].at_ns for of_task in found.values())
    return pace.expected()[0] / (ended_ns - begun_ns) * 1e9


def begin_anew(folder: Path) -> None:
    """Removes the files of an earlier run."""
    for pattern in ("ledger-*", "given-*", FIRST_INSTANT):
        for path in folder.glob(pattern):
            path.unlink()


def at_rate(pace: Pace, words_per_s: float, seconds: float, marks_per_s: float) -> Pace:
    """Returns a pace of ``words_per_s`` over all readers, ten words per line, for ``seconds``."""
    lines_per_s = words_per_s / 10 / pace.readers
    mark_every = max(1, round(lines_per_s * pace.readers / marks_per_s))
    return replace(pace, lines_per_s=lines_per_s, lines=int(lines_per_s * seconds), mark_every=mark_every)
