"""Exact number of distinct values of each key over columns: a count by slot, and a table of the values of each slot."""

from __future__ import annotations

from typing import Any, ClassVar, Final

import numpy
import pyarrow

from clonos.operators.aggregates.distinct import identified
from clonos.operators.columnar.column_aggregates import ColumnAggregate, Slots, State
from clonos.operators.state.column_table import ColumnSpec, ColumnTable
from clonos.operators.state.keyed_state import StateBackend

SLOT_BITS: Final = 32
VALUE_MASK: Final = (1 << SLOT_BITS) - 1


class DistinctCount(ColumnAggregate):
    """Number of distinct values, for tables whose slots are never renumbered: none of their keys is removed.

    State: tables of columns of its own, ``name/<name of the aggregate>/values`` with a slot for each value of all keys,
    and ``.../pairs``, whose keys are a slot of a key and one of a value, as one number of 64 bits.
    """

    fields: ClassVar[tuple[str, ...]] = ("n",)

    def __init__(self, name: str, of: str, type_: Any) -> None:
        super().__init__(name, of)
        self._type = type_

    def open(self, state: StateBackend, name: str) -> None:
        """Opens the tables, before the first record."""
        self._state, self._prefix = state, f"{name}/{self.name}"
        self._values: ColumnTable = state.column_table(f"{self._prefix}/values", ColumnSpec((self._type,)))
        self._pairs: ColumnTable = state.column_table(f"{self._prefix}/pairs", ColumnSpec((pyarrow.int64(),)))

    def drop(self) -> None:
        """Drops the tables."""
        for name in ("values", "pairs"):
            self._state.drop(f"{self._prefix}/{name}")

    def dtypes(self) -> dict[str, Any]:
        return {self._names[0]: numpy.int64}

    def add(self, state: State, slots: Slots, cells: Any) -> None:
        if cells.null_count:
            slots, cells = slots[cells.is_valid().to_numpy(zero_copy_only=False)], cells.drop_null()
        if not len(slots):
            return
        before = len(self._pairs)
        values = self._values.slots([cells])
        pairs = self._pairs.slots(slots.astype(numpy.int64) << SLOT_BITS | values)
        is_new = pairs >= before
        is_new[1:] &= pairs[1:] > numpy.maximum.accumulate(pairs)[:-1]  # they come in the order of first records
        numpy.add.at(state[self._names[0]], slots[is_new], 1)

    def merge(self, state: State, slots: Slots, other: State) -> None:
        raise AssertionError("distinct values are not counted in windows over columns")

    def results(self, state: State, slots: Slots) -> Any:
        return pyarrow.array(state[self._names[0]][slots])

    def accumulators(self, state: State, slots: Slots) -> list[Any]:
        found: dict[int, dict[Any, None]] = {slot: {} for slot in slots.tolist()}
        pairs = self._pairs.keys(self._pairs.live())[0].to_numpy()
        values = self._values.keys(pairs & VALUE_MASK)[0].to_pylist() if len(pairs) else []
        for slot, value in zip((pairs >> SLOT_BITS).tolist(), values, strict=True):
            found[slot][identified(value)[0]] = None
        return list(found.values())
