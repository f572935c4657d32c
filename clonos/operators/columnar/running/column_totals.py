"""Aggregates of keyed columns over the whole input, which emit after each record, per batch, or at the end.

State: one table of columns with a slot per key, ``step/totals``. Results are those of ``RunningAggregate``,
``ChangedAggregate`` and ``FinalAggregate``, in the same order.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Final

import numpy
import pyarrow

from clonos.core.values.column_keys import values_of
from clonos.core.values.keys import state_keys
from clonos.kernels import grouped
from clonos.operators.columnar.by_type import ColumnOperator
from clonos.operators.columnar.column_aggregates import ColumnAggregate, CountColumn
from clonos.operators.columnar.row_forms import TotalForm, metadata_of
from clonos.operators.columnar.running.distinct_counts import DistinctCount
from clonos.operators.columnar.running.scans import running_states
from clonos.operators.operator import Scope, Times
from clonos.operators.state.column_table import ColumnSpec

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
    END = auto()  # at the end of the input


class ColumnTotals(ColumnOperator):
    """Operator of aggregates over keyed columns."""

    takes_columns = True

    def __init__(
        self,
        step: str,
        aggregates: Sequence[ColumnAggregate],
        keys: Sequence[pyarrow.Field],
        emits: Emits,
        is_count: bool,
    ) -> None:
        """Creates the operator for batches in which ``keys`` are the key. ``is_count``: it is that of ``count()``."""
        self._step, self._emits, self._is_count = step, emits, is_count
        self._aggregates = tuple(aggregates)
        self._counting = [each for each in aggregates if isinstance(each, DistinctCount)]
        self._keys = tuple(field.name for field in keys)
        dtypes = {name: dtype for each in aggregates for name, dtype in each.dtypes().items()}
        self._spec = ColumnSpec(tuple(field.type for field in keys), dtypes)
        self._bounds = [each.limit for each in aggregates]  # no sum is larger; at first they are not known

    def open(self, scope: Scope) -> None:
        self._state = scope.state
        self._table = scope.state.column_table(f"{self._step}/{TOTALS_NAME}", self._spec)
        for each in self._counting:
            each.open(scope.state, f"{self._step}/{MEMBERS_NAME}")

    def fill(self, keys: Sequence[Any], counts: Any) -> None:
        """Gives the empty table of a sole count the keys and counts of another one."""
        (count,) = self._aggregates
        (name,) = count.dtypes()
        self._table.values[name][self._table.slots(keys)] = counts

    def hand_over(self) -> dict[Any, dict[str, Any]]:
        """Drops the table. Returns the accumulators that aggregates over rows have: by stored key, then name."""
        slots = self._table.live()
        parts = [each.accumulators(self._table.values, slots) for each in self._aggregates]
        names = [each.name for each in self._aggregates]
        rows = [dict(zip(names, row, strict=True)) for row in zip(*parts, strict=True)]
        found = dict(zip(state_keys(values_of(self._table.keys(slots))), rows, strict=True))
        self._state.drop(f"{self._step}/{TOTALS_NAME}")
        for each in self._counting:
            each.drop()
        return found

    def has_room_for(self, batch: Any) -> bool:
        """Returns whether no sum can become too large for its column by this batch; call it for each batch."""
        for place, each in enumerate(self._aggregates):
            growth = 0 if each.of is None else each.growth(batch.column(each.of))
            if growth and self._bounds[place] + growth > each.limit:
                self._bounds[place] = each.largest(self._table.values, len(self._table))
            if growth and self._bounds[place] + growth > each.limit:
                return False
            self._bounds[place] += growth
        return True

    def rows(self, rows: list[Any], times: Times = None) -> None:
        raise AssertionError("the operator by type gives rows to the one over rows")

    def keyed_columns(self, batch: Any, key: Any) -> None:
        columns = [batch.column(name) for name in self._keys]
        slots = self._table.slots(columns)
        self._table.touch(slots)
        if self._emits is Emits.EACH:
            self.out.columns(self._running(batch, columns, slots))
            return
        values = self._table.values
        for each in self._aggregates:
            each.add(values, slots, None if each.of is None else batch.column(each.of))
        if self._emits is Emits.CHANGES:
            self.out.columns(self._results(grouped.distinct_slots(slots)[0]))

    def _running(self, batch: Any, keys: list[Any], slots: Slots) -> Any:
        """Returns the results after each record of a batch, and brings the table up to date."""
        cells = [None if each.of is None else batch.column(each.of) for each in self._aggregates]
        if len(cells) == 1 and isinstance(self._aggregates[0], CountColumn):
            (name,) = self._aggregates[0].dtypes()
            results = [pyarrow.array(grouped.running_counts(self._table.values[name], slots))]
        else:
            rows = numpy.arange(len(slots))
            states = running_states(self._aggregates, self._table.values, slots, cells)
            results = [each.results(states, rows) for each in self._aggregates]
        column = self.timestamp_column
        is_timed = column is not None and column.name not in self._keys
        times = {column.name: batch.column(column.name)} if is_timed and column is not None else {}
        return self._as_batch(keys, results, times)

    def _results(self, slots: Slots) -> Any:
        """Returns the present results of slots."""
        values = self._table.values
        return self._as_batch(self._table.keys(slots), [each.results(values, slots) for each in self._aggregates])

    def _as_batch(self, keys: Sequence[Any], results: Sequence[Any], times: dict[str, Any] | None = None) -> Any:
        names = tuple(each.name for each in self._aggregates)
        columns = {
            **dict(zip(self._keys, keys, strict=True)),
            **(times or {}),
            **dict(zip(names, results, strict=True)),
        }
        form = TotalForm(self._keys, names, self._is_count)
        fields = [pyarrow.field(name, column.type) for name, column in columns.items()]
        schema = pyarrow.schema(fields, metadata_of(form))
        return pyarrow.RecordBatch.from_arrays(list(columns.values()), schema=schema)

    def end_of_time(self) -> None:
        if self._emits is not Emits.END:
            return
        slots = self._table.live()
        for first in range(0, len(slots), RESULTS_MAX):
            self.out.columns(self._results(slots[first : first + RESULTS_MAX]))
        self._table.remove(slots)  # a task that is restored after this must not emit them again
