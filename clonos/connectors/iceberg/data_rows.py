"""Rows of a data file of an Iceberg table as the columns of a source, row group by row group.

The columns are found by the numbers of their fields, so they may have had other names, or fewer bits. Rows that are
deleted by their position are left out. A mark is a place of a row in the file, so a reader goes on at its row group.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, Final, NamedTuple

import numpy
import pyarrow
import pyarrow.compute
import pyarrow.parquet
from numpy.typing import NDArray

from clonos.connectors.columns.batch_files import BATCH_ROWS, MARK_BYTES, reading_input
from clonos.connectors.columns.group_statistics import has_no_row
from clonos.connectors.columns.narrowed_source import NarrowedSource
from clonos.connectors.columns.parquet_batches import next_batch, reading
from clonos.connectors.connector_errors import InputMalformed, InvalidConnector, SplitMalformed
from clonos.connectors.iceberg.iceberg_errors import SnapshotGone
from clonos.connectors.iceberg.iceberg_writer import arrow_schema
from clonos.kernels.record_batch import RecordBatch
from clonos.operators.column_contract import Bound
from clonos.operators.columnar.plain_columns import plain_schema

KIND: Final = "Parquet"


class TableColumns(NamedTuple):
    """Columns of a table: as Iceberg has them, and as batches do."""

    fields: Any
    arrow: Any

    def used(self, names: frozenset[str] | None) -> TableColumns:
        """Returns those that are used; at least one, and all if a step uses another one."""
        from pyiceberg.schema import Schema

        if names is None or not names.issubset(self.arrow.names):
            return self
        chosen = [field for field in self.fields.fields if field.name in names] or self.fields.fields[:1]
        return TableColumns(Schema(*chosen), pyarrow.schema([self.arrow.field(field.name) for field in chosen]))


def columns_of(connector: str, fields: Any) -> TableColumns:
    """Returns the columns of an Iceberg schema.

    Raises: InvalidConnector: it has a column whose values are not exact.
    """
    return TableColumns(fields, plain_schema(arrow_schema(connector, fields, has_numbers=False)))


class SnapshotFile(NamedTuple):
    """Data file of a snapshot of a table, as pyiceberg has both, and the files that delete rows of it."""

    place: str
    table: Any
    snapshot: int
    file: Any
    deletes: Sequence[Any] = ()

    @property
    def path(self) -> str:
        """The path or URL of the file."""
        return str(self.file.file_path)


class DataRows:
    """Reader of one data file."""

    def __init__(self, given: SnapshotFile, columns: TableColumns, source: NarrowedSource, mark: bytes | None) -> None:
        """Opens the file at a mark.

        Raises: SnapshotGone: it is not there. SplitMalformed: the mark is none. InvalidConnector: it is not Parquet.
        """
        from pyiceberg.manifest import FileFormat

        if mark is not None and len(mark) != MARK_BYTES:
            raise SplitMalformed("position in a data file", mark, f"it has {len(mark)} bytes")
        if given.file.file_format != FileFormat.PARQUET:
            problem = f"the file {given.path} is {given.file.file_format.value}"
            raise InvalidConnector(repr(source), problem, "Rewrite the table as Parquet.")
        self._given, self._columns = given, columns.used(source.used)
        self._row = 0 if mark is None else int.from_bytes(mark, "big")  # that comes next
        self._batch: Any = None
        self._places: NDArray[numpy.int64] = numpy.empty(0, numpy.int64)  # of the rows of the batch
        with self._reading():
            # ``pre_buffer`` would retain all columns that are read.
            self._file = pyarrow.parquet.ParquetFile(
                given.table.io.new_input(given.path).open(), pre_buffer=False, coerce_int96_timestamp_unit="us"
            )
            self._deleted = _deleted_places(given)
            self._fit = _Fitting(given, self._columns, self._file.schema_arrow)
            self._batches = self._batches_from(self._row, self._fit.bounds(source.bounds))

    def read(self, records_max: int) -> Any | None:
        """Returns the next batch of at most ``records_max`` rows, None at the end.

        Raises: InputMalformed, InputUnreadable.
        """
        while self._batch is None or not self._batch.num_rows:
            with self._reading():
                found = next(self._batches, None)
            if found is None:
                return None
            self._batch, self._places = found
        rows = self._batch.slice(0, records_max)
        self._row = int(self._places[rows.num_rows - 1]) + 1
        self._batch, self._places = self._batch.slice(rows.num_rows), self._places[rows.num_rows :]
        return rows

    def mark(self) -> bytes:
        """Returns the place of the next row."""
        return self._row.to_bytes(MARK_BYTES, "big")

    def close(self) -> None:
        """Closes the file."""
        self._batches, self._batch = iter(()), None
        self._file.close(force=True)

    def _batches_from(self, first: int, bounds: Sequence[Bound]) -> Iterator[tuple[RecordBatch, NDArray[numpy.int64]]]:
        """Yields batches from a row on, with the places of their rows."""
        begin = 0
        for group in range(self._file.num_row_groups):
            end = begin + self._file.metadata.row_group(group).num_rows
            if end > first and not has_no_row(self._file, group, bounds):
                batches = self._file.iter_batches(
                    batch_size=BATCH_ROWS, row_groups=[group], columns=self._fit.stored, use_threads=False
                )
                at = begin
                while (batch := next_batch(batches)) is not None:
                    places = numpy.arange(at, at + batch.num_rows)
                    wanted = places[places >= first]
                    if self._deleted.size:
                        wanted = numpy.setdiff1d(wanted, self._deleted, assume_unique=True)
                    if wanted.size:
                        rows = batch if wanted.size == batch.num_rows else batch.take(pyarrow.array(wanted - at))
                        yield self._fit.fitted(rows), wanted
                    at += batch.num_rows
            begin = end

    @contextmanager
    def _reading(self) -> Iterator[None]:
        from pyiceberg.exceptions import ResolveError

        place, table, snapshot, _, _ = self._given
        path = self._given.path
        try:
            with reading_input(path, KIND), reading():
                try:
                    yield
                except FileNotFoundError:
                    raise SnapshotGone(place, snapshot, f"its file {path} was removed") from None
        except ResolveError as error:
            advice = f"Rewrite the file with the present columns of the table {table.name()[-1]}."
            raise InputMalformed(path, 0, f"it does not fit the columns: {error}", advice) from error


class _Fitting:
    """Columns of a data file, and how they become those of a source."""

    def __init__(self, given: SnapshotFile, columns: TableColumns, stored: Any) -> None:
        from pyiceberg.io.pyarrow import pyarrow_to_schema
        from pyiceberg.schema import prune_columns
        from pyiceberg.types import ListType, MapType

        metadata = given.table.metadata
        self._columns = columns
        self._is_downcast = metadata.format_version <= 2  # which have no instants of nanoseconds
        fields = columns.fields
        numbers = {each for each in fields.field_ids if not isinstance(fields.find_type(each), ListType | MapType)}
        found = pyarrow_to_schema(
            stored, metadata.name_mapping(), self._is_downcast, format_version=metadata.format_version
        )
        self._found = prune_columns(found, numbers, select_full_types=False)
        self._missing = _partition_values(given, fields.field_ids - found.field_ids)
        self.stored = [field.name for field in self._found.columns]

    def bounds(self, bounds: Sequence[Bound]) -> list[Bound]:
        """Returns the bounds of columns that the file has, by their names in it."""
        names = {field.field_id: field.name for field in self._found.fields}
        numbers = {field.name: field.field_id for field in self._columns.fields.fields}
        return [
            bound._replace(column=names[number])
            for bound in bounds
            if (number := numbers.get(bound.column)) is not None and number in names
        ]

    def fitted(self, batch: RecordBatch) -> Any:
        """Returns a batch of the file with the columns of the source."""
        from pyiceberg.io.pyarrow import ArrowAccessor
        from pyiceberg.schema import visit_with_partner

        visitor = _projection()(
            self._found,
            self._is_downcast,
            projected_missing_fields=self._missing,
            allow_timestamp_tz_mismatch=True,
        )
        columns = visit_with_partner(self._columns.fields, batch, visitor, ArrowAccessor(self._found))
        return pyarrow.RecordBatch.from_struct_array(columns).cast(self._columns.arrow)


@cache
def _projection() -> Any:
    """Returns the projection of pyiceberg, which makes empty ones of lists and maps of structs that are null."""
    from pyiceberg.io.pyarrow import ArrowProjectionVisitor

    class Projection(ArrowProjectionVisitor):
        def list(self, list_type: Any, list_array: Any, value_array: Any) -> Any:
            return _with_nulls(super().list(list_type, list_array, value_array), list_array)

        def map(self, map_type: Any, map_array: Any, key_result: Any, value_result: Any) -> Any:
            return _with_nulls(super().map(map_type, map_array, key_result, value_result), map_array)

    return Projection


def _with_nulls(found: Any, given: Any) -> Any:
    if found is None or found.null_count == given.null_count:
        return found
    return pyarrow.compute.if_else(given.is_valid(), found, pyarrow.nulls(len(found), found.type))


def _partition_values(given: SnapshotFile, numbers: set[int]) -> dict[int, Any]:
    """Returns the values of columns that the file lacks because it is partitioned by them, as those of Hive are."""
    from pyiceberg.transforms import IdentityTransform

    spec = given.table.metadata.specs().get(given.file.spec_id)
    return {
        field.source_id: given.file.partition[place]
        for place, field in enumerate(() if spec is None else spec.fields)
        if field.source_id in numbers
        and isinstance(field.transform, IdentityTransform)
        and given.file.partition[place] is not None
    }


def _deleted_places(given: SnapshotFile) -> NDArray[numpy.int64]:
    """Returns the places of deleted rows of a data file, in their order."""
    from pyiceberg.io.pyarrow import _read_deletes

    found = [numpy.empty(0, numpy.int64)]
    for each in given.deletes:
        if (places := _read_deletes(given.table.io, each).get(given.path)) is not None:
            found.append(places.to_numpy().astype(numpy.int64))
    return numpy.unique(numpy.concatenate(found))
