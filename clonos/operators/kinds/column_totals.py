"""Aggregates of keyed columns over the whole input, which emit after each record, per batch, or at the end.

State: one table of columns with a slot per key, ``step/totals``. Results are those of ``RunningAggregate``,
``ChangedAggregate``, ``ReplacedAggregate`` and ``FinalAggregate``, in the same order.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, auto
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy
import pyarrow

from clonos.kernels import grouped
from clonos.kernels.record_batch import RecordBatch
from clonos.operators.aggregates.aggregate import Named
from clonos.operators.columnar.column_aggregates import ColumnAggregate, State
from clonos.operators.columnar.column_form import ColumnOperator
from clonos.operators.columnar.refused_results import fitting_results
from clonos.operators.columnar.row_forms import TotalForm, metadata_of, rows_of
from clonos.operators.columnar.running.distinct_counts import DistinctCount
from clonos.operators.columnar.running.retained_totals import RetainedTotal
from clonos.operators.columnar.running.scans import running_states
from clonos.operators.columnar.window_columns import WindowKeys
from clonos.operators.operator import Scope
from clonos.operators.state.column_table import ColumnSpec
from clonos.operators.steps.running_aggregates import EMITTED_NAME, name_before

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Slots = NDArray[Any]

TOTALS_NAME: Final = "totals"
MEMBERS_NAME: Final = "members"

RESULTS_MAX: Final = 1 << 16
"""Results that leave in one batch at the end of the input."""


class Emits(Enum):
    """When results leave."""

    EACH = auto()  # after each record
    CHANGES = auto()  # once per batch, for the keys in it
    REPLACEMENTS = auto()  # the same, with the results that these replace
    END = auto()  # at the end of the input


class ColumnTotals(ColumnOperator):
    """Operator of aggregates over keyed columns."""

    def __init__(
        self,
        step: str,
        aggregates: Sequence[ColumnAggregate],
        keys: Sequence[pyarrow.Field],
        emits: Emits,
        is_count: bool,
    ) -> None:
        """Creates the operator for batches in which ``keys`` are the key; without any all records have the same one.

        ``is_count``: it is that of ``count()``.
        """
        self._step, self._emits, self._is_count = step, emits, is_count
        self._aggregates = tuple(aggregates)
        self._with_tables = [each for each in aggregates if isinstance(each, DistinctCount | RetainedTotal)]
        self._keys = WindowKeys(keys)
        dtypes = {name: dtype for each in aggregates for name, dtype in each.dtypes().items()}
        self._spec = ColumnSpec(self._keys.types, dtypes)

    def open(self, scope: Scope) -> None:
        self._state = scope.state
        self._table = scope.state.column_table(f"{self._step}/{TOTALS_NAME}", self._spec)
        for each in self._with_tables:
            each.open(scope.state, f"{self._step}/{MEMBERS_NAME}")

    def _remove(self, slots: Slots) -> None:
        for each in self._with_tables:
            each.remove(self._table.values, slots)
        self._table.remove(slots)

    def columns(self, batch: RecordBatch) -> None:
        columns = self._keys.of(batch)
        known = len(self._table)
        slots = self._table.slots(columns)
        self._table.touch(slots)
        if self._emits is Emits.EACH:
            self._pass_on(self._running(batch, columns, slots))
            return
        values = self._table.values
        distinct = None if self._emits is Emits.END else grouped.distinct_slots(slots)[0]
        replaced: Sequence[Any] = ()
        if distinct is not None and self._emits is Emits.REPLACEMENTS:
            replaced = self._replaced(distinct, known)
        for each, cells in zip(self._aggregates, self._cells(batch), strict=True):
            each.add(values, slots, cells)
        if distinct is not None:
            self._pass_on(self._results(distinct, replaced))

    def _pass_on(self, results: RecordBatch) -> None:
        if results.num_rows:
            self.out.columns(results)

    def _cells(self, batch: RecordBatch) -> list[Any]:
        return [each.cells(batch) for each in self._aggregates]

    def _running(self, batch: RecordBatch, keys: list[Any], slots: Slots) -> Any:
        """Returns the results after each record of a batch, and brings the table up to date."""
        rows = numpy.arange(len(slots))
        states = running_states(self._aggregates, self._table.values, slots, self._cells(batch))
        fits = self._fitting(batch, states, rows)
        if fits is not None:
            rows, places = rows[fits], pyarrow.array(numpy.flatnonzero(fits))
            batch, keys = batch.take(places), [column.take(places) for column in keys]
        results = [each.results(states, rows) for each in self._aggregates]
        column = self.timestamp_column
        is_timed = column is not None and column.name not in self._keys.names
        times = {column.name: batch.column(column.name)} if is_timed and column is not None else {}
        return self._as_batch(keys, results, times)

    def _results(self, slots: Slots, replaced: Sequence[Any] = ()) -> Any:
        """Returns the present results of slots, and those that they replace, if given."""
        fits = fitting_results(self._aggregates, self._table.values, slots, partial(self._refuse, slots))
        if fits is not None:
            slots, replaced = slots[fits], [column.filter(pyarrow.array(fits)) for column in replaced]
        return self._as_batch(self._table.keys(slots), [*self._present(slots), *replaced])

    def _refuse(self, slots: Slots, place: int, error: Exception) -> None:
        """Refuses the result of one of ``slots``."""
        key = self._keys.shown(self._table.keys(slots[place : place + 1]))
        record = dict(zip(self._keys.names, (column[0].as_py() for column in key), strict=True))
        self.guard.refused(error, record, None)

    def _fitting(self, batch: RecordBatch, states: State, rows: Any) -> Any | None:
        """Refuses records of a batch after which a result does not fit. Returns which of ``rows`` are left, if not all.

        ``states`` has the state after each record of the batch.
        """

        def refuse(place: int, error: Exception) -> None:
            row = int(rows[place])
            self.guard.refused(error, rows_of(batch.slice(row, 1))[0], row)

        return fitting_results(self._aggregates, states, rows, refuse)

    def _present(self, slots: Slots) -> list[Any]:
        return [each.results(self._table.values, slots) for each in self._aggregates]

    def _replaced(self, slots: Slots, known: int) -> list[Any]:
        """Returns the present results of slots as those that are replaced: null where there was none."""
        is_new = slots >= known
        for misfits in (each.misfits(self._table.values, slots) for each in self._aggregates):
            is_new = is_new if misfits is None else is_new | misfits
        places = pyarrow.array(numpy.arange(len(slots)), mask=is_new)
        return [results.take(places) for results in self._present(slots)]

    def _as_batch(self, keys: Sequence[Any], results: Sequence[Any], times: dict[str, Any] | None = None) -> Any:
        names = tuple(each.name for each in self._aggregates)
        if len(results) > len(names):
            names += tuple(map(name_before, names))
        columns = {
            **dict(zip(self._keys.names, self._keys.shown(list(keys)), strict=True)),
            **(times or {}),
            **dict(zip(names, results, strict=True)),
        }
        form = TotalForm(self._keys.names, names, self._is_count)
        fields = [pyarrow.field(name, column.type) for name, column in columns.items()]
        schema = pyarrow.schema(fields, metadata_of(form))
        return pyarrow.RecordBatch.from_arrays(list(columns.values()), schema=schema)

    def end_of_time(self) -> None:
        if self._emits is not Emits.END:
            return
        slots = self._table.live()
        for first in range(0, len(slots), RESULTS_MAX):
            self._pass_on(self._results(slots[first : first + RESULTS_MAX]))
        self._remove(slots)  # a task that is restored after this must not emit them again


class FinalTotals(ColumnTotals):
    """Operator of final aggregates without a key: one row, of the results or of accumulators that a step merges."""

    def __init__(
        self, step: str, aggregates: Sequence[ColumnAggregate], aggregation: Named[Any], is_part: bool
    ) -> None:
        """Creates the operator; ``is_part``: it emits accumulators, none without a record."""
        super().__init__(step, aggregates, (), Emits.END, is_count=False)
        self._aggregation, self._is_part = aggregation, is_part

    def open(self, scope: Scope) -> None:
        super().open(scope)
        self._emitted = scope.state.table(f"{self._step}/{EMITTED_NAME}", is_small=True)

    def end_of_time(self) -> None:
        slots = self._table.live()
        if len(slots):
            parts = {each.name: each.accumulators(self._table.values, slots)[0] for each in self._aggregates}
            self._emit(self._aggregation.joined(parts))
        elif not self._is_part and not self._emitted.entries:
            self._emit(self._aggregation.create())
        self._emitted.set(0, True)  # a task that is restored after this must not emit it again
        self._remove(slots)

    def _emit(self, accumulator: Any) -> None:
        self.out.rows([accumulator if self._is_part else self._aggregation.result(accumulator)])
