"""JSON lines as columns: an object per line, whose fields are the columns.

Inferred types are those of JSON: a text stays a text, also if it looks like a time. A field that a line lacks is null.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy
import pyarrow
import pyarrow.json

from clonos.connectors.columns.line_columns import Lines, bounds_of_lines, one_batch, selected
from clonos.connectors.exact_floats import is_held
from clonos.connectors.json_text import parse_json
from clonos.connectors.value_depth import is_deep, problem_of
from clonos.core.values.value_limits import VALUE_DEPTH_MAX
from clonos.kernels.record_batch import RecordBatch
from clonos.kernels.texts import rounds_numbers
from clonos.operators.columnar.plain_columns import repeated_name

CONNECTOR = "files.jsonl"
BLANKS = b" \t\r\n"
OPENS, CLOSES, RETURN = b"{}\r"
FLOAT_BITS_MAX = 1_000


class JsonLines:
    """Format of JSON lines. ``schema``: the given types; ``columns``: the fields to read, None for all."""

    connector = CONNECTOR
    encoding = "utf-8"
    has_encoding = False
    has_header = False

    def __init__(self, schema: Any, columns: Sequence[str] | None) -> None:
        self.schema = None if schema is None else selected(self, schema, columns)
        self.columns = None if columns is None else list(columns)
        self._ignores = schema is not None or columns is not None

    def lines(self, data: bytes, names: tuple[str, ...]) -> Lines:
        """Finds the lines that are not blank; only those from ``{`` to ``}`` can be objects."""
        found, starts, ends = bounds_of_lines(data)
        last = found[numpy.maximum(ends - 1, 0)]
        last = numpy.where(last == RETURN, found[numpy.maximum(ends - 2, 0)], last)
        is_usual = (ends > starts) & (found[numpy.minimum(starts, len(data) - 1)] == OPENS) & (last == CLOSES)
        unfit, is_line = ~is_usual, numpy.ones(len(starts), numpy.bool_)
        deep = self._deep(data, found, starts)
        for index in numpy.flatnonzero(unfit).tolist():
            text = data[starts[index] : ends[index]].strip(BLANKS)
            is_line[index] = bool(text)
            unfit[index] = not (text.startswith(b"{") and text.endswith(b"}"))
        for index in deep:
            unfit[index] |= is_deep(data[starts[index] : ends[index]])
        return Lines(data, starts[is_line], ends[is_line], unfit[is_line])

    def _deep(self, data: bytes, found: Any, starts: Any) -> list[int]:
        """Returns the lines that may be too deep, which would end the process of Arrow's parser."""
        opened = data.count(b"{") + data.count(b"[")
        if opened - len(starts) < VALUE_DEPTH_MAX:  # each usual line opens one
            return []
        places = numpy.flatnonzero((found == OPENS) | (found == ord("[")))
        counts = numpy.diff(numpy.searchsorted(places, starts), append=len(places))
        return numpy.flatnonzero(counts > VALUE_DEPTH_MAX).tolist()

    def end_of_lines(self, before: Sequence[bytes], piece: bytes) -> int:
        """See ``LineFormat``."""
        end = piece.rfind(b"\n") + 1
        return end and sum(map(len, before)) + end

    def end_of_first(self, data: bytes) -> int:
        """See ``LineFormat``."""
        return data.find(b"\n") + 1

    def end_of_long_record(self, data: bytes) -> int:
        """Returns 0."""
        return 0

    def guess(self, data: bytes) -> str:
        """See ``LineFormat``."""
        text = data.lstrip(BLANKS + b"\xef\xbb\xbf")
        if text.startswith(b"["):
            return "it is a JSON array, not one object per line: write its elements as lines, as jq -c '.[]' does"
        if text.startswith(b"{") and not text.split(b"\n", 1)[0].rstrip(BLANKS).endswith(b"}"):
            return "its objects have several lines: write each as one line, as jq -c . does"
        return ""

    def infer(self, data: bytes, names: tuple[str, ...]) -> Any:
        """Infers the schema from a block. Raises: pyarrow.ArrowException."""
        found = _read(pyarrow.py_buffer(data), pyarrow.json.ParseOptions()).schema
        try:
            repeated_name(found)  # decodes all names, which Arrow has not done
        except UnicodeDecodeError as error:
            raise pyarrow.ArrowInvalid(f"a name is not UTF-8: {error}") from None
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

    def rounded(self, data: bytes, schema: Any, names: tuple[str, ...]) -> str:
        """See ``LineFormat``."""
        record = parse_json(data.decode())
        return next((found for field in schema if (found := _rounded(record.get(field.name), field))), "")

    def changed(self, data: Any, batch: RecordBatch, names: tuple[str, ...]) -> str:
        """See ``LineFormat``. Types that are given may round."""
        if self.schema is not None or not rounds_numbers([text := bytes(data)]):
            return ""
        lines = (line for line in text.split(b"\n") if rounds_numbers([line]))
        records = (json.loads(line.decode(), parse_float=_Rounded.of) for line in lines)
        found = (_rounded(record.get(field.name), field) for record in records for field in batch.schema)
        return next(filter(None, found), "")

    def problem(self, line: str) -> str:
        """Says why a line is no JSON object; "" if it is one."""
        try:
            value = parse_json(line)
        except ValueError as error:
            return problem_of(error)
        return "" if isinstance(value, dict) else "is not an object, whose fields could be columns"


class _Rounded(float):
    """Float that is not the number of its text, which it keeps."""

    digits: str

    @classmethod
    def of(cls, digits: str) -> float:
        """Returns the float of a text, one of this class if it is not the number of the text."""
        number = float(digits)
        if is_held(digits, number):
            return number
        found = cls(number)
        found.digits = digits
        return found


def _read(data: Any, options: Any) -> Any:
    read_options = pyarrow.json.ReadOptions(use_threads=False, block_size=data.size + 1)
    return pyarrow.json.read_json(pyarrow.BufferReader(data), read_options, options)


def _rounded(value: Any, field: Any) -> str:
    """Says which number of a value a column of floats would round; "" if none."""
    types, kind = pyarrow.types, field.type
    if types.is_floating(kind) and isinstance(value, _Rounded):
        return f"its {field.name}, {value.digits:.60}, is a number that the column of floats would round"
    if types.is_floating(kind) and isinstance(value, int):
        if value.bit_length() > FLOAT_BITS_MAX or float(value) != value:
            return f"its {field.name}, {value}, is an integer that the column of floats would round"
    elif types.is_list(kind) and isinstance(value, list):
        return next((found for each in value if (found := _rounded(each, kind.value_field))), "")
    elif types.is_struct(kind) and isinstance(value, dict):
        return next((found for part in kind if (found := _rounded(value.get(part.name), part))), "")
    return ""


def _as_json(kind: Any) -> Any:
    """Returns an inferred type without times, which JSON does not have."""
    if pyarrow.types.is_timestamp(kind):
        return pyarrow.string()
    if pyarrow.types.is_list(kind):
        return pyarrow.list_(_as_json(kind.value_type))
    if pyarrow.types.is_struct(kind):
        return pyarrow.struct([field.with_type(_as_json(field.type)) for field in kind])
    return kind
