"""Rows as named fields, for outputs with columns: CSV, Parquet and tables.

A dict, NamedTuple, dataclass or msgspec.Struct has names of its own. A tuple or list is matched by position with the
columns given to the sink. Any other row is the only field, in the column ``value``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

import msgspec

from clonos.connectors.connector_errors import row_not_writable

SOLE_COLUMN = "value"


def columns_of(row: Any, output: str) -> tuple[str, ...]:
    """Returns the field names of a row.

    Raises: RowNotWritable: it has none, or keys that are not str.
    """
    names = _names_of(row)
    if names is None:
        if isinstance(row, tuple | list):
            raise row_not_writable(
                output, 0, row, "its fields have no names; give the sink columns= (schema= for Parquet)"
            )
        return (SOLE_COLUMN,)
    if not names or not all(isinstance(name, str) for name in names):
        raise row_not_writable(output, 0, row, "its keys are not column names; give it str keys")
    return names


def fields_of(row: Any, columns: tuple[str, ...], output: str, index: int = 0) -> tuple[Any, ...]:
    """Returns the field of each column; None for a column that a row with names does not have.

    Raises: RowNotWritable: a field has no column, or the number of unnamed fields is not that of the columns.
    """
    names = _names_of(row)
    if names is None:
        unnamed = tuple(row) if isinstance(row, tuple | list) else (row,)
        if len(unnamed) != len(columns):
            raise row_not_writable(
                output, index, row, f"it has {len(unnamed)} fields for the {len(columns)} columns {', '.join(columns)}"
            )
        return unnamed
    fields = row.values() if isinstance(row, dict) else _fields_by_name(row, names)
    if names == columns:
        return tuple(fields)
    if surplus := [str(name) for name in names if name not in columns]:
        raise row_not_writable(
            output,
            index,
            row,
            f"there is no column for its {', '.join(surplus)}; the columns are {', '.join(columns)}:"
            " name all in columns=, or drop fields with a map before the sink",
        )
    by_name = dict(zip(names, fields, strict=True))
    return tuple([by_name.get(column) for column in columns])


def _fields_by_name(row: Any, names: tuple[str, ...]) -> Iterable[Any]:
    return row if isinstance(row, tuple) else [getattr(row, name) for name in names]


def _names_of(row: Any) -> tuple[Any, ...] | None:
    if isinstance(row, dict):
        return tuple(row)
    cls = type(row)
    if isinstance(row, tuple):
        return getattr(cls, "_fields", None)
    if isinstance(row, msgspec.Struct):
        return cls.__struct_fields__  # type: ignore[no-any-return]
    if dataclasses.is_dataclass(cls):
        return tuple([field.name for field in dataclasses.fields(cls)])
    return None
