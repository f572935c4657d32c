"""Aggregates of columns over the whole input.

State: one table of columns with a slot per key, ``step/totals``. Where keys wait, also ``step/order``, the slots of the
keys that have changed since they were last emitted, in the order of their first changes, and a column with how many
records that are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy
import pyarrow

from clonos.kernels import grouped
from clonos.kernels.record_batch import RecordBatch
from clonos.operators.columnar.column_aggregates import ColumnAggregate, State
from clonos.operators.columnar.partial_form import is_partial, states_of
from clonos.operators.columnar.refused_results import fitting_results
from clonos.operators.columnar.row_forms import TotalForm, metadata_of, rows_of
from clonos.operators.columnar.running.distinct_counts import DistinctCount
from clonos.operators.columnar.running.retained_totals import RetainedTotal
from clonos.operators.columnar.running.scans import running_states
from clonos.operators.columnar.window_columns import WindowKeys
from clonos.operators.kinds.column_batch import ColumnBatch, KindOfColumns
from clonos.operators.kinds.total_kind import name_before
from clonos.operators.operator import Operator
from clonos.operators.state.column_table import ColumnSpec
from clonos.operators.state.declared_state import StepState
from clonos.operators.state.state_spec import KEY_COLUMN, Numbers, StateKind, StateScope, StateSpec

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Slots = NDArray[Any]

TOTALS: Final = StateSpec("totals", StateKind.COLUMNS, StateScope.KEYED)

ORDER: Final = StateSpec(
    "order",
    StateKind.COLUMNS,
    StateScope.REFERRING,
    owner=TOTALS.name,
    numbers=(Numbers(TOTALS.name, KEY_COLUMN),),
)
WAITING: Final = "waiting"
"""Column with the records since a key was last emitted; the columns of aggregates have a dot in their names."""

RESULTS_MAX: Final = 1 << 16
"""Results that leave in one batch at the end of the input."""

RowOf = Callable[[Mapping[str, Any]], Any]
"""Makes a row of the accumulators of all aggregates by name."""


class ColumnTotalKind(KindOfColumns):
    """Kind of columns in which ``keys`` are the key; without any all records have the same one."""

    def __init__(
        self,
        aggregates: Sequence[ColumnAggregate],
        keys: Sequence[pyarrow.Field],
        *,
        is_count: bool = False,
        row_of: RowOf | None = None,
    ) -> None:
        """``is_count``: the only aggregate is that of ``count()``. ``row_of``: makes a row of the only result."""
        self.aggregates, self.keys, self.is_count = tuple(aggregates), WindowKeys(keys), is_count
        self._row_of = row_of

    def of_columns(self, operator: Operator, batch: RecordBatch, key: Any) -> ColumnBatch:
        """See ``TotalKind``."""
        return ColumnBatch(operator, batch, self.keys.of(batch))

    @property
    def with_tables(self) -> list[DistinctCount | RetainedTotal]:
        """The aggregates with state of their own."""
        return [each for each in self.aggregates if isinstance(each, DistinctCount | RetainedTotal)]

    @property
    def totals_spec(self) -> StateSpec:
        """Declaration of the table of the keys."""
        return replace(TOTALS, numbers=tuple(number for each in self.with_tables for number in each.numbers))

    def state_specs(self, is_paced: bool) -> tuple[StateSpec, ...]:
        """See ``TotalKind``."""
        specs = [self.totals_spec, *(spec for each in self.with_tables for spec in each.state_specs)]
        return tuple(spec.by_key(bool(self.keys.names)) for spec in (*specs, *((ORDER,) if is_paced else ())))

    def totals(self, operator: Operator, state: StepState, is_paced: bool) -> ColumnTotals:
        """See ``TotalKind``."""
        if self._row_of is None:
            return ColumnTotals(self, operator, state, is_paced)
        return ColumnTotal(self, operator, state, self._row_of)


class ColumnTotals:
    """Accumulators of the keys."""

    def __init__(self, kind: ColumnTotalKind, operator: Operator, state: StepState, is_paced: bool) -> None:
        self._operator, self._is_count, self._keys = operator, kind.is_count, kind.keys
        self._aggregates = kind.aggregates
        self._with_tables = kind.with_tables
        dtypes = {name: dtype for each in kind.aggregates for name, dtype in each.dtypes().items()}
        if is_paced:
            dtypes[WAITING] = numpy.int64
            self._order = state.column_table(ORDER, ColumnSpec((pyarrow.int64(),)))
        self._table = state.column_table(kind.totals_spec, ColumnSpec(kind.keys.types, dtypes))
        for each in self._with_tables:
            each.open(state)

    @property
    def is_empty(self) -> bool:
        """See ``KeyTotals``."""
        return not self._table.live_count

    def add(self, batch: ColumnBatch) -> None:
        """See ``KeyTotals``."""
        self._add(batch.batch, self._slots(batch))

    def pass_each(self, batch: ColumnBatch) -> None:
        """See ``KeyTotals``."""
        self._pass_on(self._running(batch.batch, batch.keys, self._slots(batch)))

    def pass_changes(self, batch: ColumnBatch, has_before: bool) -> None:
        """See ``KeyTotals``."""
        known = len(self._table)
        slots = self._slots(batch)
        distinct, _ = grouped.distinct_slots(slots)
        replaced: Sequence[Any] = self._replaced(distinct, known) if has_before else ()
        self._add(batch.batch, slots)
        self._pass_on(self._results(distinct, replaced))

    def pass_every(self, batch: ColumnBatch, count: int) -> None:
        """See ``KeyTotals``."""
        slots = self._slots(batch)
        waiting = self._table.values[WAITING]
        number = waiting[slots] + grouped.running_counts(numpy.zeros(len(waiting), numpy.int64), slots)
        states = running_states(self._aggregates, self._table.values, slots, self._cells(batch.batch))
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
            fits = self._fitting(batch.batch, states, rows)
            rows = rows if fits is None else rows[fits]
            keys = [column.take(pyarrow.array(rows)) for column in batch.keys]
            self._pass_on(self._as_batch(keys, [each.results(states, rows) for each in self._aggregates]))

    def add_waiting(self, batch: ColumnBatch) -> bool:
        """See ``KeyTotals``."""
        slots = self._slots(batch)
        self._add(batch.batch, slots)
        self._table.values[WAITING][slots] = 1
        self._order.slots(grouped.distinct_slots(slots)[0].astype(numpy.int64))
        return True

    def pass_waiting(self) -> None:
        """See ``KeyTotals``."""
        slots = self._order.keys(self._order.live())[0].to_numpy()
        self._order.remove(self._order.live())
        self._table.touch(slots)
        self._table.values[WAITING][slots] = 0
        self._pass_parts(slots)

    def pass_all(self) -> None:
        """See ``KeyTotals``."""
        slots = self._table.live()
        self._pass_parts(slots)
        for each in self._with_tables:
            each.remove(self._table.values, slots)
        self._table.remove(slots)

    def _slots(self, batch: ColumnBatch) -> Slots:
        """Returns the slots of records, which are about to change."""
        slots = self._table.slots(batch.keys)
        self._table.touch(slots)
        return slots

    def _add(self, batch: RecordBatch, slots: Slots) -> None:
        values = self._table.values
        if is_partial(batch):
            states = states_of(batch)
            for each in self._aggregates:
                each.add_states(values, slots, states)
            return
        for each, cells in zip(self._aggregates, self._cells(batch), strict=True):
            each.add(values, slots, cells)

    def _pass_parts(self, slots: Slots) -> None:
        for first in range(0, len(slots), RESULTS_MAX):
            self._pass_on(self._results(slots[first : first + RESULTS_MAX]))

    def _pass_on(self, results: RecordBatch) -> None:
        if results.num_rows:
            self._operator.out.columns(results)

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
        column = self._operator.timestamp_column
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
        self._operator.guard.refused(error, record, None)

    def _fitting(self, batch: RecordBatch, states: State, rows: Any) -> Any | None:
        """Refuses records of a batch after which a result does not fit. Returns which of ``rows`` are left, if not all.

        ``states`` has the state after each record of the batch.
        """

        def refuse(place: int, error: Exception) -> None:
            row = int(rows[place])
            self._operator.guard.refused(error, rows_of(batch.slice(row, 1))[0], row)

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


class ColumnTotal(ColumnTotals):
    """Accumulators of all records, whose results are one row."""

    def __init__(self, kind: ColumnTotalKind, operator: Operator, state: StepState, row_of: RowOf) -> None:
        super().__init__(kind, operator, state, is_paced=False)
        self._row_of = row_of

    def _pass_parts(self, slots: Slots) -> None:
        if len(slots):
            parts = {each.name: each.accumulators(self._table.values, slots)[0] for each in self._aggregates}
            self._operator.out.rows([self._row_of(parts)])
