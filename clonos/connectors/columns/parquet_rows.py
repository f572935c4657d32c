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

from clonos.connectors.columns.exact_arrays import Inexact, common_schema, common_type, exact_array, inferred_type
from clonos.connectors.connector_errors import RowNotWritable, row_not_writable
from clonos.connectors.filesystem.output_files import OutputFile
from clonos.connectors.row_fields import columns_of, fields_of
from clonos.kernels.record_batch import RecordBatch
from clonos.operators.columnar.python_rows import record_at

CONNECTOR = "files.parquet"
GROUP_ROWS = 65_536
DEFAULT_CODEC = "snappy"
REMEDY = "give its type with schema=, or other values with select(...) or map(...) in front of the sink"
SCHEMA_REMEDY = "give it another type in schema=, or other values with select(...) or map(...) in front of the sink"


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
        self._may_grow = schema is None  # later rows may add columns and widen types, until a row group is written
        self._writer: Any = None
        self._tables: list[Any] = []  # of the next row group
        self._tables_rows = 0

    def rows(self, rows: list[Any]) -> None:
        """Appends rows; they are gathered until a row group is full.

        Raises: RowNotWritable: a row does not fit the schema; nothing is appended.
        """
        before = self._schema, self._tables
        try:
            if self._may_grow:
                self._grow(rows)
            table = _table(rows, self._schema, self.connector, self._is_schema_given)
        except RowNotWritable:
            self._schema, self._tables = before
            raise
        self._append(table)

    def columns(self, batch: RecordBatch) -> None:
        """Appends a ``pyarrow.RecordBatch``; batches are gathered until a row group is full.

        Raises: RowNotWritable: the batch does not fit the schema; nothing is appended.
        """
        table = pyarrow.Table.from_batches([batch])
        if self._schema is None:
            self._schema = pyarrow.schema([field.with_nullable(True) for field in table.schema], table.schema.metadata)
        self._may_grow = False
        if table.schema != self._schema:
            try:
                self._check_names(batch)
                table = table.select(self._schema.names)
                for field in self._schema:
                    _check_exact(batch.column(field.name), field.type, self._is_schema_given)
                table = table.cast(self._schema)
            except (pyarrow.ArrowException, ValueError) as error:  # a ValueError: a null where there may be none
                raise self._refused_batch(batch, error) from error
        self._append(table.replace_schema_metadata(self._schema.metadata))

    def _append(self, table: Any) -> None:
        self._tables.append(table)
        self._tables_rows += table.num_rows
        if self._tables_rows >= self._group_rows:
            self._write_tables()

    def _grow(self, rows: list[Any]) -> None:
        """Gives the schema, and the rows that wait, the columns and types that hold further rows too.

        Raises: RowNotWritable: a row does not go with those before it.
        """
        known = self._schema if self._schema is not None else pyarrow.schema([])
        names = tuple(dict.fromkeys((*known.names, *_all_names(rows, self.connector))))
        fields = []
        for name, column in zip(names, _columns(rows, names, self.connector), strict=True):
            held = known.field(name).type if name in known.names else pyarrow.null()
            try:
                fields.append((name, self._grown(name, held, column)))
            except Inexact as error:
                raise _refused(rows, name, error, None, self.connector) from error
        schema = pyarrow.schema(fields)
        if schema != known:
            self._tables = [_recast(table, schema) for table in self._tables]
            self._schema = schema

    def _grown(self, name: str, held: Any, column: list[Any]) -> Any:
        """Returns the type that holds a column and what waits of it.

        Raises: Inexact: there is none.
        """
        found = inferred_type(column)
        try:
            wanted = common_type(held, found)
            for table in self._tables:
                if name in table.schema.names:
                    table.column(name).cast(wanted)
        except (TypeError, pyarrow.ArrowException):
            exact_array(column, held)  # names the value that does not fit
            wanted = held
        return wanted

    @property
    def advice(self) -> str:
        """Names the columns of the part that have no type, because all their values are None or empty; "" if none."""
        untyped = [] if self._is_schema_given else [field.name for field in self._schema if _is_untyped(field.type)]
        what = f"all values of {', '.join(untyped)} are None or empty, so the part has no type for them"
        return f"{what}, and pandas and other readers of the folder may fail: give the sink schema=" if untyped else ""

    @property
    def gathered_rows(self) -> int:
        """Returns how many rows wait for their row group."""
        return self._tables_rows

    def flush(self) -> None:
        """Writes the rows that wait as a row group."""
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

    def _check_names(self, batch: RecordBatch) -> None:
        names, wanted = batch.schema.names, self._schema.names
        if missing := [name for name in wanted if name not in names]:
            which = "schema= has" if self._is_schema_given else "the first rows of the part file have"
            reason = f"its batch has no column {', '.join(missing)}, which {which}; it has {', '.join(names)}"
            raise row_not_writable(self.connector, 0, _row(batch, 0), reason)
        if surplus := [name for name in names if name not in wanted]:
            reason = f"there is no column for its {', '.join(surplus)}; the columns are {', '.join(wanted)}"
            raise row_not_writable(self.connector, 0, _row(batch, 0), reason)

    def _refused_batch(self, batch: RecordBatch, error: Exception) -> RowNotWritable:
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
            _check_exact(column, field.type, self._is_schema_given)
        except pyarrow.ArrowException:
            return False
        return field.nullable or not column.null_count

    def _write_tables(self) -> None:
        if self._tables:
            tables, self._tables, self._tables_rows = self._tables, [], 0
            self._write(pyarrow.concat_tables(tables))

    def _write(self, table: Any) -> None:
        if self._writer is None:
            self._schema = table.schema
            self._writer = self._new_writer(pyarrow.PythonFile(self._sequential, mode="w"), table.schema)
            self._may_grow = False
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
        return common_schema(schemas)
    except TypeError as error:
        reason = f"its types do not fit those of the part files before it: {error}; give the sink schema="
        raise row_not_writable(CONNECTOR, 0, schemas[-1], reason) from None


