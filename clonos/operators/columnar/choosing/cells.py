"""Types and cells of the columns by which records are chosen. Only code for columns imports this module."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy
import pyarrow
from pyarrow import types

if TYPE_CHECKING:
    from numpy.typing import NDArray


def plain_type(type_: Any) -> Any:
    """Returns the type of the values of a column."""
    return type_.value_type if types.is_dictionary(type_) else type_


def plain_schema(schema: Any, names: tuple[str, ...] | None = None) -> Any:
    """Returns the names and types of columns, of all without ``names``, and nothing else of their schema."""
    return pyarrow.schema(
        [
            pyarrow.field(name, plain_type(schema.field(name).type))
            for name in (schema.names if names is None else names)
        ]
    )


def are_keys(schema: Any, names: tuple[str, ...]) -> bool:
    """Returns whether columns exist whose values are equal as keys in columns exactly when they are in rows."""
    return all(schema.names.count(name) == 1 and _is_key(plain_type(schema.field(name).type)) for name in names)


def _is_key(type_: Any) -> bool:
    if types.is_timestamp(type_):
        return type_.tz is not None and type_.unit != "ns"  # Python has no nanoseconds
    is_text = types.is_string(type_) or types.is_large_string(type_)
    is_binary = types.is_binary(type_) or types.is_large_binary(type_)
    return bool(is_text or is_binary or types.is_integer(type_) or types.is_boolean(type_) or types.is_date32(type_))


def rank_storage(type_: Any) -> Any:
    """Returns the numpy type of ranks from a column of this type; None if they are not numbers of 64 bits."""
    if types.is_float32(type_) or types.is_float64(type_):
        return numpy.float64
    if types.is_timestamp(type_):
        return numpy.int64 if type_.unit != "ns" else None
    is_int = types.is_integer(type_) and not types.is_uint64(type_)
    return numpy.int64 if is_int or types.is_boolean(type_) or types.is_date32(type_) else None


def ranks_of(cells: Any) -> tuple[NDArray[Any], NDArray[numpy.bool_] | None]:
    """Returns the ranks in a column, and where there are ranks: neither nulls nor nan; None for everywhere."""
    if types.is_dictionary(cells.type):
        cells = cells.dictionary_decode()
    storage = rank_storage(cells.type)
    has_rank = cells.is_valid().to_numpy(zero_copy_only=False) if cells.null_count else None
    if types.is_boolean(cells.type):
        cells = cells.cast(pyarrow.uint8())
    elif types.is_timestamp(cells.type):
        cells = cells.view(pyarrow.int64())
    elif types.is_date32(cells.type):
        cells = cells.view(pyarrow.int32())
    if cells.null_count:
        cells = cells.fill_null(0)
    ranks = cells.to_numpy().astype(storage, copy=False)
    if storage is numpy.float64:
        is_number = ~numpy.isnan(ranks)
        if not is_number.all():
            has_rank = is_number if has_rank is None else has_rank & is_number
    return ranks, has_rank


def user_keys(columns: list[Any]) -> list[Any]:
    """Returns the keys of rows as Python has them: the values of one column, or tuples of several."""
    keys: list[Any] = columns[0].to_pylist()
    return keys if len(columns) == 1 else list(zip(keys, *(each.to_pylist() for each in columns[1:]), strict=True))
