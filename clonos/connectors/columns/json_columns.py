"""JSON lines as columns: an object per line, whose fields are the columns.

Inferred types are those of JSON: a text stays a text, also if it looks like a time. A field that a line lacks is null.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy
import pyarrow
import pyarrow.json

from clonos.connectors.columns.line_columns import Lines, bounds_of_lines, one_batch, selected
from clonos.connectors.json_text import parse_json

CONNECTOR = "files.jsonl"
BLANKS = b" \t\r\n"
OPENS, CLOSES, RETURN = b"{}\r"


class JsonLines:
    """Format of JSON lines. ``schema``: the given types; ``columns``: the fields to read, None for all."""

    connector = CONNECTOR
    encoding = "utf-8"
    has_header = False

    def __init__(self, schema: Any, columns: Sequence[str] | None) -> None:
        self.schema = None if schema is None else selected(self, schema, columns)
        self.columns = None if columns is None else list(columns)
        self._ignores = schema is not None or columns is not None

    def lines(self, data: bytes) -> Lines:
        """Finds the lines that are not blank; only those from ``{`` to ``}`` can be objects."""
        found, starts, ends = bounds_of_lines(data)
        last = found[numpy.maximum(ends - 1, 0)]
        last = numpy.where(last == RETURN, found[numpy.maximum(ends - 2, 0)], last)
        is_usual = (ends > starts) & (found[numpy.minimum(starts, len(data) - 1)] == OPENS) & (last == CLOSES)
        unfit, is_line = ~is_usual, numpy.ones(len(starts), numpy.bool_)
        for index in numpy.flatnonzero(unfit).tolist():
            text = data[starts[index] : ends[index]].strip(BLANKS)
            is_line[index] = bool(text)
            unfit[index] = not (text.startswith(b"{") and text.endswith(b"}"))
        return Lines(starts[is_line], ends[is_line], unfit[is_line])

    def end_of_lines(self, before: Sequence[bytes], piece: bytes) -> int:
        """Returns where the last line that ends in a piece ends, 0 if none does."""
        return piece.rfind(b"\n") + 1

    def infer(self, data: bytes, names: tuple[str, ...]) -> Any:
        """Infers the schema from a block. Raises: pyarrow.ArrowException."""
        found = _read(pyarrow.py_buffer(data), pyarrow.json.ParseOptions()).schema
        return pyarrow.schema([field.with_type(_as_json(field.type)) for field in found])

    def names_of(self, path: str, header: bytes, schema: Any) -> tuple[str, ...]:
        """Returns (): each line names its fields."""
        return ()

    def parse(self, data: Any, last: bytes, schema: Any, names: tuple[str, ...]) -> Any:
        """Parses a buffer of lines to a ``pyarrow.RecordBatch``. Raises: pyarrow.ArrowException."""
        options = pyarrow.json.ParseOptions(
            explicit_schema=schema, unexpected_field_behavior="ignore" if self._ignores else "error"
        )
        return one_batch(_read(data, options).select(schema.names))

    def problem(self, line: str) -> str:
        """Says why a line is no JSON object; "" if it is one."""
        try:
            value = parse_json(line)
        except ValueError as error:
            return f"is not JSON: {error}"
        return "" if isinstance(value, dict) else "is not an object, whose fields could be columns"


def _read(data: Any, options: Any) -> Any:
    read_options = pyarrow.json.ReadOptions(use_threads=False, block_size=data.size + 1)
    return pyarrow.json.read_json(pyarrow.BufferReader(data), read_options, options)


def _as_json(kind: Any) -> Any:
    """Returns an inferred type without times, which JSON does not have."""
    if pyarrow.types.is_timestamp(kind):
        return pyarrow.string()
    if pyarrow.types.is_list(kind):
        return pyarrow.list_(_as_json(kind.value_type))
    if pyarrow.types.is_struct(kind):
        return pyarrow.struct([field.with_type(_as_json(field.type)) for field in kind])
    return kind
