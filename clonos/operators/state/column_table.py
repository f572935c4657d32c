"""Keyed state in columns: numpy arrays by slot, an index from keys to slots, and which slots a snapshot needs.

Calls of a step come in this order: ``slots`` of a batch's keys, ``touch`` of those whose values will change, then the
change in ``values``. A barrier may renumber the slots (``layout`` tells): hold no slot across it. No result may depend
on the number of a slot, only on the order of slots, which is that of the arrival of their keys.

A snapshot is read by another thread while the step goes on, without a lock:

- The reader copies values, and looks into its log of old values afterwards. The first record of a slot wins.
- ``touch`` appends the old values to the log of each reader before the step changes them. So values that a reader
  copied during a change have a record in its log when it looks.
- Arrays are never changed beyond that: growth and compaction replace them, and the reader keeps the old ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy
import pyarrow

from clonos.kernels.packed_keys import KeyIndex
from clonos.operators.state.column_changes import TableReader
from clonos.operators.state.column_slots import NO_SLOT, IntegerKeys, SlotColumns, grown, integers_as
from clonos.operators.state.column_spec import SIZES, VALID_SUFFIX, ColumnSizes, ColumnSpec
from clonos.operators.state.state_errors import StateMalformed, StateOfOtherForm

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Slots = NDArray[Any]

__all__ = ["ColumnSpec", "ColumnTable"]


class ColumnTable:
    """Keys with values in columns. ``len`` counts the slots, with those that were removed since the last compaction."""

    __slots__ = (
        "_index",
        "_initial",
        "_is_changed",
        "_held",
        "_removed_stored",
        "_sizes",
        "_slot_of",
        "_spec",
        "_stored",
        "_touched",
        "layout",
        "name",
        "store",
    )

    def __init__(
        self, name: str, spec: ColumnSpec | None, store: SlotColumns | None = None, sizes: ColumnSizes = SIZES
    ) -> None:
        """Creates a table, or takes over ``store`` from a snapshot. Without ``spec`` it can be stored and no more.

        Raises: StateOfOtherForm: the snapshot has other types.
        """
        self.name = name
        if store is None:
            assert spec is not None, "a new table has types"
            store = SlotColumns(spec.schema)
        self.store = store
        self._sizes = sizes
        self.layout = 0
        """Number of compactions, each of which has renumbered the slots."""
        self._spec: ColumnSpec | None = None
        self._index: KeyIndex | None = None
        self._slot_of: NDArray[numpy.int32] | None = None  # by number in the index; None: the slots are these numbers
        self._stored = self.store.count
        self._removed_stored = len(self.store.removed)
        self._is_changed = numpy.zeros(len(self), numpy.bool_)
        self._touched: list[Slots] = []
        self._held: list[TableReader] = []  # readers in other threads
        self._initial: Mapping[str, NDArray[Any]] = {}
        if spec is not None:
            self.open(spec)

    def open(self, spec: ColumnSpec) -> None:
        """Opens the table for a step.

        Raises: StateOfOtherForm: the table was stored with other types.
        """
        if self.store.schema != spec.schema:
            raise StateOfOtherForm(self.name, str(self.store.schema), str(spec.schema))
        self._spec = spec
        self._initial = spec.first_values

    @property
    def is_open(self) -> bool:
        """Whether a step has opened the table."""
        return self._spec is not None

    def __len__(self) -> int:
        return self.store.count

    @property
    def live_count(self) -> int:
        """Number of keys."""
        return self.store.count - self.store.removed_count

    @property
    def values(self) -> Mapping[str, NDArray[Any]]:
        """Arrays by the names of columns, with room beyond the last slot. Read it again after ``slots``."""
        return self.store.columns

    @property
    def valid(self) -> Mapping[str, NDArray[numpy.bool_]]:
        """Arrays by the names of nullable columns that say where these have a value; set them as ``values``."""
        assert self._spec is not None
        return {name: self.store.columns[name + VALID_SUFFIX] for name in self._spec.nullable}

    @property
    def is_stored(self) -> bool:
        """Whether nothing has changed since the last ``take``."""
        is_removed = len(self.store.removed) > self._removed_stored
        return self.store.count == self._stored and not self._touched and not is_removed

    @property
    def old_values(self) -> int:
        """Number of slots whose old values are retained, summed over the readers."""
        return sum(len(slots) for reader in self._held for slots, _ in reader.log)

    @property
    def size_bytes(self) -> int:
        """Memory of the table and its index."""
        index = self._index
        index_bytes = 0 if index is None else index.nbytes
        return self.store.size_bytes + self._is_changed.nbytes + index_bytes

    # --- keys

    def slots(self, keys: Sequence[Any] | NDArray[numpy.int64]) -> NDArray[numpy.int32]:
        """Returns the slot of each key. Unknown keys are added, with initial values.

        ``keys`` has an Arrow array for each key column, or is a numpy array of int64.
        """
        columns, index, store = _columns_of(keys), self._known(), self.store
        before = len(index)
        numbers = index.add(columns)
        added = len(index) - before
        if self._slot_of is None and not store.removed_count:
            if added:
                self._append(index.columns(before), added)
            return numbers
        slot_of = numpy.arange(before, dtype=numpy.int32) if self._slot_of is None else self._slot_of
        self._slot_of = slot_of = grown(slot_of, before, len(index))
        slot_of[before : len(index)] = NO_SLOT
        slots = slot_of[numbers]
        missing = numpy.flatnonzero(slots < 0 if store.is_removed is None else (slots < 0) | store.is_removed[slots])
        if len(missing):
            theirs, ranks = numbers[missing], -2 - numpy.arange(len(missing), dtype=numpy.int32)
            slot_of[theirs[::-1]] = ranks[::-1]  # a key's first row wins
            first = missing[slot_of[theirs] == ranks]
            slot_of[numbers[first]] = numpy.arange(store.count, store.count + len(first))
            rows = pyarrow.array(first)
            self._append([column.take(rows) for column in columns], len(first))
            slots = slot_of[numbers]
        return slots

    def find(self, keys: Sequence[Any] | NDArray[numpy.int64]) -> NDArray[numpy.int32]:
        """Returns the slot of each key, -1 for an unknown one."""
        index = self._known()
        numbers = index.find(_columns_of(keys))
        if len(index) == 0:
            return numbers
        slots = numbers if self._slot_of is None else numpy.where(numbers < 0, NO_SLOT, self._slot_of[numbers])
        if self.store.is_removed is not None:
            slots = numpy.where((slots < 0) | self.store.is_removed[slots], NO_SLOT, slots)
        return slots.astype(numpy.int32, copy=False)

    def keys(self, slots: Slots) -> list[Any]:
        """Returns the key columns of slots as Arrow arrays."""
        assert self._spec is not None
        keys = self.store.keys
        if isinstance(keys, IntegerKeys):
            is_null = None if keys.null_slot < 0 else slots == keys.null_slot
            return [integers_as(self._spec.keys[0], keys.array[slots], is_null)]
        if len(slots) == 0:
            return [pyarrow.array([], kind) for kind in self._spec.keys]
        columns: list[Any] = keys.take(slots).columns
        return columns

    def all_keys(self) -> list[Any]:
        """Returns the key columns of all slots, in their order; read them before the table changes."""
        assert self._spec is not None
        keys, count = self.store.keys, self.store.count
        if isinstance(keys, IntegerKeys) and keys.null_slot < 0:
            return [integers_as(self._spec.keys[0], keys.array[:count], None)]
        return self.keys(numpy.arange(count))

    def live(self) -> NDArray[numpy.int64]:
        """Returns the slots of all keys, in the order of their arrival."""
        return self.store.live()

    # --- changes

    def touch(self, slots: Slots) -> None:
        """Notes that the values of slots will change; call it before they do. New slots need not be touched."""
        fresh = slots[~self._is_changed[slots]]
        if len(fresh):
            if self._held:
                old = (fresh, [array[fresh] for array in self.store.columns.values()])
                for reader in self._held:
                    reader.log.append(old)
            self._is_changed[fresh] = True
            self._touched.append(fresh)

    def remove(self, slots: Slots) -> None:
        """Removes the keys of slots; a slot may occur several times. A key that comes again is a new one."""
        slots = numpy.unique(slots).astype(numpy.int64, copy=False)
        if self.store.is_removed is not None:
            slots = slots[~self.store.is_removed[slots]]
        self.store.remove(slots)

    def remove_where(self, mask: NDArray[numpy.bool_]) -> NDArray[numpy.int64]:
        """Removes the keys of the slots where ``mask`` is set and returns these slots. It has an item for each slot."""
        slots = numpy.flatnonzero(mask)
        if self.store.is_removed is not None:
            slots = slots[~self.store.is_removed[slots]]
        self.store.remove(slots)
        return slots

    def expire(self, column: str, before: Any) -> NDArray[numpy.int64]:
        """Removes the keys whose value in ``column`` is less than ``before``, and returns their slots."""
        return self.remove_where(self.store.columns[column][: len(self)] < before)

    # --- snapshots

    def take(self, full: bool) -> TableReader:
        """Returns a reader of what changed since the last call, or of all, and compacts the table if that is due.

        The reader reads until the next call of this table, or until it is released if ``hold`` was called.
        """
        store = self.store
        is_due = store.removed_count >= self._sizes.compacted_min and store.removed_count > self.live_count
        if full and is_due:
            self._compact()
            is_due = False
        reader = TableReader(self.name, store, self.layout, self._sizes)
        if full:
            reader.reads_all()
        else:
            reader.reads_changes(self._stored, self._touched, self._removed_stored, is_due)
        if is_due:
            self._compact()
        self._stored, self._touched, self._removed_stored = store.count, [], len(store.removed)
        reader.marks = self._is_changed  # or the task would free the pages of this array, which takes ms
        self._is_changed = numpy.zeros(max(store.count, len(self._is_changed)), numpy.bool_)
        return reader

    def whole(self) -> TableReader:
        """Returns a reader of all as of the ``take`` just made."""
        reader = TableReader(self.name, self.store, self.layout, self._sizes)
        reader.reads_all()
        return reader

    def hold(self, reader: TableReader) -> None:
        """Keeps old values for a reader in another thread until it is released."""
        if reader.layout == self.layout:
            self._held.append(reader)

    def release(self) -> None:
        """Keeps no old values for released readers any more."""
        if self._held:
            self._held = [reader for reader in self._held if not reader.is_released]

    def _compact(self) -> None:
        self.store.compact()
        self.layout += 1
        self._index = self._slot_of = None
        self._held = []
        self._is_changed = self._is_changed[:0]

    # --- parts

    def _known(self) -> KeyIndex:
        if self._index is None:
            assert self._spec is not None, "a table without types can be stored and no more"
            self._make_index(self._spec)
            assert self._index is not None
        return self._index

    def _make_index(self, spec: ColumnSpec) -> None:
        """Makes the index of the live keys.

        Raises: StateMalformed: a key has two slots.
        """
        index, store, live = KeyIndex(spec.keys, self.live_count), self.store, self.live()
        if isinstance(store.keys, IntegerKeys):
            index.add(self.keys(live))
        else:
            for chunk in store.keys.rows.chunks:
                end = chunk.first + chunk.batch.num_rows
                rows = chunk.batch
                if store.is_removed is not None:
                    rows = rows.filter(pyarrow.array(~store.is_removed[chunk.first : end]))
                index.add(rows.columns)
        if len(index) != len(live):
            raise StateMalformed(f"{self.name}: {len(live)} slots have {len(index)} keys")
        self._index = index
        self._slot_of = None if len(live) == len(self) else live.astype(numpy.int32)

    def _append(self, columns: Sequence[Any], count: int) -> None:
        """Adds slots for new keys, with initial values."""
        store, first = self.store, self.store.count
        if isinstance(store.keys, IntegerKeys):
            store.keys.append(*_as_integers(columns[0]))
        else:
            names = [str(number) for number in range(len(columns))]
            store.keys.append(pyarrow.RecordBatch.from_arrays(columns, names=names))
        store.add(count)
        for name, array in store.columns.items():
            array[first : store.count] = self._initial[name]
        self._is_changed = grown(self._is_changed, first, store.count)
        self._is_changed[first : store.count] = True


def _columns_of(keys: Sequence[Any] | NDArray[numpy.int64]) -> Sequence[Any]:
    """Returns key columns as Arrow arrays without dictionaries."""
    if isinstance(keys, numpy.ndarray):
        return [pyarrow.array(keys)]
    return [column.dictionary_decode() if pyarrow.types.is_dictionary(column.type) else column for column in keys]


def _as_integers(column: Any) -> tuple[NDArray[numpy.int64], int]:
    """Returns the values of a column of integers or times as int64, and the index of the null, -1 without one."""
    width = column.type.bit_width // 8
    buffer = column.buffers()[1]
    if buffer is None:
        keys = numpy.zeros(len(column), numpy.int64)
    else:
        keys = numpy.frombuffer(buffer, f"i{width}", len(column), column.offset * width).astype(numpy.int64)
    if not column.null_count:
        return keys, NO_SLOT
    null = int(column.is_null().to_numpy(zero_copy_only=False).argmax())
    keys[null] = 0
    return keys, null
