"""Latency marks: instants that ride with batches from a source to the last task, and what they measure (protocol 4).

A source marks some of its steps with the time. The mark goes with the output of the step, and each task that processes
this output passes it on with its own output of that step; where the step began asynchronous calls, with what the last
of them gives. Marks are no records, are in no log and no snapshot, and decide nothing; a mark that is lost with a
process is not repeated. Of a mark that is traced, each task also reports its passage.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple

from clonos.core.model.ids import TaskId
from clonos.core.model.metric_series import Metric, MetricFamily, MetricKind, MetricTable
from clonos.core.ports.task_port import Output, TaskPort
from clonos.core.wire.channel_messages import Mark

MARK_EVERY_NS: Final = 50_000_000
"""Least time between two marks of a source."""

BOUNDS_S: Final = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)

PASSAGES_MAX: Final = 256
"""Passages of traced marks that wait to be reported; further ones push out the oldest."""

TRACES_KNOWN: Final = 64
"""Latest traces of which a task knows that it has reported its passage: one of each trace."""

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


class Passage(NamedTuple):
    """Passage of a traced mark through a task. Times in ns since the Unix epoch; those of other hosts are by their
    clocks. ``source`` and ``read_ns`` name the trace. ``sender``: task from which the mark came, None at the source."""

    source: int
    read_ns: int
    sender: TaskId | None
    sent_ns: int
    taken_ns: int
    ended_ns: int
    call_ns: int  # part of the time in which the mark waited for an asynchronous call
    records: int  # of the step


class _Visit:
    """Mark that a task has taken in. ``taken_ns``: 0 if it is not traced."""

    __slots__ = ("call", "called_ns", "is_behind_others", "mark", "records", "sender", "taken_ns")

    def __init__(self, mark: Mark, sender: TaskId | None, taken_ns: int) -> None:
        self.mark, self.sender, self.taken_ns = mark, sender, taken_ns
        self.call = self.called_ns = self.records = 0  # the call that the mark waits for, and since when
        self.is_behind_others = False  # it waits for the calls before that one too

    def add(self, records: int) -> None:
        """Adds the records of a step."""
        self.records += records

    def wait_for(self, call: int, now_ns: int) -> None:
        """Notes the call whose outcome comes first."""
        self.call, self.called_ns = call, now_ns

    def wait_for_others(self) -> None:
        """Notes that the calls before it come first too."""
        self.is_behind_others = True


class LatencyMarks:
    """Marks of one incarnation. Its task calls it; any thread may call ``families`` and ``take_passages``.

    ``trace_every_ms``: least time between two marks of a source that are traced; 0: none is.
    """

    __slots__ = (
        *("_end_to_end", "_last_ns", "_last_traced_ns", "_passages", "_port", "_processing", "_table", "_task"),
        *("_trace_every_ns", "_traced", "_visit", "_waiting"),
    )

    def __init__(self, port: TaskPort, task: TaskId, trace_every_ms: int) -> None:
        self._port, self._task, self._trace_every_ns = port, task, trace_every_ms * 1_000_000
        self._visit: _Visit | None = None  # of the current step
        self._waiting: _Visit | None = None  # for a call
        self._last_ns = self._last_traced_ns = 0  # when a source made its last one
        self._passages: deque[Passage] = deque(maxlen=PASSAGES_MAX)
        self._traced: deque[tuple[int, int]] = deque(maxlen=TRACES_KNOWN)
        self._table = MetricTable()
        self._processing, self._end_to_end = (self._table.cell(each, ()) for each in (PROCESSING, END_TO_END))

    def read(self, now_ns: int) -> None:
        """Marks the step of a source that begins about now, if a mark is due."""
        if now_ns - self._last_ns >= MARK_EVERY_NS:
            self._last_ns = read_ns = self._port.now_ns()
            source = None
            if self._trace_every_ns and read_ns - self._last_traced_ns >= self._trace_every_ns:
                self._last_traced_ns, source = read_ns, int(self._task)
            self._visit = _Visit(Mark(read_ns, read_ns, source), None, read_ns)

    def arrive(self, mark: Mark, sender: TaskId) -> None:
        """Takes the mark of a batch that the current step has taken in."""
        if self._visit is None or (mark.source is not None and self._visit.mark.source is None):
            self._visit = _Visit(mark, sender, 0 if mark.source is None else self._port.now_ns())

    def complete(self, call: int, oldest: int | None) -> None:
        """Goes on with the mark that waits for an asynchronous call, whose outcome the current step takes. ``oldest``:
        the first call that is still open, None without one."""
        waiting = self._waiting
        if waiting is None:
            return
        if waiting.is_behind_others:
            is_due = oldest is None or oldest > waiting.call
        else:
            is_due = waiting.call == call
        if is_due:
            self._visit, self._waiting = waiting, None

    def leave(self, records: int = 0, outputs: Sequence[Output] = (), call: int | None = None) -> Mark | None:
        """Measures at the end of a step of ``records``; returns the mark for its output, None for most steps.

        ``call``: number of the last asynchronous call that the step has begun, for which its mark waits. If nothing
        leaves after that call, because the order of the records holds its result, the mark waits for those before it.
        A mark that has waited leaves with the result, although the same step begins another call.
        """
        visit = self._visit
        if visit is None:
            return None
        self._visit, now_ns, mark = None, self._port.now_ns(), visit.mark
        visit.add(records)
        has_rows = any(output.kind.is_data for output in outputs)
        if call is not None and not (visit.called_ns and has_rows):
            visit.wait_for(call, now_ns)
            if self._waiting is None or (mark.source is not None and self._waiting.mark.source is None):
                self._waiting = visit
            return None
        if visit.called_ns and not visit.is_behind_others and not has_rows:
            visit.wait_for_others()
            self._waiting = visit
            return None
        for cell, since_ns in ((self._processing, mark.sent_ns), (self._end_to_end, mark.read_ns)):
            seconds = max(0, now_ns - since_ns) / 1e9  # clocks of two hosts may differ
            cell[0] += seconds
            cell[1 + bisect_left(BOUNDS_S, seconds)] += 1
        return Mark(mark.read_ns, now_ns, None if mark.source is None else self._trace(visit, mark.source, now_ns))

    def _trace(self, visit: _Visit, source: int, now_ns: int) -> int | None:
        """Adds a passage. Returns the source of the trace; None if the task has reported a passage of it, so that a
        trace has at most one of each task, however many ways lead to it."""
        mark, trace = visit.mark, (source, visit.mark.read_ns)
        if trace in self._traced:
            return None
        self._traced.append(trace)
        call_ns = max(0, now_ns - visit.called_ns) if visit.called_ns else 0
        times = mark.sent_ns, visit.taken_ns, now_ns, call_ns
        self._passages.append(Passage(source, mark.read_ns, visit.sender, *times, visit.records))
        return source

    def families(self) -> tuple[MetricFamily, ...]:
        """Returns what was measured since the incarnation began; nothing before the first mark."""
        return self._table.families() if any(self._end_to_end) else ()

    def take_passages(self) -> list[Passage]:
        """Returns the passages of traced marks since the last call."""
        found = []
        while self._passages:
            found.append(self._passages.popleft())
        return found
