"""Tumbling and sliding windows, in event time or processing time, that emit at their end.

State: a table per pane, ``step/pane/<number>``, with the accumulator of each key. A record is added to one pane, and a
window merges its panes when it ends. Windows in processing time read the clock once per batch; it is in the causal log.

Records that come after the end of a window, within its lateness, are noted in ``step/late/<end>``. Its next result
leaves at the next watermark, so results do not depend on where batches are cut. A pane is forgotten as a whole when the
lateness of its last window has passed, and then records of it are late.

The operator serves records of any kind, rows and columns: see ``clonos.operators.kinds``.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from clonos.kernels.record_batch import RecordBatch
from clonos.operators.kinds.pane_kind import PaneBatchT, PanedStep, PanesKind
from clonos.operators.operator import DueTimer, Scope, Times
from clonos.operators.state.state_spec import StateScope
from clonos.operators.windows.grid import Spans
from clonos.operators.windows.pane_agenda import EMITS, PaneAgenda
from clonos.operators.windows.window_operator import WATERMARK, WindowOperator
from clonos.operators.windows.window_rules import WindowRules


class PaneWindows(WindowOperator[PaneBatchT]):
    """Operator of tumbling and sliding windows."""

    _kind: PanesKind[PaneBatchT]

    def __init__(self, step: str, kind: PanesKind[PaneBatchT], spans: Spans, rules: WindowRules) -> None:
        super().__init__(step, kind, rules)
        self._spans, self._notes_watermark = spans, rules.is_event_time
        self._panes: dict[int, Any] = {}
        self._late: dict[int, Any] = {}  # by the ends of windows that have emitted, and emit again
        self._agenda = PaneAgenda(spans, rules.lateness_ns, self._panes)
        if not rules.is_event_time and spans.panes == 1:  # a window that has emitted has no pane any more
            self._watermark_spec = replace(WATERMARK, scope=StateScope.MIN)

    def open(self, scope: Scope) -> None:
        super().open(scope)
        step = PanedStep(self, scope.state, self._spans, self._rules, self._panes, self._late)
        self._tables = self._kind.panes(step)
        for spec, opened in ((self._kind.pane_spec, self._open_pane), (self._kind.late_spec, self._open_late)):
            for number in scope.state.restored(spec):
                opened(number)

    def _open_pane(self, pane: int) -> None:
        if pane not in self._panes:
            self._panes[pane] = self._tables.new(self._kind.pane_spec, pane)
            self._agenda.add_pane(pane, self._reached.entries.get(0))

    def _open_late(self, end: int) -> None:
        if end not in self._late:
            self._late[end] = self._tables.new(self._kind.late_spec, end)
            self._agenda.add_window(end)

    # --- records

    def keys(self, keys: list[Any], times: Times = None) -> None:
        self._take(self._kind.of_keys(self, keys, times))

    def keyed_columns(self, batch: RecordBatch, key: Any) -> None:
        self._take(self._kind.of_columns(self, batch, key))

    def _take(self, batch: PaneBatchT) -> None:
        if not self._rules.is_event_time:
            pane = self._spans.grid.index_of(self._recorder.instant_ns(False))
            batch.whole(pane)
            self._open_pane(pane)
            self._tables.add(batch, pane)
            return
        spans, reached_ns, behind = self._spans, self._reached.entries.get(0), []
        for pane in batch.split(spans.grid):
            if reached_ns is None or spans.end_ns(spans.ends_of(pane)[0]) > reached_ns:
                if pane not in self._panes:
                    self._open_pane(pane)
                self._tables.add(batch, pane)
            else:
                behind.append(pane)
        if behind:
            self._take_behind(batch, behind)

    def _take_behind(self, batch: PaneBatchT, panes: list[int]) -> None:
        """Takes the records of panes that have a window that has ended."""
        ended: dict[int, Sequence[int]] = {}
        late = []
        for pane in panes:
            if (ends := self._ended(pane)) is None:
                late.append(pane)
                continue
            ended[pane] = ends
            self._open_pane(pane)
            for end in ends:
                self._open_late(end)
        if ended:
            self._tables.add_behind(batch, ended)
        if late:
            batch.pass_late(self._late_records, late, self._reached.entries[0])

    def _ended(self, pane: int) -> Sequence[int] | None:
        """Returns the windows of a pane that have ended and still take records; None if none takes any more."""
        reached_ns, ends, end_ns = self._reached.entries[0], self._spans.ends_of(pane), self._spans.end_ns
        forgotten = bisect_right(ends, reached_ns - self._rules.lateness_ns, key=end_ns)
        return None if forgotten == len(ends) else ends[forgotten : bisect_right(ends, reached_ns, key=end_ns)]

    # --- time

    def next_timer_ns(self) -> int | None:
        return None if self._rules.is_event_time else self._agenda.next_ns()

    def due(self, until_ns: int | None) -> list[DueTimer]:
        return [] if self._rules.is_event_time else self._agenda.due(until_ns)

    def fire(self, due: Sequence[DueTimer]) -> None:
        for timer in due:
            kind, number = self._agenda.fired(timer)
            if kind == EMITS:
                if not self._rules.is_event_time:
                    self._reached.set(0, self._spans.end_ns(number))
                self._emit(number)
            else:
                self._tables.drop(self._kind.pane_spec, number)
                del self._panes[number]
        self._tables.pass_results()

    def next_event_ns(self) -> int | None:
        return self._agenda.next_ns() if self._rules.is_event_time else None

    def due_events(self, until_ns: int | None) -> list[DueTimer]:
        return self._agenda.due(until_ns, self._late) if self._rules.is_event_time else []

    def fire_events(self, due: Sequence[DueTimer]) -> None:
        self.fire(due)

    def _emit(self, end: int) -> None:
        """Emits the results of a window at its end, or later those of keys that got late records."""
        late = self._late.pop(end, None)
        self._tables.emit(end, late)
        if late is not None:
            self._tables.drop(self._kind.late_spec, end)
