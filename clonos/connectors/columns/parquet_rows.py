"""Rows as a Parquet file: gathered into row groups, one type per column."""

from __future__ import annotations

import dataclasses
import enum
from bisect import bisect_left
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import msgspec
import pyarrow
import pyarrow.compute
import pyarrow.parquet

from clonos.connectors.connector_errors import RowNotWritable, row_not_writable
from clonos.connectors.filesystem.output_files import OutputFile
from clonos.connectors.row_fields import columns_of, fields_of

CONNECTOR = "files.parquet"
GROUP_ROWS = 65_536
DEFAULT_CODEC = "snappy"
REMEDY = "give its type with schema=, or other values with select(...) or map(...) in front of the sink"


class ParquetRows:
    """Part file of Parquet. Without ``schema`` it has that of its first row group or batch."""

    connector = CONNECTOR

    def __init__(
        self, file: OutputFile, schema: Any, *, group_rows: int = GROUP_ROWS, codec: str | None = None
    ) -> None:
        self._codec = codec
        self._group_rows = group_rows
        self._sequential = _Sequential(file)
        self._schema = schema
        self._is_schema_given = schema is not None
        self._writer: Any = None
        self._pending: list[Any] = []
        self._tables: list[Any] = []  # of the next row group
        self._tables_rows = 0

    def rows(self, rows: list[Any]) -> None:
        """Appends rows, which are converted when a row group is full.

        Raises: RowNotWritable: a row does not fit the schema.
        """
        self._write_tables()
        self._pending.extend(rows)
        if len(self._pending) >= self._group_rows:
            self._write_pending()

    def columns(self, batch: Any) -> None:
        """Appends a ``pyarrow.RecordBatch``; batches are gathered until a row group is full.

        Raises: RowNotWritable: the batch does not fit the schema.
        """
        self._write_pending()
        table = pyarrow.Table.from_batches([batch])
        if self._schema is None:
            self._schema = pyarrow.schema([field.with_nullable(True) for field in table.schema], table.schema.metadata)
        if table.schema != self._schema:
            try:
                self._check_names(batch)
                table = table.select(self._schema.names)
                if not self._is_schema_given:
                    for field in self._schema:
                        _check_exact(batch.column(field.name), field.type)
                table = table.cast(self._schema)
            except (pyarrow.ArrowException, ValueError) as error:  # a ValueError: a null where there may be none
                raise self._refused_batch(batch, error) from error
        self._tables.append(table.replace_schema_metadata(self._schema.metadata))
        self._tables_rows += table.num_rows
        if self._tables_rows >= self._group_rows:
            self._write_tables()

    @property
    def advice(self) -> str:
        """Names the columns of the part that have no type, because all their values are None or empty; "" if none."""
        untyped = [] if self._is_schema_given else [field.name for field in self._schema if _is_untyped(field.type)]
        what = f"all values of {', '.join(untyped)} are None or empty, so the part has no type for them"
        return f"{what}, and pandas and other readers of the folder may fail: give the sink schema=" if untyped else ""

    @property
    def gathered_rows(self) -> int:
        """Returns how many rows wait for their row group."""
        return len(self._pending) + self._tables_rows

    def flush(self) -> None:
        """Writes the rows that wait as a row group.

        Raises: RowNotWritable: a row does not fit the schema.
        """
        self._write_pending()
        self._write_tables()

    def finish(self) -> None:
        """Writes the last row group and the footer."""
        self.flush()
        if self._writer is None:
            self._write(pyarrow.table({}) if self._schema is None else self._schema.empty_table())
        self._writer.close()

    def abandon(self) -> None:
        """Closes Arrow's writer, which would otherwise write its footer when it is garbage-collected."""
        self._sequential.is_abandoned = True
        if self._writer is not None:
            self._writer.close()

    def _check_names(self, batch: Any) -> None:
        names, wanted = batch.schema.names, self._schema.names
        if missing := [name for name in wanted if name not in names]:
            which = "schema= has" if self._is_schema_given else "the first rows of the part file have"
            reason = f"its batch has no column {', '.join(missing)}, which {which}; it has {', '.join(names)}"
            raise row_not_writable(self.connector, 0, _row(batch, 0), reason)
        if surplus := [name for name in names if name not in wanted]:
            reason = f"there is no column for its {', '.join(surplus)}; the columns are {', '.join(wanted)}"
            raise row_not_writable(self.connector, 0, _row(batch, 0), reason)

    def _refused_batch(self, batch: Any, error: Exception) -> RowNotWritable:
        """Creates the error for the first row of a batch that does not fit the schema."""
        origin = "its type in schema=" if self._is_schema_given else "the type of the first rows of the part file"
        advice = "" if self._is_schema_given else "; give the sink its type with schema="
        for field in self._schema:
            column = batch.column(field.name)
            ends = range(1, len(column))
            if not self._is_castable(column, field):
                index = bisect_left(ends, True, key=lambda end: not self._is_castable(column[:end], field))
                wanted = f"its {field.name}, a {column.type}, cannot be written as {_type_of(field)}"
                reason = f"{wanted}, {origin}: {_line(error)}{advice}"
                return row_not_writable(self.connector, index, _row(batch, index), reason)
        return row_not_writable(self.connector, 0, _row(batch, 0), f"it does not fit the schema: {_line(error)}")

    def _is_castable(self, column: Any, field: Any) -> bool:
        try:
            column.cast(field.type)
            if not self._is_schema_given:
                _check_exact(column, field.type)
        except pyarrow.ArrowException:
            return False
        return field.nullable or not column.null_count

    def _write_pending(self) -> None:
        if self._pending:
            rows, self._pending = self._pending, []
            self._write(_table(rows, self._schema, self.connector))

    def _write_tables(self) -> None:
        if self._tables:
            tables, self._tables, self._tables_rows = self._tables, [], 0
            self._write(pyarrow.concat_tables(tables))

    def _write(self, table: Any) -> None:
        if self._writer is None:
            self._schema = table.schema
            self._writer = self._new_writer(pyarrow.PythonFile(self._sequential, mode="w"), table.schema)
        self._writer.write_table(table)

    def _new_writer(self, sink: Any, schema: Any) -> Any:
        return pyarrow.parquet.ParquetWriter(sink, schema, compression=self._codec or DEFAULT_CODEC)


