"""Keys and values of a keyed table by slot, as the task and its standbys have them: arrays without an index of keys.

A key gets the next slot when it arrives, and loses it when it is removed: a key that comes again gets another one, so
that slots are in the order of arrival. ``compact`` leaves the removed ones out and keeps that order. Which slot a key
has follows from the calls alone, so that a snapshot can name slots in place of keys.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy
import pyarrow

from clonos.operators.state.column_spec import TableSchema, type_of_code
from clonos.operators.state.row_chunks import joined
from clonos.operators.state.row_store import RowStore

if TYPE_CHECKING:
    from numpy.typing import NDArray

CAPACITY_FIRST: Final = 64
NO_SLOT: Final = -1
COPIED_AT_ONCE: Final = 1 << 16
"""Slots whose keys are copied at once: more texts than 2 GiB are no Arrow array."""


class IntegerKeys:
    """Keys of one integer column as int64 by slot; ``null_slot`` has the null key."""

    __slots__ = ("array", "count", "null_slot")

    def __init__(self, array: NDArray[numpy.int64], count: int = 0, null_slot: int = NO_SLOT) -> None:
        self.array, self.count, self.null_slot = array, count, null_slot

    def append(self, keys: NDArray[numpy.int64], null: int = NO_SLOT) -> None:
        """Adds the keys of the next slots; ``null`` is the index of the null key among them."""
        end = self.count + len(keys)
        self.array = grown(self.array, self.count, end)
        self.array[self.count : end] = keys
        if null >= 0:
            self.null_slot = self.count + null
        self.count = end

    def view(self) -> IntegerKeys:
        """Returns the keys as they are now, for any thread: keys are added after them, and none changes."""
        return IntegerKeys(self.array, self.count, self.null_slot)

    def only(self, slots: NDArray[Any]) -> IntegerKeys:
        """Returns the keys of these slots, in order, as those of slots from 0 on."""
        null = numpy.flatnonzero(slots == self.null_slot)
        return IntegerKeys(self.array[slots], len(slots), int(null[0]) if len(null) else NO_SLOT)

    @property
    def size_bytes(self) -> int:
        """Memory of the keys."""
        return self.array.nbytes


class ArrowKeys:
    """Keys as Arrow batches by slot."""

    __slots__ = ("rows",)

    def __init__(self, rows: RowStore | None = None) -> None:
        self.rows = RowStore() if rows is None else rows

    def append(self, keys: Any) -> None:
        """Adds the keys of the next slots.

        Raises: RowsDiffer: the batch has other columns than those before.
        """
        self.rows.append(keys)

    def view(self) -> ArrowKeys:
        """Returns the keys as they are now, for any thread."""
        view = RowStore()
        view.chunks, view.schema = self.rows.chunks, self.rows.schema
        return ArrowKeys(view)

    def part(self, first: int, end: int) -> Any:
        """Returns the keys of adjacent slots, at least one."""
        parts = []
        for chunk in self.rows.chunks:
            start, stop = max(first - chunk.first, 0), min(end - chunk.first, chunk.batch.num_rows)
            if start < stop:
                parts.append(chunk.batch.slice(start, stop - start))
        return joined(parts)

    def take(self, slots: NDArray[Any]) -> Any:
        """Returns the keys of slots as a batch."""
        return self.rows.take(slots.astype(numpy.int64, copy=False))

    def only(self, slots: NDArray[Any]) -> ArrowKeys:
        """Returns the keys of these slots, in order, as those of slots from 0 on."""
        chosen = ArrowKeys()
        for first in range(0, len(slots), COPIED_AT_ONCE):
            chosen.append(self.take(slots[first : first + COPIED_AT_ONCE]))
        return chosen

    @property
    def size_bytes(self) -> int:
        """Memory of the keys."""
        return self.rows.size_bytes


class SlotColumns:
    """Arrays of one table. Those of ``columns`` have room beyond ``count``; they are replaced when they grow."""

    __slots__ = ("schema", "columns", "keys", "count", "removed", "is_removed", "removed_count")

    def __init__(self, schema: TableSchema) -> None:
        """Creates an empty table.

        Raises: ValueError: a type is none that a table can have, or two columns have one name.
        """
        if len({name for name, _ in schema.columns}) < len(schema.columns):
            raise ValueError("two columns have the same name")
        self.schema = schema
        self.columns = {
            name: numpy.empty((CAPACITY_FIRST, *dtype.shape), dtype.base)
            for name, dtype in ((name, type_of_code(code, name)) for name, code in schema.columns)
        }
        self.keys: IntegerKeys | ArrowKeys = (
            IntegerKeys(numpy.empty(CAPACITY_FIRST, numpy.int64)) if schema.has_integer_key else ArrowKeys()
        )
        self.count = 0
        self.is_removed: NDArray[numpy.bool_] | None = None  # by slot; None until a slot is removed
        self.removed: list[NDArray[numpy.int64]] = []  # the removed slots, in the order of removal
        self.removed_count = 0

    def add(self, count: int) -> None:
        """Adds the columns of ``count`` slots, whose keys are appended already; their values are undefined."""
        end = self.count + count
        for name, array in self.columns.items():
            self.columns[name] = grown(array, self.count, end)
        if self.is_removed is not None:
            self.is_removed = grown(self.is_removed, self.count, end)
            self.is_removed[self.count : end] = False
        self.count = end

    def reserve(self, capacity: int) -> None:
        """Makes room for ``capacity`` slots, so that adding them copies no arrays."""
        if isinstance(self.keys, IntegerKeys):
            self.keys.array = grown(self.keys.array, self.count, capacity)
        self.columns = {name: grown(array, self.count, capacity) for name, array in self.columns.items()}

    def remove(self, slots: NDArray[numpy.int64]) -> None:
        """Marks distinct slots as removed."""
        if len(slots) == 0:
            return
        if self.is_removed is None:
            self.is_removed = numpy.zeros(self.count, numpy.bool_)
        self.is_removed[slots] = True
        self.removed.append(slots)
        self.removed_count += len(slots)

    def live(self) -> NDArray[numpy.int64]:
        """Returns the slots that are not removed, in order."""
        if self.is_removed is None:
            return numpy.arange(self.count)
        return numpy.flatnonzero(~self.is_removed[: self.count])

    def compact(self) -> None:
        """Leaves the removed slots out. The old arrays stay as they are, for readers in other threads."""
        live = self.live()
        self.columns = {name: array[live] for name, array in self.columns.items()}
        self.keys = self.keys.only(live)
        self.count = len(live)
        self.is_removed, self.removed, self.removed_count = None, [], 0

    @property
    def size_bytes(self) -> int:
        """Memory of keys and values, with the room for more."""
        return self.keys.size_bytes + sum(array.nbytes for array in list(self.columns.values()))


def grown(array: NDArray[Any], count: int, count_needed: int) -> NDArray[Any]:
    """Returns ``array`` if it has room for ``count_needed`` elements, or else a larger one with its first ``count``."""
    if count_needed <= len(array):
        return array
    larger = numpy.empty((max(count_needed, 2 * len(array), CAPACITY_FIRST), *array.shape[1:]), array.dtype)
    larger[:count] = array[:count]
    return larger


def integers_as(kind: Any, keys: NDArray[numpy.int64], is_null: NDArray[numpy.bool_] | None) -> Any:
    """Returns int64 keys as a column of their type."""
    width = kind.bit_width // 8
    validity = None
    if is_null is not None and is_null.any():
        validity = pyarrow.py_buffer(numpy.packbits(~is_null, bitorder="little"))
    data = pyarrow.py_buffer(keys.astype(f"i{width}", copy=False))
    return pyarrow.Array.from_buffers(kind, len(keys), [validity, data])