def widened(batch: RecordBatch, schema: Any) -> Any:
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


def _recast(table: Any, schema: Any) -> Any:
    """Returns a table with the columns of a schema that holds its values; null where it has none."""
    columns = [
        table.column(field.name).cast(field.type)
        if field.name in table.schema.names
        else pyarrow.chunked_array([pyarrow.nulls(table.num_rows, field.type)])
        for field in schema
    ]
    return pyarrow.table(columns, schema=schema)


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


def _table(rows: Sequence[Any], schema: Any, connector: str, is_given: bool) -> Any:
    columns, arrays = _columns(rows, tuple(schema.names), connector), []
    for field, column in zip(schema, columns, strict=True):
        try:
            array = exact_array(column, field.type)
            if connector == CONNECTOR and _is_empty(array.type):
                raise Inexact(0, column[0], f"Parquet has no type for {array.type}, objects without a field")
            if array.null_count and not field.nullable:
                raise Inexact(column.index(None), None, "it is None")
        except Inexact as error:
            raise _refused(rows, field.name, error, field if is_given else None, connector) from error
        arrays.append(array)
    return pyarrow.Table.from_batches([pyarrow.RecordBatch.from_arrays(arrays, schema=schema)])


def _columns(rows: Sequence[Any], names: tuple[str, ...], connector: str) -> list[list[Any]]:
    fields = [fields_of(row, names, connector, index) for index, row in enumerate(rows)]
    return [[_arrow_value(cell) for cell in column] for column in zip(*fields, strict=True)]


def _all_names(rows: Sequence[Any], connector: str) -> tuple[str, ...]:
    """Returns the field names of all rows, in order of first appearance."""
    return tuple(dict.fromkeys(name for row in rows for name in columns_of(row, connector)))


def _refused(rows: Sequence[Any], name: str, error: Inexact, field: Any, connector: str) -> RowNotWritable:
    """Creates the error for the row that a column refuses. ``field``: that of ``schema=``."""
    wanted = f" as {_type_of(field)}" if field is not None else " together with the rows before it"
    remedy = SCHEMA_REMEDY if field is not None else REMEDY
    reason = f"its {name} cannot be written{wanted if field is not None or error.index else ''}: {error}; {remedy}"
    return row_not_writable(connector, error.index, rows[error.index], reason)


def _check_exact(column: Any, column_type: Any, is_given: bool) -> None:
    """Checks that a column keeps its values in another type: Arrow rounds floats, and cuts times and zones off.

    A float may be rounded to the nearest one of fewer bits where a schema asks for it.

    Raises: pyarrow.ArrowException: it does not.
    """
    if column.type == column_type:
        return
    types = pyarrow.types
    are_instants = types.is_timestamp(column.type) and types.is_timestamp(column_type)
    if are_instants and (column.type.tz is None) != (column_type.tz is None):
        raise pyarrow.ArrowInvalid("a datetime with a zone is not one without")
    narrow = column.cast(column_type)
    back = narrow.cast(column.type)
    if types.is_floating(column.type):  # a nan equals nothing
        is_number = pyarrow.compute.invert(pyarrow.compute.is_nan(column))
        back, column = (each.filter(is_number) for each in (back, column))
        if is_given and types.is_floating(column_type):
            back = _with_rounded(back, column)
    if not back.equals(column):
        raise pyarrow.ArrowInvalid("it does not hold the value exactly")


def _with_rounded(back: Any, column: Any) -> Any:
    """Takes for equal what was rounded to the nearest float: neither to infinity nor to 0."""
    compute = pyarrow.compute
    is_retained = compute.equal(compute.is_inf(back), compute.is_inf(column))
    is_retained = compute.and_(is_retained, compute.equal(compute.equal(back, 0.0), compute.equal(column, 0.0)))
    return compute.if_else(is_retained, column, back)


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


def _row(batch: RecordBatch, index: int) -> Any:
    return record_at(batch, index) if batch.num_rows else {}


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
    bases: tuple[Any, ...] = (int, float, str, bytes)
    if base := next((base for base in bases if isinstance(value, base)), None):
        return base.__new__(base, value)
    item = getattr(value, "item", None)  # of a scalar of numpy
    return item() if callable(item) and cls.__module__ == "numpy" else value
