"""Changes of columnar state as sections of pieces: reading them from tables and stores, and applying them to images.

A section names slots and rows by number. It says how many there are before and after it, so that a section which does
not follow on the state of an image is refused. Values are arrays as they are in memory, keys of other types than
integers and rows are Arrow IPC streams. Equal calls give equal bytes in every process.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec
import numpy

from clonos.core.values.columns import decode_columns, encode_columns
from clonos.core.values.value_errors import ValueMalformed
from clonos.kernels.record_batch import RecordBatch
from clonos.operators.state.column_slots import NO_SLOT, IntegerKeys, SlotColumns
from clonos.operators.state.column_spec import SIZES, ColumnSizes, TableSchema, bytes_of, narrowed, widened
from clonos.operators.state.row_store import RowsDiffer, RowStore
from clonos.operators.state.state_errors import StateMalformed

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Log = list[tuple[NDArray[Any], list[NDArray[Any]]]]

SLOTS_MAX: Final = (1 << 31) - 1
ROWS_MAX: Final = 1 << 62
RESERVED_MAX: Final = 64
"""Room that an image makes for announced slots, as a multiple of those that have come: the number may be damaged."""
NO_ROWS: Final = numpy.empty(0, numpy.int64)

Part = Literal["add", "set", "remove", "compact", "rows", "remove rows"]


class ColumnSection(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One change of a table in columns or of a row store.

    ``first`` and ``end`` are the number of slots before and after it, or the next number of a row. ``null`` is the
    index of the null key among added ones. ``total``: the number of slots after all sections of a reader.
    """

    name: str
    part: Part
    first: int
    end: int
    data: tuple[memoryview, ...] = ()
    schema: TableSchema | None = None
    null: int = NO_SLOT
    total: int = 0

    @property
    def size_bytes(self) -> int:
        """Returns the number of bytes of the values."""
        return sum(len(data) for data in self.data)


