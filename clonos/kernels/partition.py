"""Partition of a batch of columns over receivers, and gathering of rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy
import pyarrow

from clonos.kernels import choice
from clonos.kernels.arrays import is_view, texts_of, without_views

if TYPE_CHECKING:
    from types import ModuleType

    from numpy.typing import NDArray


def partition(batch: Any, targets: NDArray[numpy.int32], width: int) -> list[Any]:
    """Returns the rows for each of ``width`` receivers, in their order, as slices of one batch that is gathered once.

    Raises: IndexError, if a target is not within 0 and ``width``; ValueError, if there is not one target per row.
    """
    if len(targets) != batch.num_rows:
        raise ValueError(f"{len(targets)} receivers were given for {batch.num_rows} rows")
    order, ends = _order(numpy.ascontiguousarray(targets, numpy.int32), width)
    bounds = ends.tolist()
    begins = [0, *bounds[:-1]]
    is_for_one = any(end - begin == batch.num_rows for begin, end in zip(begins, bounds, strict=True))
    ordered = batch if is_for_one else gather(batch, order)
    return [ordered.slice(begin, end - begin) for begin, end in zip(begins, bounds, strict=True)]


def gather(batch: Any, order: NDArray[numpy.int64]) -> Any:
    """Returns the rows of a RecordBatch whose numbers ``order`` has, in its order.

    Raises: IndexError, if a number is not that of a row.
    """
    native = choice.native
    order = numpy.ascontiguousarray(order, numpy.int64)
    columns = [_gathered(native, column, order) for column in batch.columns]
    return pyarrow.RecordBatch.from_arrays(columns, schema=batch.schema)


def _order(targets: NDArray[numpy.int32], width: int) -> tuple[NDArray[numpy.int64], NDArray[numpy.int64]]:
    """Returns the rows in the order of their receivers, and where the rows of each receiver end."""
    if choice.native is not None:
        order, ends = numpy.empty(len(targets), numpy.int64), numpy.empty(width, numpy.int64)
        choice.native.partition_order(targets, width, order, ends)
        return order, ends
    if len(targets) and not (targets.min() >= 0 and targets.max() < width):
        raise IndexError(f"receivers {targets.min()} to {targets.max()} were given, and 0 to {width - 1} exist")
    narrow = targets.astype(numpy.int16) if width <= 1 << 15 else targets  # which numpy sorts in linear time
    return numpy.argsort(narrow, kind="stable"), numpy.cumsum(numpy.bincount(targets, minlength=width))


def _gathered(native: ModuleType | None, column: Any, order: NDArray[numpy.int64]) -> Any:
    kind, types = column.type, pyarrow.types
    if is_view(kind):  # Arrow cannot take rows of it
        return _gathered(native, without_views(column), order).cast(kind)
    if native is None:
        return column.take(pyarrow.array(order))
    if types.is_dictionary(kind):
        numbers = _gathered(native, column.indices, order)
        return pyarrow.DictionaryArray.from_arrays(numbers, column.dictionary, ordered=kind.ordered, safe=False)
    if types.is_boolean(kind):
        values = pyarrow.py_buffer(native.gather_bits(column.buffers()[1] or b"", column.offset, len(column), order))
        return pyarrow.Array.from_buffers(kind, len(order), [_validity(native, column, order), values])
    if types.is_primitive(kind) or types.is_decimal(kind) or types.is_fixed_size_binary(kind):
        size = kind.bit_width // 8
        if not size:
            return column.take(pyarrow.array(order))
        rows = memoryview(column.buffers()[1] or b"")[column.offset * size : (column.offset + len(column)) * size]
        values = pyarrow.py_buffer(native.gather(rows, size, order))
        return pyarrow.Array.from_buffers(kind, len(order), [_validity(native, column, order), values])
    if types.is_string(kind) or types.is_binary(kind) or types.is_large_string(kind) or types.is_large_binary(kind):
        texts = texts_of(column)
        offsets, data = native.gather_texts(texts.offsets, texts.data, texts.is_large, order)
        buffers = [_validity(native, column, order), pyarrow.py_buffer(offsets), pyarrow.py_buffer(data)]
        return pyarrow.Array.from_buffers(kind, len(order), buffers)
    return column.take(pyarrow.array(order))


def _validity(native: ModuleType, column: Any, order: NDArray[numpy.int64]) -> Any:
    if not column.null_count:
        return None
    return pyarrow.py_buffer(native.gather_bits(column.buffers()[0], column.offset, len(column), order))
