"""``iceberg.read``: the rows of one snapshot of an Iceberg table, as a bounded source of columns.

A split is a data file, which pyiceberg reads: it knows the columns by their numbers, and which rows are deleted. A mark
is the number of rows of it that were read.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, Self

import msgspec
import pyarrow

from clonos.connectors.columns.batch_files import MARK_BYTES
from clonos.connectors.connector_errors import InputMalformed, InputUnreadable, InvalidConnector, SplitMalformed
from clonos.connectors.iceberg.iceberg_catalog import READ, IcebergTable
from clonos.connectors.iceberg.iceberg_writer import arrow_schema
from clonos.connectors.kit.splits import decoded_split
from clonos.core.model.errors import ClonosError, EnvironmentFault
from clonos.core.values.columns import validate_columns
from clonos.kernels.record_batch import RecordBatch
from clonos.operators.column_contract import Bound
from clonos.operators.columnar.plain_columns import plain_schema


class SnapshotGone(EnvironmentFault):
    """A snapshot that a job reads, or a file of it, is not there any more."""

    table: str
    snapshot: int
    reason: str

    def __str__(self) -> str:
        return (
            f"snapshot {self.snapshot} of the Iceberg table {self.table} cannot be read any more: {self.reason}. Let"
            " the table keep its snapshots for longer than the job runs, and start afresh with --overwrite."
        )


class _File(msgspec.Struct, frozen=True, array_like=True):
    """Split: a data file of a snapshot of the table with this identity."""

    format: int
    table: str
    snapshot: int
    path: str


_files: Final = msgspec.msgpack.Decoder(_File)


class IcebergRead:
    """Bounded source of the rows of a snapshot, which does not change after the first start."""

    is_columnar = True

    def __init__(self, table: IcebergTable, snapshot: int | None) -> None:
        self.table, self.snapshot = table, snapshot
        self.used: frozenset[str] | None = None
        self._scans: dict[tuple[str, int], TableSnapshot] = {}

    def __getstate__(self) -> dict[str, Any]:
        """Leaves out what a process has read of the catalog."""
        return {**vars(self), "_scans": {}}

    def __repr__(self) -> str:
        return f"{READ}({self.table.name!r})"

    def splits(self, parallelism: int) -> list[bytes]:
        """Returns the data files of the snapshot.

        Raises: InvalidConnector: there is no such table or snapshot, or it cannot be read. InputUnreadable.
        """
        found = self._newest()
        if found is None:
            return []
        files = [_File(1, found.identity, found.number, path) for path in sorted(found.tasks)]
        return [msgspec.msgpack.encode(file) for file in files]

    def check_split(self, split: bytes) -> None:
        """Checks that a split is of this table.

        Raises: SplitMalformed: it is none, or of another table.
        """
        self.opened(decoded_split(_files, "split of an Iceberg table", split))

    def narrowed(self, columns: Collection[str] | None, bounds: Sequence[Bound]) -> Self:
        """See ``column_contract.NarrowableSource``."""
        source = copy.copy(self)
        source.used = self.used if columns is None else frozenset(columns)
        return source

    def sampled_schema(self, splits: Sequence[bytes]) -> Any | None:
        """See ``column_contract.SampledSource``: the columns of the snapshot that the job began with."""
        if splits:
            return self.opened(decoded_split(_files, "split of an Iceberg table", splits[0])).schema
        try:
            found = self._newest()
        except ClonosError:
            return None
        return None if found is None else found.schema

    def column_schema(self) -> Any | None:
        """See ``column_contract.DescribedSource``."""
        return self.sampled_schema(())

    def reader(self) -> IcebergReader:
        """Creates a reader of record batches."""
        return IcebergReader(self)

    def opened(self, file: _File) -> TableSnapshot:
        """Returns the snapshot of a split, which a process looks up once.

        Raises: SnapshotGone: it has expired. SplitMalformed: it is of another table. InputUnreadable.
        """
        key = file.table, file.snapshot
        if key not in self._scans:
            with _reading(self.table.place):
                table = self.table.catalog().load_table(self.table.name)
            if str(table.metadata.table_uuid) != file.table:
                raise SplitMalformed("split of an Iceberg table", file.table.encode(), f"{self!r} is another table")
            if table.snapshot_by_id(file.snapshot) is None:
                raise SnapshotGone(self.table.place, file.snapshot, "it has expired")
            self._scans[key] = TableSnapshot(self.table.place, table, file.snapshot)
        return self._scans[key]

    def _newest(self) -> TableSnapshot | None:
        with _reading(self.table.place):
            if not self.table.catalog().table_exists(self.table.name):
                raise InvalidConnector(READ, f"there is no table {self.table.name}", "Correct its name or catalog=.")
            table = self.table.catalog().load_table(self.table.name)
        if self.snapshot is None:
            current = table.current_snapshot()
            return None if current is None else TableSnapshot(self.table.place, table, current.snapshot_id)
        if table.snapshot_by_id(self.snapshot) is None:
            known = ", ".join(str(each.snapshot_id) for each in table.snapshots()[-3:]) or "none"
            problem = f"the table {self.table.name} has no snapshot {self.snapshot}"
            raise InvalidConnector(READ, problem, f"Its latest ones are: {known}.")
        return TableSnapshot(self.table.place, table, self.snapshot)


class TableSnapshot:
    """One snapshot of a table, with its data files."""

    def __init__(self, place: str, table: Any, number: int) -> None:
        self.place, self.number, self.identity = place, number, str(table.metadata.table_uuid)
        self._table = table
        self._scan = table.scan(snapshot_id=number)
        self.schema = plain_schema(arrow_schema(READ, self._scan.projection(), has_numbers=False))
        with _reading(place):
            self.tasks: Mapping[str, Any] = {task.file.file_path: task for task in self._scan.plan_files()}

    def batches(self, path: str, used: frozenset[str] | None) -> Iterator[RecordBatch]:
        """Yields the rows of a data file, with the columns that are used.

        Raises: SnapshotGone: it is not there. InputMalformed, InputUnreadable.
        """
        from pyiceberg.expressions import AlwaysTrue
        from pyiceberg.io.pyarrow import ArrowScan

        names = self.schema.names
        if used is not None and used.issubset(names):
            names = [name for name in names if name in used] or names[:1]
        if path not in self.tasks:
            raise SnapshotGone(self.place, self.number, f"it has no file {path}")
        schema = pyarrow.schema([self.schema.field(name) for name in names])
        wanted = self._scan.projection().select(*names)
        scan = ArrowScan(self._table.metadata, self._table.io, wanted, AlwaysTrue())
        try:
            for batch in scan.to_record_batches([self.tasks[path]]):
                fitted = batch.cast(schema)
                validate_columns(fitted)
                yield fitted
        except FileNotFoundError:
            raise SnapshotGone(self.place, self.number, f"its file {path} was removed") from None
        except (pyarrow.ArrowException, ValueError) as error:
            raise InputMalformed(path, 0, f"it cannot be read: {error}", "Repair it, or read another one.") from error
        except OSError as error:
            raise InputUnreadable(path, error.strerror or str(error)) from error


class IcebergReader:
    """Reader of a data file, batch by batch."""

    def __init__(self, source: IcebergRead) -> None:
        self._source = source
        self._batches: Iterator[RecordBatch] = iter(())
        self._batch: Any = None
        self._rows = 0

    def open(self, split: bytes, mark: bytes | None) -> None:
        """Opens a data file at a mark.

        Raises: SnapshotGone: it is not there any more. SplitMalformed: the split or mark is none.
        """
        self.close()
        file = decoded_split(_files, "split of an Iceberg table", split)
        if mark is not None and len(mark) != MARK_BYTES:
            raise SplitMalformed("position in a data file", mark, f"it has {len(mark)} bytes")
        self._batches = self._source.opened(file).batches(file.path, self._source.used)
        self._rows = wanted = 0 if mark is None else int.from_bytes(mark, "big")
        while wanted and (batch := next(self._batches, None)) is not None:
            skipped = min(wanted, batch.num_rows)
            self._batch, wanted = batch.slice(skipped), wanted - skipped

    def read(self, records_max: int) -> Any | None:
        """Returns the next batch of at most ``records_max`` rows, None at the end."""
        while self._batch is None or not self._batch.num_rows:
            self._batch = next(self._batches, None)
            if self._batch is None:
                return None
        rows = self._batch.slice(0, records_max)
        self._batch = self._batch.slice(rows.num_rows)
        self._rows += rows.num_rows
        return rows

    def mark(self) -> bytes:
        """Returns the number of rows that were read."""
        return self._rows.to_bytes(MARK_BYTES, "big")

    def close(self) -> None:
        """Lets the rows go."""
        self._batches, self._batch, self._rows = iter(()), None, 0


@contextmanager
def _reading(place: str) -> Iterator[None]:
    try:
        yield
    except ClonosError:
        raise
    except Exception as error:
        problem = " ".join(str(error).split())
        if isinstance(error, ValueError):  # such as deletes by equality, which the library does not apply
            raise InvalidConnector(READ, f"the table {place} cannot be read: {problem}", "Rewrite its files.") from None
        raise InputUnreadable(place, problem) from error
