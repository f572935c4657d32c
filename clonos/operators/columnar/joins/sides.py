"""Sides of a join over columns: the columns of their batches, and keys that are equal where those of rows are.

Values of a key in rows are equal if their type and value are: all widths of integers are int, and all texts str. The
types here have that property when they are cast to one of each kind; of other types the join works on rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy
import pyarrow
from pyarrow import types

from clonos.kernels.record_batch import RecordBatch
from clonos.operators.columnar.row_forms import FORM_KEY, form_of
from clonos.operators.columnar.running.stored_keys import plain_cells, plain_type

NO_SLOT: Final = -1
"""In place of the slot of a key that matches nothing."""


def plain(batch: RecordBatch) -> Any:
    """Returns a batch without dictionary columns, and of its metadata only the form of its rows."""
    form = form_of(batch.schema)
    columns = list(map(plain_cells, batch.columns))
    fields = [pyarrow.field(name, column.type) for name, column in zip(batch.schema.names, columns, strict=True)]
    schema = pyarrow.schema(fields, {FORM_KEY: form} if form else None)
    return pyarrow.RecordBatch.from_arrays(columns, schema=schema)


def rows_reason(schemas: Sequence[Any], keys: Sequence[Sequence[str]]) -> str:
    """Returns why a join by these columns of both sides works on rows; "" if it does not."""
    for left, right in zip(*keys, strict=True):
        kinds = []
        for schema, name in zip(schemas, (left, right), strict=True):
            if schema.names.count(name) != 1:
                return f"there is no column {name!r}" if name not in schema.names else f"two columns are named {name!r}"
            if (kind := _kind_of(plain_type(schema.field(name).type))) is None:
                return f"a key of the type {schema.field(name).type} works on rows"
            kinds.append(kind)
        if kinds[0] != kinds[1]:
            return f"keys of the types {kinds[0]} and {kinds[1]} work on rows"
    return ""


def key_kinds(schema: Any, keys: Sequence[str]) -> tuple[Any, ...]:
    """Returns the types to which key columns are cast."""
    return tuple(_kind_of(schema.field(name).type) for name in keys)


def key_columns(batch: RecordBatch, keys: Sequence[str], kinds: Sequence[Any]) -> list[Any]:
    """Returns the key columns of a batch, cast to their kinds."""
    columns = [batch.column(name) for name in keys]
    return [column if column.type == kind else column.cast(kind) for column, kind in zip(columns, kinds, strict=True)]


def slots_of(find: Callable[[list[Any]], Any], columns: list[Any]) -> Any:
    """Returns the slot of each key by ``find``, ``NO_SLOT`` for a key with a null, which ``find`` does not get."""
    if not any(column.null_count for column in columns):
        return find(columns).astype(numpy.int64)
    has_null = numpy.zeros(len(columns[0]), numpy.bool_)
    for column in columns:
        has_null |= column.is_null().to_numpy(zero_copy_only=False)
    slots = numpy.full(len(has_null), NO_SLOT)
    if not has_null.all():
        known = pyarrow.array(~has_null)
        slots[~has_null] = find([column.filter(known) for column in columns])
    return slots


def widened(batch: RecordBatch, schemas: Sequence[Any]) -> Any | None:
    """Returns the rows of a side with the columns of both sides, null where the side has none; None if the columns have
    no common type, or the rows of a side are no dicts."""
    if any(map(form_of, schemas)):
        return None
    try:
        schema = pyarrow.unify_schemas([each.remove_metadata() for each in schemas], promote_options="permissive")
        columns = [
            batch.column(field.name).cast(field.type)
            if field.name in batch.schema.names
            else pyarrow.nulls(batch.num_rows, field.type)
            for field in schema
        ]
    except (pyarrow.ArrowInvalid, pyarrow.ArrowTypeError, pyarrow.ArrowNotImplementedError):
        return None
    return pyarrow.RecordBatch.from_arrays(columns, schema=schema)


def _kind_of(type_: Any) -> Any:
    if types.is_boolean(type_) or types.is_date32(type_):
        return type_
    if types.is_integer(type_) and not types.is_uint64(type_):
        return pyarrow.int64()
    if types.is_string(type_) or types.is_large_string(type_):
        return pyarrow.string()
    if types.is_binary(type_) or types.is_large_binary(type_):
        return pyarrow.binary()
    return None