def unified(schemas: Sequence[Any]) -> Any:
    """Returns the schema that holds the columns of all schemas; None without any.

    Raises: RowNotWritable: a column has types that no type can hold.
    """
    if not schemas:
        return None
    try:
        return pyarrow.unify_schemas(schemas, promote_options="permissive")
    except pyarrow.ArrowException as error:
        reason = f"its types do not fit those of the part files before it: {error}; give the sink schema="
        raise row_not_writable(CONNECTOR, 0, schemas[-1], reason) from None


def widened(batch: Any, schema: Any) -> Any:
    """Returns a ``pyarrow.RecordBatch`` with the columns of a unified schema: null where the batch has none.

    Raises: RowNotWritable: the type of a column does not hold a value exactly.
    """
    columns = []
    for field in schema:
        if field.name not in batch.schema.names:
            columns.append(pyarrow.nulls(batch.num_rows, field.type))
            continue
        column = batch.column(field.name)
        try:
            columns.append(column.cast(field.type))
        except pyarrow.ArrowInvalid as error:
            reason = f"its part has {column.type}, other parts {field.type} ({error}); give the sink schema="
            raise RowNotWritable(CONNECTOR, 0, f"with the column {field.name}", reason) from None
    return pyarrow.record_batch(columns, schema=schema)


class _Sequential:
    """File object for Arrow that only writes forward."""

    def __init__(self, file: OutputFile) -> None:
        self._file = file
        self._written_bytes = 0
        self.closed = False
        self.is_abandoned = False

    def write(self, data: Any) -> int:
        self._written_bytes += len(data)
        if not self.is_abandoned:
            self._file.write(bytes(data))
        return len(data)

    def tell(self) -> int:
        return self._written_bytes

    def flush(self) -> None:
        """Does nothing: the part file is flushed when it is published."""

    def close(self) -> None:
        """Does nothing: the owner closes the file."""

    def seekable(self) -> bool:
        return False

    def readable(self) -> bool:
        return False

    def writable(self) -> bool:
        return True


