"""Job whose rows wait in front of its sink, and whose source gives no more until those before have left.

A flush that does not come shows so: no further row would set its timer again.
"""

from __future__ import annotations

from functools import partial
from random import Random
from typing import Any, Final

from clonos.api.emission import every
from clonos.api.graph import JobGraph
from clonos.api.stream import Stream
from clonos_chaos.jobs.api_jobs import ApiJob, Immediate, Row, stage_of_row
from clonos_chaos.jobs.fuzz_chain import Disorder

ROWS_WAITING: Final = 7
"""Rows that the source gives ahead of those that have left."""

POLLS_MAX: Final = 2_000
"""Polls without a record after which a flush is missing; a recovery takes fewer."""


class FlushedJob(ApiJob):
    """Job with a flush by the clock."""

    has_left = 0
    """Number of rows that have left, all of them in front of the others."""

    def _build(self, graph: JobGraph, rng: Random) -> None:
        source: Stream[Row] = graph.source(GivenAhead(self), parallelism=1)
        staged = source.map(partial(stage_of_row, 1, rng, None)).global_().map(partial(stage_of_row, 4, rng, None))
        flushed = Stream[Row](graph, staged._flushed(Immediate(), every("20ms"), None, None))
        flushed.map(self._left).sink(Immediate())

    def _left(self, row: Row) -> Row:
        self.has_left = max(self.has_left, row[0] + 1)
        return row


class GivenAhead:
    """Source of the rows ``(offset, ())``, in one split."""

    def __init__(self, job: FlushedJob) -> None:
        self._job = job

    def splits(self, parallelism: int) -> list[bytes]:
        return [b"only"]

    def reader(self) -> GivenAheadReader:
        return GivenAheadReader(self._job)


class GivenAheadReader:
    """Reads as far as the rows that have left allow."""

    def __init__(self, job: FlushedJob) -> None:
        self._job = job
        self._polls = 0

    def open(self, split: bytes, mark: bytes | None) -> None:
        self._next = int(mark or b"0")

    def read(self, records_max: int) -> list[Any] | None:
        end = min(self._job.records, self._job.has_left + ROWS_WAITING)
        found = [(offset, ()) for offset in range(self._next, min(end, self._next + records_max))]
        self._next += len(found)
        if not found and self._next >= self._job.records:
            return None
        self._polls = 0 if found else self._polls + 1
        if self._polls > POLLS_MAX:
            raise Disorder(f"the rows from {self._job.has_left} on wait for ever")
        return found

    def mark(self) -> bytes:
        return str(self._next).encode()

    def close(self) -> None:
        pass
