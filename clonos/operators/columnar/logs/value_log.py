"""Log of values by slot: what aggregates over columns have as state that is more than a few numbers of each key.

The entries of all slots follow each other in the order of their arrival, so a batch is added at once. Entries of a slot
are gathered when its result is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy
import pyarrow

from clonos.operators.state.row_store import RowStore

if TYPE_CHECKING:
    from numpy.typing import NDArray

Places = Any
"""Numpy array of places."""

SLOT: Final = "slot"


class ValueLog:
    """Entries of slots: columns of any Arrow types. ``len`` counts the entries.

    ``least``: number of entries after the last compaction.
    """

    __slots__ = ("_first", "_sorted", "_store", "least")

    def __init__(self, store: RowStore | None = None) -> None:
        """Creates a log that is stored in ``store``; None for a log that is derived from others."""
        self._store = RowStore() if store is None else store
        self._first = self._store.next_number - len(self._store)
        self.least = len(self)
        self._sorted: tuple[Any, Places, NDArray[Any]] | None = None

    def __len__(self) -> int:
        return len(self._store)

    def append(self, slots: NDArray[Any], columns: Sequence[Any]) -> None:
        """Adds an entry for each slot."""
        if len(slots):
            names = [SLOT, *map(str, range(len(columns)))]
            self._store.append(
                pyarrow.RecordBatch.from_arrays([pyarrow.array(slots, pyarrow.int32()), *columns], names)
            )
            self._sorted = None

    def entries(self) -> tuple[NDArray[Any], list[Any]]:
        """Returns the slots of all entries, of which there is one at least, and their columns."""
        (slots, *columns) = self._rows().columns
        return slots.to_numpy(), columns

    def replace(self, slots: NDArray[Any], columns: Sequence[Any]) -> None:
        """Gives the log other entries."""
        before = self._numbers()
        self._first = self._store.next_number
        self.append(slots, columns)
        self._store.remove(before)
        self._sorted = None
        self.least = len(self)

    def of(self, slots: NDArray[Any]) -> tuple[list[Any], Places]:
        """Returns the entries of slots, in this order, by their arrival, and the place where those of each slot begin;
        the last place is after all of them. No slot is there twice."""
        assert len(self), "a log that is read has entries"
        if self._sorted is None:
            rows = self._rows()
            of_rows = rows.column(0).to_numpy()
            order = numpy.argsort(of_rows, kind="stable")
            self._sorted = rows, order, of_rows[order]
        rows, order, ordered = self._sorted
        begins, ends = (numpy.searchsorted(ordered, slots, side) for side in ("left", "right"))
        places = numpy.concatenate(([0], numpy.cumsum(ends - begins)))
        found = order[numpy.arange(places[-1]) + numpy.repeat(begins - places[:-1], ends - begins)]
        return [column.take(pyarrow.array(found)) for column in rows.columns[1:]], places

    def _numbers(self) -> Places:
        return numpy.arange(self._first, self._store.next_number)

    def _rows(self) -> Any:
        return self._store.take(self._numbers())


def first_of_pairs(slots: NDArray[Any], codes: NDArray[Any]) -> Places:
    """Returns the places of the first ones among equal pairs of a slot and a code from 0 on, in their order."""
    pairs = slots.astype(numpy.int64) * (int(codes.max(initial=0)) + 1) + codes
    places: Places = numpy.sort(numpy.unique(pairs, return_index=True)[1])
    return places


def slot_of_entries(places: Places) -> Places:
    """Returns for each entry that ``ValueLog.of`` returns the number of its slot in what was asked for."""
    return numpy.repeat(numpy.arange(len(places) - 1), numpy.diff(places))
