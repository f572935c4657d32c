"""Writer of the Parquet files of an Iceberg table: rows must fit the columns that the table has when the writer opens.

Rows are gathered, divided by the partitioning of the table, and written to temporary files of this machine. At the
barrier the files are copied to their final places, where no reader sees them before a snapshot names them.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

import numpy
import pyarrow
import pyarrow.compute
import pyarrow.parquet

from clonos.connectors.columns.parquet_rows import DEFAULT_CODEC, ParquetRows
from clonos.connectors.connector_errors import InvalidConnector, OutputFailed, RowNotWritable
from clonos.connectors.iceberg.iceberg_catalog import CONNECTOR, IcebergTable
from clonos.connectors.iceberg.prepared_files import PreparedFile, encode_files, packed_values
from clonos.core.values.column_rows import NoPythonValue, values_of_column
from clonos.kernels.record_batch import RecordBatch
from clonos.operators.columnar.python_rows import record_at
from clonos.operators.connector_contract import WriterContext

OPEN_FILES_MAX: Final = 100
"""Partitions of a task whose files are open at once."""

LOCAL: Final = "file:"


class _Closed(NamedTuple):
    key: tuple[Any, ...]
    file: Any
    metadata: Any


class IcebergRows(ParquetRows):
    """Rows of a checkpoint, in temporary files: one per partition, or more if there are many partitions."""

    connector = CONNECTOR

    def __init__(self, schema: Any, partition: Callable[[Any], list[Any]], file_rows: int | None) -> None:
        """``partition`` returns the columns by whose values a table is divided."""
        super().__init__(_NoFile(), schema)
        self._partition, self._file_rows = partition, file_rows
        self._open: dict[tuple[Any, ...], tuple[Any, Any]] = {}
        self._rows_of: dict[tuple[Any, ...], int] = {}
        self.closed: list[_Closed] = []

    def finish(self) -> None:
        """Writes the rows that wait, and closes the files."""
        self.flush()
        for key in list(self._open):
            self._close(key)

    def abandon(self) -> None:
        """Discards the files."""
        self.finish()
        self.discard()

    def discard(self) -> None:
        """Removes the temporary files."""
        for each in self.closed:
            each.file.close()
        self.closed = []

    def _write(self, table: Any) -> None:
        for key, rows in _divided(table, self._partition(table)):
            if key not in self._open:
                if len(self._open) >= OPEN_FILES_MAX:
                    self._close(next(iter(self._open)))
                file = tempfile.TemporaryFile()  # noqa: SIM115  ``discard`` closes it
                # A batch of the same types may lack the numbers of the fields, without which no reader finds a column.
                writer = pyarrow.parquet.ParquetWriter(
                    file, self._schema, compression=DEFAULT_CODEC, store_decimal_as_integer=True
                )
                self._open[key] = file, writer
            self._open[key][1].write_table(rows)
            self._rows_of[key] = self._rows_of.get(key, 0) + rows.num_rows
            if self._file_rows is not None and self._rows_of[key] >= self._file_rows:
                self._close(key)

    def _close(self, key: tuple[Any, ...]) -> None:
        file, writer = self._open.pop(key)
        self._rows_of.pop(key, None)
        writer.close()
        self.closed.append(_Closed(key, file, writer.writer.metadata))


class _NoFile:
    """File of the base class, which writes none."""

    size_bytes = 0

    def write(self, data: bytes) -> int:
        raise AssertionError("rows are written to temporary files")

    def publish(self, final_path: str) -> str:
        raise AssertionError("rows are written to temporary files")

    def discard(self) -> None:
        pass


class IcebergWriter:
    """Transactional writer of an Iceberg table."""

    def __init__(self, table: IcebergTable, file_rows: int | None) -> None:
        self._table = table
        self._file_rows = file_rows
        self._found: Any = None
        self._schema: Any = None
        self._prefix = ""
        self._rows: IcebergRows | None = None
        self.set_aside: Callable[[Exception, Any, int], None] | None = None  # see ``AsideWriter``

    def open(self, context: WriterContext) -> None:
        """Reads the columns of the table.

        Raises: OutputFailed: it cannot be read. InvalidConnector: it has a column that cannot be written.
        """
        self._found = self._table.load()
        self._schema = arrow_schema(CONNECTOR, self._found.schema())
        self._prefix = f"{context.job_id}-{context.index}-{context.generation}-{context.incarnation}"

    def write(self, rows: list[Any]) -> None:
        """Appends rows.

        Raises: RowNotWritable: a row does not fit the table.
        """
        if self.set_aside is None:
            self._open_rows().rows(rows)
            return
        try:
            self._open_rows().rows(rows)
        except RowNotWritable:
            for index, row in enumerate(rows):
                try:
                    self._open_rows().rows([row])
                except RowNotWritable as error:
                    self.set_aside(error, row, index)

    def write_columns(self, batch: RecordBatch) -> None:
        """Appends a ``pyarrow.RecordBatch``.

        Raises: RowNotWritable: it does not fit the table.
        """
        if self.set_aside is None:
            self._open_rows().columns(batch)
            return
        try:
            self._open_rows().columns(batch)
        except RowNotWritable:
            for index in range(batch.num_rows):
                row = batch.slice(index, 1)
                try:
                    self._open_rows().columns(row)
                except RowNotWritable as error:
                    self.set_aside(error, record_at(row, 0), index)

    def prepare(self, checkpoint: int) -> bytes | None:
        """Copies the files to their places, and describes them.

        Raises: OutputFailed: the disk or the store fails.
        """
        rows, self._rows = self._rows, None
        if rows is None:
            return None
        try:
            rows.finish()
            found = [self._stored(closed, f"{checkpoint:010}-{number}") for number, closed in enumerate(rows.closed)]
        finally:
            rows.discard()
        return encode_files(found) if found else None

    def close(self) -> None:
        """Discards the files that are not prepared."""
        rows, self._rows = self._rows, None
        if rows is not None:
            rows.abandon()

    def _open_rows(self) -> IcebergRows:
        assert self._found is not None, "a writer is opened before it writes"
        if self._rows is None:
            self._rows = IcebergRows(self._schema, self._partition_columns, self._file_rows)
        return self._rows

    def _partition_columns(self, table: Any) -> list[Any]:
        schema, columns = self._found.schema(), []
        for field in self._found.spec().fields:
            source = schema.find_field(field.source_id)
            column = _column_of(table, schema, field.source_id)
            columns.append(field.transform.pyarrow_transform(source.field_type)(column))
        return columns

    def _stored(self, closed: _Closed, name: str) -> PreparedFile:
        from pyiceberg.io.pyarrow import (
            compute_statistics_plan,
            data_file_statistics_from_parquet_metadata,
            parquet_path_to_id_mapping,
        )
        from pyiceberg.partitioning import PartitionFieldValue, PartitionKey

        found, spec = self._found, self._found.spec()
        values = [PartitionFieldValue(field, value) for field, value in zip(spec.fields, closed.key, strict=True)]
        key = PartitionKey(values, spec, found.schema()) if values else None
        path = found.location_provider().new_data_location(f"{self._prefix}-{name}.parquet", key)
        size_bytes = closed.file.seek(0, os.SEEK_END)
        closed.file.seek(0)
        try:
            with found.io.new_output(path).create(overwrite=True) as stream:
                shutil.copyfileobj(closed.file, stream, 1 << 20)
            _make_durable(path)
        except Exception as error:
            raise OutputFailed(path, "written", " ".join(str(error).split())) from error
        statistics = data_file_statistics_from_parquet_metadata(
            closed.metadata,
            compute_statistics_plan(found.schema(), found.properties),
            parquet_path_to_id_mapping(found.schema()),
        )
        partition = packed_values([key.partition[at] for at in range(len(values))]) if key is not None else []
        identity = str(found.metadata.table_uuid)
        return PreparedFile(identity, path, size_bytes, spec.spec_id, partition, statistics.to_serialized_dict())


def arrow_schema(connector: str, schema: Any, has_numbers: bool = True) -> Any:
    """Returns the columns of a table as a ``pyarrow.Schema``, with the numbers of its fields or without.

    Raises: InvalidConnector: it has a column whose values are not exact.
    """
    from pyiceberg.io.pyarrow import schema_to_pyarrow

    found = schema_to_pyarrow(schema, include_field_ids=has_numbers)
    for field in found:
        if isinstance(field.type, pyarrow.BaseExtensionType):
            problem = f"the column {field.name!r} of the table is {field.type}"
            raise InvalidConnector(connector, problem, "Use a table that has it as a text or as bytes.")
    return found


def _column_of(table: Any, schema: Any, number: int) -> Any:
    """Returns the column of a field, which may be within structs."""
    for field in schema.fields:
        if field.field_id == number:
            return table.column(field.name)
        if field.field_type.is_struct and (path := _path_in(field.field_type, number)):
            return pyarrow.compute.struct_field(table.column(field.name), path)
    raise AssertionError("a table is partitioned by its own fields")


def _path_in(struct: Any, number: int) -> list[int]:
    """Returns the places that lead to a field of a struct; [] if it is not there."""
    for place, field in enumerate(struct.fields):
        if field.field_id == number:
            return [place]
        if field.field_type.is_struct and (path := _path_in(field.field_type, number)):
            return [place, *path]
    return []


def _divided(table: Any, columns: list[Any]) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Yields the values of each partition with its rows, in the order of the first rows."""
    if not columns:
        yield (), table
        return
    encoded = [column.combine_chunks().dictionary_encode(null_encoding="encode") for column in columns]
    codes = numpy.stack([each.indices.to_numpy() for each in encoded])
    _, firsts, groups, counts = numpy.unique(codes, axis=1, return_index=True, return_inverse=True, return_counts=True)
    places = numpy.split(numpy.argsort(groups, kind="stable"), numpy.cumsum(counts)[:-1])
    values = [_partition_values(each.dictionary) for each in encoded]
    for group in numpy.argsort(firsts).tolist():
        row = codes[:, firsts[group]].tolist()
        yield tuple(each[code] for each, code in zip(values, row, strict=True)), table.take(places[group])


def _partition_values(values: Any) -> list[Any]:
    """Returns values of partitions, by which pyiceberg names the folders.

    Raises: InvalidConnector: Python has none for one of them.
    """
    try:
        return values_of_column(values)
    except NoPythonValue as error:
        problem = f"pyiceberg has no name for the partition of a record, whose value is of {values.type}: {error}"
        raise InvalidConnector(
            CONNECTOR, problem, "Partition the table by another column, or leave such records out."
        ) from None


def _make_durable(path: str) -> None:
    """Makes a local file durable, which the library does not do."""
    if path.startswith((LOCAL, "/")):
        local = path.removeprefix(LOCAL)
        local = f"/{local.lstrip('/')}"
        for place, flags in ((local, os.O_RDONLY), (os.path.dirname(local), os.O_RDONLY | os.O_DIRECTORY)):
            opened = os.open(place, flags)
            try:
                os.fsync(opened)
            finally:
                os.close(opened)
