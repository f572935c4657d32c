"""JSON lines files: a source of the value of each line, and a sink that writes each row as a line."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from clonos.connectors.connector_errors import InputMalformed, InvalidConnector
from clonos.connectors.filesystem.durable_files import output_errors
from clonos.connectors.filesystem.files_by_path import FilesByPath
from clonos.connectors.filesystem.line_blocks import pending_lines
from clonos.connectors.filesystem.line_files import LINE_BYTES_MAX, LineReader, check_line_options, ordered_of
from clonos.connectors.filesystem.output_files import OutputFile
from clonos.connectors.filesystem.output_parts import RowsFormat
from clonos.connectors.formats.part_content import open_part
from clonos.connectors.json_text import BYTE_ORDER_MARK, json_lines, parse_json, parse_json_lines
from clonos.connectors.partitions.folder_columns import FolderColumns
from clonos.connectors.typed_records import LineDecoder, Unfit, check_schema
from clonos.connectors.value_depth import may_be_deep, problem_of
from clonos.core.values.column_rows import rows_of_columns
from clonos.kernels.record_batch import RecordBatch
from clonos.operators.connector_contract import MalformedRecord, PartlyMalformed, PendingInput, SplitReader, pending_of

if TYPE_CHECKING:
    import typing_extensions

    from clonos.connectors.columns.line_columns import LineFormat

    AnyValue = typing_extensions.TypeVar("AnyValue", default=Any)
else:
    AnyValue = TypeVar("AnyValue")

CONNECTOR = "files.jsonl"
_ADVICE = {
    "[": "Is the file one array? Write each item on a line of its own, for example with: jq -c .[]",
    "{": "Write each object on a line of its own, for example with: jq -c .",
}
"""What to do about a line that begins a value over many lines."""
COPY_BYTES = 1 << 20


class JsonFiles(FilesByPath, Generic[AnyValue]):
    """JSON lines: as a source, files by path, folder or pattern; as a sink, one folder."""

    routes_malformed = True
    routes_refused = True
    takes_schema = True
    has_fields = True

    def __init__(
        self,
        paths: Sequence[str],
        *,
        block_bytes: int | None = None,
        line_bytes_max: int = LINE_BYTES_MAX,
        discovery_interval_ns: int = 0,
        single: bool = False,
        ordered: bool | None = None,
        schema: Any = None,
        columns: bool | Sequence[str] | None = None,
        partition_by: str | Sequence[str] | None = None,
        partitioned: Any = None,
        **parts: Any,
    ) -> None:
        super().__init__(CONNECTOR, paths, single=single, partition_by=partition_by, **parts)
        self.folder_columns = FolderColumns(CONNECTOR, partitioned)
        self._line_format = _line_format(schema, columns)
        self.gives_columns = self._line_format is not None
        self.schema: type[AnyValue] | None = None
        if schema is not None and not self.gives_columns:
            check_schema(CONNECTOR, schema)
            self.schema = schema
            if self.folder_columns.are_added:
                problem = "objects of schema= have no place for the columns that partitioned= adds"
                raise InvalidConnector(CONNECTOR, problem, "Leave out schema=, which gives dicts.")
        check_line_options(CONNECTOR, paths, block_bytes, ordered, line_bytes_max)
        self.ordered = ordered_of(ordered, block_bytes)
        self.block_bytes = block_bytes
        self.line_bytes_max = line_bytes_max
        self.discovery_interval_ns = discovery_interval_ns

    def _splits_of(self, paths: list[str], parallelism: int, known: Sequence[bytes]) -> list[bytes]:
        if self._line_format is None:
            return super()._splits_of(paths, parallelism, known)
        from clonos.connectors.columns.line_columns import column_splits  # Arrow takes long to load

        return column_splits(self._line_format, paths, parallelism, self.block_bytes, self.ordered is True, known)

    def _paths(self) -> list[str]:
        return self.folder_columns.find(self.paths, may_be_empty=self.discovery_interval_ns > 0)

    def column_schema(self) -> Any | None:
        """See ``column_contract.DescribedSource``: the schema that is given."""
        return (
            None if self._line_format is None else self.folder_columns.described(self._line_format.schema, self._paths)
        )

    def sampled_schema(self, splits: Sequence[bytes]) -> Any | None:
        """See ``column_contract.SampledSource``."""
        if not splits:
            return self.column_schema()
        if self._line_format is None:
            return None
        from clonos.connectors.columns.line_columns import schema_of_splits  # Arrow takes long to load

        return schema_of_splits(self._line_format, splits, self.folder_columns)

    def pending(self, split: bytes, mark: bytes | None) -> PendingInput | None:
        """See ``connector_contract.PendingSource``."""
        return pending_lines(split, mark)

    def reader(self) -> SplitReader[AnyValue]:
        """Creates a reader of values, or of columns."""
        if self._line_format is not None:
            from clonos.connectors.columns.line_columns import ColumnLineReader  # Arrow takes long to load

            return self.folder_columns.reader(ColumnLineReader(self._line_format, self.line_bytes_max))
        if self.schema is not None:
            check_schema(CONNECTOR, self.schema)  # a class that came with the job is registered in this process
        return self.folder_columns.reader(JsonReader(self.line_bytes_max, self.schema))

    def rows_format(self) -> RowsFormat:
        """Returns the JSON lines format.

        Raises: InvalidConnector: the files are a source of objects of a class, or of columns.
        """
        if self._line_format is not None:
            raise InvalidConnector(
                CONNECTOR, "a sink takes no columns= or schema=", "It writes the fields of each row."
            )
        if self.schema is not None:
            raise InvalidConnector(CONNECTOR, "schema= is for a source", "Leave it out for a sink.")
        return JsonFormat()


def _line_format(schema: Any, columns: bool | Sequence[str] | None) -> LineFormat | None:
    """Returns the format of lines that become columns; None if they become values."""
    is_arrow = hasattr(schema, "field_by_name") or hasattr(schema, "get_field_index")
    if not is_arrow and columns in (None, False):
        return None
    if isinstance(columns, str) or (not isinstance(columns, bool) and columns is not None and not columns):
        raise InvalidConnector(CONNECTOR, f"columns is {columns!r}", "Give True, or a list of the fields to read.")
    if schema is not None and not is_arrow:
        raise InvalidConnector(
            CONNECTOR, "a class in schema= makes objects, not columns", "Give a pyarrow.Schema, or leave out columns=."
        )
    from clonos.connectors.columns.json_columns import JsonLines  # Arrow takes long to load

    return JsonLines(schema, None if isinstance(columns, bool) else columns)


class JsonLineReader(LineReader):
    """Reader of lines. ``may_be_deep``: see the function of this name, of the lines that are loaded."""

    may_be_deep = False

    def _take(self) -> None:
        self.may_be_deep = may_be_deep(self._data)
        super()._take()


class JsonReader(Generic[AnyValue]):
    """Reader of the value of each line; blank lines are skipped."""

    def __init__(self, line_bytes_max: int, schema: type[AnyValue] | None) -> None:
        decoder = None if schema is None else LineDecoder(schema)
        self._parse_lines: Callable[[list[str]], list[Any] | None] = (
            parse_json_lines if decoder is None else decoder.decode_lines
        )
        self._parse: Callable[[str], Any] = parse_json if decoder is None else decoder.decode
        self._lines = JsonLineReader("utf-8-sig", "strict", line_bytes_max, with_position=False)

    def open(self, split: bytes, mark: bytes | None) -> None:
        """Opens a split at a mark.

        Raises: InputChanged, InputUnreadable.
        """
        self._lines.open(split, mark)

    def read(self, records_max: int) -> list[AnyValue] | None:
        """Returns the next values, None at the end. A malformed line is a ``MalformedRecord``."""
        while (lines := self._lines.read(records_max)) is not None:
            are_plain = type(lines) is list and not self._lines.may_be_deep
            values = self._parse_lines(lines) if are_plain else None
            if values is None:
                values = self._one_by_one(lines)
            if values:
                return values
        return None

    def pending(self) -> PendingInput | None:
        """See ``connector_contract.PendingReader``."""
        return pending_of(self._lines)

    def mark(self) -> bytes:
        """Returns the offset of the next line."""
        return self._lines.mark()

    def close(self) -> None:
        """Closes the file."""
        self._lines.close()

    def _one_by_one(self, lines: list[Any]) -> list[Any]:
        values: list[Any] = []
        for index, line in enumerate(lines):
            if type(line) is MalformedRecord:
                values.append(line)
            elif line and not line.isspace():
                try:
                    values.append(self._parse(line))
                except ValueError as error:
                    problem = str(error) if isinstance(error, Unfit) else problem_of(error)
                    offset_bytes = self._lines.offset_bytes(index)
                    malformed = InputMalformed(
                        self._lines.path,
                        offset_bytes,
                        f"the line {line[:80]!r} {problem}",
                        _ADVICE.get(line.strip().removeprefix(BYTE_ORDER_MARK), "Correct the file."),
                        True,
                        self._lines.line_at(offset_bytes),
                    )
                    values.append(MalformedRecord(line, malformed))
        has_malformed = any(type(value) is MalformedRecord for value in values)
        return PartlyMalformed(values) if has_malformed else values


class JsonFormat:
    """Format of JSON lines part files."""

    suffix = "jsonl"

    def start(self, file: OutputFile) -> JsonRows:
        """Begins a part file."""
        return JsonRows(file)

    def join(self, paths: Sequence[str], file: OutputFile) -> None:
        """Writes the lines of part files into one file."""
        for path in paths:
            with output_errors(path, "read"), open_part(path) as part:
                while piece := part.read(COPY_BYTES):
                    file.write(piece)


class JsonRows:
    """Part file of JSON lines."""

    gathered_rows = 0

    def __init__(self, file: OutputFile) -> None:
        self._file = file

    def rows(self, rows: list[Any]) -> None:
        """Appends each row as a line.

        Raises: RowNotWritable: a row has no JSON representation.
        """
        self._file.write(json_lines(rows, CONNECTOR))

    def columns(self, batch: RecordBatch) -> None:
        """Appends each row of a ``pyarrow.RecordBatch`` as an object."""
        from clonos.connectors.columns.text_columns import json_text_of  # Arrow takes long to load

        text = json_text_of(batch)
        if text is None:
            self.rows(rows_of_columns(batch))
        else:
            self._file.write(text)

    def flush(self) -> None:
        """Does nothing: each row is in the file already."""

    def finish(self) -> None:
        """Does nothing: a text file needs no footer."""

    def abandon(self) -> None:
        """Does nothing: the file is the only resource."""
