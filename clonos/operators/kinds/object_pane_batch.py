"""Batches of Python objects by panes: rows with their keys, keys alone, and columns that are rows where they must."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any, Final

from clonos.core.ports.operator_chain import StepFailed
from clonos.core.values.elements import INT64
from clonos.kernels import choice
from clonos.kernels.record_batch import RecordBatch
from clonos.operators.columnar.row_forms import has_own_form
from clonos.operators.event_time.late_records import LateRecords
from clonos.operators.operator import Operator, Times
from clonos.operators.state.keyed_state import Table
from clonos.operators.user_errors import Guard
from clonos.operators.windows.grid import Grid
from clonos.operators.windows.window_aggregates import WindowAggregate

AddRows = Callable[[Table, list[Any], Guard], None]

PANES_AT_ONCE_MAX: Final = 64
"""Panes of a batch to which the native kernel distributes its rows."""


class PaneRows:
    """Rows (key, record)."""

    __slots__ = ("_add", "_grid", "_guard", "_parts", "_rows", "_times")

    def __init__(self, add: AddRows, guard: Guard, rows: list[Any], times: Times) -> None:
        """Creates it. ``add`` adds rows to a table."""
        self._add, self._guard, self._rows = add, guard, rows
        self._times: Any = times

    def _pairs(self) -> list[Any]:
        return self._rows

    def split(self, grid: Grid) -> Iterable[int]:
        """See ``PaneBatch``: panes in the order in which they occur."""
        assert self._times is not None, "windows in event time are on streams with timestamps"
        self._grid = grid
        self._parts = by_pane(grid, self._rows, self._times)
        return self._parts

    def whole(self, pane: int) -> None:
        """See ``PaneBatch``."""
        self._parts = {pane: self._rows}

    def add(self, pane: int, table: Table) -> None:
        """Adds the rows of a pane to a table."""
        try:
            self._add(table, self._parts[pane], self._guard)
        except StepFailed as failed:
            if len(self._parts) == 1:
                raise
            raise moved(failed, self._places((pane,))) from failed.__cause__

    def runs(self, panes: Container[int]) -> Iterator[tuple[int, list[int], list[Any]]]:
        """Yields the rows of some panes that follow one another in one pane: the pane, their places, and they."""
        index_of, times, rows = self._grid.index_of, self._times, self._pairs()
        for pane, group in groupby(self._places(panes), lambda place: index_of(times[place])):
            places = list(group)
            yield pane, places, [rows[place] for place in places]

    def pass_late(self, late_records: LateRecords, panes: Sequence[int], watermark_ns: int) -> None:
        """See ``PaneBatch``."""
        if places := self._places(panes):
            rows, times = self._pairs(), self._times
            late_records.take([rows[place][1] for place in places], [times[place] for place in places], watermark_ns)

    def _places(self, panes: Container[int]) -> list[int]:
        return [place for place, pane in enumerate(map(self._grid.index_of, self._times)) if pane in panes]


class PaneKeys(PaneRows):
    """Keys, which stand for rows that have no other value."""

    __slots__ = ()

    def _pairs(self) -> list[Any]:
        return list(zip(self._rows, self._rows, strict=True))


class PaneRecords(PaneRows):
    """Records of columns. They become rows if they are in several panes, or behind the watermark."""

    __slots__ = ("_aggregate", "_batch", "_is_made", "_key", "_operator")

    def __init__(self, aggregate: WindowAggregate, operator: Operator, batch: RecordBatch, key: Any) -> None:
        super().__init__(aggregate.add, operator.guard, [], None)
        self._aggregate, self._operator, self._batch, self._key, self._is_made = aggregate, operator, batch, key, False

    def split(self, grid: Grid) -> Iterable[int]:
        """See ``PaneBatch``."""
        self._grid, times = grid, self._operator.time_array(self._batch)
        assert times is not None, "windows in event time are on streams with timestamps"
        pane = grid.index_of(int(times.min()))
        if int(times.max()) < grid.start_of(pane + 1):
            return (pane,)
        self._make_rows()
        return super().split(grid)

    def add(self, pane: int, table: Table) -> None:
        """See ``PaneRows``."""
        if self._is_made:
            super().add(pane, table)
        else:
            self._aggregate.add_columns(table, self._batch, self._key, self._guard)

    def runs(self, panes: Container[int]) -> Iterator[tuple[int, list[int], list[Any]]]:
        """See ``PaneRows``."""
        self._make_rows()
        return super().runs(panes)

    def pass_late(self, late_records: LateRecords, panes: Sequence[int], watermark_ns: int) -> None:
        """See ``PaneBatch``."""
        self._make_rows()
        self._operator.rows_schema = None if has_own_form(self._batch) else self._batch.schema
        super().pass_late(late_records, panes, watermark_ns)
        self._operator.rows_schema = None

    def _make_rows(self) -> None:
        if not self._is_made:
            self._rows, batch = self._operator.pairs_of(self._batch, self._key)
            self._times, self._is_made = self._operator.times_of(batch), True


def moved(failed: StepFailed, places: Sequence[int]) -> StepFailed:
    """Returns the failure of one of several rows with its place among all."""
    at = failed.at
    return StepFailed(replace(at, index=None if at.index is None else places[at.index]))


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
