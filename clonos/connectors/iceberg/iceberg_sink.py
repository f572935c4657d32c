"""Sink into an Iceberg table: each checkpoint is one snapshot that adds the Parquet files of the tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from clonos.connectors.connector_errors import InvalidConnector, check_number
from clonos.connectors.iceberg.iceberg_catalog import CONNECTOR, NOTHING, Catalog, IcebergTable, checked_name
from clonos.connectors.iceberg.prepared_files import decode_files
from clonos.connectors.partitions.folder_names import partition_columns
from clonos.connectors.secrets import Secret
from clonos.core.model.wrong_calls import explains_calls
from clonos.operators.lineage import Dataset

if TYPE_CHECKING:
    from clonos.connectors.iceberg.iceberg_writer import IcebergWriter


class IcebergTableSink:
    """Transactional sink into one table of a catalog."""

    is_columnar = True
    routes_refused = True

    def __init__(
        self,
        name: str,
        *,
        catalog: Catalog,
        schema: Any,
        partition_by: str | Sequence[str] | None,
        part_rows: int | None,
    ) -> None:
        if part_rows is not None:
            check_number(CONNECTOR, "part_rows", part_rows, "rows")
        self.table = IcebergTable(CONNECTOR, catalog, checked_name(CONNECTOR, name))
        self.schema = schema
        self.partition_by = partition_columns(CONNECTOR, partition_by) if partition_by is not None else ()
        self.part_rows = part_rows

    def __repr__(self) -> str:
        return f"{CONNECTOR}({self.table.name!r})"

    @property
    def needs_names(self) -> bool:
        """Whether rows need names for their fields, because no schema has them."""
        return self.schema is None

    def datasets(self) -> list[Dataset]:
        """See ``lineage.NamingConnector``."""
        return [self.table.dataset]

    def describe_output(self) -> list[tuple[str, str]]:
        """Returns what a resume compares."""
        return [("table", self.table.place)]

    def prepare_output(self, job_id: str, resume: bool, overwrite: bool) -> None:
        """Creates the table if it is missing, and notes in it that this job writes to it.

        Raises: InvalidConnector: the table has other columns, or another sink of the job writes to it.
        """
        from clonos.connectors.iceberg.iceberg_writer import arrow_schema  # Arrow takes long to load

        if not self.table.exists():
            self._create()
        self._check_schema(arrow_schema(CONNECTOR, self.table.load().schema()))
        if self.table.last_checkpoint(job_id) is None:
            self.table.note(job_id)
        elif not resume:
            problem = f"another sink of this job writes to the table {self.table.name}"
            raise InvalidConnector(CONNECTOR, problem, "Join the streams with union() in front of one sink.")

    def check_output(self, replaces: str) -> bool:
        """Returns False: a start leaves the rows of earlier ones in the table."""
        return False

    def release_output(self, job_id: str) -> None:
        """Removes the note of the job when its start has failed."""
        if self.table.last_checkpoint(job_id) == NOTHING:
            self.table.release(job_id)

    def writer(self) -> IcebergWriter:
        """Creates a writer of data files."""
        from clonos.connectors.iceberg.iceberg_writer import IcebergWriter  # Arrow takes long to load

        return IcebergWriter(self.table, self.part_rows)

    def commit(self, job_id: str, checkpoint: int, parts: list[bytes]) -> None:
        """Adds the files of the parts to the table in one snapshot; a repeated call does nothing.

        Raises: OutputFailed: the catalog or the store fails, or a file is missing.
        """
        files = [file for part in parts for file in decode_files(part, self.table.place)]
        if files:
            self.table.add(job_id, checkpoint, sorted(files, key=lambda file: file.path))

    def roll_back(self, job_id: str, checkpoint: int) -> list[int]:
        """Withdraws the files that the job has added after ``checkpoint``; returns those checkpoints, latest first.

        Raises: OutputCorrupt: another writer has replaced one of the files, or their snapshot has expired.
        """
        return self.table.withdraw(job_id, checkpoint)

    def _create(self) -> None:
        if self.schema is None:
            problem = f"there is no table {self.table.name}, and without schema= its columns are not known"
            raise InvalidConnector(CONNECTOR, problem, "Give a pyarrow.Schema, or create the table.")
        missing = [name for name in self.partition_by if name not in self.schema.names]
        if missing:
            problem = f"partition_by={self.partition_by!r} and the columns {', '.join(self.schema.names)} do not fit"
            raise InvalidConnector(CONNECTOR, problem, "Partition by some of the columns.")
        self.table.create(self.schema, self.partition_by)

    def _check_schema(self, actual: Any) -> None:
        for name in () if self.schema is None else self.schema.names:
            if name not in actual.names:
                problem = f"the table {self.table.name} has no column {name!r}; it has {', '.join(actual.names)}"
                raise InvalidConnector(CONNECTOR, problem, "Correct schema=, or add the column to the table.")


@explains_calls
def table(
    name: str,
    *,
    catalog: str | Mapping[str, str | Secret],
    schema: Any = None,
    partition_by: str | Sequence[str] | None = None,
    part_rows: int | None = None,
) -> IcebergTableSink:
    """Sink that appends rows to an Iceberg table, those of a checkpoint in one snapshot.

    Args:
        name: name of the table with its namespace, such as "shop.orders".
        catalog: name of a catalog in the configuration of pyiceberg, or its properties, those of the object store
            among them, such as ``{"type": "rest", "uri": "https://catalog.example"}``. A value may be a secret.
        schema: ``pyarrow.Schema`` of the table, which is created if it is missing. Without it the table must exist.
        partition_by: columns by whose values a new table is partitioned. An existing table has its own partitioning.
        part_rows: rows after which a data file ends and the next one begins, at the end of a group of rows. By default
            a task writes one file per checkpoint and partition.

    Raises:
        InvalidConnector: an option cannot work.

    Example::

        orders.sink(iceberg.table("shop.orders", catalog="prod"))
    """
    return IcebergTableSink(name, catalog=catalog, schema=schema, partition_by=partition_by, part_rows=part_rows)
