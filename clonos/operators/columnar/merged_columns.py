"""Merged panes of sliding windows over columns: the cost of a window does not grow with the number of its panes.

Panes are divided into blocks as long as a window, as in ``MergedPanes``: a window is the end of one block and the
beginning of the next. Which panes are merged with which follows from the end of the window alone, and all of this is
derived from the panes, so a restored operator gives equal results, to the last bit of a float.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy

from clonos.operators.columnar.column_aggregates import ColumnAggregate
from clonos.operators.state.column_table import ColumnSpec, ColumnTable


class MergedColumns:
    """Merged panes. Windows come in the order of their ends, and nothing may change what it returns."""

    def __init__(
        self,
        spec: ColumnSpec,
        aggregates: Sequence[ColumnAggregate],
        width: int,
        panes: Mapping[int, ColumnTable],
    ) -> None:
        """Creates it for windows of ``width`` panes."""
        self._spec, self._aggregates, self._width, self._panes = spec, tuple(aggregates), width, panes
        self._block: int | None = None  # first pane of the present block, None if what follows is out of date
        self._front: dict[int, ColumnTable] = {}  # the end of the block before, from each of its panes on
        self._back: ColumnTable | None = None  # the beginning of the present block
        self._covered = 0  # the pane behind those of ``_back``

    def change(self, pane: int) -> None:
        """Takes note that a pane has changed, which a window may have had already."""
        if pane < self._covered:
            self._block = None

    def window(self, end: int) -> ColumnTable:
        """Returns the state of the window that ends in front of the pane ``end``; some pane of it has records."""
        start, block = end - self._width, end // self._width * self._width
        if block != self._block:
            self._divide(start, block)
        for pane in range(max(self._covered, block), end):
            if (found := self._panes.get(pane)) is not None:
                self._back = self._merged([found] if self._back is None else [self._back, found])
        self._covered = end
        for pane in [pane for pane in self._front if pane < start]:
            del self._front[pane]
        front = self._front[min(self._front)] if self._front else None
        if front is None or self._back is None:
            whole = self._back if front is None else front
            assert whole is not None, "a window emits if one of its panes has records"
            return whole
        return self._merged([front, self._back])

    def panes_of(self, panes: Iterable[int]) -> ColumnTable:
        """Returns the state of several panes, of which some have records."""
        return self._merged([self._panes[pane] for pane in panes if pane in self._panes])

    def _divide(self, start: int, block: int) -> None:
        """Merges the panes of the window in front of the block from the newest on."""
        self._front, self._back, self._block, self._covered = {}, None, block, block
        behind: ColumnTable | None = None
        for pane in range(block - 1, start - 1, -1):
            if (found := self._panes.get(pane)) is not None:
                behind = self._front[pane] = found if behind is None else self._merged([found, behind])

    def _merged(self, tables: Iterable[ColumnTable]) -> ColumnTable:
        """Merges tables into a new one, unless there is only one; the records of a table come before the next one's."""
        first, *others = tables
        if not others:
            return first
        merged = ColumnTable("", self._spec)
        for table in (first, *others):
            slots = merged.slots(table.keys(numpy.arange(len(table))))
            values = {name: column[: len(table)] for name, column in table.values.items()}
            for each in self._aggregates:
                each.merge(merged.values, slots, values)
        return merged
