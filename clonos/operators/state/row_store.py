"""Rows with values of any Arrow type as state of a step: the last row of each key, candidates of a top k, join buffers.

A row has a number, which it keeps until it is removed; a column table holds the numbers of the rows of each key.
``take`` reads only the chunks that have the wanted rows. No result depends on how the rows are divided into chunks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy
import pyarrow

from clonos.core.model.errors import JobError
from clonos.kernels.record_batch import RecordBatch
from clonos.operators.state.column_spec import SIZES, ColumnSizes
from clonos.operators.state.row_chunks import SPAN_MAX, WEIGHT_MAX, RowChunk, chunk_of_each, merged, take_rows

if TYPE_CHECKING:
    from numpy.typing import NDArray

LIVE_SHARE_MIN: Final = 2
"""A chunk is written anew when less than one row of two is live."""


class RowsDiffer(JobError):
    """A batch has other columns than the rows that a step keeps."""

    store: str
    expected: str
    found: str

    def __str__(self) -> str:
        return (
            f"the rows that {self.store} keeps have the columns {self.expected}, and a batch came with {self.found}."
            " Give all batches the same columns and types, with select or cast in front of the step."
        )


class KeyedNumbers(Protocol):
    """Table whose columns have the numbers of rows by slot, as a ``ColumnTable`` is."""

    @property
    def values(self) -> Mapping[str, NDArray[Any]]: ...

    def touch(self, slots: NDArray[Any]) -> None: ...


class RowStore:
    """Rows as Arrow batches, by number.

    ``len`` is the number of rows. Dictionary columns are kept as their values.
    """

    __slots__ = ("name", "sizes", "chunks", "schema", "next_number", "stored", "removed", "_count", "_chunks_max")

    def __init__(self, name: str = "", sizes: ColumnSizes = SIZES) -> None:
        self.name, self.sizes = name, sizes
        self.chunks: tuple[RowChunk, ...] = ()  # replaced, never changed: readers in other threads have it
        self.schema: Any = None  # of the first batch
        self.next_number = 0
        self.stored = 0
        """Rows with numbers below were there at the last snapshot."""
        self.removed: list[NDArray[numpy.int64]] = []
        """Numbers of stored rows that were removed since, ascending in each array."""
        self._count = 0
        self._chunks_max = sizes.chunks_first

    def __len__(self) -> int:
        return self._count

    @property
    def is_stored(self) -> bool:
        """Whether no row has come or gone since the last snapshot."""
        return self.next_number == self.stored and not self.removed

    @property
    def size_bytes(self) -> int:
        """Memory of the rows, with removed ones that are not dropped yet."""
        return sum(chunk.size_bytes for chunk in self.chunks)

    def append(self, batch: RecordBatch) -> NDArray[numpy.int64]:
        """Adds the rows of a batch and returns their numbers, which ascend.

        Raises: RowsDiffer: the batch has other columns than those before.
        """
        rows = self._normal(batch)
        first = self.next_number
        self._add(RowChunk(first, None, rows), rows.num_rows)
        return numpy.arange(first, self.next_number)

    def take(self, numbers: NDArray[numpy.int64], width: int | None = None) -> Any:
        """Returns the rows with these numbers, in this order; a number may occur several times.

        ``width``: the number of the columns that are wanted, the first ones; None for all.

        Raises: AssertionError: a row was removed.
        """
        if len(numbers) == 0:
            assert self.schema is not None, "the columns of a row store are known when it has got a batch"
            empty = _empty(self.schema)
            return empty if width is None else empty.select(range(width))
        return take_rows(self.chunks, numbers, width)

    def remove(self, numbers: NDArray[numpy.int64]) -> None:
        """Removes the rows with these distinct numbers.

        Raises: AssertionError: a row was removed before.
        """
        if len(numbers) == 0:
            return
        numbers = _ascending(numbers)
        chunks: list[RowChunk | None] = list(self.chunks)
        for index, start, end in chunk_of_each(self.chunks, numbers):
            chunk = self.chunks[index]
            chunk.remove(numbers[start:end])
            if chunk.live_count * LIVE_SHARE_MIN < chunk.batch.num_rows:
                chunks[index] = merged([chunk]) if chunk.live_count else None
        self.chunks = tuple([chunk for chunk in chunks if chunk is not None])
        self._count -= len(numbers)
        if numbers[0] < self.stored:
            self.removed.append(numbers[: int(numpy.searchsorted(numbers, self.stored))])
        self._limit_chunks()

    def replace(self, table: KeyedNumbers, column: str, slots: NDArray[Any], batch: RecordBatch) -> None:
        """Keeps the last row of each slot in a batch, in place of the row that the slot has had.

        ``column`` of the table has the number of each slot's row; its initial value is -1.
        """
        batch = self._normal(batch)
        rows = numpy.arange(batch.num_rows)
        table.touch(slots)
        held = table.values[column]
        before = held[slots]
        held[slots] = rows  # where a slot occurs several times, its last row wins
        last = held[slots] == rows
        if last.all():
            winners = slots
        else:
            winners, before, batch = slots[last], before[last], batch.filter(pyarrow.array(last))
        held[winners] = self.append(batch)
        self.remove(before[before >= 0])

    def discard(self, table: KeyedNumbers, column: str, slots: NDArray[Any]) -> None:
        """Removes the rows of slots, which are about to be removed."""
        held = table.values[column][slots]
        self.remove(held[held >= 0])

    # --- chunks

    def add_rows(self, numbers: NDArray[numpy.int64], batch: RecordBatch) -> None:
        """Adds rows with the ascending numbers that they had when they were stored.

        Raises: RowsDiffer: the batch has other columns than those before.
        """
        is_dense = int(numbers[-1]) - int(numbers[0]) + 1 == len(numbers)
        rows = self._normal(batch)
        self._add(RowChunk(int(numbers[0]), None if is_dense else numbers, rows), len(numbers))

    def take_snapshot(self) -> None:
        """Notes that a snapshot has the rows as they are."""
        self.stored, self.removed = self.next_number, []

    def _add(self, chunk: RowChunk, count: int) -> None:
        if count:
            self.chunks = (*self.chunks, chunk)
            self.next_number = chunk.end
            self._count += count
            self._merge_last()
            self._limit_chunks()

    def _normal(self, batch: RecordBatch) -> Any:
        """Returns a batch with the schema of the store."""
        if any(pyarrow.types.is_dictionary(field.type) for field in batch.schema):
            columns = [
                column.dictionary_decode() if pyarrow.types.is_dictionary(column.type) else column
                for column in batch.columns
            ]
            batch = pyarrow.RecordBatch.from_arrays(columns, names=batch.schema.names)
        if self.schema is None:
            self.schema = pyarrow.schema([pyarrow.field(field.name, field.type) for field in batch.schema])
        if not batch.schema.equals(self.schema):
            raise RowsDiffer(self.name, _named(self.schema), _named(batch.schema))
        return pyarrow.RecordBatch.from_arrays(batch.columns, schema=self.schema)

    def _merge_last(self) -> None:
        """Merges the last chunks when enough are of about the same size: a row is copied once for each level."""
        chunks = self.chunks
        start = len(chunks) - self.sizes.merged_at_once
        if start < 0:
            return
        level = max(chunk.level for chunk in chunks[start:])
        if max(chunk.weight for chunk in chunks[start:]) >= WEIGHT_MAX:
            return
        while start and chunks[start - 1].level <= level:
            start -= 1
        self.chunks = (*chunks[:start], merged(chunks[start:]))

    def _limit_chunks(self) -> None:
        """Merges small neighbours, which removals leave, when the number of chunks has doubled since the last time."""
        if len(self.chunks) <= self._chunks_max:
            return
        groups: list[list[RowChunk]] = []
        weight = WEIGHT_MAX
        for chunk in self.chunks:
            weight += chunk.weight
            if weight > WEIGHT_MAX:
                groups.append([])
                weight = chunk.weight
            groups[-1].append(chunk)
        self.chunks = tuple([merged(group) if len(group) > 1 else group[0] for group in groups])
        self._chunks_max = max(self.sizes.chunks_first, 2 * len(self.chunks))


def _ascending(numbers: NDArray[numpy.int64]) -> NDArray[numpy.int64]:
    """Returns distinct numbers, at least one, in their order; near each other they are marked in place of sorted.

    Raises: AssertionError: a number occurs twice.
    """
    first, last = int(numbers.min()), int(numbers.max())
    if last - first >= SPAN_MAX * len(numbers):
        found = numpy.sort(numbers)
        assert bool((found[1:] > found[:-1]).all()), "a row is removed once"
        return found
    is_there = numpy.zeros(last - first + 1, numpy.bool_)
    is_there[numbers - first] = True
    found = numpy.flatnonzero(is_there)
    assert len(found) == len(numbers), "a row is removed once"
    return found + first


def _empty(schema: Any) -> Any:
    return pyarrow.RecordBatch.from_arrays([pyarrow.array([], field.type) for field in schema], schema=schema)


def _named(schema: Any) -> str:
    return ", ".join(f"{field.name}: {field.type}" for field in schema)
