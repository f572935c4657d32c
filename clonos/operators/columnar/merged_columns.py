"""Merged panes of sliding windows over columns: the cost of a window does not grow with the number of its panes.

Panes are divided into blocks as long as a window, as in ``MergedPanes``: a window is the end of one block and the
beginning of the next. Which panes are merged with which follows from the end of the window alone, and all of this is
derived from the panes, so a restored operator gives equal results, to the last bit of a float.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import numpy

from clonos.kernels.packed_keys import KeyIndex
from clonos.operators.columnar.column_aggregates import ColumnAggregate
from clonos.operators.columnar.logs.pane_table import PaneTable, log_names, part_of
from clonos.operators.columnar.logs.value_log import ValueLog
from clonos.operators.state.column_table import ColumnSpec, ColumnTable
from clonos.operators.windows.grid import Spans

GROWTH: Final = 2
"""Factor by which arrays grow."""


class MergedTable:
    """Keys and states of several panes: slots are in the order in which keys first come, as in a ``ColumnTable``."""

    __slots__ = ("_aggregates", "_columns", "_index", "_logs")

    def __init__(self, spec: ColumnSpec, aggregates: Sequence[ColumnAggregate], room: int = 0) -> None:
        """Creates an empty one. ``room``: number of keys that are expected."""
        self._aggregates = aggregates
        self._index = KeyIndex(spec.keys, room)
        self._columns: dict[str, Any] = {name: numpy.zeros(0, dtype) for name, dtype in spec.values.items()}
        self._logs = {name: ValueLog() for name in log_names(aggregates)}

    def __len__(self) -> int:
        return len(self._index)

    @property
    def values(self) -> dict[str, Any]:
        """Columns of state and logs by name. Read it again after ``add``."""
        return {**self._columns, **self._logs}

    def keys(self, slots: Any) -> list[Any]:
        """Returns the key columns of slots."""
        return self._index.columns_at(slots)

    def all_keys(self) -> list[Any]:
        """Returns the key columns of all slots, in their order."""
        return self._index.columns()

    def find(self, keys: list[Any]) -> Any:
        """Returns the slot of each key, -1 for an unknown one."""
        return self._index.find(keys)

    def add(self, other: AnyTable) -> None:
        """Adds another table, whose records come later."""
        slots = self._index.add(other.all_keys())
        count, needed = len(slots), len(self)
        room = len(next(iter(self._columns.values()), ()))
        if needed > room:
            room = max(needed, room * GROWTH)
            self._columns = {name: _grown(column, room) for name, column in self._columns.items()}
        values, states = self.values, part_of(other.values, count)
        for each in self._aggregates:
            each.merge(values, slots, states)


AnyTable = ColumnTable | PaneTable | MergedTable


class MergedColumns:
    """Merged panes. Windows come in the order of their ends; what it returns is right until it is called again."""

    def __init__(
        self,
        spec: ColumnSpec,
        aggregates: Sequence[ColumnAggregate],
        spans: Spans,
        panes: Mapping[int, ColumnTable | PaneTable],
    ) -> None:
        """Creates it for windows of ``panes``."""
        self._spec, self._aggregates, self._spans, self._panes = spec, tuple(aggregates), spans, panes
        self._has_logs = bool(log_names(aggregates))  # which would be copied for each pane of a window
        self._block: int | None = None  # first pane of the present block, None if what follows is out of date
        self._front: dict[int, AnyTable] = {}  # the end of the block before, from each of its panes on
        self._back: AnyTable | None = None  # the beginning of the present block
        self._covered = 0  # the pane after those of ``_back``

    def change(self, pane: int) -> None:
        """Takes note that a pane has changed, which a window may have had already."""
        if pane < self._covered:
            self._block = None

    def window(self, end: int) -> AnyTable:
        """Returns the state of the window that ends in front of the pane ``end``; some pane of it has records."""
        start, block = self._spans.first_pane_of(end), self._spans.block_of(end)
        if self._has_logs:
            panes = [pane for pane in range(start, end) if pane in self._panes]
            return self._panes[panes[0]] if len(panes) == 1 else self.of_panes(panes)
        if block != self._block:
            self._divide(start, block)
        for pane in range(max(self._covered, block), end):
            if (found := self._panes.get(pane)) is not None:
                if isinstance(self._back, MergedTable):
                    self._back.add(found)
                else:
                    self._back = found if self._back is None else self._merged(self._back, found)
        self._covered = end
        for pane in [pane for pane in self._front if pane < start]:
            del self._front[pane]
        front = self._front[min(self._front)] if self._front else None
        if front is None or self._back is None:
            whole = self._back if front is None else front
            assert whole is not None, "a window emits if one of its panes has records"
            return whole
        return self._merged(front, self._back)

    def of_panes(self, panes: Iterable[int]) -> MergedTable:
        """Returns the state of several panes, whatever windows have come."""
        merged = MergedTable(self._spec, self._aggregates)
        for pane in panes:
            if pane in self._panes:
                merged.add(self._panes[pane])
        return merged

    def _divide(self, start: int, block: int) -> None:
        """Merges the panes of the window in front of the block from the newest on."""
        self._front, self._back, self._block, self._covered = {}, None, block, block
        behind: AnyTable | None = None
        for pane in range(block - 1, start - 1, -1):
            if (found := self._panes.get(pane)) is not None:
                behind = self._front[pane] = found if behind is None else self._merged(found, behind)

    def _merged(self, first: AnyTable, second: AnyTable) -> MergedTable:
        """Merges two tables into a new one; the records of the second come later."""
        merged = MergedTable(self._spec, self._aggregates, len(first) + len(second))
        merged.add(first)
        merged.add(second)
        return merged


def _grown(column: Any, room: int) -> Any:
    found = numpy.zeros(room, column.dtype)
    found[: len(column)] = column
    return found
