"""Container files of Avro: a source of the records of each block, and a sink.

Records are dicts with the values of fastavro, or objects of the class that is given as ``schema``.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Iterator, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, Final, Unpack
from uuid import UUID

import msgspec

from clonos.connectors.codecs.avro import AvroCodec, fastavro, parsed
from clonos.connectors.codecs.codec import UnencodableValue
from clonos.connectors.connector_errors import InputMalformed, InvalidConnector, OutputCorrupt, row_not_writable
from clonos.connectors.filesystem.durable_files import output_errors
from clonos.connectors.filesystem.file_options import AvroOptions, Path, given
from clonos.connectors.filesystem.file_sinks import paths_of
from clonos.connectors.filesystem.files_by_path import FilesByPath
from clonos.connectors.filesystem.input_files import open_buffered
from clonos.connectors.filesystem.line_files import check_line_options, ordered_of
from clonos.connectors.filesystem.output_files import OutputFile
from clonos.connectors.filesystem.output_parts import RowsFormat
from clonos.connectors.formats.avro_blocks import BLOCK_BYTES, MARKER_BYTES, AvroReader, block_of
from clonos.connectors.formats.avro_schemas import avro_schema
from clonos.connectors.partitions.folder_columns import FolderColumns
from clonos.connectors.row_fields import columns_of, fields_of
from clonos.connectors.typed_records import check_schema
from clonos.core.model.wrong_calls import explains_calls
from clonos.core.values.column_rows import rows_of_columns
from clonos.kernels.record_batch import RecordBatch
from clonos.operators.connector_contract import SplitReader

CONNECTOR: Final = "files.avro"
COPY_BYTES: Final = 1 << 20
CODECS: Final = {None: "deflate", "deflate": "deflate", "none": "null"}
_TYPES: Final = (bytes, datetime, date, time, Decimal, UUID)


class AvroFiles(FilesByPath):
    """Avro: as a source, files by path, folder or pattern; as a sink, one folder."""

    routes_refused = True

    def __init__(
        self,
        paths: Sequence[str],
        *,
        schema: Any,
        block_bytes: int | None = None,
        discovery_interval_ns: int = 0,
        ordered: bool | None = None,
        compression: str | None = None,
        partitioned: Any = None,
        **parts: Any,
    ) -> None:
        super().__init__(CONNECTOR, paths, **parts)
        fastavro()
        check_line_options(CONNECTOR, paths, block_bytes, ordered)
        if compression not in CODECS:
            raise InvalidConnector(CONNECTOR, f"compression is {compression!r}", 'Give "deflate" or "none".')
        self.folder_columns = FolderColumns(CONNECTOR, partitioned)
        self.record_class: type[Any] | None = schema if isinstance(schema, type) else None
        if self.record_class is not None:
            check_schema(CONNECTOR, schema)
            if self.folder_columns.are_added:
                problem = "objects of schema= have no place for the columns that partitioned= adds"
                raise InvalidConnector(CONNECTOR, problem, "Give a schema of Avro, which gives dicts.")
        self.schema = None if schema is None else avro_schema(CONNECTOR, schema)
        self.codec = CODECS[compression]
        self.block_bytes = block_bytes
        self.discovery_interval_ns = discovery_interval_ns
        self.ordered = ordered_of(ordered, block_bytes)

    def reader(self) -> SplitReader[Any]:
        """Creates a reader of records."""
        schema = None if self.schema is None else parsed(self.schema)
        if self.record_class is None:
            return self.folder_columns.reader(AvroReader(schema))
        check_schema(CONNECTOR, self.record_class)  # a class that came with the job is registered in this process
        return ObjectReader(schema, self.record_class)

    def rows_format(self) -> RowsFormat:
        """Returns the format of Avro.

        Raises: InvalidConnector: there is no schema.
        """
        if self.schema is None:
            raise InvalidConnector(CONNECTOR, "a sink needs a schema", "Give schema=, one of Avro or a class.")
        return AvroFormat(self.schema, self.codec)

    def _paths(self) -> list[str]:
        return self.folder_columns.find(self.paths, may_be_empty=self.discovery_interval_ns > 0)


class ObjectReader(AvroReader):
    """Reader of records as objects of a class."""

    def __init__(self, schema: Any, record_class: type[Any]) -> None:
        super().__init__(schema)
        self._class = record_class

    def read(self, records_max: int) -> list[Any] | None:
        """Returns the next objects, None at the end.

        Raises: InputMalformed: a block is damaged, or a record does not fit the class.
        """
        found = super().read(records_max)
        try:
            return None if found is None else [_object_of(record, self._class) for record in found]
        except msgspec.ValidationError as error:
            reason = f"a record of the block does not fit {self._class.__name__}: {error}"
            raise InputMalformed(self._path, self._offset, reason, "Correct the file or the class.") from None


def _object_of(record: dict[str, Any], record_class: type[Any]) -> Any:
    if hasattr(record_class, "_fields"):  # msgspec takes a NamedTuple for an array
        return record_class(**record)
    return msgspec.convert(record, record_class, builtin_types=_TYPES)


class AvroFormat:
    """Format of part files of Avro."""

    suffix = "avro"

    def __init__(self, schema: Any, codec: str) -> None:
        self._schema = schema
        self._codec = codec

    def start(self, file: OutputFile) -> AvroRows:
        """Begins a part file."""
        return AvroRows(file, self._schema, self._codec)

    def join(self, paths: Sequence[str], file: OutputFile) -> None:
        """Writes the blocks of part files, which all have this schema, into one file.

        Raises: OutputCorrupt: a part has another one.
        """
        header = AvroRows(file, self._schema, self._codec).header
        for path in paths:
            with output_errors(path, "read"), open_buffered(path) as part:
                if part.read(len(header)) != header:
                    raise OutputCorrupt(path, "the schema of the sink", "another schema")
                while piece := part.read(COPY_BYTES):
                    file.write(piece)


class AvroRows:
    """Part file of Avro."""

    def __init__(self, file: OutputFile, schema: Any, codec: str) -> None:
        self._file = file
        self._codec = codec
        self._datum = AvroCodec(schema, None)
        # Equal rows give equal bytes: fastavro draws the marker at random.
        self._marker = hashlib.sha256(json.dumps(schema).encode()).digest()[:MARKER_BYTES]
        empty = io.BytesIO()
        fastavro().writer(empty, parsed(schema), [], codec=codec, sync_marker=self._marker)
        self.header = empty.getvalue()
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        file.write(self.header)

    @property
    def gathered_rows(self) -> int:
        """Returns how many rows wait for their block."""
        return len(self._pending)

    def rows(self, rows: list[Any]) -> None:
        """Appends rows.

        Raises: RowNotWritable: a row does not have the schema; nothing of the batch is written.
        """
        data = []
        for index, row in enumerate(rows):
            try:
                data.append(self._datum.encode(_value_of(row)))
            except UnencodableValue as error:
                raise row_not_writable(CONNECTOR, index, row, f"it does not have the schema: {error.reason}") from None
        self._pending += data
        self._pending_bytes += sum(map(len, data))
        if self._pending_bytes >= BLOCK_BYTES:
            self.flush()

    def columns(self, batch: RecordBatch) -> None:
        """Appends the rows of a ``pyarrow.RecordBatch``; raises what ``rows`` raises."""
        self.rows(rows_of_columns(batch))

    def flush(self) -> None:
        """Writes the rows that wait as a block."""
        if self._pending:
            self._file.write(block_of(b"".join(self._pending), len(self._pending), self._codec, self._marker))
            self._pending, self._pending_bytes = [], 0

    def finish(self) -> None:
        """Writes the last block."""
        self.flush()

    def abandon(self) -> None:
        """Does nothing: the file is the only resource."""


def _value_of(row: Any) -> Any:
    """Returns a row, and what is in it, as dicts and lists."""
    if type(row) is dict:
        return {name: _value_of(value) for name, value in row.items()}
    if type(row) in (list, set, frozenset):
        return list(map(_value_of, row))
    if isinstance(row, msgspec.Struct) or hasattr(row, "__dataclass_fields__") or hasattr(row, "_fields"):
        names = columns_of(row, CONNECTOR)
        return dict(zip(names, map(_value_of, fields_of(row, names, CONNECTOR)), strict=True))
    return list(map(_value_of, row)) if type(row) is tuple else row


def read_rows(path: str) -> Iterator[Any]:
    """Yields the records of a file.

    Raises: ValueError: it is no container file of Avro.
    """
    with open_buffered(path) as file:
        try:
            yield from fastavro().reader(file)
        except Exception as error:  # noqa: BLE001  fastavro lets anything pass
            raise ValueError(f"{type(error).__name__}: {error}") from None


@explains_calls
def avro(path: Path | Sequence[Path], *, schema: Any = None, **options: Unpack[AvroOptions]) -> AvroFiles:
    """Container files of Avro: a source of their records, or a sink into a folder.

    It needs fastavro: ``pip install 'clonos[avro]'``.

    Args:
        path: for a source a file, folder or pattern, or a list of these; for a sink a folder.
        schema: schema of Avro as a dict or JSON, or a dataclass, NamedTuple, TypedDict or msgspec.Struct. A source
            reads files of other schemas by it, by the rules of Avro; without it records have the schema of their file.
            A class makes them its objects. A sink needs it.
        block_bytes: for a source, size of the parts into which files are split; see ``files.lines``.
        watch: for a source, how often to look for new files; see ``files.lines``.
        ordered: for a source, True reads each file as one split; see ``files.lines``.
        partitioned: for a source, see ``files.jsonl``.
        single: for a sink, True writes one file of this path when all sources have ended.
        compression: for a sink, "deflate" (default) or "none".
        part_rows: for a sink, as for ``files.lines``.
        part_bytes: for a sink, the same. It counts complete blocks.

    Raises:
        InvalidConnector: an option cannot work, or the schema is none.
        ExtraMissing: fastavro is not installed.

    Example::

        job.source(files.avro("orders/*.avro")).sink(files.parquet("orders"))
    """
    return AvroFiles(paths_of(path), schema=schema, **given(options))
