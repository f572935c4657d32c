"""CSV as columns: a header, or given names; quotes where needed; nothing in a cell is null, in a text an empty text.

A quoted cell may hold a line end only with ``newlines_in_values``, which reads each file in one piece.
"""

from __future__ import annotations

import csv
import io
import json
import logging
import re
from bisect import bisect_left
from collections.abc import Sequence
from typing import Any

import numpy
import pyarrow
import pyarrow.csv

from clonos.connectors.columns.inferred_numbers import (
    has_leading_zeros,
    may_differ,
    numbers_of,
    problem_with,
    signs_of,
)
from clonos.connectors.columns.line_columns import (
    BYTE_ORDER_MARK,
    LINE_END,
    RETURN,
    Lines,
    bounds_of_lines,
    content_of,
    one_batch,
    selected,
)
from clonos.connectors.connector_errors import InputMalformed, InvalidConnector
from clonos.kernels.record_batch import RecordBatch

logger = logging.getLogger("clonos.run")

CONNECTOR = "files.csv"
QUOTE = ord('"')
OTHER_DELIMITERS = ";\t|"
BLANKS = b" \t"
JSON_BEGIN = re.compile(r'\s*(?:[\[{]\s*$|\[\s*[\[{]|\{\s*")')
INTEGER = re.compile(r"[+-]?\d{16,300}")
OPEN_QUOTE = "has a quote that does not end in its line; newlines_in_values=True reads cells with line ends"


