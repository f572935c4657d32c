"""Types of keys that are the same in columns as in rows, and stored keys of rows as columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow
from pyarrow import types

from clonos.operators.columnar.row_forms import FORM_KEY, form_of


def plain_type(type_: Any) -> Any:
    """Returns the type of the values of a column."""
    return type_.value_type if types.is_dictionary(type_) else type_


def plain_cells(cells: Any) -> Any:
    """Returns a column without a dictionary."""
    return cells.dictionary_decode() if types.is_dictionary(cells.type) else cells


def plain(schema: Any, names: Sequence[str]) -> Any:
    """Returns the names and types of some columns, and nothing else of their schema."""
    return pyarrow.schema([pyarrow.field(name, plain_type(schema.field(name).type)) for name in names])


def plain_records(schema: Any) -> Any:
    """Returns what state with whole records depends on: names and types of all columns, and the form of the rows."""
    form = form_of(schema)
    return plain(schema, schema.names).with_metadata({FORM_KEY: form} if form else None)


def are_keys(schema: Any, names: Sequence[str]) -> bool:
    """Returns whether columns exist whose values are equal as keys in columns exactly when they are in rows."""
    return all(schema.names.count(name) == 1 and _is_key(plain_type(schema.field(name).type)) for name in names)


def _is_key(type_: Any) -> bool:
    if types.is_timestamp(type_):
        return type_.tz is not None and type_.unit != "ns"  # Python has no nanoseconds
    is_text = types.is_string(type_) or types.is_large_string(type_)
    is_binary = types.is_binary(type_) or types.is_large_binary(type_)
    return bool(is_text or is_binary or types.is_integer(type_) or types.is_boolean(type_) or types.is_date32(type_))
