"""CSV files as a sink: UTF-8, a header in each part file, ``\\n`` between rows, quotes where needed.

A cell holds a str as it is, nothing for None and for an empty str, true or false, numbers with all digits, and other
values as ``scalar_text`` formats them.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from itertools import islice
from types import NoneType
from typing import TYPE_CHECKING, Any

from clonos.connectors.connector_errors import InvalidConnector, OutputCorrupt, row_not_writable
from clonos.connectors.csv_text import csv_lines
from clonos.connectors.filesystem.durable_files import output_errors
from clonos.connectors.filesystem.files_by_path import FilesByPath
from clonos.connectors.filesystem.line_blocks import pending_lines
from clonos.connectors.filesystem.line_files import (
    LINE_BYTES_MAX,
    check_encoding,
    check_line_options,
    encoding_of_text,
    ordered_of,
)
from clonos.connectors.filesystem.output_files import OutputFile
from clonos.connectors.filesystem.output_parts import Layout, RowsFormat
from clonos.connectors.formats.part_content import open_part
from clonos.connectors.json_text import scalar_text
from clonos.connectors.partitions.folder_columns import FolderColumns
from clonos.connectors.row_fields import columns_of, fields_of
from clonos.core.values.column_rows import rows_of_columns
from clonos.kernels.record_batch import RecordBatch
from clonos.operators.connector_contract import PendingInput, SplitReader

if TYPE_CHECKING:
    from clonos.connectors.columns.line_columns import LineFormat

CONNECTOR = "files.csv"
FIELD_CHARACTERS_MAX = 2**31 - 1
COPY_BYTES = 1 << 20
WRITE_ROWS = 10_000
_AS_THEY_ARE = frozenset({str, int, float, NoneType})


class CsvFiles(FilesByPath):
    """CSV: as a source of columns, files by path, folder or pattern; as a sink, one folder."""

    gives_columns = True
    routes_malformed = True
    routes_refused = True
    takes_schema = True

    def __init__(
        self,
        paths: Sequence[str],
        *,
        columns: Sequence[str] | None,
        schema: Any = None,
        delimiter: str = ",",
        header: bool = True,
        newlines_in_values: bool = False,
        null_values: Sequence[str] = ("",),
        encoding: str = "utf-8",
        block_bytes: int | None = None,
        line_bytes_max: int = LINE_BYTES_MAX,
        discovery_interval_ns: int = 0,
        single: bool = False,
        ordered: bool | None = None,
        partition_by: str | Sequence[str] | None = None,
        partitioned: Any = None,
        **parts: Any,
    ) -> None:
        super().__init__(CONNECTOR, paths, single=single, partition_by=partition_by, **parts)
        self.folder_columns = FolderColumns(CONNECTOR, partitioned)
        if columns is not None and (not columns or isinstance(columns, str) or len(set(columns)) < len(columns)):
            raise InvalidConnector(CONNECTOR, f"columns is {columns!r}", "Give a list of distinct names.")
        if len(delimiter) != 1 or delimiter in '"\r\n':
            raise InvalidConnector(CONNECTOR, f"delimiter is {delimiter!r}", "Give one character.")
        if newlines_in_values and (block_bytes is not None or ordered is False):
            raise InvalidConnector(
                CONNECTOR,
                "newlines_in_values=True reads whole files, not blocks",
                "Leave out block_bytes= or ordered=.",
            )
        if isinstance(null_values, str) or not all(isinstance(text, str) for text in null_values):
            raise InvalidConnector(CONNECTOR, f"null_values is {null_values!r}", "Give a list of texts.")
        check_encoding(encoding, CONNECTOR)
        check_line_options(CONNECTOR, paths, block_bytes, ordered, line_bytes_max)
        self.columns = None if columns is None else tuple(columns)
        self.schema = schema
        self.delimiter, self.header, self.newlines_in_values = delimiter, header, newlines_in_values
        self.null_values, self.encoding = tuple(null_values), encoding_of_text(encoding)
        self.block_bytes = block_bytes
        self.line_bytes_max = line_bytes_max
        self.discovery_interval_ns = discovery_interval_ns
        self.ordered = True if newlines_in_values else ordered_of(ordered, block_bytes)

    def pending(self, split: bytes, mark: bytes | None) -> PendingInput | None:
        """See ``connector_contract.PendingSource``."""
        return pending_lines(split, mark)

    def reader(self) -> SplitReader[Any]:
        """Creates a reader of record batches."""
        from clonos.connectors.columns.line_columns import ColumnLineReader  # Arrow takes long to load

        return self.folder_columns.reader(ColumnLineReader(self._line_format(), self.line_bytes_max))

    def column_schema(self) -> Any | None:
        """Returns the given schema, None if the types are inferred when the job starts."""
        return None if self.schema is None else self.folder_columns.described(self._line_format().schema, self._paths)

    def sampled_schema(self, splits: Sequence[bytes]) -> Any | None:
        """See ``column_contract.SampledSource``."""
        if not splits:
            return self.column_schema()
        from clonos.connectors.columns.line_columns import schema_of_splits  # Arrow takes long to load

        return schema_of_splits(self._line_format(), splits, self.folder_columns)

    @property
    def needs_names(self) -> bool:
        """Whether rows need names for their fields, because ``columns`` are not given."""
        return self.columns is None

    def rows_format(self) -> RowsFormat:
        """Returns the CSV format.

        Raises: InvalidConnector: an option is for sources.
        """
        is_for_source = self.null_values != ("",) or self.encoding != "utf-8" or self.newlines_in_values
        if self.schema is not None or is_for_source:
            raise InvalidConnector(
                CONNECTOR,
                "schema=, newlines_in_values=, null_values= and encoding= are for a source",
                "Leave them out for a sink.",
            )
        if not self.header and self.columns is None:
            raise InvalidConnector(CONNECTOR, "header=False leaves the cells without names", "Give columns=.")
        return CsvFormat(self.in_files(self.columns), self.delimiter, self.header)

    def row_names(self) -> tuple[str, ...] | None:
        """Returns ``columns``."""
        return self.columns

    def _paths(self) -> list[str]:
        return self.folder_columns.find(self.paths, may_be_empty=self.discovery_interval_ns > 0)

    def _splits_of(self, paths: list[str], parallelism: int, known: Sequence[bytes]) -> list[bytes]:
        from clonos.connectors.columns.line_columns import column_splits  # Arrow takes long to load

        is_whole = self.ordered is True
        return column_splits(self._line_format(), paths, parallelism, self.block_bytes, is_whole, known)

    def _line_format(self) -> LineFormat:
        from clonos.connectors.columns.csv_columns import CsvLines  # Arrow takes long to load

        return CsvLines(
            self.schema,
            self.columns,
            delimiter=self.delimiter,
            has_header=self.header,
            newlines_in_values=self.newlines_in_values,
            null_values=self.null_values,
            encoding=self.encoding,
        )


class CsvFormat:
    """Format of CSV part files; without ``columns`` the first row of each part defines them."""

    suffix = "csv"

    def __init__(self, columns: tuple[str, ...] | None, delimiter: str = ",", has_header: bool = True) -> None:
        self.columns = columns
        self.delimiter = delimiter
        self.has_header = has_header

    def start(self, file: OutputFile) -> CsvRows:
        """Begins a part file."""
        return CsvRows(file, self.columns, self.delimiter, self.has_header)

    def join(self, paths: Sequence[str], file: OutputFile) -> None:
        """Writes the rows of part files into one file with one header, which has the columns of all parts.

        Raises: OutputCorrupt: a part is not CSV.
        """
        columns = list(
            self.columns or dict.fromkeys(name for path in paths for name in next(_rows(path, self.delimiter), ()))
        )
        header = csv_lines([columns], self.delimiter).encode() if self.has_header else b""
        if paths:
            file.write(header)
        for path in paths:
            with output_errors(path, "read"), open_part(path) as part:
                if not header or part.read(len(header)) == header:
                    while piece := part.read(COPY_BYTES):
                        file.write(piece)
                    continue
            rows = _rows(path, self.delimiter)
            own = next(rows, [])
            while some := list(islice(rows, WRITE_ROWS)):
                named = [dict(zip(own, row, strict=False)) for row in some]
                cells = [[row.get(column, "") for column in columns] for row in named]
                file.write(csv_lines(cells, self.delimiter).encode())


class CsvRows:
    """Part file of CSV."""

    gathered_rows = 0

    def __init__(
        self, file: OutputFile, columns: tuple[str, ...] | None, delimiter: str = ",", has_header: bool = True
    ) -> None:
        self._file = file
        self._columns = columns
        self._delimiter = delimiter
        self._has_header = not has_header  # or needs none
        self.layout = Layout(delimiter, () if has_header else columns or ())

    def rows(self, rows: list[Any]) -> None:
        """Appends rows.

        Raises: RowNotWritable: a row does not fit the columns, or has a lone surrogate.
        """
        columns = self._columns = self._columns or columns_of(rows[0], CONNECTOR)
        cells: list[Sequence[Any]] = [] if self._has_header else [columns]
        cells += [_cells(fields_of(row, columns, CONNECTOR, index)) for index, row in enumerate(rows)]
        try:
            self._file.write(csv_lines(cells, self._delimiter).encode())
        except UnicodeEncodeError as error:
            index, row = next((i, row) for i, row in enumerate(rows) if _has_surrogates(row, columns))
            raise row_not_writable(
                CONNECTOR, index, row, f"CSV has no escape for {error.object[error.start]!r}"
            ) from None
        self._has_header = True

    def columns(self, batch: RecordBatch) -> None:
        """Appends the rows of a ``pyarrow.RecordBatch``."""
        from clonos.connectors.columns.text_columns import csv_text_of  # Arrow takes long to load

        columns = self._columns or tuple(batch.schema.names)
        text = csv_text_of(batch, columns) if self._delimiter == "," else None
        if text is None:
            self.rows(rows_of_columns(batch))
            return
        self._columns = columns
        if not self._has_header:
            self._file.write(csv_lines([columns], self._delimiter).encode())
        self._file.write(text)
        self._has_header = True

    def flush(self) -> None:
        """Does nothing: each row is in the file already."""

    def finish(self) -> None:
        """Does nothing: a text file needs no footer."""

    def abandon(self) -> None:
        """Does nothing: the file is the only resource."""


def _rows(path: str, delimiter: str) -> Iterator[list[str]]:
    with output_errors(path, "read"), io.TextIOWrapper(open_part(path), "utf-8", newline="") as text:
        before = csv.field_size_limit(FIELD_CHARACTERS_MAX)  # a sink writes fields of any length
        try:
            yield from csv.reader(text, delimiter=delimiter)
        except (csv.Error, ValueError) as error:
            raise OutputCorrupt(path, "CSV", str(error)) from None
        finally:
            csv.field_size_limit(before)


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
