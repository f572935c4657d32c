"""A table in columns and a row store beside dicts that do the same, and the pieces of their snapshots."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, Final

import numpy
import pyarrow

from clonos.operators.state.column_slots import IntegerKeys, SlotColumns
from clonos.operators.state.column_spec import ColumnSizes
from clonos.operators.state.column_table import ColumnSpec, ColumnTable
from clonos.operators.state.frozen_entries import FrozenPieces
from clonos.operators.state.keyed_state import StateBackend, StateImage
from clonos.operators.state.row_store import RowStore

Key = tuple[Any, ...]
Contents = list[tuple[Any, ...]]

KEY_TYPES: Final[dict[str, tuple[Any, ...]]] = {
    "int": (pyarrow.int64(),),
    "date": (pyarrow.date32(),),
    "text": (pyarrow.string(),),
    "pair": (pyarrow.int32(), pyarrow.string()),
}

VALUES: Final[dict[str, Any]] = {
    "n": numpy.int64,
    "total": numpy.float64,
    "is_odd": numpy.bool_,
    "code": "V3",
    "last": (numpy.int64, 2),
    "row": numpy.int64,
    "best": numpy.int64,
}


def spec_of(kind: str) -> ColumnSpec:
    return ColumnSpec(KEY_TYPES[kind], VALUES, {"row": -1, "total": 0.5}, frozenset({"best"}))


def key_of(kind: str, number: int) -> Key:
    """Returns a key; number 0 is null, and the others are distinct."""
    if kind == "pair":
        return (number % 3 or None, f"k{number}" if number else None)
    return (None if number == 0 else f"k{number}" if kind == "text" else number - 5,)


def key_columns(kind: str, numbers: Sequence[int]) -> list[Any]:
    keys = [key_of(kind, number) for number in numbers]
    columns = []
    for index, each in enumerate(KEY_TYPES[kind]):
        values = [key[index] for key in keys]
        column = pyarrow.array(values, pyarrow.int32() if kind == "date" else each)
        columns.append(column.cast(each))
    return columns


SMALL: Final = ColumnSizes(section_bytes=200, compacted_min=3, merged_at_once=3, chunks_first=4)
"""Sizes at which few slots and rows have several sections, compactions and chunks."""


class Twin:
    """Dicts for a table and the rows of its keys: the values of each key in the order of arrival."""

    def __init__(self) -> None:
        self.keys: dict[int, list[Any]] = {}
        self.rows: dict[int, dict[str, Any]] = {}

    def update(self, numbers: Sequence[int], amount: int) -> None:
        for number in numbers:
            values = self.keys.setdefault(number, [0, 0.5, False, b"\0\0\0", (0, 0), None])
            values[0] += 1
            values[1] += amount
            values[2] = not values[2] if amount % 2 else values[2]
            values[3] = b"%03d" % amount
            values[4] = (amount, values[4][1] + amount)
            if amount > 3:
                values[5] = amount
            self.rows[number] = {"amount": amount, "text": f"{amount}/{number}" * amount, "items": [amount]}

    def remove(self, numbers: Sequence[int]) -> None:
        for number in numbers:
            self.keys.pop(number, None)
            self.rows.pop(number, None)

    def contents(self, kind: str) -> Contents:
        return [
            (key_of(kind, number), *values, tuple(self.rows[number].items())) for number, values in self.keys.items()
        ]


def update(kind: str, table: ColumnTable, store: RowStore, numbers: Sequence[int], amount: int) -> None:
    """Does what ``Twin.update`` does, in columns."""
    slots = table.slots(key_columns(kind, numbers))
    table.touch(slots)
    values = table.values
    numpy.add.at(values["n"], slots, 1)
    numpy.add.at(values["total"], slots, amount)
    if amount % 2:
        numpy.logical_xor.at(values["is_odd"], slots, True)
    values["code"][slots] = numpy.frombuffer(b"%03d" % amount, "V3")[0]
    values["last"][slots, 0] = amount
    numpy.add.at(values["last"][:, 1], slots, amount)
    if amount > 3:
        values["best"][slots] = amount
        table.valid["best"][slots] = True
    rows = [{"amount": amount, "text": f"{amount}/{number}" * amount, "items": [amount]} for number in numbers]
    store.replace(table, "row", slots, batch_of(rows))


ROWS: Final = pyarrow.schema(
    [
        pyarrow.field("amount", pyarrow.int64()),
        pyarrow.field("text", pyarrow.string()),
        pyarrow.field("items", pyarrow.list_(pyarrow.int64())),
    ]
)


def batch_of(rows: list[dict[str, Any]]) -> Any:
    return pyarrow.RecordBatch.from_pylist(rows, schema=ROWS)


def remove(kind: str, table: ColumnTable, store: RowStore, numbers: Sequence[int]) -> None:
    """Does what ``Twin.remove`` does, in columns."""
    slots = numpy.unique(table.find(key_columns(kind, numbers)))
    slots = slots[slots >= 0]
    store.discard(table, "row", slots)
    table.remove(slots)


def contents(columns: SlotColumns, store: RowStore | None, types: Sequence[Any]) -> Contents:
    """Returns the live keys with their values and rows in order."""
    live = columns.live()
    if len(live) == 0:
        return []
    if isinstance(columns.keys, IntegerKeys):
        plain = columns.keys.array[live].tolist()
        keys: list[Key] = [
            (None if columns.keys.null_slot == slot else key,) for slot, key in zip(live, plain, strict=True)
        ]
    else:
        lists = [_plain(column, kind) for column, kind in zip(columns.keys.take(live).columns, types, strict=True)]
        keys = list(zip(*lists, strict=True))
    arrays = {name: array[live] for name, array in columns.columns.items()}
    assert store is not None
    rows = [tuple(row.items()) for row in store.take(arrays["row"]).to_pylist()]
    best = [v if ok else None for v, ok in zip(arrays["best"].tolist(), arrays["best?"].tolist(), strict=True)]
    last = [tuple(each) for each in arrays["last"].tolist()]
    code = [each.tobytes() for each in arrays["code"]]
    values = zip(
        arrays["n"].tolist(), arrays["total"].tolist(), arrays["is_odd"].tolist(), code, last, best, rows, strict=True
    )
    return [(key, *each) for key, each in zip(keys, values, strict=True)]


def _plain(column: Any, kind: Any) -> list[Any]:
    found: list[Any] = column.cast(kind).to_pylist()
    return found


NAME, ROWS_NAME = "step/sums", "step/rows"


def image_of(pieces: Sequence[bytes] | FrozenPieces, base: StateImage | None = None) -> StateImage:
    image = base or StateImage()
    for piece in pieces:
        image.apply(piece)
    return image


def contents_of(image: StateImage, kind: str) -> Contents:
    found = image.columns.get(NAME)
    return [] if found is None else contents(found, image.stores.get(ROWS_NAME), KEY_TYPES[kind])


class ColumnHarness:
    """A backend, its twin, a standby's image, and what is read of the backend behind its back."""

    def __init__(
        self, kind: str, inline_bytes_max: int = 0, restored: StateImage | None = None, twin: Twin | None = None
    ) -> None:
        self.kind, self.inline_bytes_max = kind, inline_bytes_max
        self.twin = copy.deepcopy(twin) if twin is not None else Twin()
        self._open(restored)
        self.image = StateImage() if restored else image_of([self.backend.changes(True)])
        self.unread: list[tuple[bytes | None, FrozenPieces, Contents]] = []  # without changes: of the whole state
        self.reading: tuple[Iterator[bytes], list[bytes]] | None = None

    def _open(self, image: StateImage | None) -> None:
        self.backend = StateBackend(image, self.inline_bytes_max, SMALL)
        self.table = self.backend.column_table(NAME, spec_of(self.kind))
        self.store = self.backend.row_store(ROWS_NAME)

    def update(self, numbers: Sequence[int], amount: int) -> None:
        self.twin.update(numbers, amount)
        update(self.kind, self.table, self.store, numbers, amount)

    def remove(self, numbers: Sequence[int]) -> None:
        self.twin.remove(numbers)
        remove(self.kind, self.table, self.store, numbers)

    def expire(self, before: int) -> None:
        """Removes what was counted less than ``before`` times."""
        self.twin.remove([number for number, values in self.twin.keys.items() if values[0] < before])
        slots = self.table.expire("n", before)
        self.store.discard(self.table, "row", slots)

    def check(self) -> None:
        assert contents(self.table.store, self.store, KEY_TYPES[self.kind]) == self.twin.contents(self.kind)
        assert self.table.live_count == len(self.twin.keys) == len(self.store)

    def barrier(self) -> None:
        """The changes add up to what was there, whatever is done while they are read."""
        changes, more = self.backend.take(False)
        if more is not None:
            self.unread.append((changes, more, self.twin.contents(self.kind)))
        else:
            self.read_all()
            self.image.apply(changes)
            assert contents_of(self.image, self.kind) == self.twin.contents(self.kind)

    def whole(self) -> None:
        self.barrier()
        whole = self.backend.whole()
        if whole is not None:
            self.unread.append((None, whole, self.twin.contents(self.kind)))

    def read_one(self) -> None:
        """Reads one piece of what is unread, and the rest later."""
        if self.unread:
            if self.reading is None:
                self.reading = (iter(self.unread[0][1]), [])
            pieces, read = self.reading
            read += islice(pieces, 1)

    def read_all(self) -> None:
        """Reads all unread pieces, applies them and compares them with the twin at their barrier."""
        for changes, pieces, expected in self.unread:
            read = list(pieces)
            if self.reading is not None:
                rest, begun = self.reading
                assert [*begun, *rest] == read, "the pieces are the same each time"
                self.reading = None
            image = image_of(read) if changes is None else image_of([changes, *read], self.image)
            assert contents_of(image, self.kind) == expected
        for _, pieces, _ in self.unread:
            pieces.release()
        self.unread.clear()

    def restore(self) -> None:
        """Goes on from the standby's image; a new standby begins with a full snapshot."""
        self.barrier()
        self.read_all()
        self._open(self.image)
        self.image = image_of([self.backend.changes(True)])
