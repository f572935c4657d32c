"""Instants of 96 bits in Parquet, as Impala and Spark write them: read in microseconds, which hold all years.

A second reading in nanoseconds of 64 bits is right modulo 2**64, also beyond the years 1677 to 2262. So it says which
instants have nanoseconds, and their rows are errors.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy
import pyarrow
from pyarrow import types

from clonos.kernels.record_batch import RecordBatch

PHYSICAL_TYPE: Final = "INT96"
NANOSECONDS: Final = numpy.uint64(1_000)


def long_instants(metadata: Any) -> list[str]:
    """Returns the names of the columns of a file that are, or hold, instants of 96 bits."""
    columns = [metadata.schema.column(number) for number in range(metadata.num_columns)]
    names = [column.path.partition(".")[0] for column in columns if column.physical_type == PHYSICAL_TYPE]
    return list(dict.fromkeys(names))


class Nanoseconds:
    """Reading of such columns in nanoseconds, beside that in microseconds and as far as it."""

    def __init__(self, batches: Iterator[Any]) -> None:
        self._batches = batches
        self._rest: Any = None

    def problems(self, batch: RecordBatch) -> dict[int, str]:
        """Returns what is wrong with rows of the next batch that was read in microseconds."""
        exact = self._next(batch.num_rows)
        found: dict[int, str] = {}
        for name, column in zip(exact.schema.names, exact.columns, strict=True):
            for row in _differing(batch.column(name), column):
                text = _shown(batch.column(name).slice(row, 1), column.slice(row, 1))
                found.setdefault(
                    row, f"its {name}, {text}, has nanoseconds, which an instant of a record does not have"
                )
        return found

    def _next(self, count: int) -> Any:
        """Returns the next rows."""
        pieces, rows = ([] if self._rest is None else [self._rest]), 0 if self._rest is None else self._rest.num_rows
        while rows < count:
            pieces.append(next(self._batches))
            rows += pieces[-1].num_rows
        table = pyarrow.Table.from_batches(pieces).combine_chunks()
        taken = table.slice(0, count).combine_chunks().to_batches()[0]
        rest = table.slice(count).to_batches()
        self._rest = rest[0] if rest else None
        return taken


def _differing(column: Any, exact: Any) -> list[int]:
    """Returns the rows whose instants differ."""
    if types.is_timestamp(column.type):
        return numpy.flatnonzero(_rests(column, exact)).tolist()
    if not any(_rests(*leaves).any() for leaves in zip(_leaves(column), _leaves(exact), strict=True)):
        return []
    rows = range(len(column))
    return [row for row in rows if _shown(column.slice(row, 1), exact.slice(row, 1))]


def _shown(column: Any, exact: Any) -> str:
    """Returns the first instant that differs, as text; "" if none does."""
    for leaf, other in zip(_leaves(column), _leaves(exact), strict=True):
        rests = _rests(leaf, other)
        for row in numpy.flatnonzero(rests).tolist():
            return f"{leaf.slice(row, 1).cast(pyarrow.string())[0]}{int(rests[row]):03d}"
    return ""


def _rests(column: Any, exact: Any) -> Any:
    """Returns the nanoseconds of each instant beyond its microseconds."""
    microseconds, nanoseconds = (
        each.cast(pyarrow.int64()).fill_null(0).to_numpy(zero_copy_only=False).view(numpy.uint64)
        for each in (column, exact)
    )
    return nanoseconds - microseconds * NANOSECONDS


def _leaves(column: Any) -> Iterator[Any]:
    """Yields the arrays of instants that a column is, or holds."""
    kind = column.type
    if types.is_timestamp(kind):
        yield column
    elif types.is_struct(kind):
        for part in column.flatten():
            yield from _leaves(part)
    elif types.is_map(kind):
        whole = column.take(pyarrow.array(range(len(column)), pyarrow.int64()))
        yield from _leaves(whole.keys)
        yield from _leaves(whole.items)
    elif types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        yield from _leaves(column.flatten())
