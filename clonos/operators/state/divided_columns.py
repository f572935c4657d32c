"""Division of tables in columns and of row stores: the slots and rows that a new task takes from an old one.

Removed slots and rows are left out, and the others are numbered anew: those of an old task after those of the ones
before it, in their order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy
import pyarrow

from clonos.expressions.type_names import arrow_type
from clonos.kernels.packed_keys import KeyIndex
from clonos.operators.state.column_slots import COPIED_AT_ONCE, IntegerKeys, SlotColumns, integers_as
from clonos.operators.state.divided_tables import OwnKeys
from clonos.operators.state.row_store import RowStore
from clonos.operators.state.state_spec import KEY_COLUMN, Numbers, StateScope, StateSpec

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from clonos.operators.state.keyed_state import StateImage

    IntArray = NDArray[numpy.int64]

SPAN_MAX: Final = 4
"""Numbers from the least to the highest one, for each that moves, up to which new ones are in an array by old ones."""

WORD_BITS: Final = 64
"""Bits of an integer in a column. A number that ends there has the sign."""

NOTHING: Final = numpy.empty(0, numpy.int64)


class Moved:
    """Slots or rows that move to a new task: their old numbers, which ascend, and the new ones."""

    __slots__ = ("_by_number", "new", "old")

    def __init__(self, old: IntArray, new: IntArray) -> None:
        self.old, self.new = old, new
        self._by_number: IntArray | None = None  # new numbers by old number - the first; -1 for those that stay
        if len(old) and int(old[-1]) - int(old[0]) < SPAN_MAX * len(old):
            self._by_number = numpy.full(int(old[-1]) - int(old[0]) + 1, -1)
            self._by_number[old - old[0]] = new

    def has(self, numbers: IntArray) -> NDArray[numpy.bool_]:
        """Returns which slots or rows move."""
        return self._found(numbers) >= 0

    def numbered(self, numbers: IntArray) -> IntArray:
        """Returns the new numbers for old ones.

        Raises: AssertionError: a slot or row does not move.
        """
        found = self._found(numbers)
        assert not len(found) or found.min() >= 0, "what is referred to moves with what refers to it"
        return found

    def _found(self, numbers: IntArray) -> IntArray:
        if not len(self.old):
            return numpy.full(len(numbers), -1)
        is_within = (numbers >= self.old[0]) & (numbers <= self.old[-1])
        within = numpy.where(is_within, numbers, self.old[0])
        if self._by_number is not None:
            found = self._by_number[within - self.old[0]]
        else:
            places = numpy.searchsorted(self.old, within)
            found = numpy.where(self.old[places] == within, self.new[places], -1)
        return numpy.where(is_within, found, -1)


class OldColumns:
    """Base of state in columns of an old task, and what of it moves: ``chosen`` has its numbers, which ascend."""

    def __init__(self, spec: StateSpec) -> None:
        self.spec, self.chosen = spec, NOTHING
        self.moved = Moved(NOTHING, NOTHING)

    @property
    def is_moving(self) -> bool:
        """See ``OldState``."""
        return len(self.chosen) > 0

    def live(self) -> IntArray:
        """Returns the slots or rows that are not removed."""
        raise NotImplementedError

    def values(self, numbers: Numbers, places: IntArray) -> NDArray[Any]:
        """Returns the values of slots or rows that have numbers."""
        raise NotImplementedError

    def choose_none(self) -> None:
        """See ``OldState``."""
        self.chosen = NOTHING

    def choose_referred(self, found: Sequence[IntArray]) -> None:
        """See ``OldState``."""
        self.chosen = numpy.unique(numpy.concatenate([NOTHING, *found]))

    def choose_referring(self, numbers: Sequence[Numbers], targets: Any) -> None:
        """See ``OldState``."""
        live, target = self.live(), Moved(targets, targets)
        refers = numpy.zeros(len(live), numpy.bool_)
        for each in numbers:
            values = self.values(each, live).astype(numpy.int64, copy=False)
            has = _have(each, values)
            refers[has] |= target.has(_field(each, values[has]) - each.first)
        self.chosen = live[refers]

    def numbers(self, numbers: Numbers) -> IntArray:
        """See ``OldState``."""
        if not len(self.chosen):
            return NOTHING
        values = self.values(numbers, self.chosen).reshape(-1).astype(numpy.int64, copy=False)
        return _field(numbers, values[_have(numbers, values)]) - numbers.first  # type: ignore[no-any-return]


class OldSlots(OldColumns):
    """Table in columns of an old task."""

    def __init__(self, spec: StateSpec, store: SlotColumns) -> None:
        super().__init__(spec)
        self._store, self._new = store, SlotColumns(store.schema)

    def live(self) -> IntArray:
        return self._store.live()

    def values(self, numbers: Numbers, places: IntArray) -> NDArray[Any]:
        store = self._store
        if (column := store.columns.get(_name(numbers))) is not None:
            return column[places]
        if isinstance(store.keys, IntegerKeys):
            return store.keys.array[places]
        parts = [batch.column(_key_column(store, numbers)).to_numpy() for batch in _batches(store, places)]
        return numpy.concatenate([NOTHING, *parts])

    def choose_own(self, own: OwnKeys) -> None:
        """See ``OldState``."""
        store, count = self._store, self.spec.key_columns
        assert not isinstance(count, tuple), f"{self.spec.name}: key columns of a table have no names"
        live = store.live()
        if isinstance(store.keys, IntegerKeys):
            parts = [own.are_own(columns) for columns in _key_columns(store, live)]
            self.chosen = live[numpy.concatenate(parts)] if parts else live
        elif len(live):
            chunks = [own.are_own(chunk.batch.columns[:count]) for chunk in store.keys.rows.chunks]
            self.chosen = live[numpy.concatenate(chunks)[live]]

    def place(self, image: StateImage, name: str, indexes: dict[str, Any]) -> None:
        """See ``OldState``. Slots that the state of several keys refers to may be there already."""
        self._new = new = image.columns.setdefault(name, self._new)
        if self.spec.scope is not StateScope.REFERRED:
            self.moved = Moved(self.chosen, numpy.arange(new.count, new.count + len(self.chosen)))
            return
        parts = list(_key_columns(self._store, self.chosen))
        if name not in indexes:
            indexes[name] = KeyIndex([column.type for column in parts[0]])
        self.moved = Moved(self.chosen, numpy.concatenate([indexes[name].add(columns) for columns in parts]))

    def move(self, renumber: Sequence[tuple[Numbers, Any]]) -> None:
        """See ``OldState``."""
        new, columns, first = self._new, self._store.columns, self._new.count
        slots = self.chosen[self.moved.new >= first]
        new.reserve(first + len(slots))
        self._move_keys(new, slots, [pair for pair in renumber if _name(pair[0]) not in columns])
        new.add(len(slots))
        for name, column in new.columns.items():
            column[first : new.count] = columns[name][slots]
        for numbers, each in renumber:
            if (values := new.columns.get(_name(numbers))) is not None:
                values[first : new.count] = _renumbered(numbers, each, values[first : new.count])

    def _move_keys(self, new: SlotColumns, slots: IntArray, renumber: Sequence[tuple[Numbers, Any]]) -> None:
        store = self._store
        if isinstance(store.keys, IntegerKeys):
            assert isinstance(new.keys, IntegerKeys), "tables of one name have keys of equal types"
            keys = store.keys.only(slots)
            for numbers, each in renumber:
                keys.array = _renumbered(numbers, each, keys.array)
            new.keys.append(keys.array, keys.null_slot)
            return
        for batch in _batches(store, slots):
            for numbers, each in renumber:
                batch = _with_numbers(batch, _key_column(store, numbers), numbers, each)
            new.keys.append(batch)


class OldRows(OldColumns):
    """Row store of an old task."""

    def __init__(self, spec: StateSpec, store: RowStore) -> None:
        super().__init__(spec)
        self._store, self._new = store, RowStore(store.name)

    def live(self) -> IntArray:
        return numpy.concatenate([NOTHING, *(chunk.live_from(0)[1] for chunk in self._store.chunks)])

    def values(self, numbers: Numbers, places: IntArray) -> NDArray[Any]:
        return self._store.take(places).column(_name(numbers)).to_numpy() if len(places) else NOTHING

    def choose_own(self, own: OwnKeys) -> None:
        """See ``OldState``."""
        names = self.spec.key_columns
        assert isinstance(names, tuple), f"{self.spec.name}: the key columns of rows have names"
        found = [NOTHING]
        for chunk in self._store.chunks:
            places, numbers = chunk.live_from(0)
            rows = chunk.at(places)
            found.append(numbers[own.are_own([rows.column(name) for name in names])])
        self.chosen = numpy.concatenate(found)

    def place(self, image: StateImage, name: str, indexes: dict[str, Any]) -> None:
        """See ``OldState``."""
        self._new = new = image.stores.setdefault(name, self._new)
        self.moved = Moved(self.chosen, numpy.arange(new.next_number, new.next_number + len(self.chosen)))

    def move(self, renumber: Sequence[tuple[Numbers, Any]]) -> None:
        """See ``OldState``."""
        for first in range(0, len(self.chosen), COPIED_AT_ONCE):
            batch = self._store.take(self.chosen[first : first + COPIED_AT_ONCE])
            for numbers, each in renumber:
                batch = _with_numbers(batch, batch.schema.get_field_index(_name(numbers)), numbers, each)
            self._new.append(batch)


def _name(numbers: Numbers) -> str:
    assert isinstance(numbers.place, str), f"{numbers}: a column has a name"
    return numbers.place


def _key_column(store: SlotColumns, numbers: Numbers) -> int:
    """Returns which key column has numbers."""
    name = _name(numbers)
    assert name == KEY_COLUMN or name.isdigit(), f"{numbers}: no column has this name"
    return int(name or 0)


def _field(numbers: Numbers, value: Any) -> Any:
    """Returns the part of an array of integers that has a number, before ``first`` is subtracted."""
    field = value >> numbers.first_bit
    return field if numbers.first_bit + numbers.bits >= WORD_BITS else field & ((1 << numbers.bits) - 1)


def _with_field(numbers: Numbers, value: Any, number: Any) -> Any:
    """Returns an array of integers with another number."""
    return value + ((number + numbers.first - _field(numbers, value)) << numbers.first_bit)


def _have(numbers: Numbers, values: IntArray) -> Any:
    """Returns where values have a number."""
    has = _field(numbers, values) >= numbers.first
    return has if numbers.if_bit is None else has & (values >> numbers.if_bit & 1 == 1)


def _renumbered(numbers: Numbers, new: Any, values: NDArray[Any]) -> NDArray[Any]:
    found = values.reshape(-1).astype(numpy.int64)
    has = _have(numbers, found)
    if not has.any():  # there may be nothing that it could refer to
        return values
    held = found[has]
    found[has] = _with_field(numbers, held, new.numbered(_field(numbers, held) - numbers.first))
    return found.reshape(values.shape).astype(values.dtype, copy=False)


def _with_numbers(batch: Any, place: int, numbers: Numbers, new: Any) -> Any:
    field, column = batch.schema.field(place), batch.column(place)
    values = _renumbered(numbers, new, column.to_numpy())
    return batch.set_column(place, field, pyarrow.array(values, field.type))


def _key_columns(store: SlotColumns, slots: IntArray) -> Iterator[list[Any]]:
    """Yields the key columns of slots in parts."""
    if not isinstance(store.keys, IntegerKeys):
        for batch in _batches(store, slots):
            yield batch.columns
    elif len(slots):
        null_slot, kind = store.keys.null_slot, arrow_type(store.schema.keys[0])
        yield [integers_as(kind, store.keys.array[slots], None if null_slot < 0 else slots == null_slot)]


def _batches(store: SlotColumns, slots: IntArray) -> Iterator[Any]:
    """Yields the keys of slots as batches."""
    assert not isinstance(store.keys, IntegerKeys), "these keys are in batches"
    for first in range(0, len(slots), COPIED_AT_ONCE):
        yield store.keys.take(slots[first : first + COPIED_AT_ONCE])
