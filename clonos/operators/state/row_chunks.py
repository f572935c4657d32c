"""Chunks of rows as Arrow batches: rows are numbered in the order of arrival and keep their numbers for ever."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy
import pyarrow

from clonos.kernels.partition import gather_parts
from clonos.kernels.record_batch import RecordBatch

if TYPE_CHECKING:
    from numpy.typing import NDArray

BYTES_PER_WEIGHT: Final = 64
WEIGHT_MAX: Final = 1 << 18
"""A chunk of 262,144 rows or 16 MiB is not merged any more."""

SPAN_MAX: Final = 8
"""Numbers for each that exists, up to which a chunk has a table of their places: 4 bytes each in place of a search."""


class RowChunk:
    """Rows with ascending numbers.

    ``numbers`` is None where they are ``first``, ``first + 1`` and so on; ``live`` is None where no row is removed. A
    reader in another thread shares everything; see ``view``.
    """

    __slots__ = ("first", "numbers", "batch", "live", "live_count", "size_bytes", "weight", "is_shared", "_place_of")

    def __init__(self, first: int, numbers: NDArray[numpy.int64] | None, batch: RecordBatch) -> None:
        self.first, self.numbers, self.batch = first, numbers, batch
        self.live: NDArray[numpy.bool_] | None = None
        self.live_count: int = batch.num_rows
        self.size_bytes: int = batch.nbytes
        self.weight: int = max(batch.num_rows, self.size_bytes // BYTES_PER_WEIGHT)
        self.is_shared = False
        """Whether a reader has ``live``, so that a removal copies it first."""
        self._place_of: NDArray[numpy.int32] | None = None  # by number - first, unless few of the numbers exist
        if numbers is not None and numbers[-1] - first < SPAN_MAX * len(numbers):
            self._place_of = numpy.full(int(numbers[-1]) - first + 1, -1, numpy.int32)
            self._place_of[numbers - first] = numpy.arange(len(numbers), dtype=numpy.int32)

    @property
    def level(self) -> int:
        """Returns the logarithm of the size to the base 8."""
        return (self.weight.bit_length() - 1) // 3

    def view(self) -> RowChunk:
        """Returns the chunk as it is now, for a reader in another thread; removals do not change it."""
        view = RowChunk.__new__(RowChunk)
        view.first, view.numbers, view.batch = self.first, self.numbers, self.batch
        view.size_bytes, view.weight, view._place_of = self.size_bytes, self.weight, self._place_of
        view.live, view.live_count, view.is_shared = self.live, self.live_count, True
        self.is_shared = True
        return view

    def places(self, numbers: NDArray[numpy.int64]) -> NDArray[Any]:
        """Returns where live rows with these numbers are.

        Raises: AssertionError: a row does not exist.
        """
        places: NDArray[Any] = numbers - self.first
        exist = bool(places.min() >= 0 and numbers.max() < self.end)
        if self.numbers is not None and exist:
            if self._place_of is not None:
                places = self._place_of[places]
                exist = bool((places >= 0).all())
            else:
                places = numpy.searchsorted(self.numbers, numbers)
                exist = bool((self.numbers[places] == numbers).all())
        if not exist or (self.live is not None and not self.live[places].all()):
            raise AssertionError("a row of a row store was removed, and its number is still in use")
        return places

    @property
    def end(self) -> int:
        """Returns the number after the last row's."""
        return self.first + self.batch.num_rows if self.numbers is None else int(self.numbers[-1]) + 1

    def at(self, places: NDArray[numpy.int64], width: int | None = None) -> Any:
        """Returns rows by their places; without a copy where they stand side by side. ``width``: see ``take_rows``."""
        count, batch = len(places), _first_columns(self.batch, width)
        if count and places[-1] - places[0] + 1 == count and bool((places[1:] > places[:-1]).all()):
            return batch.slice(int(places[0]), count)
        return batch.take(pyarrow.array(places))

    def take(self, numbers: NDArray[numpy.int64], width: int | None = None) -> Any:
        """Returns the rows with these numbers as a batch."""
        return self.at(self.places(numbers), width)

    def remove(self, numbers: NDArray[numpy.int64]) -> None:
        """Removes the rows with these ascending, distinct numbers."""
        places = self.places(numbers)
        if self.live is None:
            self.live = numpy.ones(self.batch.num_rows, numpy.bool_)
        elif self.is_shared:
            self.live = self.live.copy()
        self.is_shared = False
        self.live[places] = False
        self.live_count -= len(places)

    def live_from(self, first: int) -> tuple[NDArray[numpy.int64], NDArray[numpy.int64]]:
        """Returns the places and the numbers of the live rows from the number ``first`` on."""
        rows = self.batch.num_rows
        if self.numbers is None:
            start = min(max(first - self.first, 0), rows)
        else:
            start = int(numpy.searchsorted(self.numbers, first))
        places = numpy.arange(start, rows) if self.live is None else numpy.flatnonzero(self.live[start:]) + start
        return places, places + self.first if self.numbers is None else self.numbers[places]


