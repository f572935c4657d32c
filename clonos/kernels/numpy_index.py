"""Twins of the native indexes: open addressing in numpy for int64 keys, a dict of a batch's distinct keys for bytes."""

from __future__ import annotations

from itertools import repeat
from typing import TYPE_CHECKING, Any, Final

import numpy
import pyarrow

from clonos.kernels.arrays import as_binary_keys, as_int64_keys, as_slots

if TYPE_CHECKING:
    from numpy.typing import NDArray

FIRST_SLOTS: Final = 64
MULTIPLIER: Final = numpy.uint64(0x9E3779B97F4A7C15)
HALF: Final = numpy.uint64(32)


class NumpyInt64Index:
    """Index of int64 keys. A place of the table has a slot or -1; at most half of the places are taken."""

    def __init__(self, slots_max: int, room: int = 0) -> None:
        self._slots_max = slots_max
        self._count = 0
        capacity = _power_of_two(max(FIRST_SLOTS, min(room, slots_max)))
        self._keys = numpy.zeros(capacity, numpy.int64)  # by slot
        self._table = numpy.full(2 * capacity, -1, numpy.int32)

    def __len__(self) -> int:
        return self._count

    @property
    def nbytes(self) -> int:
        """Memory of the index in bytes."""
        return self._keys.nbytes + self._table.nbytes

    def find(self, keys: Any) -> NDArray[numpy.int32]:
        """Returns the slot of each key, -1 for an unknown one."""
        keys = as_int64_keys(keys)
        table, known = self._table, self._keys
        slots = numpy.full(len(keys), -1, numpy.int32)
        rows, places = numpy.arange(len(keys)), self._places(keys)
        while len(rows):
            found = table[places]
            taken = found >= 0
            same = taken & (known[found] == keys[rows])
            slots[rows[same]] = found[same]
            others = taken & ~same
            rows, places = rows[others], (places[others] + 1) & (len(table) - 1)
        return slots

    def add(self, keys: Any) -> NDArray[numpy.int32]:
        """Returns the slot of each key; unknown keys get the next slots."""
        keys = as_int64_keys(keys)
        slots = self.find(keys)
        unknown = numpy.flatnonzero(slots < 0)
        if len(unknown):
            distinct, first, numbers = numpy.unique(keys[unknown], return_index=True, return_inverse=True)
            order = numpy.argsort(first)
            ranks = numpy.empty(len(order), numpy.int32)
            ranks[order] = numpy.arange(len(order), dtype=numpy.int32)
            slots[unknown] = self._count + ranks[numbers]
            self._append(distinct[order])
        return slots

    def keys(self, first: int = 0) -> NDArray[numpy.int64]:
        """Returns a copy of the keys of the slots from ``first`` on."""
        _check_first(first, self._count)
        return self._keys[first : self._count].copy()

    def keys_at(self, slots: NDArray[Any]) -> NDArray[numpy.int64]:
        """Returns the keys of slots."""
        return self._keys[as_slots(slots, self._count)]

    def _places(self, keys: NDArray[numpy.int64]) -> NDArray[numpy.int64]:
        mixed = keys.view(numpy.uint64) * MULTIPLIER
        mixed ^= mixed >> HALF
        return (mixed & numpy.uint64(len(self._table) - 1)).view(numpy.int64)

    def _append(self, new: NDArray[numpy.int64]) -> None:
        fitting = new[: self._slots_max - self._count]
        first, self._count = self._count, self._count + len(fitting)
        if self._count > len(self._keys):
            keys = numpy.zeros(_power_of_two(self._count), numpy.int64)
            keys[:first] = self._keys[:first]
            self._keys, self._table = keys, numpy.full(2 * len(keys), -1, numpy.int32)
            self._keys[first : self._count] = fitting
            first = 0
        else:
            self._keys[first : self._count] = fitting
        self._insert(numpy.arange(first, self._count, dtype=numpy.int32))
        if len(fitting) < len(new):
            raise too_many_keys(self._slots_max)

    def _insert(self, slots: NDArray[numpy.int32]) -> None:
        """Takes a place for each slot. Where several want one place, the last of them has it and the others go on."""
        table, places = self._table, self._places(self._keys[slots])
        while len(slots):
            free = table[places] < 0
            table[places[free]] = slots[free]
            others = table[places] != slots
            slots, places = slots[others], (places[others] + 1) & (len(table) - 1)


class NumpyBytesIndex:
    """Index of texts and binaries, with Python work per distinct key of a batch."""

    def __init__(self, slots_max: int, room: int = 0) -> None:
        self._slots_max = slots_max
        self._slots: dict[bytes, int] = {}
        self._keys: list[bytes] = []
        self._data_bytes = 0

    def __len__(self) -> int:
        return len(self._keys)

    @property
    def nbytes(self) -> int:
        """Memory of the index in bytes, as far as the sizes of Python's objects are known."""
        return self._data_bytes + len(self._keys) * OBJECTS_BYTES

    def find(self, keys: Any) -> NDArray[numpy.int32]:
        """Returns the slot of each key, -1 for an unknown one."""
        values, numbers = _distinct(keys)
        slots = numpy.fromiter(map(self._slots.get, values, repeat(-1)), numpy.int32, len(values))
        return slots[numbers]

    def add(self, keys: Any) -> NDArray[numpy.int32]:
        """Returns the slot of each key; unknown keys get the next slots."""
        values, numbers = _distinct(keys)
        slots = numpy.fromiter(map(self._slots.get, values, repeat(-1)), numpy.int32, len(values))
        for number in numpy.flatnonzero(slots < 0).tolist():
            if len(self._keys) >= self._slots_max:
                raise too_many_keys(self._slots_max)
            key = values[number]
            slots[number] = self._slots[key] = len(self._keys)
            self._keys.append(key)
            self._data_bytes += len(key)
        return slots[numbers]

    def keys(self, first: int = 0) -> Any:
        """Returns the keys of the slots from ``first`` on."""
        _check_first(first, len(self._keys))
        return pyarrow.array(self._keys[first:], pyarrow.large_binary())

    def keys_at(self, slots: NDArray[Any]) -> Any:
        """Returns the keys of slots."""
        places = as_slots(slots, len(self._keys)).tolist()
        return pyarrow.array([self._keys[place] for place in places], pyarrow.large_binary())


OBJECTS_BYTES: Final = 33 + 28 + 8 + 100
"""Bytes of a key beside its data: the objects of key and slot, the list's and the dict's entries."""


def too_many_keys(slots_max: int) -> OverflowError:
    """Creates the error for an index that is full."""
    return OverflowError(f"an index has at most {slots_max} keys: use more tasks, or let state expire")


def _distinct(keys: Any) -> tuple[list[bytes], NDArray[numpy.int32]]:
    """Returns the distinct keys in the order of first occurrence, and the number of each row's key among them."""
    encoded = as_binary_keys(keys).dictionary_encode()
    return encoded.dictionary.to_pylist(), encoded.indices.to_numpy()


def _check_first(first: int, count: int) -> None:
    if not 0 <= first <= count:
        raise IndexError(f"slot {first} was given, and 0 to {count} are possible")


def _power_of_two(count: int) -> int:
    return 1 << (count - 1).bit_length()
