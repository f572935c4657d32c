"""Parquet files: a source of ``pyarrow.RecordBatch`` with a split per row group, and a sink.

The sink's schema is the given one, else that of the first rows of each part file. Values have their Arrow types; UUIDs
are written as text, sets as sorted lists and objects with fields as structs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from clonos.connectors.columns.batch_files import BATCH_ROWS, BatchFiles, BatchReader, reading_input
from clonos.connectors.columns.group_statistics import has_no_row
from clonos.connectors.columns.long_instants import Nanoseconds, long_instants
from clonos.connectors.columns.parquet_batches import (
    FormatUnreadable,
    next_batch,
    open_file,
    open_known,
    read_batches,
    reading,
)
from clonos.connectors.columns.parquet_rows import ParquetRows, unified, widened
from clonos.connectors.connector_errors import OutputCorrupt
from clonos.connectors.filesystem.durable_files import output_errors
from clonos.connectors.filesystem.output_files import OutputFile
from clonos.connectors.filesystem.output_parts import RowsFormat
from clonos.kernels.record_batch import RecordBatch
from clonos.operators.column_contract import Bound
from clonos.operators.connector_contract import SplitReader

CONNECTOR = "files.parquet"
KIND = "Parquet"

BATCH_BYTES: Final = 4 << 20
"""Bytes of a batch, as they are in the file, up to which it has more rows than usual."""

NARROW_ROWS_MAX: Final = 1 << 17
"""Most rows of such a batch."""


class ParquetFiles(BatchFiles):
    """Parquet: as a source, files by path, folder or pattern, and ``columns``; as a sink, one folder and ``schema``."""

    codecs = ("snappy", "zstd", "gzip", "lz4", "brotli", "none")

    def __init__(self, paths: Sequence[str], **options: Any) -> None:
        super().__init__(CONNECTOR, paths, **options)

    def groups_of(self, path: str) -> tuple[Any, list[int]]:
        """Returns the schema of a file, and the numbers of its row groups that have rows."""
        with reading_input(path, KIND), open_file(path) as file, reading():
            groups = [group for group in range(file.num_row_groups) if file.metadata.row_group(group).num_rows]
            return file.schema_arrow, groups

    def schema_of(self, path: str) -> Any:
        """Returns the schema of a file.

        Raises: InputMalformed, InputUnreadable: the file is unusable.
        """
        with reading_input(path, KIND), open_file(path) as file, reading():
            return file.schema_arrow.remove_metadata()

    def reader(self) -> SplitReader[Any]:
        """Creates a reader of record batches."""
        return self.folder_columns.reader(
            ParquetReader(self.columns, bounds=self.bounds, used=self.used, planned=self.planned_schema)
        )

    def rows_format(self) -> RowsFormat:
        """Returns the Parquet format.

        Raises: InvalidConnector: ``columns`` is given, which is for sources.
        """
        self._check_sink()
        return ParquetFormat(self.in_files(self.schema), self.codec)


class ParquetReader(BatchReader):
    """Reader of row groups. It skips those in which, by their statistics, no row is within the bounds."""

    kind = KIND
    groups = "row groups"

    def __init__(
        self,
        columns: list[str] | None,
        *,
        batch_rows: int = BATCH_ROWS,
        bounds: Sequence[Bound] = (),
        used: frozenset[str] | None = None,
        planned: Any = None,
    ) -> None:
        super().__init__(columns, batch_rows=batch_rows, used=used, planned=planned)
        self._bounds = tuple(bounds)
        self._exact_file: Any = None  # None also if the file has no instants of 96 bits
        self._long_instants: list[str] = []
        self._nanoseconds: Nanoseconds | None = None

    def _open(self, path: str) -> Any:
        assert self._split is not None, "its status was compared with that of the file"
        file = open_known(path, self._split.size_bytes, self._split.mtime_ns)
        self._long_instants = long_instants(file.metadata)
        if self._long_instants:
            self._exact_file = open_file(path, file.metadata, "ns")
        return file

    def close(self) -> None:
        """Closes the file."""
        super().close()
        if self._exact_file is not None:
            self._nanoseconds = None
            self._exact_file.close()
            self._exact_file = None

    def _count(self) -> int:
        return self._file.num_row_groups  # type: ignore[no-any-return]

    def _size(self, group: int) -> int:
        return self._file.metadata.row_group(group).num_rows  # type: ignore[no-any-return]

    def _skips(self, group: int) -> bool:
        return bool(self._bounds) and has_no_row(self._file, group, self._bounds)

    def _batches_of(self, groups: list[int]) -> Iterator[Any]:
        names = self._names_of(self._file.schema_arrow.names)
        batches = self._file.iter_batches(
            batch_size=self._rows_of_batch(groups[0], names), row_groups=groups, columns=names, use_threads=False
        )
        exact = [name for name in self._long_instants if names is None or name in names]
        self._nanoseconds = None
        if exact:
            self._nanoseconds = Nanoseconds(
                self._exact_file.iter_batches(row_groups=groups, columns=exact, use_threads=False)
            )
        while (batch := next_batch(batches)) is not None:
            yield batch

    def _problems_of(self, batch: RecordBatch) -> dict[int, str]:
        if self._nanoseconds is None:
            return {}
        with reading():
            return self._nanoseconds.problems(batch)

    def _rows_of_batch(self, group: int, names: Sequence[str] | None) -> int:
        """Returns the rows of a batch: more than usual if they have few bytes, as those of a group have."""
        if self._batch_rows != BATCH_ROWS:
            return self._batch_rows
        metadata = self._file.metadata.row_group(group)
        columns = (metadata.column(number) for number in range(metadata.num_columns))
        size_bytes = sum(
            column.total_uncompressed_size
            for column in columns
            if names is None or column.path_in_schema.partition(".")[0] in names
        )
        fitting: int = BATCH_BYTES * metadata.num_rows // max(size_bytes, 1)
        return max(BATCH_ROWS, min(fitting, NARROW_ROWS_MAX))


class ParquetFormat:
    """Format of Parquet part files."""

    suffix = "parquet"

    def __init__(self, schema: Any, codec: str | None = None) -> None:
        self.schema = schema
        self.codec = codec

    def start(self, file: OutputFile) -> ParquetRows:
        """Begins a part file."""
        return ParquetRows(file, self.schema, codec=self.codec)

    def join(self, paths: Sequence[str], file: OutputFile) -> None:
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
            joined = ParquetRows(file, schema, codec=self.codec)
            for path in paths:
                with output_errors(path, "read"):
                    for batch in read_batches(path):
                        joined.columns(widened(batch, schema))
        except FormatUnreadable as error:
            raise OutputCorrupt(path, "Parquet", str(error)) from None
        joined.finish()
