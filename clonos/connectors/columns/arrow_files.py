"""Arrow IPC files, also known as Feather: a source of ``pyarrow.RecordBatch`` with a split per batch, and a sink.

The sink's schema is the given one, else that of the first rows of each part file; values are written as to Parquet.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow

from clonos.connectors.columns.batch_files import BatchFiles, BatchReader, reading_input
from clonos.connectors.columns.parquet_batches import FormatUnreadable, arrow_input, reading
from clonos.connectors.columns.parquet_rows import ParquetRows, unified, widened
from clonos.connectors.connector_errors import OutputCorrupt
from clonos.connectors.filesystem.durable_files import output_errors
from clonos.connectors.filesystem.output_files import OutputFile
from clonos.connectors.filesystem.output_parts import RowsFormat
from clonos.core.values.columns import decode_names, validate_columns
from clonos.kernels.record_batch import RecordBatch
from clonos.operators.connector_contract import SplitReader

CONNECTOR = "files.arrow"
KIND = "Arrow IPC"


class ArrowFiles(BatchFiles):
    """Arrow IPC: as a source, files by path, folder or pattern, and ``columns``; as a sink, a folder and ``schema``."""

    codecs = ("zstd", "lz4", "none")

    def __init__(self, paths: Sequence[str], **options: Any) -> None:
        super().__init__(CONNECTOR, paths, **options)

    def groups_of(self, path: str) -> tuple[Any, list[int]]:
        """Returns the schema of a file, and the numbers of its record batches."""
        with reading_input(path, KIND), ArrowFile(path) as file:
            return file.schema, list(range(file.count))

    def schema_of(self, path: str) -> Any:
        """Returns the schema of a file.

        Raises: InputMalformed, InputUnreadable: the file is unusable.
        """
        with reading_input(path, KIND), ArrowFile(path) as file:
            return file.schema.remove_metadata()

    def reader(self) -> SplitReader[Any]:
        """Creates a reader of record batches."""
        return self.folder_columns.reader(ArrowReader(self.columns, used=self.used, planned=self.planned_schema))

    def rows_format(self) -> RowsFormat:
        """Returns the Arrow IPC format.

        Raises: InvalidConnector: ``columns`` is given, which is for sources.
        """
        self._check_sink()
        return ArrowFormat(self.in_files(self.schema), self.codec)


class ArrowFile:
    """Open Arrow IPC file, whose batches are validated.

    Raises: FormatUnreadable: the bytes are not of that format. OSError: the file system fails.
    """

    def __init__(self, path: str) -> None:
        self._file = arrow_input(path)
        try:
            with reading():
                self._reader = pyarrow.ipc.open_file(self._file)
                self.schema = self._reader.schema
                decode_names(self.schema)
                self.count: int = self._reader.num_record_batches
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> ArrowFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def batch(self, number: int) -> Any:
        """Returns a batch."""
        with reading():
            batch = self._reader.get_batch(number)
            validate_columns(batch)
            return batch

    def close(self) -> None:
        """Closes the file."""
        self._file.close()


class ArrowReader(BatchReader):
    """Reader of record batches."""

    kind = KIND
    groups = "record batches"

    _file: ArrowFile

    def __init__(self, columns: list[str] | None, *, used: frozenset[str] | None = None, planned: Any = None) -> None:
        super().__init__(columns, used=used, planned=planned)
        self._loaded: tuple[int, Any] = (-1, None)

    def _open(self, path: str) -> Any:
        self._loaded = (-1, None)
        return ArrowFile(path)

    def _count(self) -> int:
        return self._file.count

    def _size(self, group: int) -> int:
        return self._batch_at(group).num_rows  # type: ignore[no-any-return]

    def _batches_of(self, groups: list[int]) -> Iterator[Any]:
        for group in groups:
            yield self._batch_at(group)

    def _batch_at(self, group: int) -> Any:
        """Returns a batch, the last one without reading it again: only the batch itself has its number of rows."""
        if self._loaded[0] != group:
            batch = self._file.batch(group)
            names = self._names_of(batch.schema.names)
            self._loaded = (group, batch if names is None else batch.select(names))
        return self._loaded[1]


class ArrowFormat:
    """Format of Arrow IPC part files."""

    suffix = "arrow"

    def __init__(self, schema: Any, codec: str | None = None) -> None:
        self.schema = schema
        self.codec = codec

    def start(self, file: OutputFile) -> ArrowRows:
        """Begins a part file."""
        return ArrowRows(file, self.schema, codec=self.codec)

    def join(self, paths: Sequence[str], file: OutputFile) -> None:
        """Writes the rows of part files into one file, whose columns have the types that hold those of all parts.

        Raises: OutputCorrupt: a part is not Arrow IPC. RowNotWritable: a column has types that no type can hold.
        """
        schemas = []
        for path in paths:
            with _parts_of(path) as part:
                schemas.append(part.schema)
        schema = self.schema or unified(schemas)
        joined = ArrowRows(file, schema, codec=self.codec)
        for path in paths:
            with _parts_of(path) as part:
                for number in range(part.count):
                    joined.columns(widened(part.batch(number), schema))
        joined.finish()


class ArrowRows(ParquetRows):
    """Part file of Arrow IPC."""

    connector = CONNECTOR

    def columns(self, batch: RecordBatch) -> None:
        """Appends a ``pyarrow.RecordBatch``, decoded unless ``schema`` is given: a file has one dictionary for all."""
        if not self._is_schema_given:
            batch = _decoded(batch)
        super().columns(batch)

    def _write(self, table: Any) -> None:
        super()._write(table.combine_chunks())

    def _new_writer(self, sink: Any, schema: Any) -> Any:
        codec = None if self._codec == "none" else self._codec
        return pyarrow.ipc.new_file(sink, schema, options=pyarrow.ipc.IpcWriteOptions(compression=codec))


def _decoded(batch: RecordBatch) -> Any:
    columns = [
        column.dictionary_decode() if pyarrow.types.is_dictionary(column.type) else column for column in batch.columns
    ]
    return pyarrow.record_batch(columns, names=batch.schema.names)


def read_rows(path: str) -> Iterator[Any]:
    """Yields the rows of a file as dicts.

    Raises: ValueError: it is no Arrow IPC file.
    """
    try:
        with ArrowFile(path) as file:
            for number in range(file.count):
                yield from file.batch(number).to_pylist()
    except FormatUnreadable as error:
        raise ValueError(str(error)) from None


@contextmanager
def _parts_of(path: str) -> Iterator[ArrowFile]:
    try:
        with output_errors(path, "read"), ArrowFile(path) as part:
            yield part
    except FormatUnreadable as error:
        raise OutputCorrupt(path, KIND, str(error)) from None
