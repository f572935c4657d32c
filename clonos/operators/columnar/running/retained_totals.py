"""First, last, smallest and largest values of each key of types that state has not as numbers, such as texts.

A batch and the values of its keys so far become numbers: places for the first and last value, ranks for the smallest
and largest. Those are aggregated as other numbers are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy
import pyarrow
from pyarrow import compute

from clonos.operators.aggregates.values import First, Max, Min
from clonos.operators.columnar.column_aggregates import (
    ColumnAggregate,
    ExtremeColumn,
    FirstColumn,
    LastColumn,
    Slots,
    State,
    ValueColumn,
)
from clonos.operators.columnar.running.scans import running_states
from clonos.operators.columnar.running.stored_keys import plain_cells, plain_type
from clonos.operators.state.declared_state import StepState
from clonos.operators.state.state_spec import ANY, Numbers, StateKind, StateScope, StateSpec

if TYPE_CHECKING:
    from numpy.typing import NDArray


ROWS: Final = StateSpec(f"members/{ANY}/values", StateKind.ROWS, StateScope.REFERRED, owner="totals")


class RetainedTotal(ColumnAggregate):
    """One value of each key. State: its row in a store of rows of its own, counted from 1; 0 for none."""

    fields: ClassVar[tuple[str, ...]] = ("row",)

    def __init__(self, name: str, aggregation: Any, of: str, type_: Any) -> None:
        super().__init__(name, of)
        self._type, kind = plain_type(type_), type(aggregation)
        self._is_ordered = kind in (Min, Max)
        self._numbers: ValueColumn = (
            ExtremeColumn("number", of, pyarrow.int64(), is_largest=kind is Max)
            if self._is_ordered
            else (FirstColumn if kind is First else LastColumn)("number", of, pyarrow.int64())
        )
        self._rows_spec = ROWS.named(name)

    @property
    def numbers(self) -> tuple[Numbers, ...]:
        """Numbers in the table of the keys."""
        return (Numbers(self._rows_spec.name, self._names[0], first=1),)

    @property
    def state_specs(self) -> tuple[StateSpec, ...]:
        """Declaration of its store."""
        return (self._rows_spec,)

    def open(self, state: StepState) -> None:
        """Opens the store, before the first record."""
        self._rows = state.row_store(self._rows_spec)

    def remove(self, state: State, slots: Slots) -> None:
        """Drops the values of slots that are about to be removed."""
        rows = state[self._names[0]][slots] - 1
        self._rows.remove(rows[rows >= 0])

    def dtypes(self) -> dict[str, Any]:
        return {self._names[0]: numpy.int64}

    def add(self, state: State, slots: Slots, cells: Any) -> None:
        batch = self._numbered(state, slots, cells)
        self._numbers.add(batch.totals, batch.keys, batch.cells)
        self._store(state, batch)

    def running(self, state: State, slots: Slots, cells: Any) -> dict[str, Any]:
        batch = self._numbered(state, slots, cells)
        found = running_states([self._numbers], batch.totals, batch.keys, [batch.cells])
        self._store(state, batch)
        return {self.name: batch.values_of(*found.values())}

    def _numbered(self, state: State, slots: Slots, cells: Any) -> _Numbered:
        distinct, keys = numpy.unique(slots, return_inverse=True)
        values = pyarrow.concat_arrays([self._values(state[self._names[0]][distinct]), plain_cells(cells)])
        return _Numbered(distinct, keys.astype(slots.dtype), values, is_ordered=self._is_ordered)

    def _store(self, state: State, batch: _Numbered) -> None:
        """Stores the values of keys that have another one than before."""
        is_new = batch.are_new()
        if not is_new.any():
            return
        slots, held = batch.slots[is_new], state[self._names[0]]
        before = held[slots] - 1
        values = batch.values_of(*(each[is_new] for each in batch.totals.values()))
        held[slots] = self._rows.append(pyarrow.RecordBatch.from_arrays([values], [self.name])) + 1
        self._rows.remove(before[before >= 0])

    def _values(self, rows: NDArray[numpy.int64]) -> Any:
        """Returns the values of rows, counted from 1, null for 0."""
        is_there = rows > 0
        if not is_there.any():
            return pyarrow.nulls(len(rows), self._type)
        values = self._rows.take(rows[is_there] - 1).column(0)
        return values if is_there.all() else values.take(pyarrow.array(is_there.cumsum() - 1, mask=~is_there))

    def merge(self, state: State, slots: Slots, other: State) -> None:
        raise AssertionError("values are retained for aggregates over the whole input")

    def results(self, state: State, slots: Slots) -> Any:
        if self.name in state:  # of running states
            return state[self.name].take(pyarrow.array(slots))
        return self._values(state[self._names[0]][slots])


class _Numbered:
    """Values of a batch with those that its keys have had, as numbers.

    ``slots``: each slot in the batch once; ``keys``: for each cell which of these it has; ``values``: the values of the
    slots so far, then the cells; ``totals``: state of the aggregate over numbers, by place in ``slots``.
    """

    def __init__(self, slots: Slots, keys: Any, values: Any, *, is_ordered: bool) -> None:
        """``is_ordered``: the numbers are ranks, else places."""
        self.slots, self.keys, self.values = slots, keys, values
        is_valid = values.is_valid().to_numpy(zero_copy_only=False)
        count, numbers = len(slots), numpy.arange(len(values))
        self._first: Any = None  # place of the first value of each rank
        if is_ordered:
            ranks = compute.rank(values, tiebreaker="dense").to_numpy().astype(numpy.int64)
            self._first = numpy.zeros(len(numbers) + 1, numpy.int64)
            self._first[ranks[::-1]] = numbers[::-1]
            numbers = ranks
        self._before = numbers[:count], is_valid[:count]
        self.totals = {"number.value": numbers[:count].copy(), "number.has": is_valid[:count].copy()}
        self.cells = pyarrow.array(numbers[count:], mask=~is_valid[count:])

    def are_new(self) -> Any:
        """Returns which slots have another value than before the batch."""
        (before, had), (numbers, has) = self._before, self.totals.values()
        return has & ~(had & (numbers == before))

    def values_of(self, numbers: Any, has: Any) -> Any:
        """Returns values by their numbers, null where there is none."""
        places = numbers if self._first is None else self._first[numbers]
        return self.values.take(pyarrow.array(numpy.where(has, places, 0), mask=~has))
