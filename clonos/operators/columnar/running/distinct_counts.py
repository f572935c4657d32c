"""Exact number of distinct values of each key over columns: a count by slot, and a table of the values of each slot."""

from __future__ import annotations

from typing import Any, ClassVar, Final

import numpy
import pyarrow

from clonos.kernels.arrays import arrow_of
from clonos.operators.aggregates.distinct import identified
from clonos.operators.columnar.column_aggregates import ColumnAggregate, Slots, State
from clonos.operators.columnar.running.stored_keys import plain_cells
from clonos.operators.state.column_table import ColumnSpec, ColumnTable
from clonos.operators.state.declared_state import StepState
from clonos.operators.state.state_spec import ANY, KEY_COLUMN, Numbers, StateKind, StateScope, StateSpec

SLOT_BITS: Final = 32
VALUE_MASK: Final = (1 << SLOT_BITS) - 1
TABLED_BIT: Final = 31
TABLED: Final = 1 << TABLED_BIT
"""Bit of the number of a value that is in the table of values."""

VALUES: Final = StateSpec(
    f"members/{ANY}/values", StateKind.COLUMNS, StateScope.REFERRED, owner=f"members/{ANY}/members"
)
MEMBERS: Final = StateSpec(
    VALUES.owner,
    StateKind.COLUMNS,
    StateScope.REFERRING,
    owner="totals",
    numbers=(
        Numbers("totals", KEY_COLUMN, first_bit=SLOT_BITS),
        Numbers(VALUES.name, KEY_COLUMN, bits=TABLED_BIT, if_bit=TABLED_BIT),
    ),
)


class DistinctCount(ColumnAggregate):
    """Number of distinct values, for tables whose slots are never renumbered: none of their keys is removed.

    State: tables of columns of its own. ``name/<name of the aggregate>/members`` has a key for each value of a key: the
    slot of the key and the number of the value, as one number of 64 bits. The number of a whole number, date or bool is
    itself if it has 31 bits; that of any other value is its slot in ``.../values``, and the highest of 32 bits is set.
    """

    fields: ClassVar[tuple[str, ...]] = ("n",)

    def __init__(self, name: str, of: str, type_: Any) -> None:
        super().__init__(name, of)
        self._type = type_
        self._values_spec, self._members_spec = VALUES.named(name), MEMBERS.named(name)

    numbers: ClassVar[tuple[Numbers, ...]] = ()
    """Numbers in the table of the keys."""

    @property
    def state_specs(self) -> tuple[StateSpec, ...]:
        """Declarations of its tables."""
        return self._values_spec, self._members_spec

    def open(self, state: StepState) -> None:
        """Opens the tables, before the first record."""
        self._values: ColumnTable = state.column_table(self._values_spec, ColumnSpec((self._type,)))
        self._members: ColumnTable = state.column_table(self._members_spec, ColumnSpec((pyarrow.int64(),)))

    def remove(self, state: State, slots: Slots) -> None:
        """Keeps all values: keys are removed at the end of the input only."""

    def dtypes(self) -> dict[str, Any]:
        return {self._names[0]: numpy.int64}

    def add(self, state: State, slots: Slots, cells: Any) -> None:
        if cells.null_count:
            slots, cells = slots[cells.is_valid().to_numpy(zero_copy_only=False)], cells.drop_null()
        if not len(slots):
            return
        before = len(self._members)
        members = self._members.slots(slots.astype(numpy.int64) << SLOT_BITS | self._numbers_of(plain_cells(cells)))
        is_new = members >= before
        is_new[1:] &= members[1:] > numpy.maximum.accumulate(members)[:-1]  # they come in the order of first records
        numpy.add.at(state[self._names[0]], slots[is_new], 1)

    def _numbers_of(self, cells: Any) -> Any:
        """Returns the number of each value."""
        own = None if _is_text(self._type) else as_integers(cells)
        if own is not None and own.min() >= 0 and own.max() < TABLED:
            return own.astype(numpy.int64, copy=False)
        if own is None:
            return self._values.slots([cells]).astype(numpy.int64) | TABLED
        is_tabled = (own < 0) | (own >= TABLED)
        numbers = own.astype(numpy.int64)
        tabled = cells.filter(pyarrow.array(is_tabled))
        numbers[is_tabled] = self._values.slots([tabled]).astype(numpy.int64) | TABLED
        return numbers

    def merge(self, state: State, slots: Slots, other: State) -> None:
        raise AssertionError("distinct values are not counted in windows over columns")

    def results(self, state: State, slots: Slots) -> Any:
        return arrow_of(state[self._names[0]][slots])

    def accumulators(self, state: State, slots: Slots) -> list[Any]:
        found: dict[int, dict[Any, None]] = {slot: {} for slot in slots.tolist()}
        members = self._members.keys(self._members.live())[0].to_numpy()
        numbers = members & VALUE_MASK
        values = numpy.empty(len(members), object)
        is_tabled = numbers >= TABLED
        if is_tabled.any():
            values[is_tabled] = self._values.keys(numbers[is_tabled] ^ TABLED)[0].to_pylist()
        if not is_tabled.all():
            values[~is_tabled] = as_values(numbers[~is_tabled], self._type).to_pylist()
        for slot, value in zip((members >> SLOT_BITS).tolist(), values.tolist(), strict=True):
            found[slot][identified(value)[0]] = None
        return list(found.values())


def as_integers(cells: Any) -> Any:
    """Returns the values of whole numbers, bools or dates without nulls as integers."""
    if pyarrow.types.is_boolean(cells.type):
        return cells.cast(pyarrow.uint8()).to_numpy()
    return (cells.view(pyarrow.int32()) if pyarrow.types.is_date32(cells.type) else cells).to_numpy()


def as_values(numbers: Any, type_: Any) -> Any:
    """Returns integers as whole numbers, bools or dates."""
    if pyarrow.types.is_date32(type_):
        return pyarrow.array(numbers.astype(numpy.int32)).view(type_)
    return pyarrow.array(numbers).cast(type_)


def _is_text(type_: Any) -> bool:
    return bool(pyarrow.types.is_string(type_) or pyarrow.types.is_large_string(type_))
