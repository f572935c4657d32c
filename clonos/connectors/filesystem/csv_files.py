"""CSV files as a sink: UTF-8, a header in each part file, ``\\n`` between rows, quotes where needed.

A cell holds a str as it is, nothing for None and for an empty str, true or false, numbers with all digits, and other
values as ``scalar_text`` formats them.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from types import NoneType
from typing import Any

from clonos.connectors.connector_errors import InvalidConnector, OutputCorrupt, row_not_writable
from clonos.connectors.filesystem.durable_files import DurableFile, output_errors
from clonos.connectors.filesystem.file_sinks import FileSink
from clonos.connectors.filesystem.output_parts import RowsFormat
from clonos.connectors.json_text import scalar_text
from clonos.connectors.row_fields import columns_of, fields_of

CONNECTOR = "files.csv"
FIELD_CHARACTERS_MAX = 2**31 - 1
COPY_BYTES = 1 << 20
WRITE_ROWS = 10_000
_AS_THEY_ARE = frozenset({str, int, float, NoneType})


class CsvFiles(FileSink):
    """Sink that writes rows as CSV."""

    routes_refused = True
    how_to_read = (
        "files.csv writes only: read CSV with files.lines(...) and csv.reader"
        ' (docs/connectors.md, "CSV to read"), or convert it to Parquet.'
    )

    def __init__(self, paths: Sequence[str], *, columns: Sequence[str] | None, single: bool = False) -> None:
        super().__init__(CONNECTOR, paths, single=single)
        if columns is not None and (not columns or isinstance(columns, str) or len(set(columns)) < len(columns)):
            raise InvalidConnector(CONNECTOR, f"columns is {columns!r}", "Give a list of distinct names.")
        self.columns = None if columns is None else tuple(columns)

    def rows_format(self) -> RowsFormat:
        """Returns the CSV format."""
        return CsvFormat(self.columns)


class CsvFormat:
    """Format of CSV part files; without ``columns`` the first row of each part defines them."""

    suffix = "csv"

    def __init__(self, columns: tuple[str, ...] | None) -> None:
        self.columns = columns

    def start(self, file: DurableFile) -> CsvRows:
        """Begins a part file."""
        return CsvRows(file, self.columns)

    def join(self, paths: Sequence[str], file: DurableFile) -> None:
        """Writes the rows of part files into one file with one header, which has the columns of all parts.

        Raises: OutputCorrupt: a part is not CSV.
        """
        columns = list(self.columns or dict.fromkeys(name for path in paths for name in next(_rows(path), ())))
        header = _text([columns])
        if paths:
            file.write(header)
        for path in paths:
            with output_errors(path, "read"), open(path, "rb") as part:
                if part.read(len(header)) == header:
                    while piece := part.read(COPY_BYTES):
                        file.write(piece)
                    continue
            rows = _rows(path)
            own = next(rows, [])
            while some := list(islice(rows, WRITE_ROWS)):
                named = [dict(zip(own, row, strict=False)) for row in some]
                file.write(_text([[row.get(column, "") for column in columns] for row in named]))


class CsvRows:
    """Part file of CSV."""

    def __init__(self, file: DurableFile, columns: tuple[str, ...] | None) -> None:
        self._file = file
        self._columns = columns
        self._has_header = False

    def rows(self, rows: list[Any]) -> None:
        """Appends rows.

        Raises: RowNotWritable: a row does not fit the columns, or has a lone surrogate.
        """
        columns = self._columns = self._columns or columns_of(rows[0], CONNECTOR)
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        if not self._has_header:
            writer.writerow(columns)
        writer.writerows(_cells(fields_of(row, columns, CONNECTOR, index)) for index, row in enumerate(rows))
        try:
            self._file.write(text.getvalue().encode())
        except UnicodeEncodeError as error:
            index, row = next((i, row) for i, row in enumerate(rows) if _has_surrogates(row, columns))
            raise row_not_writable(
                CONNECTOR, index, row, f"CSV has no escape for {error.object[error.start]!r}"
            ) from None
        self._has_header = True

    def columns(self, batch: Any) -> None:
        """Appends the rows of a ``pyarrow.RecordBatch``."""
        self.rows(batch.to_pylist())

    def finish(self) -> None:
        """Does nothing: a text file needs no footer."""

    def abandon(self) -> None:
        """Does nothing: the file is the only resource."""


def _rows(path: str) -> Iterator[list[str]]:
    with output_errors(path, "read"), open(path, encoding="utf-8", newline="") as text:
        before = csv.field_size_limit(FIELD_CHARACTERS_MAX)  # a sink writes fields of any length
        try:
            yield from csv.reader(text)
        except (csv.Error, ValueError) as error:
            raise OutputCorrupt(path, "CSV", str(error)) from None
        finally:
            csv.field_size_limit(before)


def _text(rows: Iterable[Sequence[str]]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue().encode()


def _has_surrogates(row: Any, columns: tuple[str, ...]) -> bool:
    return any(
        "\ud800" <= character <= "\udfff"
        for cell in fields_of(row, columns, CONNECTOR)
        for character in str(_cell(cell))
    )


def _cells(fields: tuple[Any, ...]) -> Sequence[Any]:
    return fields if _AS_THEY_ARE.issuperset(map(type, fields)) else [_cell(field) for field in fields]


def _cell(field: Any) -> Any:
    return field if type(field) in _AS_THEY_ARE else scalar_text(field)
