"""Aggregates of keyed columns that emit after a number of records of a key, or for all changed keys at an interval.

State beside the totals: ``step/order``, the slots of the keys that have changed since they were last emitted, in the
order of their first changes, and a column with how many records that are. Results are those of ``PacedAggregate``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy
import pyarrow

from clonos.kernels import grouped
from clonos.kernels.record_batch import RecordBatch
from clonos.operators.columnar.column_aggregates import ColumnAggregate
from clonos.operators.columnar.running.scans import running_states
from clonos.operators.kinds.column_totals import RESULTS_MAX, ColumnTotals, Emits
from clonos.operators.operator import Scope
from clonos.operators.state.column_table import ColumnSpec
from clonos.operators.state.interval_timer import LeavesAtIntervals

ORDER_NAME: Final = "order"
WAITING: Final = "waiting"
"""Column with the records since a key was last emitted; the columns of aggregates have a dot in their names."""


class PacedTotals(LeavesAtIntervals, ColumnTotals):
    """Operator of aggregates over columns that emits after ``count`` records, or at multiples of an interval."""

    def __init__(
        self,
        step: str,
        aggregates: Sequence[ColumnAggregate],
        keys: Sequence[pyarrow.Field],
        count: int | None,
        interval_ns: int | None,
    ) -> None:
        super().__init__(step, aggregates, keys, Emits.CHANGES, is_count=False)
        self._spec = ColumnSpec(self._spec.keys, {**self._spec.values, WAITING: numpy.int64})
        self._count, self._interval_ns = count, interval_ns

    def open(self, scope: Scope) -> None:
        super().open(scope)
        spec = ColumnSpec((pyarrow.int64(),))
        self._order = scope.state.column_table(f"{self._step}/{ORDER_NAME}", spec)
        self.open_timer(self._step, self._interval_ns, scope)

    def columns(self, batch: RecordBatch) -> None:
        columns = self._keys.of(batch)
        slots = self._table.slots(columns)
        self._table.touch(slots)
        self._timer.start()
        if self._count is not None:
            self._add_counted(batch, columns, slots, self._count)
            return
        values = self._table.values
        for each, cells in zip(self._aggregates, self._cells(batch), strict=True):
            each.add(values, slots, cells)
        values[WAITING][slots] = 1
        self._order.slots(grouped.distinct_slots(slots)[0].astype(numpy.int64))

    def _add_counted(self, batch: RecordBatch, columns: list[Any], slots: Any, count: int) -> None:
        """Adds a batch and emits the results after each ``count`` records of a key."""
        waiting = self._table.values[WAITING]
        number = waiting[slots] + grouped.running_counts(numpy.zeros(len(waiting), numpy.int64), slots)
        states = running_states(self._aggregates, self._table.values, slots, self._cells(batch))
        waiting[slots] = number  # of equal slots the last one assigned stays
        last_group = (waiting[slots] - 1) // count
        is_full = number % count == 0
        begins = (number % count == 1 % count) & ((number - 1) // count == last_group)
        waiting[slots] = waiting[slots] % count
        emitted = self._order.find(numpy.unique(slots[is_full]).astype(numpy.int64))
        self._order.remove(emitted[emitted >= 0])
        self._order.slots(slots[begins & (waiting[slots] > 0)].astype(numpy.int64))
        if is_full.any():
            rows = numpy.flatnonzero(is_full)
            fits = self._fitting(batch, states, rows)
            rows = rows if fits is None else rows[fits]
            places = pyarrow.array(rows)
            keys = [column.take(places) for column in columns]
            self._pass_on(self._as_batch(keys, [each.results(states, rows) for each in self._aggregates]))

    # --- time

    def end_of_time(self) -> None:
        """Emits the keys that wait."""
        self._timer.stop()
        slots = self._waiting_slots()
        self._order.remove(self._order.live())
        self._table.touch(slots)
        self._table.values[WAITING][slots] = 0
        for first in range(0, len(slots), RESULTS_MAX):
            self._pass_on(self._results(slots[first : first + RESULTS_MAX]))

    def _waiting_slots(self) -> Any:
        return self._order.keys(self._order.live())[0].to_numpy()
