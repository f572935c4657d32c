"""Rows of a record batch by the folder that they belong to, without a Python object per row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy
import pyarrow
import pyarrow.compute

from clonos.connectors.connector_errors import row_not_writable
from clonos.connectors.partitions.folder_names import folder_of
from clonos.core.values.column_rows import values_of_column
from clonos.kernels.record_batch import RecordBatch
from clonos.operators.columnar.python_rows import record_at


def groups_of(batch: RecordBatch, columns: Sequence[str], connector: str) -> Iterator[tuple[str, Any, Any]]:
    """Yields each folder with the places of its rows, and the rows, in their order and without the columns of the
    partition.

    Raises: RowNotWritable: a column is missing, has values that cannot name a folder, or is the only one.
    """
    names = batch.schema.names
    if missing := [column for column in columns if column not in names]:
        reason = f"it has no {missing[0]}, which partition_by= names; it has {', '.join(names)}"
        raise row_not_writable(connector, 0, record_at(batch, 0), reason)
    rest = batch.select([name for name in names if name not in columns])
    if not rest.schema.names:
        reason = "all its fields are in partition_by=, so that none is left for the file"
        raise row_not_writable(connector, 0, record_at(batch, 0), reason)
    combined, values = numpy.zeros(batch.num_rows, numpy.int64), [tuple[Any, ...]()]
    for column in columns:
        codes, some = _codes(batch, column, connector)
        used, combined = numpy.unique(combined * len(some) + codes, return_inverse=True)
        values = [(*values[code // len(some)], some[code % len(some)]) for code in used.tolist()]
    folders = [folder_of(columns, each, connector, 0, dict(zip(columns, each, strict=True))) for each in values]
    numbers: dict[str, int] = {}
    group = numpy.array([numbers.setdefault(folder, len(numbers)) for folder in folders])[combined]
    if len(numbers) == 1:
        yield folders[0], numpy.arange(batch.num_rows), rest
        return
    places = numpy.argsort(group, kind="stable")
    ordered = rest.take(pyarrow.array(places))
    ends = numpy.cumsum(numpy.bincount(group, minlength=len(numbers)))
    for folder, number in numbers.items():
        begin = int(ends[number - 1]) if number else 0
        end = int(ends[number])
        yield folder, places[begin:end], ordered.slice(begin, end - begin)


def _codes(batch: RecordBatch, column: str, connector: str) -> tuple[Any, list[Any]]:
    """Returns a number for each row, and the value of each number."""
    array = batch.column(column)
    try:
        if pyarrow.types.is_dictionary(array.type):
            array = array.dictionary_decode()
        encoded = array.dictionary_encode(null_encoding="encode")
    except pyarrow.ArrowException:
        reason = f"its {column} is a {array.type}, which cannot name a folder; partition by a text"
        raise row_not_writable(connector, 0, record_at(batch, 0), reason) from None
    return encoded.indices.to_numpy(zero_copy_only=False), values_of_column(encoded.dictionary)
