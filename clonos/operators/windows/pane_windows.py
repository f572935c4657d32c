"""Tumbling and sliding windows, in event time or processing time, that emit at their end.

State: a table per pane, ``step/pane/<number>``, with the accumulator of each key. A record is added to one pane, and a
window merges its panes when it ends, by ``MergedPanes`` if accumulators have a bounded size. Windows in processing time
read the clock once per step; it is in the causal log.

Records that come after the end of a window, within its lateness, are noted in ``step/late/<end>``. Its next result
leaves at the next watermark, so results do not depend on where batches are cut. A pane is forgotten as a whole when the
lateness of its last window has passed.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Container, Iterable, Sequence
from dataclasses import replace
from typing import Any, Final, TypeVar

from clonos.core.ports.operator_chain import StepFailed
from clonos.core.values.elements import INT64
from clonos.core.values.keys import state_keys
from clonos.kernels import choice
from clonos.kernels.record_batch import RecordBatch
from clonos.operators.event_time.timestamps import result_time_ns
from clonos.operators.operator import Scope, Times
from clonos.operators.state.keyed_state import Table
from clonos.operators.windows.grid import Grid, Spans
from clonos.operators.windows.merged_panes import MergedPanes
from clonos.operators.windows.paned import Paned
from clonos.operators.windows.window_aggregates import WindowAggregate, WindowCount
from clonos.operators.windows.window_results import counted, window_of
from clonos.operators.windows.window_rules import ApplyFunction, Results, WindowRules

LATE_NAME: Final = "late"

PANES_ADDED_MAX: Final = 64
"""Panes of a window whose counts are added for each result. Of more panes the sums are kept from one to the next."""

PANES_AT_ONCE_MAX: Final = 64
"""Panes of a batch to which the native kernel distributes its rows."""

ValueT = TypeVar("ValueT")


class PaneWindows(Paned[Table]):
    """Operator of tumbling and sliding windows over rows."""

    def __init__(
        self,
        step: str,
        spans: Spans,
        aggregate: WindowAggregate,
        rules: WindowRules,
        apply: ApplyFunction | None = None,
    ) -> None:
        super().__init__(step, spans, rules)
        self._aggregate = aggregate
        self._results = Results(aggregate.aggregation, apply)
        self._late: dict[int, Table] = {}
        self._emitted = self._late
        self._counts: WindowCount | None = None
        if isinstance(aggregate, WindowCount) and apply is None and spans.panes <= PANES_ADDED_MAX:
            self._counts = aggregate
        has_overlap = self._counts is None and spans.panes > 1 and aggregate.aggregation.has_bounded_size
        self._merged = MergedPanes(aggregate.aggregation, spans, self._panes) if has_overlap else None

    def open(self, scope: Scope) -> None:
        super().open(scope)
        for end in self._restored(LATE_NAME):
            self._late_table(end)

    def _new_table(self, kind: str, number: int) -> Table:
        return self._state.table(self._name(kind, number))

    # --- records

    def rows(self, rows: list[Any], times: Times = None) -> None:
        pairs = rows if self._rules.is_keyed else [(None, row) for row in rows]
        if not self._rules.is_event_time:
            self._aggregate.add(self._table_now(), pairs, self.guard)
            return
        assert times is not None, "windows in event time are on streams with timestamps"
        self._add_by_time(pairs, times)

    def keys(self, keys: list[Any], times: Times = None) -> None:
        if not self._rules.is_event_time:
            self._aggregate.add_keys(self._table_now(), keys, self.guard)
        else:
            assert times is not None, "windows in event time are on streams with timestamps"
            self._add_by_time(keys, times, are_keys=True)

    def keyed_columns(self, batch: RecordBatch, key: Any) -> None:
        if not self._rules.is_event_time:
            self._aggregate.add_columns(self._table_now(), batch, key, self.guard)
            return
        times = self.time_array(batch)
        assert times is not None, "windows in event time are on streams with timestamps"
        pane = self._sole_pane_between(int(times.min()), int(times.max()))
        if pane is not None:
            self._aggregate.add_columns(self._pane_table(pane), batch, key, self.guard)
        else:
            super().keyed_columns(batch, key)

    def _sole_pane_between(self, first_ns: int, last_ns: int) -> int | None:
        grid = self._spans.grid
        pane = grid.index_of(first_ns)
        is_sole = last_ns < grid.start_of(pane + 1) and self._is_ahead(self._spans.ends_of(pane)[0])
        return pane if is_sole else None

    def _table_now(self) -> Table:
        return self._pane_table(self._pane_now())

    def _add_by_time(self, rows: list[Any], times: Sequence[int], are_keys: bool = False) -> None:
        """Adds rows to the panes of their timestamps, or keys, which stand for rows that have no other value."""
        panes = by_pane(self._spans.grid, rows, times)
        behind = [pane for pane in panes if not self._is_ahead(self._spans.ends_of(pane)[0])]
        for pane, found in panes.items():
            if pane in behind:
                continue
            if are_keys:
                self._aggregate.add_keys(self._pane_table(pane), found, self.guard)
                continue
            try:
                self._aggregate.add(self._pane_table(pane), found, self.guard)
            except StepFailed as failed:
                raise self._at(failed, times, [pane]) from failed.__cause__
        if behind:
            self._add_behind(list(zip(rows, rows, strict=True)) if are_keys else rows, times, behind)

    def _add_behind(self, rows: list[Any], times: Sequence[int], panes: Container[int]) -> None:
        """Adds the rows of those panes that have a window that has ended."""
        late = []
        # One by one, so that the order of further results does not depend on where batches are cut.
        for place, (row, pane) in enumerate(zip(rows, map(self._spans.grid.index_of, times), strict=True)):
            if pane not in panes:
                continue
            try:
                is_taken = self._add(pane, [row])
            except StepFailed as failed:
                raise _moved(failed, [place]) from failed.__cause__
            if not is_taken:
                late.append(place)
        if late:
            self._pass_late([rows[place] for place in late], [times[place] for place in late])

    def _at(self, failed: StepFailed, times: Sequence[int], panes: Container[int]) -> StepFailed:
        """Returns the failure of a row of a pane with its place in the batch."""
        of_pane = enumerate(map(self._spans.grid.index_of, times))
        return _moved(failed, [place for place, pane in of_pane if pane in panes])

    def _add(self, pane: int, rows: list[Any]) -> bool:
        """Adds rows to a pane. Returns False if they are late: the last window that has it is forgotten."""
        spans, reached_ns = self._spans, self._reached.entries.get(0)
        ends = spans.ends_of(pane)
        if reached_ns is not None and self._is_forgotten(ends[-1], reached_ns):
            return False
        ended = self._ended(ends)
        if not ended:
            self._aggregate.add(self._pane_table(pane), rows, self.guard)
            if self._merged is not None and not self._is_ahead(ends[0]):
                self._merged.change(pane, state_keys([key for key, _ in rows]))
            return True
        late = [self._late_table(end) for end in ended]
        tables = [self._pane_table(pane), *(() if self._rules.accumulates else late)]
        keys = self._aggregate.add_to_each(tables, rows, self.guard)
        if self._merged is not None:
            self._merged.change(pane, keys)
        if self._rules.accumulates:
            for table in late:
                table.update(dict.fromkeys(keys))
        return True

    def _is_ahead(self, end: int) -> bool:
        """Returns whether a window has not ended."""
        reached_ns = self._reached.entries.get(0)
        return reached_ns is None or bool(self._spans.end_ns(end) > reached_ns)

    def _ended(self, ends: range) -> range:
        """Returns those windows that have ended and still take records."""
        reached_ns = self._reached.entries.get(0)
        if reached_ns is None:
            return ends[:0]
        end_ns = self._spans.end_ns
        forgotten = bisect_right(ends, reached_ns - self._rules.lateness_ns, key=end_ns)
        return ends[forgotten : bisect_right(ends, reached_ns, key=end_ns)]

    def _is_forgotten(self, end: int, reached_ns: int) -> bool:
        return self._spans.end_ns(end) + self._rules.lateness_ns <= reached_ns

    def _pass_late(self, rows: list[Any], times: Sequence[int]) -> None:
        self._late_records.take([value for _, value in rows], times, self._reached.entries[0])

    # --- results

    def _emit(self, end: int) -> None:
        """Emits the results of a window at its end, or later those of keys that got late records."""
        end_ns = self._spans.end_ns(end)
        window, routes = window_of(self._spans.start_ns(end), end_ns), self.guard.routes
        rows: list[Any] = [] if self._counts is None else counted(self._totals_of(self._counts, end), window)
        for stored, parts in self._parts_of(end) if self._counts is None else ():
            results, failures = self._results.of(stored, parts, window, routes=routes)
            rows += results
            for error, record in failures:
                self.guard.caught(error, record)
        if rows:
            self.out.rows(rows, [result_time_ns(end_ns)] * len(rows) if self._rules.is_event_time else None)

    def _parts_of(self, end: int) -> Iterable[tuple[Any, list[Any]]]:
        """Returns the keys of a window, each with its accumulators, to be merged in their order."""
        late = self._late.pop(end, None)
        if late is None and self._merged is not None:
            return self._merged.window(end)
        found: dict[Any, list[Any]] = {}
        for table in self._tables_of(end, late):
            for stored, accumulator in table.contents().items():
                found.setdefault(stored, []).append(accumulator)
        return _those_of(late, found).items()

    def _totals_of(self, counts: WindowCount, end: int) -> dict[Any, int]:
        """Returns the keys of a window with their counts."""
        late = self._late.pop(end, None)
        return _those_of(late, counts.totals(self._tables_of(end, late)))

    def _tables_of(self, end: int, late: Table | None) -> list[Table]:
        """Returns the tables of a result, and drops that of the late records which it is for."""
        if late is not None:
            self._state.drop(self._name(LATE_NAME, end))
            if not self._rules.accumulates:
                return [late]
        return [self._panes[pane] for pane in self._spans.panes_of(end) if pane in self._panes]

    # --- tables

    def _late_table(self, end: int) -> Table:
        found = self._late.get(end)
        if found is None:
            found = self._late[end] = self._state.table(self._name(LATE_NAME, end))
            self._agenda.add_window(end)
        return found


def by_pane(grid: Grid, rows: list[Any], times: Sequence[int]) -> dict[int, list[Any]]:
    """Returns the rows of each pane, in the order in which the panes occur."""
    native = choice.native
    if native is not None and isinstance(times, array):
        first_ns, last_ns = native.bounds(times)
        pane, starts = grid.index_of(first_ns), array(INT64, [first_ns])
        while len(starts) <= PANES_AT_ONCE_MAX and (start_ns := grid.start_of(pane + len(starts))) <= last_ns:
            starts.append(start_ns)
        if len(starts) == 1:
            return {pane: rows}
        if len(starts) <= PANES_AT_ONCE_MAX:
            return {pane + number: part for number, part in native.split_by_time(rows, times, starts).items()}
    found: dict[int, list[Any]] = {}
    low_ns = high_ns = 0
    part: list[Any] = []
    for row, time_ns in zip(rows, times, strict=True):
        if not low_ns <= time_ns < high_ns:
            pane = grid.index_of(time_ns)
            low_ns, high_ns = grid.start_of(pane), grid.start_of(pane + 1)
            part = found.setdefault(pane, [])
        part.append(row)
    return found


def _moved(failed: StepFailed, places: Sequence[int]) -> StepFailed:
    """Returns the failure of one of several rows with its place among all."""
    at = failed.at
    return StepFailed(replace(at, index=None if at.index is None else places[at.index]))


def _those_of(late: Table | None, found: dict[Any, ValueT]) -> dict[Any, ValueT]:
    """Returns what was found for the keys of late records, in their order; all of it where there are none."""
    return found if late is None else {stored: found[stored] for stored in late.contents() if stored in found}
