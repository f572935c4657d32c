"""Columns as lines of text: the bytes that the sinks of JSON lines and CSV write for the same records as rows.

Arrow joins the cells of all rows at once. Ints, booleans, texts, dates and times become text by Arrow; only texts with
characters that need an escape, and the values of other types, become Python objects, column by column.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pyarrow
import pyarrow.compute as pc

from clonos.connectors.connector_errors import RowNotWritable
from clonos.connectors.csv_text import csv_lines
from clonos.connectors.json_text import json_lines, scalar_text
from clonos.core.values.columns import validate_columns
from clonos.kernels.record_batch import RecordBatch

ESCAPED_IN_JSON: Final = r'["\\\x00-\x1f]'
QUOTED_IN_CSV: Final = r'[,"\r\n]'
DAYS: Final = (-354_285, 2_932_896)
"""Dates of the years 1000 to 9999 as days since the Unix epoch, which Arrow and Python write alike."""

_MICROSECONDS_PER_DAY = 86_400_000_000
_NAMES: Final = "columns"


def json_text_of(batch: RecordBatch) -> bytes | None:
    """Returns each row of a batch as a line with a JSON object; None if the rows have to be written one by one."""
    names = batch.schema.names
    if not names or len(set(names)) < len(names):
        return None
    keys = json_lines(names, _NAMES).decode().split("\n")[:-1]
    parts: list[Any] = []
    try:
        validate_columns(batch)
        for place, (key, column) in enumerate(zip(keys, batch.columns, strict=True)):
            parts += [f"{',' if place else '{'}{key}:", _json_cells(column)]
        return _joined(parts, "}\n")
    except (pyarrow.ArrowException, RowNotWritable, ValueError, OverflowError):
        return None  # the rows say what is wrong


def csv_text_of(batch: RecordBatch, columns: Sequence[str]) -> bytes | None:
    """Returns each row of a batch as a line of CSV; None if the rows have to be written one by one."""
    names = batch.schema.names
    if not names or len(set(names)) < len(names) or not set(names) <= set(columns):
        return None
    parts: list[Any] = []
    try:
        validate_columns(batch)
        for place, name in enumerate(columns):
            cells = _csv_cells(batch.column(name)) if name in names else pyarrow.array([""] * batch.num_rows)
            if len(columns) == 1:  # an empty line would be no row
                cells = pc.if_else(pc.equal(cells, ""), '""', cells)
            parts += [",", cells] if place else [cells]
        return _joined(parts, "\n")
    except (pyarrow.ArrowException, RowNotWritable, ValueError, OverflowError):
        return None


def _joined(parts: list[Any], end: str) -> bytes:
    joined = pc.binary_join_element_wise(*parts, end, "")
    _, offsets, characters = joined.buffers()
    ends = pyarrow.Array.from_buffers(pyarrow.int32(), len(joined) + 1, [None, offsets], offset=joined.offset)
    first, last = ends[0].as_py(), ends[-1].as_py()
    return memoryview(characters)[first:last].tobytes()


def _json_cells(column: Any) -> Any:
    column = _plain(column)
    if pyarrow.types.is_string(column.type):
        cells = pc.binary_join_element_wise('"', column, '"', "", null_handling="emit_null")
        escaped = pc.match_substring_regex(column, ESCAPED_IN_JSON).fill_null(False)
        if escaped.true_count:
            cells = pc.replace_with_mask(cells, escaped, _by_row_path(column.filter(escaped)))
        return cells.fill_null("null")
    if (text := _arrow_text(column)) is not None:
        quoted = text if _is_bare(column.type) else pc.binary_join_element_wise('"', text, '"', "")
        return quoted.fill_null("null")
    return _by_row_path(column)


def _by_row_path(column: Any) -> Any:
    """Encodes each value as the sink of rows does."""
    return pyarrow.array(json_lines(column.to_pylist(), _NAMES).decode().split("\n")[:-1], pyarrow.string())


def _csv_cells(column: Any) -> Any:
    column = _plain(column)
    if pyarrow.types.is_string(column.type):
        cells = column.fill_null("")
    elif (text := _arrow_text(column)) is not None:
        return text.fill_null("")
    elif pyarrow.types.is_floating(column.type):
        return pyarrow.array(["" if cell is None else repr(cell) for cell in column.to_pylist()], pyarrow.string())
    else:
        texts = ["" if cell is None else scalar_text(cell) for cell in column.to_pylist()]
        cells = pyarrow.array(texts, pyarrow.string())
    quoted = pc.match_substring_regex(cells, QUOTED_IN_CSV)
    if quoted.true_count:
        cells = pc.replace_with_mask(cells, quoted, pyarrow.array(map(_quoted, cells.filter(quoted).to_pylist())))
    return cells


def _quoted(cell: str) -> str:
    return csv_lines([[cell]], ",").removesuffix("\n")


def _plain(column: Any) -> Any:
    if pyarrow.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pyarrow.types.is_null(column.type) or pyarrow.types.is_large_string(column.type):
        return column.cast(pyarrow.string())
    return column


def _is_bare(kind: Any) -> bool:
    return bool(pyarrow.types.is_integer(kind) or pyarrow.types.is_boolean(kind))


def _arrow_text(column: Any) -> Any | None:
    """Returns a column as text where Arrow writes values as Python does, else None."""
    kind = column.type
    if _is_bare(kind):
        return column.cast(pyarrow.string())
    if pyarrow.types.is_date32(kind):
        return column.cast(pyarrow.string()) if _is_within(column.cast(pyarrow.int32()), 1) else None
    if pyarrow.types.is_timestamp(kind) and kind.tz == "UTC" and kind.unit != "ns":
        return _instants(column.cast(pyarrow.timestamp("us", "UTC")))
    return None


def _instants(column: Any) -> Any | None:
    if not _is_within(column.cast(pyarrow.int64()), _MICROSECONDS_PER_DAY):
        return None
    naive = column.cast(pyarrow.timestamp("us"))
    whole = pc.floor_temporal(naive, unit="second")
    text = pc.if_else(
        pc.equal(naive, whole),
        whole.cast(pyarrow.timestamp("s")).cast(pyarrow.string()),
        naive.cast(pyarrow.string()),
    )
    return pc.binary_join_element_wise(pc.replace_substring(text, " ", "T"), "Z", "")


def _is_within(numbers: Any, per_day: int) -> bool:
    found = pc.min_max(numbers).as_py()
    if found["min"] is None:
        return True
    return bool(DAYS[0] * per_day <= found["min"] and found["max"] < (DAYS[1] + 1) * per_day)