class TableReader:
    """Reader of a table as it was when the reader was created; any thread may iterate, repeatedly."""

    def __init__(self, name: str, store: SlotColumns, layout: int, sizes: ColumnSizes = SIZES) -> None:
        self.layout, self._section_bytes = layout, sizes.section_bytes
        self.log: Log = []
        """Old values of slots that have changed since, appended by the task before they change."""
        self.is_released = False
        self.marks: NDArray[Any] | None = None
        self.name, self._schema = name, store.schema
        self._columns, self._keys = list(store.columns.values()), store.keys.view()
        self._store, self._count, self._live_count = store, store.count, store.count - store.removed_count
        self._removed = tuple(store.removed)
        self._touched: list[NDArray[Any]] = []
        self._first = 0
        self._added: NDArray[Any] | None = None  # slots that are added; None: all from ``first`` on
        self._compacts = False
        is_integer = isinstance(store.keys, IntegerKeys)
        key_bytes = 8 if is_integer else max(8, store.keys.size_bytes // max(1, store.count))
        self._row_bytes: int = key_bytes + sum(array.itemsize * prod(array.shape[1:]) for array in self._columns)

    def release(self) -> None:
        """Ends the reading; any thread may call this."""
        self.is_released = True

    def reads_all(self) -> None:
        """Reads all slots."""

    def reads_changes(self, stored: int, touched: list[NDArray[Any]], removed_stored: int, compacts: bool) -> None:
        """Reads what changed since there were ``stored`` slots and ``removed_stored`` lists of removed ones.

        ``compacts``: slots that were added and removed since are left out, and then the others that are removed.
        """
        self._first, self._touched, self._compacts = stored, touched, compacts
        self._removed = self._removed[removed_stored:]
        if compacts:
            live = self._store.live()
            self._added = live[int(numpy.searchsorted(live, stored)) :]

    @property
    def size_bytes(self) -> int:
        """Returns about how many bytes it reads."""
        added = self._count - self._first if self._added is None else len(self._added)
        slots = added + sum(map(len, self._touched))
        return slots * self._row_bytes + 8 * sum(map(len, self._removed))

    def __iter__(self) -> Iterator[ColumnSection]:
        old = _OldValues(self._columns, self._count, self.log)
        rows = max(1, self._section_bytes // self._row_bytes)
        first = self._first
        removed = numpy.sort(numpy.concatenate(self._removed)) if self._removed else NO_ROWS
        if self._compacts:
            removed = removed[removed < first]
        if self._touched:
            touched = numpy.setdiff1d(numpy.concatenate(self._touched), removed)
            for start in range(0, len(touched), rows):
                slots = touched[start : start + rows].astype(numpy.int32, copy=False)
                yield self._section("set", first, first, (slots, *old.values(slots)))
        added = self._count - first if self._added is None else len(self._added)
        for start in range(0, added, rows):
            end = min(start + rows, added)
            yield self._adding(first + start, first + end, old, removed)
        end = first + added
        for start in range(0, len(removed), self._section_bytes // 4):
            slots = removed[start : start + self._section_bytes // 4].astype(numpy.int32)
            yield self._section("remove", end, end, (slots,))
        if self._compacts:
            yield self._section("compact", end, self._live_count, ())

    def _adding(self, first: int, end: int, old: _OldValues, removed: NDArray[Any]) -> ColumnSection:
        null = NO_SLOT
        keys: NDArray[Any]
        if self._added is None:
            values = old.part(first, end)
            gone = removed[slice(*numpy.searchsorted(removed, (first, end)))] - first
            for value in values:
                value[gone] = numpy.zeros((), value.dtype)
            if isinstance(self._keys, IntegerKeys):
                keys, null = self._keys.array[first:end], self._keys.null_slot - first
            else:
                keys = _arrow_bytes(self._keys.part(first, end))
        else:
            slots = self._added[first - self._first : end - self._first]
            values = old.values(slots)
            if isinstance(self._keys, IntegerKeys):
                chosen = self._keys.only(slots)
                keys, null = chosen.array, chosen.null_slot
            else:
                keys = _arrow_bytes(self._keys.take(slots))
        null = null if 0 <= null < end - first else NO_SLOT
        total = self._count if self._added is None else self._first + len(self._added)
        return self._section("add", first, end, (keys, *values), null, total)

    def _section(
        self, part: Part, first: int, end: int, arrays: tuple[NDArray[Any], ...], null: int = NO_SLOT, total: int = 0
    ) -> ColumnSection:
        slots = () if part == "add" else arrays[:1]  # their number follows from their length
        data = (*[bytes_of(array).data for array in slots], *[narrowed(array).data for array in arrays[len(slots) :]])
        return ColumnSection(self.name, part, first, end, data, self._schema, null, total)


class _OldValues:
    """Values of columns as they were before the changes in a log; read in the order of slots."""

    def __init__(self, columns: list[NDArray[Any]], count: int, log: Log) -> None:
        self._columns, self._count, self._log, self._next = columns, count, log, 0
        self._has: NDArray[numpy.bool_] | None = None  # by slot: whether ``_old`` has its values
        self._old: list[NDArray[Any]] = []
        self._passed = 0  # slots below were read, and need no old values

    def part(self, first: int, end: int) -> list[NDArray[Any]]:
        """Returns the values of adjacent slots."""
        copies = [array[first:end].copy() for array in self._columns]
        self._read_log()
        if self._has is not None:
            places = numpy.flatnonzero(self._has[first:end])
            for copy, old in zip(copies, self._old, strict=True):
                copy[places] = old[first:end][places]
        self._passed = end
        return copies

    def values(self, slots: NDArray[Any]) -> list[NDArray[Any]]:
        """Returns the values of slots."""
        copies = [array[slots] for array in self._columns]
        self._read_log()
        if self._has is not None:
            places = numpy.flatnonzero(self._has[slots])
            for copy, old in zip(copies, self._old, strict=True):
                copy[places] = old[slots[places]]
        self._passed = int(slots[-1]) + 1
        return copies

    def _read_log(self) -> None:
        """Reads what came to the log since the last time; follows the copy of values. A slot's first record counts."""
        end = len(self._log)
        if self._next == end:
            return
        if self._has is None:
            self._has = numpy.zeros(self._count, numpy.bool_)
            self._old = [numpy.empty((self._count, *array.shape[1:]), array.dtype) for array in self._columns]
        for slots, values in self._log[self._next : end]:
            is_first = (slots >= self._passed) & (slots < self._count)
            is_first[is_first] = ~self._has[slots[is_first]]
            slots = slots[is_first]
            for old, value in zip(self._old, values, strict=True):
                old[slots] = value[is_first]
            self._has[slots] = True
        self._next = end


class RowReader:
    """Reader of the rows that a store has got and lost, as it was when the reader was created."""

    def __init__(self, store: RowStore, full: bool) -> None:
        self.name, self._next, self._section_bytes = store.name, store.next_number, store.sizes.section_bytes
        self._first = 0 if full else store.stored
        self._removed = [] if full else store.removed
        self._chunks = [chunk.view() for chunk in store.chunks if chunk.end > self._first]

    def release(self) -> None:
        """Ends the reading; the chunks are shared until rows of them are removed."""

    @property
    def size_bytes(self) -> int:
        """Returns about how many bytes it reads."""
        size_bytes = 8 * sum(map(len, self._removed))
        for chunk in self._chunks:
            share = (chunk.end - max(chunk.first, self._first)) / (chunk.end - chunk.first)
            size_bytes += int(chunk.size_bytes * share)
        return size_bytes

    def __iter__(self) -> Iterator[ColumnSection]:
        first, name = self._first, self.name
        removed = numpy.sort(numpy.concatenate(self._removed)) if self._removed else NO_ROWS
        for start in range(0, len(removed), self._section_bytes // 8):
            numbers = removed[start : start + self._section_bytes // 8]
            yield ColumnSection(name, "remove rows", first, first, (bytes_of(numbers).data,))
        for chunk in self._chunks:
            places, numbers = chunk.live_from(self._first)
            rows = max(1, self._section_bytes * chunk.batch.num_rows // max(1, chunk.size_bytes))
            for start in range(0, len(places), rows):
                batch = chunk.at(places[start : start + rows])
                theirs = numpy.ascontiguousarray(numbers[start : start + rows])
                end = int(theirs[-1]) + 1
                yield ColumnSection(name, "rows", first, end, (bytes_of(theirs).data, _arrow_bytes(batch).data))
                first = end
        if first != self._next:
            yield ColumnSection(name, "rows", first, self._next)


def _arrow_bytes(batch: RecordBatch) -> NDArray[numpy.uint8]:
    return numpy.frombuffer(encode_columns(batch), numpy.uint8)


# ------------------------------------------------------------------ images


def apply_to_table(found: SlotColumns | None, section: ColumnSection) -> SlotColumns:
    """Applies a section to a table of an image and returns it; None: there is none yet.

    Raises: StateMalformed: the section is damaged, or does not follow on the table.
    """
    if section.schema is None:
        raise StateMalformed(f"{section.name}: the columns have no types")
    try:
        store = SlotColumns(section.schema) if found is None else found
        _require(section.schema == store.schema, "the columns have other types than before")
        _require(section.first == store.count, f"{store.count} slots in place of {section.first}")
        if section.part == "add":
            _add(store, section)
        elif section.part == "compact":
            _require(section.end == store.count - store.removed_count, "another number of slots is removed")
            store.compact()
        else:
            _change(store, section)
    except (ValueError, ValueMalformed, RowsDiffer) as error:
        raise StateMalformed(f"{section.name}: {error}") from error
    return store


def _add(store: SlotColumns, section: ColumnSection) -> None:
    count = section.end - section.first
    _require(count > 0 and section.end <= SLOTS_MAX, f"{count} slots are added")
    _require(len(section.data) == 1 + len(store.columns), f"{len(section.data)} arrays")
    _require(NO_SLOT <= section.null < count, "the null key is outside")
    values = _values(store, section.data[1:], count)
    store.reserve(min(section.total, RESERVED_MAX * section.end))
    if isinstance(store.keys, IntegerKeys):
        store.keys.append(_array(section.data[0], numpy.dtype(numpy.int64), count), section.null)
    else:
        keys = decode_columns(section.data[0])
        _require(keys.num_rows == count, f"{keys.num_rows} keys of {count} slots")
        _require(tuple(str(field.type) for field in keys.schema) == store.schema.keys, "keys of other types")
        store.keys.append(keys)
    store.add(count)
    for name, value in values.items():
        store.columns[name][section.first : section.end] = value


def _change(store: SlotColumns, section: ColumnSection) -> None:
    """Sets or removes slots."""
    _require(section.end == section.first and len(section.data) > 0, "the number of slots changes")
    slots = _array(section.data[0], numpy.dtype(numpy.int32), len(section.data[0]) // 4)
    _require(len(slots) > 0 and slots[0] >= 0 and slots[-1] < store.count, "a slot is outside")
    _require(bool((slots[1:] > slots[:-1]).all()), "the slots are not in order")
    if section.part == "set":
        _require(len(section.data) == 1 + len(store.columns), f"{len(section.data)} arrays")
        for name, value in _values(store, section.data[1:], len(slots)).items():
            store.columns[name][slots] = value
    else:
        _require(section.part == "remove" and len(section.data) == 1, "the change is unknown")
        is_removed = store.is_removed
        _require(is_removed is None or not is_removed[slots].any(), "a slot is removed twice")
        store.remove(slots.astype(numpy.int64))


def apply_to_rows(found: RowStore | None, section: ColumnSection) -> RowStore:
    """Applies a section to the rows of an image and returns them; None: there are none yet.

    Raises: StateMalformed: the section is damaged, or does not follow on the rows.
    """
    store = RowStore(section.name) if found is None else found
    try:
        _require(section.first == store.next_number, f"row {store.next_number} in place of {section.first}")
        numbers = (
            _array(section.data[0], numpy.dtype(numpy.int64), len(section.data[0]) // 8) if section.data else NO_ROWS
        )
        _require(bool((numbers[1:] > numbers[:-1]).all()), "the rows are not in order")
        if section.part == "remove rows":
            _require(section.end == section.first and len(section.data) == 1, "the number of rows changes")
            store.remove(numbers)
            return store
        _require(section.part == "rows" and len(section.data) in (0, 2), "the change is unknown")
        _require(section.first < section.end <= ROWS_MAX, "no rows are added, or too many")
        if section.data:
            _require(len(numbers) > 0 and section.first <= numbers[0] and numbers[-1] < section.end, "a row is outside")
            batch = decode_columns(section.data[1])
            _require(batch.num_rows == len(numbers), f"{batch.num_rows} rows with {len(numbers)} numbers")
            store.add_rows(numbers, batch)
        store.next_number = section.end
    except (ValueError, ValueMalformed, RowsDiffer, AssertionError) as error:
        raise StateMalformed(f"{section.name}: {error}") from error
    return store


def _values(store: SlotColumns, data: tuple[memoryview, ...], count: int) -> dict[str, NDArray[Any]]:
    values = {}
    for (name, array), each in zip(store.columns.items(), data, strict=True):
        values[name] = _array(each, array.dtype, count * prod(array.shape[1:])).reshape(count, *array.shape[1:])
        if array.dtype == numpy.bool_:
            _require(bool((values[name].view(numpy.uint8) <= 1).all()), "a truth value is neither 0 nor 1")
    return values


def _array(data: memoryview, dtype: numpy.dtype[Any], count: int) -> NDArray[Any]:
    """Returns a copy of values, aligned, because Arrow and numpy read whole words."""
    if (values := widened(data, dtype, count)) is not None:
        return values
    _require(len(data) == count * dtype.itemsize, f"{len(data)} bytes of {count} values")
    return numpy.frombuffer(data, numpy.uint8).copy().view(dtype) if count else numpy.empty(0, dtype)


def _require(holds: bool, reason: str) -> None:
    if not holds:
        raise ValueError(reason)
