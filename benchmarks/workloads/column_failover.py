"""Job in columns whose tasks are killed: counts of short windows at a fixed rate, besides a window with many keys.

The keys of the state come first, with timestamps in a window that does not end before the input does. Then line k of a
reader is due as in the paced word count: ten records, at an event time that follows from k.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy
import pyarrow

from benchmarks.harness.timestamp_sink import MARK, TimestampSink
from benchmarks.workloads.paced import Pace
from clonos import Job, Timestamps, Tumbling, WatermarkStrategy, WindowResult

KEYS_MANY: Final = 1_000_000
KEYS_FEW: Final = 1_000
KEYS_A_READ: Final = 8_192
RECORDS_A_LINE: Final = 10
WORDS: Final = 10_000
WINDOW_US: Final = 10_000
BEGIN_US: Final = 1_700_000_000_000_000
LATER_US: Final = BEGIN_US + 3_600_000_000
"""Timestamp of the keys of the state."""

FIRST_KEY: Final = 1 << 40
FIRST_MARK: Final = 1 << 50
READER_BITS: Final = 32


@dataclass(frozen=True, slots=True)
class FewKeys(Pace):
    """Pace of a job with little state."""

    @property
    def keys(self) -> int:
        """Returns the keys of the state of each reader."""
        return KEYS_FEW // self.readers

    def expected(self) -> tuple[int, int]:
        """Returns the number of output rows, and the sum of their counts."""
        records = numpy.concatenate([self.records(reader, 0, self.lines) for reader in range(self.readers)], axis=1)
        keys, at_us = records
        distinct = len(set(zip(keys.tolist(), (at_us // WINDOW_US).tolist(), strict=True)))
        filled = self.keys * self.readers
        return distinct + filled, len(keys) + filled

    def records(self, reader: int, first: int, end: int) -> numpy.ndarray[Any, Any]:
        """Returns the keys and the timestamps of some lines. The first record of a line may be a mark."""
        lines = numpy.repeat(numpy.arange(first, end), RECORDS_A_LINE)
        places = numpy.arange(first * RECORDS_A_LINE, end * RECORDS_A_LINE)
        keys = (places * 7_919 + reader) % WORDS
        is_mark = (places % RECORDS_A_LINE == 0) & (lines % self.mark_every == 0)
        marks = FIRST_MARK + (reader << READER_BITS) + lines // self.mark_every
        at_us = BEGIN_US + (lines * (1e6 / self.lines_per_s)).astype(numpy.int64)
        return numpy.stack([numpy.where(is_mark, marks, keys), at_us])


@dataclass(frozen=True, slots=True)
class ManyKeys(FewKeys):
    """Pace of a job with a million keys in its state."""

    @property
    def keys(self) -> int:
        """Returns the keys of the state of each reader."""
        return KEYS_MANY // self.readers


@dataclass(frozen=True, slots=True)
class PacedColumns:
    """Source of the keys of the state, and of lines at a fixed rate."""

    pace: FewKeys
    is_columnar = True

    def splits(self, parallelism: int) -> list[bytes]:
        """Returns one split per reader."""
        return [b"%d" % reader for reader in range(self.pace.readers)]

    def column_schema(self) -> Any:
        """Returns the columns of a line, so that its windows work on columns."""
        return _batch(numpy.zeros(0, numpy.int64), numpy.zeros(0, numpy.int64)).schema

    def reader(self) -> ColumnReader:
        """Makes the reader of a split."""
        return ColumnReader(self.pace)


class ColumnReader:
    """Reader of the keys of the state, and then of the lines that are due."""

    def __init__(self, pace: FewKeys) -> None:
        self._pace = pace
        self._reader = self._next = self._begun_ns = 0

    def open(self, split: bytes, mark: bytes | None) -> None:
        """Starts at the mark."""
        self._reader = int(split)
        self._next = int.from_bytes(mark or b"", "big")
        self._begun_ns = self._pace.begun_ns()

    def read(self, records_max: int) -> Any | None:
        """Returns keys of the state, or the lines that are due; [] if none is."""
        pace, first = self._pace, self._next
        if first < pace.keys:
            end = self._next = min(first + min(records_max, KEYS_A_READ), pace.keys)
            keys = FIRST_KEY + numpy.arange(first, end) * pace.readers + self._reader
            return _batch(keys, numpy.full(end - first, LATER_US))
        (Path(pace.folder) / f"filled-{self._reader}").touch()
        line = first - pace.keys
        if line >= pace.lines:
            return None
        due = int((time.monotonic_ns() - self._begun_ns) * pace.lines_per_s / 1e9)
        end = min(line + max(1, records_max // RECORDS_A_LINE), pace.lines, due)
        if end <= line:
            return []
        self._next = pace.keys + end
        return _batch(*pace.records(self._reader, line, end))

    def mark(self) -> bytes:
        """Returns the number of keys and lines read."""
        return self._next.to_bytes(8, "big")

    def close(self) -> None:
        """Does nothing, because no file is open."""


class BehindLines(WatermarkStrategy):
    """Watermark after the lines; the keys of the state are ahead of it."""

    def watermark(self, before_ns: int | None, records: Sequence[Any], timestamps_ns: Sequence[int]) -> int | None:
        """Returns the time of the last line."""
        last_ns = int(timestamps_ns[-1])
        return before_ns if last_ns == LATER_US * 1_000 else last_ns


def _batch(keys: Any, at_us: Any) -> pyarrow.RecordBatch:
    return pyarrow.record_batch({"key": pyarrow.array(keys), "at": pyarrow.array(at_us)})


def column_job(pace: Pace) -> Job:
    """Makes the job lines -> counts of windows of 10 ms."""
    assert isinstance(pace, FewKeys), "the pace says how many keys there are"
    timestamps = Timestamps("at", unit="us", watermarks=BehindLines(), watermark_every="5ms")
    job = Job("columns")
    lines = job.source(PacedColumns(pace), name="lines", timestamps=timestamps)
    counts = lines.key_by("key").window(Tumbling("10ms")).count(name="count")
    counts.map(row_of).sink(TimestampSink(pace.folder))
    return job


def row_of(result: WindowResult[int, int]) -> tuple[str, int]:
    """Makes a row of the sink."""
    key = result.key
    if key < FIRST_MARK:
        return str(key), result.value
    reader, number = divmod(key - FIRST_MARK, 1 << READER_BITS)
    return f"{MARK}{reader}.{number}", result.value