def joined(batches: Sequence[Any]) -> Any:
    """Returns the rows of batches of one schema as one batch."""
    if len(batches) == 1:
        return batches[0]
    schema = batches[0].schema
    columns = [pyarrow.concat_arrays([batch.column(i) for batch in batches]) for i in range(len(schema))]
    return pyarrow.RecordBatch.from_arrays(columns, schema=schema)


def merged(chunks: Sequence[RowChunk]) -> RowChunk:
    """Returns a chunk of the live rows of adjacent chunks, of which there is one at least.

    It copies the rows of a chunk that has removed ones: a slice would keep those in memory.
    """
    batches = [chunk.batch for chunk in chunks if chunk.live_count]
    places, numbers = zip(*[chunk.live_from(0) for chunk in chunks if chunk.live_count], strict=True)
    sizes = list(map(len, numbers))
    if sizes == [batch.num_rows for batch in batches]:
        batch = joined(batches)
    else:
        batch = gather_parts(batches, numpy.repeat(numpy.arange(len(sizes)), sizes), numpy.concatenate(places))
    all_numbers = numpy.concatenate(numbers)
    first = int(all_numbers[0])
    is_dense = int(all_numbers[-1]) - first + 1 == len(all_numbers)
    return RowChunk(first, None if is_dense else all_numbers, batch)


def chunk_of_each(chunks: Sequence[RowChunk], numbers: NDArray[numpy.int64]) -> list[tuple[int, int, int]]:
    """Returns which chunks have rows with these ascending numbers: (index of the chunk, start, end in ``numbers``).

    Raises: AssertionError: a row does not exist.
    """
    return _stretches(_chunk_numbers(chunks, numbers))


def take_rows(chunks: Sequence[RowChunk], numbers: NDArray[numpy.int64], width: int | None = None) -> Any:
    """Returns the rows with these numbers, at least one, in this order; reads only the chunks that have them.

    ``width``: the number of the columns that are wanted, the first ones.
    """
    indexes = _chunk_numbers(chunks, numbers)
    if bool((indexes[1:] >= indexes[:-1]).all()):
        return joined([chunks[i].take(numbers[a:b], width) for i, a, b in _stretches(indexes)])
    order = numpy.argsort(indexes.astype(numpy.int16 if len(chunks) < 1 << 15 else numpy.int64), kind="stable")
    indexes, numbers = indexes[order], numbers[order]
    found = _stretches(indexes)
    parts, places = numpy.empty(len(order), numpy.int32), numpy.empty(len(order), numpy.int64)
    for part, (i, a, b) in enumerate(found):
        parts[order[a:b]], places[order[a:b]] = part, chunks[i].places(numbers[a:b])
    return gather_parts([_first_columns(chunks[i].batch, width) for i, _, _ in found], parts, places)


def _first_columns(batch: RecordBatch, width: int | None) -> Any:
    return batch if width is None else batch.select(range(width))


def _chunk_numbers(chunks: Sequence[RowChunk], numbers: NDArray[numpy.int64]) -> NDArray[numpy.int64]:
    """Returns the index of the chunk of each row.

    Raises: AssertionError: a row does not exist.
    """
    firsts = numpy.fromiter((chunk.first for chunk in chunks), numpy.int64, len(chunks))
    indexes = numpy.searchsorted(firsts, numbers, "right") - 1
    assert len(indexes) == 0 or indexes.min() >= 0, "a row of a row store was removed, and its number is still in use"
    return indexes


def _stretches(indexes: NDArray[numpy.int64]) -> list[tuple[int, int, int]]:
    """Returns the stretches of equal indexes, which ascend: (index, start, end)."""
    starts = [0, *(numpy.flatnonzero(numpy.diff(indexes)) + 1).tolist()]
    return [(int(indexes[a]), a, b) for a, b in zip(starts, [*starts[1:], len(indexes)], strict=True) if b > a]