def _table(rows: Sequence[Any], schema: Any, connector: str) -> Any:
    names = tuple(schema.names) if schema is not None else _all_names(rows, connector)
    fields = [fields_of(row, names, connector, index) for index, row in enumerate(rows)]
    columns = [[_arrow_value(cell) for cell in column] for column in zip(*fields, strict=True)]
    types = [None] * len(names) if schema is None else list(schema.types)
    arrays = []
    for name, column, column_type in zip(names, columns, types, strict=True):
        try:
            array = pyarrow.array(column, type=column_type)
            if connector == CONNECTOR and _is_empty(array.type):
                raise pyarrow.ArrowInvalid(f"Parquet has no type for {array.type}, objects without a field")
            arrays.append(array)
        except (pyarrow.ArrowException, OverflowError, TypeError, ValueError) as error:
            raise _refused(rows, column, column_type, name, error, connector) from error
    return pyarrow.table(arrays, schema=schema) if schema is not None else pyarrow.table(arrays, names=names)


def _all_names(rows: Sequence[Any], connector: str) -> tuple[str, ...]:
    """Returns the field names of all rows, in order of first appearance."""
    return tuple(dict.fromkeys(name for row in rows for name in columns_of(row, connector)))


def _refused(
    rows: Sequence[Any], column: list[Any], column_type: Any, name: str, error: Exception, connector: str
) -> RowNotWritable:
    """Finds the first row that makes the column impossible, and creates the error for it."""
    ends = range(1, len(column))
    index = bisect_left(ends, True, key=lambda end: not _is_possible(column[:end], column_type))
    wanted = f" as {column_type}" if column_type is not None else " together with the rows before it" if index else ""
    reason = f"its {name} cannot be written{wanted}: {error}; {REMEDY}"
    return row_not_writable(connector, index, rows[index], reason)


def _is_possible(column: list[Any], column_type: Any) -> bool:
    try:
        pyarrow.array(column, type=column_type)
    except (pyarrow.ArrowException, OverflowError, TypeError, ValueError):
        return False
    return True


def _check_exact(column: Any, column_type: Any) -> None:
    """Checks that a column keeps its values in another type: Arrow rounds floats, and cuts times off.

    Raises: pyarrow.ArrowException: it does not.
    """
    if column.type == column_type:
        return
    back = column.cast(column_type).cast(column.type)
    if pyarrow.types.is_floating(column.type):  # a nan equals nothing
        back, column = (each.filter(pyarrow.compute.invert(pyarrow.compute.is_nan(each))) for each in (back, column))
    if not back.equals(column):
        raise pyarrow.ArrowInvalid("it does not hold the value exactly")


def _is_empty(column_type: Any) -> bool:
    """Returns whether a type, or one within it, is a struct without fields."""
    inner = range(column_type.num_fields)
    is_bare = pyarrow.types.is_struct(column_type) and not inner
    return is_bare or any(_is_empty(column_type.field(index).type) for index in inner)


def _type_of(field: Any) -> str:
    return str(field.type) if field.nullable else f"{field.type} without nulls"


def _is_untyped(column_type: Any) -> bool:
    """Returns whether a type, or one within it, is that of columns without a value."""
    inner = range(column_type.num_fields)
    return pyarrow.types.is_null(column_type) or any(_is_untyped(column_type.field(index).type) for index in inner)


def _row(batch: Any, index: int) -> Any:
    return batch.slice(index, 1).to_pylist()[0] if batch.num_rows else {}


def _line(error: Exception) -> str:
    return " ".join(str(error).split())


def _arrow_value(value: Any) -> Any:
    """Converts a value to a type that Arrow accepts."""
    cls = type(value)
    if value is None or cls in (str, int, float, bool, bytes):
        return value
    if cls is UUID:
        return str(value)
    if cls is dict:
        return {key: _arrow_value(item) for key, item in value.items()}
    if cls is list or cls is tuple:
        return [_arrow_value(item) for item in value]
    if cls is set or cls is frozenset:
        return sorted(_arrow_value(item) for item in value)
    if isinstance(value, enum.Enum):
        return _arrow_value(value.value)
    if isinstance(value, msgspec.Struct) or dataclasses.is_dataclass(cls) or hasattr(cls, "_fields"):
        names = columns_of(value, CONNECTOR)
        return dict(zip(names, map(_arrow_value, fields_of(value, names, CONNECTOR)), strict=True))
    return value
