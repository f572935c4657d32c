"""CSV as columns: a header, or given names; quotes where needed; nothing in a cell is null, in a text an empty text.

A quoted cell may hold a line end only with ``newlines_in_values``, which reads each file in one piece.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from typing import Any

import numpy
import pyarrow
import pyarrow.csv

from clonos.connectors.columns.line_columns import BYTE_ORDER_MARK, Lines, bounds_of_lines, one_batch, selected
from clonos.connectors.connector_errors import InputMalformed, InvalidConnector

CONNECTOR = "files.csv"
QUOTE = ord('"')
OPEN_QUOTE = "has a quote that does not end in its line; newlines_in_values=True reads cells with line ends"


class CsvLines:
    """Format of lines of CSV. ``schema``: the given types; ``columns``: those to read, None for all.

    Without a header the columns of a file are those of ``schema``, or of ``columns``, in their order.
    """

    connector = CONNECTOR

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
        self.has_header = has_header
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

    def lines(self, data: bytes) -> Lines:
        """Finds the records: lines that are not empty, and as many as a quoted cell joins."""
        found, starts, ends = bounds_of_lines(data)
        unfit = numpy.zeros(len(starts), numpy.bool_)
        if b'"' in data:
            quotes = numpy.flatnonzero(found == QUOTE)
            if self._newlines_in_values:
                ends = ends[(numpy.searchsorted(quotes, ends) % 2 == 0) | (ends == len(data))]
                starts = numpy.concatenate([[0], ends[:-1] + 1])
            unfit = (numpy.searchsorted(quotes, ends) - numpy.searchsorted(quotes, starts)) % 2 == 1
        is_line = ends > starts
        is_line &= ~((ends - starts == 1) & (found[numpy.minimum(starts, len(data) - 1)] == ord("\r")))
        return Lines(starts[is_line], ends[is_line], unfit[is_line])

    def end_of_lines(self, before: Sequence[bytes], piece: bytes) -> int:
        """Returns where the last record that ends in a piece ends, 0 if none does."""
        if not self._newlines_in_values:
            return piece.rfind(b"\n") + 1
        found = numpy.frombuffer(piece, numpy.uint8)
        quotes = numpy.cumsum(found == QUOTE) + sum(part.count(b'"') for part in before)
        ends = numpy.flatnonzero((found == ord("\n")) & (quotes % 2 == 0))
        return int(ends[-1]) + 1 if len(ends) else 0

    def infer(self, data: bytes, names: tuple[str, ...]) -> Any:
        """Infers the schema from a block. Raises: pyarrow.ArrowException."""
        found = self._read(pyarrow.py_buffer(data), names).schema
        text = [pyarrow.string() if pyarrow.types.is_null(field.type) else field.type for field in found]
        return pyarrow.schema(list(zip(found.names, text, strict=True)))

    def names_of(self, path: str, header: bytes, schema: Any) -> tuple[str, ...]:
        """Returns the names in the header of a file, else the given ones.

        Raises: InputMalformed: the header does not have the columns of the schema.
        """
        if not self.has_header:
            return self._given_names
        try:
            text = header.removeprefix(BYTE_ORDER_MARK).decode(self.encoding).rstrip("\r\n")
            names = next(csv.reader([text], delimiter=self._delimiter, strict=True), [])
        except (UnicodeDecodeError, csv.Error) as error:
            raise InputMalformed(
                path, 0, f"its header is not CSV in {self.encoding}: {error}", "Correct the file."
            ) from None
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

    def problem(self, line: str) -> str:
        """Says that a quote of a line does not end; "" if none is open."""
        return OPEN_QUOTE if line.count('"') % 2 and not self._newlines_in_values else ""

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