class CsvLines:
    """Format of lines of CSV. ``schema``: the given types; ``columns``: those to read, None for all.

    Without a header the columns of a file are those of ``schema``, or of ``columns``, in their order.
    """

    connector = CONNECTOR
    has_encoding = True

    def __init__(
        self,
        schema: Any,
        columns: Sequence[str] | None,
        *,
        delimiter: str = ",",
        has_header: bool = True,
        newlines_in_values: bool = False,
        null_values: Sequence[str] = ("",),
        encoding: str = "utf-8",
    ) -> None:
        if len(delimiter.encode()) != 1:
            problem = f"delimiter is {delimiter!r}, which is not one byte in UTF-8"
            raise InvalidConnector(CONNECTOR, problem, "Give an ASCII character, or replace it in the file.")
        self.has_header = has_header
        if schema is not None and not hasattr(schema, "get_field_index"):
            problem = f"schema is a {type(schema).__name__}, not a pyarrow.Schema"
            raise InvalidConnector(CONNECTOR, problem, 'Give pyarrow.schema([("id", pyarrow.int64()), ...]).')
        self._given_names = tuple(schema.names if schema is not None else columns or ())
        if not has_header and not self._given_names:
            raise InvalidConnector(CONNECTOR, "a file without a header has no names", "Give schema= or columns=.")
        self.columns = None if columns is None else list(columns)
        self.schema = None if schema is None else selected(self, schema, columns)
        self._delimiter = delimiter
        self._newlines_in_values = newlines_in_values
        self._null_values = list(null_values)
        self.encoding = encoding
        self._ignores = schema is not None or columns is not None

    def lines(self, data: bytes, names: tuple[str, ...]) -> Lines:
        """Finds the records: lines that are not blank, and as many as a quoted cell joins. One of blanks may be a cell.

        A quote that opens a cell and does not end makes its line malformed, and the records after it are read.
        """
        found, starts, ends = bounds_of_lines(data)
        unfit = numpy.zeros(len(starts), numpy.bool_)
        if b'"' in data:
            if self._newlines_in_values:
                ends, unfit = self._ends_of_records(data, is_whole=True)
                starts = numpy.concatenate([[0], ends[:-1] + 1])
            else:
                quotes = numpy.flatnonzero(found == QUOTE)
                unfit = (numpy.searchsorted(quotes, ends) - numpy.searchsorted(quotes, starts)) % 2 == 1
        is_line = ends > starts
        first = found[numpy.minimum(starts, len(data) - 1)]
        is_line &= ~((ends - starts == 1) & (first == RETURN))
        if len(names) > 1:
            blanks = BLANKS.replace(self._delimiter.encode(), b"")
            may_be_blank = is_line & numpy.isin(first, [*blanks]) & numpy.isin(found[ends - 1], [*blanks, RETURN])
            emptied = bytearray(data if may_be_blank.any() else b"")
            for index in numpy.flatnonzero(may_be_blank).tolist():
                start, end = int(starts[index]), int(ends[index])
                if not data[start:end].strip(blanks + b"\r"):
                    is_line[index] = False
                    emptied[start:end] = b"\n" * (end - start)
            data = bytes(emptied) or data
        return Lines(data, starts[is_line], ends[is_line], unfit[is_line])

    def end_of_lines(self, before: Sequence[bytes], piece: bytes) -> int:
        """See ``LineFormat``."""
        data = b"".join((*before, piece))
        if not self._newlines_in_values or b'"' not in data:
            return data.rfind(b"\n") + 1
        ends, _ = self._ends_of_records(data, is_whole=False)
        return int(ends[-1]) + 1 if len(ends) else 0

    def end_of_first(self, data: bytes) -> int:
        """See ``LineFormat``."""
        if not self._newlines_in_values or b'"' not in data:
            return data.find(b"\n") + 1
        ends, _ = self._ends_of_records(data, is_whole=False)
        return int(ends[0]) + 1 if len(ends) else 0

    def end_of_long_record(self, data: bytes) -> int:
        """Returns the end of the first line, whose quote does not end."""
        return data.find(b"\n") + 1 if self._newlines_in_values else 0

    def guess(self, data: bytes) -> str:
        """See ``LineFormat``."""
        return ""

    def _ends_of_records(self, data: bytes, is_whole: bool) -> tuple[Any, Any]:
        """Returns where the records of the data end, and which ones are malformed.

        A quote opens a cell at its begin only: that of ``5" pipe`` is a character. Without ``is_whole`` more data
        follows, so that a quote that is open at the end may still be closed.
        """
        found = numpy.frombuffer(data, numpy.uint8)
        quotes, newlines = numpy.flatnonzero(found == QUOTE), numpy.flatnonzero(found == LINE_END)
        if len(quotes) % 2 == 0 and self._are_of_whole_cells(found, quotes):
            ends = newlines[numpy.searchsorted(quotes, newlines) % 2 == 0]
            malformed: list[int] = []
        else:
            ends, malformed = self._scanned(data, quotes.tolist(), newlines, is_whole)
        if is_whole and not data.endswith(b"\n"):
            ends = numpy.append(ends, len(data))
        return ends, numpy.isin(ends, malformed)

    def _are_of_whole_cells(self, found: Any, quotes: Any) -> bool:
        """Returns whether quotes, two by two, open and close cells, or parts of cells that a doubled one divides."""
        delimiter = ord(self._delimiter)
        edges = numpy.concatenate([[LINE_END], found, [LINE_END]])
        before, behind = edges[quotes[::2]], edges[quotes[1::2] + 2]
        opens = (before == delimiter) | (before == LINE_END) | (before == QUOTE)
        closes = (behind == delimiter) | (behind == LINE_END) | (behind == QUOTE) | (behind == RETURN)
        return bool(opens.all() and closes.all())

    def _scanned(self, data: bytes, quotes: list[int], newlines: Any, is_whole: bool) -> tuple[Any, list[int]]:
        """Finds the ends of records quote by quote."""
        opened_by = b"\n" + self._delimiter.encode()
        cells: list[tuple[int, int]] = []  # their first and their last quote
        malformed: list[int] = []
        place = 0
        while place < len(quotes):
            first, place = quotes[place], place + 1
            if first and data[first - 1] not in opened_by:
                continue
            while place + 1 < len(quotes) and quotes[place] + 1 == quotes[place + 1]:  # doubled
                place += 2
            last = quotes[place] if place < len(quotes) else len(data)
            place += 1
            if last < len(data) and (last + 1 == len(data) or data[last + 1] in opened_by + b"\r"):
                cells.append((first, last))
                continue
            if last == len(data) and not is_whole:
                return _without(newlines[newlines < first], cells), malformed
            # It does not end, or not before a delimiter: its line is malformed, and reading goes on after it.
            end = data.find(b"\n", first)
            malformed.append(end if end >= 0 else len(data))
            place = bisect_left(quotes, malformed[-1])
        return _without(newlines, cells), malformed

    def infer(self, data: bytes, names: tuple[str, ...]) -> Any:
        """Infers the schema from a block. Raises: pyarrow.ArrowException."""
        if len(names) == 1 and (other := next((sign for sign in OTHER_DELIMITERS if sign in names[0]), "")):
            what = "%s: the file has one column, %r, whose name contains %r: is that the delimiter=?"
            logger.warning(what, CONNECTOR, names[0], other)
        found = self._read(pyarrow.py_buffer(data), names).schema
        is_text = (pyarrow.types.is_null, pyarrow.types.is_binary)  # bytes that are not in the encoding are malformed
        types = [pyarrow.string() if any(is_(field.type) for is_ in is_text) else field.type for field in found]
        schema = pyarrow.schema(list(zip(found.names, types, strict=True)))
        if (numbers := numbers_of(schema)) and signs_of(data, ord(self._delimiter)).leading_zeros:
            texts = self._texts(pyarrow.py_buffer(data), names, numbers)
            for name in numbers:
                if has_leading_zeros(texts.column(name)):
                    place = schema.get_field_index(name)
                    schema = schema.set(place, schema.field(place).with_type(pyarrow.string()))
        return schema

    def changed(self, data: Any, batch: RecordBatch, names: tuple[str, ...]) -> str:
        """See ``LineFormat``. Types that are given may round."""
        if self.schema is not None or not (numbers := numbers_of(batch.schema)):
            return ""
        if not may_differ(signs_of(data, ord(self._delimiter)), batch):
            return ""
        texts = self._texts(data, names, numbers)
        return next(
            (found for name in numbers if (found := problem_with(name, texts.column(name), batch.column(name)))), ""
        )

    def _texts(self, data: Any, names: tuple[str, ...], columns: Sequence[str]) -> Any:
        """Returns columns as the texts of their cells."""
        return one_batch(self._read(data, names, pyarrow.schema([(name, pyarrow.string()) for name in columns])))

    def names_of(self, path: str, header: bytes, schema: Any) -> tuple[str, ...]:
        """Returns the names in the header of a file, else the given ones.

        Raises: InputMalformed: the header does not have the columns of the schema.
        """
        if not self.has_header:
            return self._given_names
        text = ""
        try:
            text = header.removeprefix(BYTE_ORDER_MARK).decode(self.encoding).rstrip("\r\n")
            records = list(csv.reader(io.StringIO(text, newline=""), delimiter=self._delimiter, strict=True))
            names = _named(records[0] if records else [])
        except (UnicodeDecodeError, csv.Error) as error:
            if what := content_of(header):
                raise InputMalformed(path, 0, what, "Name another file.") from None
            if is_json(text):
                raise _json_error(path) from None
            advice = "Correct the file."
            if isinstance(error, UnicodeDecodeError):
                advice = "Correct the file, or name its encoding with encoding=."
            elif text.count('"') % 2:
                advice = "Correct the file, or read cells with line ends by newlines_in_values=True."
            raise InputMalformed(path, 0, f"its header is not CSV in {self.encoding}: {error}", advice) from None
        if is_json(text):
            raise _json_error(path)
        if len(records) > 1:
            reason = "a carriage return alone ends its lines, which no reader of lines takes for an end"
            raise InputMalformed(path, 0, reason, "Convert it, for example with: tr '\\r' '\\n'.")
        if repeated := [name for name in names if names.count(name) > 1]:
            raise InputMalformed(path, 0, f"its header has the column {repeated[0]!r} twice", "Correct the file.")
        wanted = [] if schema is None else schema.names
        if missing := [name for name in wanted if name not in names]:
            reason = f"its header has no column {missing[0]!r}; it has {', '.join(names)}"
            raise InputMalformed(path, 0, reason, "Correct the file, or leave it out.")
        surplus = [name for name in names if name not in wanted]
        if surplus and schema is not None and not self._ignores:
            reason = f"its header has the column {surplus[0]!r}, which the first file of the input lacks"
            raise InputMalformed(path, 0, reason, "Name the columns to read with columns= or schema=.")
        return tuple(names)

    def parse(self, data: Any, last: bytes, schema: Any, names: tuple[str, ...]) -> Any:
        """Parses a buffer of records to a ``pyarrow.RecordBatch``; ``last`` is the last one.

        Raises: pyarrow.ArrowException.
        """
        batch = one_batch(self._read(data, names, schema))
        if b'"' in last:
            # A quote that does not end takes what follows with it: other records, or a row of empty cells.
            empty = b'""' if len(names) == 1 else self._delimiter.encode() * (len(names) - 1)
            guarded = pyarrow.py_buffer(b"".join([last, b"\n", empty, b"\n"]))
            if self._read(guarded, names, schema).num_rows == 1:
                raise pyarrow.ArrowInvalid("a quote does not end")
        return batch

    def rounded(self, data: bytes, schema: Any, names: tuple[str, ...]) -> str:
        """See ``LineFormat``."""
        floats = [field.name for field in schema if pyarrow.types.is_floating(field.type)]
        texts = pyarrow.schema([field.with_type(pyarrow.string()) for field in schema])
        batch = one_batch(self._read(pyarrow.py_buffer(data), names, texts))
        for name in floats:
            for text in batch.column(name).to_pylist():
                number = (text or "").strip()
                if INTEGER.fullmatch(number) and int(number) != float(number):
                    return f"its {name}, {number}, is an integer that the column of floats would round"
        return ""

    def problem(self, line: str) -> str:
        """Says that a quote of a line does not end; "" if none is open."""
        if not line.count('"') % 2:
            return ""
        return "has a quote that does not end" if self._newlines_in_values else OPEN_QUOTE

    def _read(self, data: Any, names: tuple[str, ...], schema: Any = None) -> Any:
        return pyarrow.csv.read_csv(
            pyarrow.BufferReader(data),
            pyarrow.csv.ReadOptions(
                use_threads=False, block_size=data.size + 1, column_names=list(names), encoding=self.encoding
            ),
            pyarrow.csv.ParseOptions(
                delimiter=self._delimiter,
                newlines_in_values=self._newlines_in_values,
            ),
            pyarrow.csv.ConvertOptions(
                column_types=schema,
                include_columns=None if schema is None else schema.names,
                null_values=self._null_values,
                strings_can_be_null=self._null_values != [""],
            ),
        )


def is_json(header: str) -> bool:
    """Returns whether the first line of a file is JSON, or begins an array or an object that has several lines."""
    try:
        return isinstance(json.loads(header), list | dict)
    except (ValueError, RecursionError):
        return JSON_BEGIN.match(header) is not None


def _json_error(path: str) -> InputMalformed:
    advice = "Read lines of objects with files.jsonl, and an array too, after: jq -c '.[]'."
    return InputMalformed(path, 0, "it is JSON, which has no header", advice)


def _without(newlines: Any, cells: list[tuple[int, int]]) -> Any:
    """Returns the line ends that are not within quoted cells."""
    bounds = numpy.array(cells, numpy.int64).reshape(-1)
    return newlines[numpy.searchsorted(bounds, newlines) % 2 == 0]


def _named(names: list[str]) -> list[str]:
    """Gives columns without a name the names of pandas."""
    return [name or f"Unnamed: {place}" for place, name in enumerate(names)]
