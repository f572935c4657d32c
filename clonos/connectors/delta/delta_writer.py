"""Writer of the Parquet files of a Delta table: rows must fit the columns that the table has when the writer opens."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Any, Final

import pyarrow

from clonos.connectors.columns.parquet_files import ParquetFormat
from clonos.connectors.connector_errors import InvalidConnector, row_not_writable
from clonos.connectors.delta.table_log import CONNECTOR, TableLog
from clonos.connectors.filesystem.output_parts import PartsWriter, Rolling
from clonos.connectors.partitions.partitioned_writer import PartitionedWriter, Partitioning
from clonos.connectors.row_fields import columns_of, fields_of
from clonos.operators.connector_contract import WriterContext

PARTITION_TYPES: Final = "text, integers, dates and booleans"


class DeltaWriter:
    """Transactional writer of a Delta table."""

    def __init__(self, table: str, staging: Callable[[str], str], rolling: Rolling) -> None:
        self._table = table
        self._staging = staging
        self._rolling = rolling
        self._schema: Any = None
        self._partitions: tuple[str, ...] = ()
        self._writer: PartsWriter | PartitionedWriter | None = None

    def open(self, context: WriterContext) -> None:
        """Reads the columns of the table.

        Raises: OutputFailed: it cannot be read. InvalidConnector: it is partitioned by a column of another type.
        """
        log = TableLog(self._table)
        self._schema, self._partitions = log.schema(), log.partition_columns()
        for name in self._partitions:
            _check_type(name, self._schema.field(name).type)
        rest = pyarrow.schema([field for field in self._schema if field.name not in self._partitions])
        folder = self._staging(context.job_id)
        if self._partitions:
            names = tuple(self._schema.names)
            self._writer = PartitionedWriter(
                folder, ParquetFormat(rest), Partitioning(CONNECTOR, self._partitions, names)
            )
        else:
            self._writer = PartsWriter(folder, ParquetFormat(rest), self._rolling)
        self._writer.open(context)

    def write(self, rows: list[Any]) -> None:
        """Appends rows.

        Raises: RowNotWritable: a row does not fit the table.
        """
        assert self._writer is not None, "a writer is opened before it writes"
        if self._partitions:
            for index, row in enumerate(rows):
                self._check_partition(index, row)
        self._writer.write(rows)

    def write_columns(self, batch: Any) -> None:
        """Appends a ``pyarrow.RecordBatch``.

        Raises: RowNotWritable: it does not fit the table.
        """
        assert self._writer is not None, "a writer is opened before it writes"
        for name in set(self._partitions) & set(batch.schema.names):
            place, wanted = batch.schema.get_field_index(name), self._schema.field(name)
            try:
                column = batch.column(place).cast(wanted.type)
                batch = batch.set_column(place, pyarrow.field(name, wanted.type), column)
            except pyarrow.ArrowException as error:
                reason = f"its {name} is not {wanted.type}, by which the table is partitioned: {error}"
                raise row_not_writable(CONNECTOR, 0, batch.slice(0, 1).to_pylist(), reason) from None
        self._writer.write_columns(batch)

    def prepare(self, checkpoint: int) -> bytes | None:
        """Makes the rows durable, and describes their files."""
        assert self._writer is not None, "a writer is opened before it writes"
        return self._writer.prepare(checkpoint)

    def close(self) -> None:
        """Discards the files that are not prepared."""
        if self._writer is not None:
            self._writer.close()

    def _check_partition(self, index: int, row: Any) -> None:
        """Checks the values that become text in the log of the table, where no type would protect them."""
        names = (
            tuple(row) if type(row) is dict else columns_of(row, CONNECTOR) if _has_names(row) else self._schema.names
        )
        fields = dict(zip(names, fields_of(row, names, CONNECTOR, index), strict=True))
        for name in self._partitions:
            value, wanted = fields.get(name), self._schema.field(name).type
            if value is None:
                continue  # the writer of partitions says so if the field is missing
            is_exact = type(value) in (str, int, bool, datetime.date)
            try:
                if not is_exact or pyarrow.scalar(value).cast(wanted).as_py() != value:
                    raise pyarrow.ArrowInvalid(f"it is {type(value).__name__}")
                if (type(value) is bool) != pyarrow.types.is_boolean(wanted):
                    raise pyarrow.ArrowInvalid(f"it is {type(value).__name__}")
            except (pyarrow.ArrowException, OverflowError) as error:
                reason = f"its {name} is not {wanted}, by which the table is partitioned: {error}"
                raise row_not_writable(CONNECTOR, index, row, reason) from None


def _has_names(row: Any) -> bool:
    return not isinstance(row, tuple | list) or hasattr(row, "_fields")


def _check_type(name: str, column_type: Any) -> None:
    kinds = pyarrow.types
    is_text = kinds.is_string(column_type) or kinds.is_large_string(column_type) or kinds.is_string_view(column_type)
    if not (is_text or kinds.is_integer(column_type) or kinds.is_date32(column_type) or kinds.is_boolean(column_type)):
        problem = f"the table is partitioned by {name}, a {column_type}"
        raise InvalidConnector(CONNECTOR, problem, f"This sink partitions by {PARTITION_TYPES}.")
