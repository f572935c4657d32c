"""Writer of the Parquet files of a Delta table: rows must fit the columns that the table has when the writer opens."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

import pyarrow

from clonos.connectors.columns.parquet_files import ParquetFormat
from clonos.connectors.connector_errors import InvalidConnector, row_not_writable
from clonos.connectors.delta.table_log import CONNECTOR, TableLog
from clonos.connectors.filesystem.output_parts import PartsWriter, Rolling
from clonos.connectors.partitions.partitioned_writer import PartitionColumns, PartitionedWriter
from clonos.kernels.record_batch import RecordBatch
from clonos.operators.columnar.python_rows import record_at
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
        self.set_aside: Callable[[Exception, Any, int], None] | None = None  # see ``AsideWriter``

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
            types = {name: self._schema.field(name).type for name in self._partitions}
            partitioning = PartitionColumns(CONNECTOR, self._partitions, names, partial(_check_value, types))
            self._writer = PartitionedWriter(folder, ParquetFormat(rest), partitioning)
            self._writer.set_aside = self.set_aside
        else:
            self._writer = PartsWriter(folder, ParquetFormat(rest), self._rolling)
        self._writer.open(context)

    def write(self, rows: list[Any]) -> None:
        """Appends rows.

        Raises: RowNotWritable: a row does not fit the table.
        """
        assert self._writer is not None, "a writer is opened before it writes"
        self._writer.write(rows)

    def write_columns(self, batch: RecordBatch) -> None:
        """Appends a ``pyarrow.RecordBatch``.

        Raises: RowNotWritable: it does not fit the table.
        """
        assert self._writer is not None, "a writer is opened before it writes"
        for name in set(self._partitions) & set(batch.schema.names):
            place, wanted = batch.schema.get_field_index(name), self._schema.field(name)
            try:
                given = batch.column(place)
                column = given.cast(wanted.type)
                if not column.cast(given.type).equals(given):  # of an instant, the hours
                    raise pyarrow.ArrowInvalid(f"a {given.type} would change")
                batch = batch.set_column(place, pyarrow.field(name, wanted.type), column)
            except pyarrow.ArrowException as error:
                reason = f"its {name} is not {wanted.type}, by which the table is partitioned: {error}"
                raise row_not_writable(CONNECTOR, 0, record_at(batch, 0), reason) from None
        self._writer.write_columns(batch)

    def prepare(self, checkpoint: int) -> bytes | None:
        """Makes the rows durable, and describes their files."""
        assert self._writer is not None, "a writer is opened before it writes"
        return self._writer.prepare(checkpoint)

    def close(self) -> None:
        """Discards the files that are not prepared."""
        if self._writer is not None:
            self._writer.close()


def _check_value(types: Mapping[str, Any], name: str, value: Any) -> None:
    """Checks a value that becomes text in the log of the table, where no type would protect it.

    Raises: ValueError: it is not of the type of its column.
    """
    wanted, kinds = types[name], pyarrow.types
    if kinds.is_integer(wanted):
        is_held = type(value) is int and -(1 << (wanted.bit_width - 1)) <= value < 1 << (wanted.bit_width - 1)
    else:
        is_held = type(value) is (
            bool if kinds.is_boolean(wanted) else datetime.date if kinds.is_date32(wanted) else str
        )
    if value is not None and not is_held:
        shown = f"{type(value).__name__} {value!r:.80}"
        raise ValueError(f"its {name} is not {wanted}, by which the table is partitioned: it is the {shown}")


def _check_type(name: str, column_type: Any) -> None:
    kinds = pyarrow.types
    is_text = kinds.is_string(column_type) or kinds.is_large_string(column_type) or kinds.is_string_view(column_type)
    if not (is_text or kinds.is_integer(column_type) or kinds.is_date32(column_type) or kinds.is_boolean(column_type)):
        problem = f"the table is partitioned by {name}, a {column_type}"
        raise InvalidConnector(CONNECTOR, problem, f"This sink partitions by {PARTITION_TYPES}.")
