"""Tumbling and sliding windows over keyed columns, in event time or processing time, that emit at their end.

State: a table of columns per pane, ``step/pane/<number>``. A batch is added to the panes of its records in one pass per
pane, and a window merges its panes when it ends. A pane is forgotten with its last window, and then records of it are
late. Results are those of ``PaneWindows``, in the same order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy
import pyarrow

from clonos.operators.columnar.by_type import ColumnOperator
from clonos.operators.columnar.column_aggregates import ColumnAggregate
from clonos.operators.columnar.merged_columns import MergedColumns
from clonos.operators.columnar.partial_form import accumulators_of, runs_of, states_of
from clonos.operators.columnar.window_columns import WindowColumns, user_keys
from clonos.operators.state.column_table import ColumnSpec, ColumnTable
from clonos.operators.windows.grid import Spans
from clonos.operators.windows.paned import PANE_NAME, Paned
from clonos.operators.windows.window_rules import WindowRules


class ColumnWindows(Paned[ColumnTable], ColumnOperator):
    """Operator of tumbling and sliding windows over columns."""

    def __init__(
        self,
        step: str,
        spans: Spans,
        aggregates: Sequence[ColumnAggregate],
        keys: Sequence[pyarrow.Field],
        rules: WindowRules,
    ) -> None:
        """Creates the operator for batches in which ``keys`` are the columns of the key."""
        super().__init__(step, spans, rules)
        self._aggregates, self._keys = tuple(aggregates), tuple(keys)
        self._read = tuple(dict.fromkeys(each.of for each in aggregates if each.of is not None))
        dtypes = {name: dtype for each in aggregates for name, dtype in each.dtypes().items()}
        self._spec = ColumnSpec(tuple(field.type for field in keys), dtypes)
        self._results = WindowColumns(keys, aggregates)
        self._bounds = [each.limit for each in aggregates]  # no sum is larger; at first they are not known
        self._merged = MergedColumns(self._spec, aggregates, spans.panes, self._panes)

    def _new_table(self, name: str) -> ColumnTable:
        return self._state.column_table(name, self._spec)

    def _restored_names(self, prefix: str) -> list[str]:
        return self._state.restored_columns(prefix)

    def hand_over(self) -> dict[int, dict[Any, dict[str, Any]]]:
        """Drops the panes. Returns the accumulators that aggregates over rows have: by pane, then key, then name."""
        found: dict[int, dict[Any, dict[str, Any]]] = {}
        for pane, table in self._panes.items():
            rows = accumulators_of(self._aggregates, table.values, len(table))
            found[pane] = dict(zip(user_keys(table.keys(numpy.arange(len(table)))), rows, strict=True))
            self._state.drop(self._name(PANE_NAME, pane))
        return found

    # --- records

    def has_room_for(self, batch: Any) -> bool:
        return self._has_room(
            [0 if each.of is None else each.growth(batch.column(each.of)) for each in self._aggregates]
        )

    def has_room_for_partials(self, batch: Any) -> bool:
        """Returns the same as ``has_room_for`` for a batch of partial aggregates."""
        states = states_of(batch)
        return self._has_room([each.growth_by(states) for each in self._aggregates])

    def _has_room(self, growths: Sequence[int]) -> bool:
        for place, (each, growth) in enumerate(zip(self._aggregates, growths, strict=True)):
            limit = each.limit // self._spans.panes
            if growth and self._bounds[place] + growth > limit:
                tables = self._panes.values()
                self._bounds[place] = max((each.largest(table.values, len(table)) for table in tables), default=0)
            if growth and self._bounds[place] + growth > limit:
                return False
            self._bounds[place] += growth
        return True

    def keyed_columns(self, batch: Any, key: Any) -> None:
        if not self._rules.is_event_time:
            self._add(self._pane_now(), batch)
            return
        times = self.time_array(batch)
        assert times is not None, "windows in event time are on streams with timestamps"
        panes = self._spans.grid.indexes_of(times)
        found = numpy.unique(panes).tolist()
        if len(found) == 1 and not self._is_late(found[0]):
            self._add(found[0], batch)
            return
        late = [pane for pane in found if self._is_late(pane)]
        needed = batch.select(list(dict.fromkeys((*(field.name for field in self._keys), *self._read))))
        for pane in found[len(late) :]:  # late panes are the earliest ones
            self._add(pane, needed.take(pyarrow.array(numpy.flatnonzero(panes == pane))))
        if late:
            places = numpy.flatnonzero(panes <= late[-1])
            rows = batch.take(pyarrow.array(places)).to_pylist()
            self._late_records.take(rows, times[places].tolist(), self._reached.entries[0])

    def _add(self, pane: int, batch: Any) -> None:
        table = self._pane_table(pane)
        slots = table.slots([batch.column(field.name) for field in self._keys])
        table.touch(slots)
        self._merged.change(pane)
        for each in self._aggregates:
            each.add(table.values, slots, None if each.of is None else batch.column(each.of))

    def add_partials(self, batch: Any) -> None:
        """Adds partial aggregates. Their panes are not late: the sender knew a later watermark than this task does."""
        for pane, part in runs_of(batch):
            number = self._pane_now() if pane is None else pane
            table = self._pane_table(number)
            slots = table.slots([part.column(field.name) for field in self._keys])
            table.touch(slots)
            self._merged.change(number)
            states = states_of(part)
            for each in self._aggregates:
                each.add_states(table.values, slots, states)

    def _is_late(self, pane: int) -> bool:
        reached_ns = self._reached_ns
        return reached_ns is not None and self._spans.end_ns(self._spans.last_end_of(pane)) <= reached_ns

    # --- results

    def _emit(self, end: int) -> None:
        """Emits the results of a window at its end."""
        table = self._merged.window(end)
        slots = numpy.arange(len(table))
        start_ns, end_ns = self._spans.start_ns(end), self._spans.end_ns(end)
        for batch in self._results.batches(table.keys, table.values, slots, start_ns, end_ns):
            self.out.columns(batch)
