"""Parquet files: a source of ``pyarrow.RecordBatch`` with a split per row group, and a sink.

The sink's schema is the given one, else that of the first rows of each part file. Values have their Arrow types; UUIDs
are written as text, sets as sorted lists and objects with fields as structs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from clonos.connectors.connector_errors import (
    InputMalformed,
    InputUnreadable,
    InvalidConnector,
    OutputCorrupt,
    SplitMalformed,
)
from clonos.connectors.filesystem.durable_files import DurableFile, output_errors
from clonos.connectors.filesystem.file_patterns import find_files
from clonos.connectors.filesystem.file_sinks import FileSink
from clonos.connectors.filesystem.file_splits import (
    SPLIT_FORMAT,
    FileSplit,
    OrderedFiles,
    check_split,
    check_unchanged,
    decode_split,
    encode_split,
    new_files,
    regular_status,
)
from clonos.connectors.filesystem.output_folder import readable_files
from clonos.connectors.filesystem.output_parts import RowsFormat
from clonos.connectors.filesystem.parquet_batches import (
    ParquetUnreadable,
    next_batch,
    open_file,
    read_batches,
    reading,
)
from clonos.connectors.filesystem.parquet_rows import ParquetRows, unified, widened
from clonos.core.model.errors import ClonosError

CONNECTOR = "files.parquet"
BATCH_ROWS = 65_536
MARK_BYTES = 8


class ParquetFiles(OrderedFiles, FileSink):
    """Parquet: as a source, files by path, folder or pattern, and ``columns``; as a sink, one folder and ``schema``."""

    is_columnar = True

    def __init__(
        self,
        paths: Sequence[str],
        *,
        columns: Sequence[str] | None,
        schema: Any,
        discovery_interval_ns: int = 0,
        single: bool = False,
        ordered: bool | None = None,
    ) -> None:
        super().__init__(CONNECTOR, paths, single=single)
        if not paths:
            raise InvalidConnector(CONNECTOR, "no path is given", "Name at least one file, folder or pattern.")
        self.columns = None if columns is None else list(columns)
        self.schema = schema
        self.discovery_interval_ns = discovery_interval_ns
        self.patterns = self.paths
        self.ordered = ordered

    def splits(self, parallelism: int) -> list[bytes]:
        """Returns the row groups of the files that exist now, or whole files.

        Raises: InvalidConnector: a schema is given, or a file lacks a column. InputMalformed, InputUnreadable: a file
        is unusable.
        """
        if self.schema is not None:
            raise InvalidConnector(CONNECTOR, "a source takes no schema=", "Select columns with columns=.")
        return self._splits_of(self._paths())

    def discover(self, known: Sequence[bytes], index: int, parallelism: int) -> list[bytes]:
        """Returns the splits of files that have appeared since."""
        return self._splits_of(new_files(self._paths(), known, index, parallelism))

    def check_split(self, split: bytes) -> None:
        """See ``connector_contract.CheckingSource``."""
        check_split(CONNECTOR, self.paths, split)

    def column_schema(self) -> Any | None:
        """Returns the schema of the first file, None if it cannot be read now."""
        try:
            path = self._paths()[0]
            with _reading(path), open_file(path) as file, reading():
                schema = file.schema_arrow.remove_metadata()
        except (ClonosError, IndexError):
            return None
        if self.columns is None:
            return schema
        names = [name for name in self.columns if name in schema.names]
        return schema.empty_table().select(names).schema

    def _paths(self) -> list[str]:
        return find_files(CONNECTOR, self.paths, readable_files, may_be_empty=self.discovery_interval_ns > 0)

    def _splits_of(self, paths: list[str]) -> list[bytes]:
        splits = []
        for path in paths:
            status = regular_status(path)
            with _reading(path), open_file(path) as file, reading():
                schema = file.schema_arrow
                groups = [g for g in range(file.num_row_groups) if file.metadata.row_group(g).num_rows]
                columns = schema.names
            self._check_columns(path, columns)
            cuts = [(group, group + 1) for group in groups]
            if self.ordered and groups:
                cuts = [(groups[0], groups[-1] + 1)]
            for begin, end in cuts:
                split = FileSplit(SPLIT_FORMAT, path, status.st_size, status.st_mtime_ns, begin, end)
                splits.append(encode_split(split))
        return splits

    def can_cut(self, split: FileSplit) -> bool:
        """Returns whether the file has more than one row group."""
        return split.end - split.begin > 1

    def reader(self) -> ParquetReader:
        """Creates a reader of record batches."""
        return ParquetReader(self.columns)

    def rows_format(self) -> RowsFormat:
        """Returns the Parquet format.

        Raises: InvalidConnector: ``columns`` is given, which is for sources.
        """
        if self.columns is not None:
            raise InvalidConnector(CONNECTOR, "a sink takes no columns=", "Name columns and types with schema=.")
        return ParquetFormat(self.schema)

    def _check_columns(self, path: str, columns: Sequence[str]) -> None:
        missing = [column for column in self.columns or () if column not in columns]
        if missing:
            raise InvalidConnector(CONNECTOR, f"{path} has no column {missing[0]!r}", f"It has {', '.join(columns)}.")


class ParquetReader:
    """Reader of the row groups of a split, batch by batch. A mark is the number of their rows that were read."""

    def __init__(self, columns: list[str] | None, *, batch_rows: int = BATCH_ROWS) -> None:
        self._columns = columns
        self._batch_rows = batch_rows
        self._split: FileSplit | None = None
        self._file: Any = None
        self._batches: Any = iter(())
        self._batch: Any = None
        self._next = 0
        self._rows = 0

    def open(self, split: bytes, mark: bytes | None) -> None:
        """Opens a split at a mark.

        Raises: InputChanged, InputUnreadable, InputMalformed: the file differs or is unusable. SplitMalformed: the
        split or mark is invalid.
        """
        self.close()
        part = decode_split(split)
        if mark is not None and len(mark) != MARK_BYTES:
            raise SplitMalformed("position in a row group", mark, f"it has {len(mark)} bytes")
        check_unchanged(part, regular_status(part.path))
        self._split = part
        with _reading(part.path):
            self._file = open_file(part.path)
        if not part.begin < part.end <= self._file.num_row_groups:
            raise SplitMalformed("split of a file", split, f"{part.path} has {self._file.num_row_groups} row groups")
        wanted = 0 if mark is None else int.from_bytes(mark, "big")
        groups = list(range(part.begin, part.end))
        self._batch, self._next, self._rows = None, 0, 0
        while len(groups) > 1 and self._rows + (rows := self._file.metadata.row_group(groups[0]).num_rows) <= wanted:
            self._rows += rows
            groups.pop(0)
        self._batches = self._file.iter_batches(
            batch_size=self._batch_rows, row_groups=groups, columns=self._columns, use_threads=False
        )
        while self._rows < wanted and self._load():
            taken = min(wanted - self._rows, self._batch.num_rows)
            self._next, self._rows = taken, self._rows + taken

    def read(self, records_max: int) -> Any | None:
        """Returns the next batch of at most ``records_max`` rows, None at the end."""
        if (self._batch is None or self._next == self._batch.num_rows) and not self._load():
            return None
        rows = self._batch.slice(self._next, records_max)
        self._next += rows.num_rows
        self._rows += rows.num_rows
        return rows

    def mark(self) -> bytes:
        """Returns the number of rows read."""
        return self._rows.to_bytes(MARK_BYTES, "big")

    def close(self) -> None:
        """Closes the file."""
        if self._file is not None:
            self._batches, self._batch = iter(()), None
            self._file.close()
            self._file = None

    def _load(self) -> bool:
        """Loads the next batch that has rows; returns False at the end of the row group."""
        assert self._split is not None, "a reader is opened before it is read"
        while True:
            try:
                with _reading(self._split.path):
                    batch = next_batch(self._batches)
            finally:  # a file that changes while it is read may give anything
                check_unchanged(self._split, regular_status(self._split.path))
            if batch is None:
                return False
            if batch.num_rows:
                self._batch, self._next = batch, 0
                return True


@contextmanager
def _reading(path: str) -> Iterator[None]:
    try:
        yield
    except ParquetUnreadable as error:
        problem = f"it is not a readable Parquet file: {error}"
        raise InputMalformed(path, 0, problem, "Repair it or leave it out.") from error
    except OSError as error:
        raise InputUnreadable(path, error.strerror or str(error)) from error


class ParquetFormat:
    """Format of Parquet part files."""

    suffix = "parquet"

    def __init__(self, schema: Any) -> None:
        self.schema = schema

    def start(self, file: DurableFile) -> ParquetRows:
        """Begins a part file."""
        return ParquetRows(file, self.schema)

    def join(self, paths: Sequence[str], file: DurableFile) -> None:
        """Writes the rows of part files into one file, whose columns have the types that hold those of all parts.

        Raises: OutputCorrupt: a part is not Parquet. RowNotWritable: a column has types that no type can hold.
        """
        path = ""
        try:
            schemas = []
            for path in paths:
                with output_errors(path, "read"), open_file(path) as part:
                    schemas.append(part.schema_arrow)
            schema = self.schema or unified(schemas)
            joined = ParquetRows(file, schema)
            for path in paths:
                with output_errors(path, "read"):
                    for batch in read_batches(path):
                        joined.columns(widened(batch, schema))
        except ParquetUnreadable as error:
            raise OutputCorrupt(path, "Parquet", str(error)) from None
        joined.finish()
