"""Latency marks: instants that ride with batches from a source to the last task, and what they measure (protocol 4).

A source marks some of its steps with the time. The mark goes with the output of the step, and each task that processes
this output passes it on with its own output of that step. Marks are no records, are in no log and no snapshot, and
decide nothing; a mark that is lost with a process is not repeated.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

from clonos.core.model.metric_series import Metric, MetricFamily, MetricKind, MetricTable
from clonos.core.ports.task_port import TaskPort
from clonos.core.wire.channel_messages import Mark

MARK_EVERY_NS: Final = 50_000_000
"""Least time between two marks of a source."""

BOUNDS_S: Final = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)

PROCESSING: Final = Metric(
    MetricKind.HISTOGRAM,
    "clonos_processing_latency_seconds",
    "Time from the output of the task before (at a source: from the reading) to the end of the step that processed it.",
    (),
    BOUNDS_S,
)
END_TO_END: Final = Metric(
    MetricKind.HISTOGRAM,
    "clonos_end_to_end_latency_seconds",
    "Time from the reading of a record by a source to the end of the step of this task that processed it.",
    (),
    BOUNDS_S,
)


class LatencyMarks:
    """Marks of one incarnation. Its task calls it; any thread may call ``families``."""

    __slots__ = ("_end_to_end", "_last_ns", "_mark", "_port", "_processing", "_table")

    def __init__(self, port: TaskPort) -> None:
        self._port = port
        self._mark: Mark | None = None  # of the current step
        self._last_ns = 0  # when a source made its last one
        self._table = MetricTable()
        self._processing, self._end_to_end = (self._table.cell(each, ()) for each in (PROCESSING, END_TO_END))

    def read(self, now_ns: int) -> None:
        """Marks the step of a source that begins about now, if a mark is due."""
        if now_ns - self._last_ns >= MARK_EVERY_NS:
            self._last_ns = read_ns = self._port.now_ns()
            self._mark = Mark(read_ns, read_ns)

    def arrive(self, mark: Mark) -> None:
        """Takes the mark of a batch that the current step has taken in."""
        if self._mark is None:
            self._mark = mark

    def leave(self) -> Mark | None:
        """Measures at the end of a step; returns the mark for its output, None for most steps."""
        mark = self._mark
        if mark is None:
            return None
        self._mark, now_ns = None, self._port.now_ns()
        for cell, since_ns in ((self._processing, mark.sent_ns), (self._end_to_end, mark.read_ns)):
            seconds = max(0, now_ns - since_ns) / 1e9  # clocks of two hosts may differ
            cell[0] += seconds
            cell[1 + bisect_left(BOUNDS_S, seconds)] += 1
        return Mark(mark.read_ns, now_ns)

    def families(self) -> tuple[MetricFamily, ...]:
        """Returns what was measured since the incarnation began; nothing before the first mark."""
        return self._table.families() if any(self._end_to_end) else ()
