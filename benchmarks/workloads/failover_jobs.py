"""Jobs whose tasks are killed: the paced word count, with a step more, or with large state besides the counts."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.harness.timestamp_sink import TimestampSink
from benchmarks.workloads.paced import Pace, PacedLines, paced_job
from clonos import Context, Job, ValueState

LARGE_KEYS: Final = 500_000
LARGE_VALUE_BYTES: Final = 1_000
KEYS_A_READ: Final = 2_000

Build = Callable[[Pace], Job]


def plain(pace: Pace) -> Job:
    """Makes the job lines -> count."""
    return paced_job(pace)


def hot(pace: Pace) -> Job:
    """Makes the job lines -> count with hot standbys -> sink, which is then a separate task."""
    return paced_job(pace, "hot")


def same(word: str) -> str:
    """Returns the word unchanged."""
    return word


def linked(pace: Pace) -> Job:
    """Makes the job lines -> pass -> count, a chain of three tasks."""
    job = Job("linked")
    words = job.source(PacedLines(pace), name="lines").flat_map(str.split)
    words.rebalance().map(same, name="pass").key_by(same).count(name="count").sink(TimestampSink(pace.folder))
    return job


def large(pace: Pace) -> Job:
    """Makes the job lines -> count with half a GB of values in its state before the first kill."""
    job = Job("large")
    values: Any = job.source(Filler(pace), name="fill").key_by(key_of)
    words: Any = job.source(PacedLines(pace), name="lines").flat_map(str.split).key_by(same)
    words.union(values).process(CountOrKeep, name="count").sink(TimestampSink(pace.folder))
    return job


def is_filled(pace: Pace) -> bool:
    """Returns whether all values have been read."""
    return all((Path(pace.folder) / f"filled-{reader}").exists() for reader in range(pace.readers))


def key_of(value: tuple[str, bytes]) -> str:
    """Returns the first field."""
    return value[0]


class CountOrKeep:
    """Process function that counts words and stores values."""

    count = ValueState("count", default=0)
    value = ValueState("value", default=b"")

    def process(self, value: Any, context: Context[Any, Any]) -> None:
        """Handles a word or a value."""
        if type(value) is tuple:
            context.state(self.value).value = value[1]
            return
        count = context.state(self.count)
        count.value += 1
        context.emit((value, count.value))


@dataclass(frozen=True, slots=True)
class Filler:
    """Source of the values."""

    pace: Pace

    def splits(self, parallelism: int) -> list[bytes]:
        """Returns one split per reader."""
        return [b"%d" % reader for reader in range(self.pace.readers)]

    def reader(self) -> FillReader:
        """Makes the reader of a split."""
        return FillReader(self.pace)


class FillReader:
    """Reader that returns its share of the values, then nothing until the lines end."""

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self._blob = random.Random(1).randbytes(LARGE_VALUE_BYTES + KEYS_A_READ)

    def open(self, split: bytes, mark: bytes | None) -> None:
        """Starts at the mark."""
        self._reader = int(split)
        self._next = int.from_bytes(mark or b"", "big")
        self._over_ns = self._pace.begun_ns() + round(self._pace.lines / self._pace.lines_per_s * 1e9)

    def read(self, records_max: int) -> list[tuple[str, bytes]] | None:
        """Returns values; [] after the last one."""
        first = self._next
        end = min(first + min(records_max, KEYS_A_READ), LARGE_KEYS // self._pace.readers)
        if first == end:
            (Path(self._pace.folder) / f"filled-{self._reader}").touch()
            return None if time.monotonic_ns() > self._over_ns else []
        self._next = end
        blob, size = self._blob, LARGE_VALUE_BYTES
        return [(f"value {self._reader}/{first + at}", blob[at : at + size]) for at in range(end - first)]

    def mark(self) -> bytes:
        """Returns the number of values read."""
        return self._next.to_bytes(8, "big")

    def close(self) -> None:
        """Does nothing, because no file is open."""
