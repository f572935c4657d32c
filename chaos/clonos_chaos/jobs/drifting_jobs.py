"""Jobs in event time with two sources, one of which is far ahead of the other, and windows after both.

Even offsets come from the slow source, odd ones from the fast one: each of its records is ``PACE`` steps later.
"""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import Any, ClassVar

from clonos.api.graph import JobGraph
from clonos.api.stream import Stream
from clonos.core.model.ids import TaskId
from clonos.core.values import encode_value
from clonos.operators.operator import Scope, Times
from clonos_chaos.jobs.api_jobs import Immediate, Row
from clonos_chaos.jobs.timed_jobs import (
    FIRST_NS,
    STEP_NS,
    EventStream,
    EventWindows,
    TimedJob,
    TimedOffsets,
    key_of_row,
)

PACE = 1_000
DRIFT_NS = 20 * PACE * STEP_NS
"""Drift that lets the fast source be 20 of its records ahead."""

HELD_MAX = 60
"""Maximum number of rows that the windows of a task may hold with this drift, as some are read before a limit comes."""

IDLE_AFTER_NS = 20_000_000


class PacedOffsets(TimedOffsets):
    """Source of every second offset, from ``first`` on."""

    def __init__(self, job: DriftingJob, first: int) -> None:
        super().__init__(job, 1, 1, IDLE_AFTER_NS if job.sleeps else 0)
        self._first = first

    def splits(self, parallelism: int) -> list[bytes]:
        return [encode_value((self._first, 2))]

    def watermark(self, before_ns: int | None, records: Iterable[Row]) -> int | None:
        """Timestamps of a split ascend."""
        return self.job.timestamp_ns(max(offset for offset, _ in records) + 2)


class CountedWindows(EventWindows):
    """Event-time windows that count the rows that they hold."""

    def open(self, scope: Scope) -> None:
        super().open(scope)
        self._held = sum(map(len, self._windows.entries.values()))

    def rows(self, rows: list[Any], times: Times = None) -> None:
        self._held += len(rows)
        super().rows(rows, times)
        assert isinstance(self._job, DriftingJob)
        self._job.hold(self._held)

    def _left(self, row: Row, kind: str, end_ns: int, size: int) -> Row:
        self._held -= 1
        return super()._left(row, kind, end_ns, size)


class DriftingJob(TimedJob):
    """Job with a slow and a fast source, whose windows would hold what the fast one has read."""

    sleeps_for_sure: ClassVar[bool] = False
    held_max = 0
    """Maximum number of rows that the windows have held."""

    is_aligned = True
    """Whether the option is set, so that there is a limit for what they hold."""

    def _build(self, graph: JobGraph, rng: Random) -> None:
        self.disorder_ns, self.sources = 1, 2
        self.sleeps = self.sleeps_for_sure
        self.was_held_back = False
        self._is_awake = not self.sleeps
        self._ahead_ns: dict[int, int] = {}
        self._released: dict[int, int] = {}
        self._sizes = [rng.choice((50, 130))]
        slow: Stream[Row] = graph.source(PacedOffsets(self, 0), name="slow", parallelism=1)
        fast: Stream[Row] = graph.source(PacedOffsets(self, 1), name="fast", parallelism=1)
        keyed = EventStream.of(slow.union(fast).key_by(key_of_row))
        keyed.windows(1, self._sizes[0], self, rng.choice((1, 2)), CountedWindows).sink(Immediate())

    def timestamp_ns(self, offset: int) -> int:
        return FIRST_NS + offset // 2 * STEP_NS * (PACE if offset % 2 else 1)

    def released(self, first: int, stride: int) -> int:
        """The slow source sleeps from the middle on, until windows show that it is idle."""
        return self.records if first or self._is_awake else self.records // 2

    def release(self, first: int, stride: int) -> None:
        """Does nothing: the slow source sleeps until ``reach``."""

    def reach(self, stage: int, watermark_ns: int) -> None:
        if watermark_ns > self.timestamp_ns(self.records // 4 * 2 + 1):
            self._is_awake = True

    def hold(self, count: int) -> None:
        """Notes how many rows the windows of a task hold."""
        self.held_max = max(self.held_max, count)

    def complaints(self, alarms: list[dict[str, Any]], exposed: set[TaskId]) -> list[str]:
        """Returns that windows have held too much, because the fast source did not wait."""
        if self.is_aligned and self.held_max > HELD_MAX:
            return [f"the windows held {self.held_max} rows: the fast source has not waited for the slow one"]
        return super().complaints(alarms, exposed)


class IdlingJob(DriftingJob):
    """The same, but the slow source becomes idle."""

    sleeps_for_sure: ClassVar[bool] = True


class UnalignedJob(DriftingJob):
    """The same without the option."""

    is_aligned = False
