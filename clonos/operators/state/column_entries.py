"""Entries of tables in columns, and rows of row stores, as Python values: for what shows or exports state."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy
import pyarrow

from clonos.core.values.column_rows import rows_of_columns, values_of_column
from clonos.operators.state.column_slots import IntegerKeys, SlotColumns
from clonos.operators.state.column_spec import VALID_SUFFIX
from clonos.operators.state.row_store import RowStore


def entries_of(table: SlotColumns) -> Iterator[tuple[Any, dict[str, Any]]]:
    """Yields the keys of a table, each a value or a list of those of several columns, with their values by column."""
    live = table.live()
    columns = {name: _plain(array[live]) for name, array in table.columns.items()}
    masks = {
        name.removesuffix(VALID_SUFFIX): columns.pop(name) for name in list(columns) if name.endswith(VALID_SUFFIX)
    }
    for index, key in enumerate(_keys(table, live)):
        values = {name: column[index] for name, column in columns.items()}
        yield key, {name: value if masks.get(name, {index: True})[index] else None for name, value in values.items()}


def _keys(table: SlotColumns, live: Any) -> list[Any]:
    """Returns the keys of slots: a value, or a list where the key has several columns."""
    if not len(live):
        return []
    if isinstance(table.keys, IntegerKeys):
        keys = pyarrow.array(table.keys.array[live], mask=live == table.keys.null_slot)
        values: list[Any] = _as_type(keys, table.schema.keys[0]).to_pylist()
        return values
    batch = table.keys.take(live)
    columns: list[list[Any]] = [values_of_column(column) for column in batch.columns]
    return columns[0] if len(columns) == 1 else [list(key) for key in zip(*columns, strict=True)]


def _as_type(keys: Any, name: str) -> Any:
    """Returns integers as the dates or times that they are, in UTC."""
    base, _, _ = name.partition(", tz=")
    try:
        kind = pyarrow.type_for_alias(base if base.endswith("]") or "[" not in base else f"{base}]")
        width = keys.cast(pyarrow.int32()) if kind.bit_width == 32 else keys
        return width.cast(kind)
    except (pyarrow.ArrowException, ValueError):
        return keys


def _plain(array: Any) -> list[Any]:
    """Returns values of a column as Python has them; fixed bytes as bytes."""
    return [each.tobytes() for each in array] if array.dtype.kind == "V" else numpy.asarray(array).tolist()


def rows_in(store: RowStore) -> Iterator[dict[str, Any]]:
    """Yields the rows of a store."""
    for chunk in store.chunks:
        batch = chunk.batch if chunk.live is None else chunk.batch.filter(pyarrow.array(chunk.live))
        yield from rows_of_columns(batch)
