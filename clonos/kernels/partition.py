"""Partition of a batch of columns over receivers, and gathering of rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy
import pyarrow

from clonos.kernels import choice
from clonos.kernels.arrays import is_view, texts_of, without_views
from clonos.kernels.record_batch import RecordBatch

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

    from numpy.typing import NDArray


def partition(batch: RecordBatch, targets: NDArray[numpy.int32], width: int) -> list[Any]:
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


def gather(batch: RecordBatch, order: NDArray[numpy.int64]) -> Any:
    """Returns the rows of a RecordBatch whose numbers ``order`` has, in its order.

    Raises: IndexError, if a number is not that of a row.
    """
    native = choice.native
    order = numpy.ascontiguousarray(order, numpy.int64)
    columns = [_gathered(native, column, order) for column in batch.columns]
    return pyarrow.RecordBatch.from_arrays(columns, schema=batch.schema)


def gather_parts(batches: Sequence[Any], parts: NDArray[numpy.int32], places: NDArray[numpy.int64]) -> Any:
    """Returns the rows at ``places`` of RecordBatches of one schema; ``parts`` has the number of each row's batch.

    Raises: IndexError, if a place is not that of a row.
    """
    parts, places = numpy.ascontiguousarray(parts, numpy.int32), numpy.ascontiguousarray(places, numpy.int64)
    schema = batches[0].schema
    columns = [_of_parts([batch.column(i) for batch in batches], parts, places) for i in range(len(schema))]
    return pyarrow.RecordBatch.from_arrays(columns, schema=schema)


def _of_parts(columns: list[Any], parts: NDArray[numpy.int32], places: NDArray[numpy.int64]) -> Any:
    native, kind, types = choice.native, columns[0].type, pyarrow.types
    if is_view(kind):
        return _of_parts(list(map(without_views, columns)), parts, places).cast(kind)
    is_text = (
        types.is_string(kind) or types.is_binary(kind) or types.is_large_string(kind) or types.is_large_binary(kind)
    )
    size = 0 if is_text or types.is_boolean(kind) or not types.is_primitive(kind) else kind.bit_width // 8
    if native is None or not (is_text or size) or any(column.null_count for column in columns):
        return _of_parts_in_turn(columns, parts, places)
    if is_text:
        texts = [texts_of(column) for column in columns]
        pairs = tuple((each.offsets, each.data) for each in texts)
        buffers = native.gather_text_parts(pairs, texts[0].is_large, parts, places)
        return pyarrow.Array.from_buffers(kind, len(places), [None, *map(pyarrow.py_buffer, buffers)])
    rows = tuple(
        memoryview(column.buffers()[1] or b"")[column.offset * size : (column.offset + len(column)) * size]
        for column in columns
    )
    values = pyarrow.py_buffer(native.gather_parts(rows, size, parts, places))
    return pyarrow.Array.from_buffers(kind, len(places), [None, values])


def _of_parts_in_turn(columns: list[Any], parts: NDArray[numpy.int32], places: NDArray[numpy.int64]) -> Any:
    if len(parts) and not (parts.min() >= 0 and parts.max() < len(columns) and places.min() >= 0):
        raise IndexError(f"parts {parts.min()} to {parts.max()} were given, and 0 to {len(columns) - 1} exist")
    order = numpy.argsort(parts, kind="stable")
    ends = numpy.cumsum(numpy.bincount(parts, minlength=len(columns))).tolist()
    found = [
        column.take(pyarrow.array(places[order[begin:end]]))
        for column, begin, end in zip(columns, [0, *ends], ends, strict=False)
    ]
    back = numpy.empty(len(order), numpy.int64)
    back[order] = numpy.arange(len(order))
    return pyarrow.concat_arrays(found).take(pyarrow.array(back))


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
