"""``iceberg.read``: the rows of one snapshot of an Iceberg table, as a bounded source of columns.

A split is a data file. pyiceberg says which files a snapshot has, and which rows of them are deleted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from clonos.connectors.columns.narrowed_source import NarrowedSource
from clonos.connectors.connector_errors import InvalidConnector
from clonos.connectors.iceberg.data_rows import DataRows, SnapshotFile, columns_of
from clonos.connectors.iceberg.iceberg_catalog import READ, IcebergTable
from clonos.connectors.iceberg.iceberg_errors import SnapshotGone, reading_table
from clonos.connectors.kit.history import HistorySource
from clonos.connectors.kit.splits import decoded_split
from clonos.core.model.errors import ClonosError
from clonos.operators.lineage import Dataset


class _File(msgspec.Struct, frozen=True, array_like=True):
    """Split: a data file of a snapshot of the table with this identity. ``schema``: number of the columns."""

    format: int
    table: str
    snapshot: int
    schema: int
    path: str


_files: Final = msgspec.msgpack.Decoder(_File)


class IcebergRead(NarrowedSource, HistorySource):
    """Bounded source of the rows of a snapshot, which does not change after the first start."""

    is_columnar = True

    def __init__(self, table: IcebergTable, snapshot: int | None) -> None:
        self.table, self.snapshot = table, snapshot
        self._opened: dict[tuple[str, int, int], TableSnapshot] = {}

    def __getstate__(self) -> dict[str, Any]:
        """Leaves out what a process has read of the catalog."""
        return {**vars(self), "_opened": {}}

    def __repr__(self) -> str:
        return f"{READ}({self.table.name!r})"

    def datasets(self) -> list[Dataset]:
        """See ``lineage.NamingConnector``."""
        return [self.table.dataset]

    def splits(self, parallelism: int) -> list[bytes]:
        """Returns the data files of the snapshot.

        Raises: InvalidConnector: there is no such table or snapshot, or it cannot be read. InputUnreadable.
        """
        found = self._newest()
        if found is None:
            return []
        files = [_File(1, found.identity, found.number, found.schema, path) for path in sorted(found.files)]
        return [msgspec.msgpack.encode(file) for file in files]

    def check_split(self, split: bytes) -> None:
        """Checks that a split is of this table.

        Raises: SplitMalformed: it is none. TableReplaced, SnapshotGone, InputUnreadable.
        """
        self.opened(_file_of(split))

    def sampled_schema(self, splits: Sequence[bytes]) -> Any | None:
        """See ``column_contract.SampledSource``: the columns of the snapshot that the job began with."""
        if splits:
            return self.opened(_file_of(splits[0])).columns.arrow
        try:
            found = self._newest()
        except ClonosError:
            return None
        return None if found is None else found.columns.arrow

    def column_schema(self) -> Any | None:
        """See ``column_contract.DescribedSource``."""
        return self.sampled_schema(())

    def reader(self) -> IcebergReader:
        """Creates a reader of record batches."""
        return IcebergReader(self)

    def opened(self, file: _File) -> TableSnapshot:
        """Returns the snapshot of a split, which a process looks up once.

        Raises: SnapshotGone: it has expired. TableReplaced. InputUnreadable.
        """
        key = file.table, file.snapshot, file.schema
        if key not in self._opened:
            table = self.table.found(file.table)
            if table.snapshot_by_id(file.snapshot) is None:
                raise SnapshotGone(self.table.place, file.snapshot, "it has expired")
            self._opened[key] = TableSnapshot(self.table.place, table, file.snapshot, file.schema)
        return self._opened[key]

    def _newest(self) -> TableSnapshot | None:
        table = self.table.found()
        if self.snapshot is None:
            current = table.current_snapshot()
            schema = table.metadata.current_schema_id
            return None if current is None else TableSnapshot(self.table.place, table, current.snapshot_id, schema)
        if (chosen := table.snapshot_by_id(self.snapshot)) is None:
            known = ", ".join(str(each.snapshot_id) for each in table.snapshots()[-3:]) or "none"
            problem = f"the table {self.table.name} has no snapshot {self.snapshot}"
            raise InvalidConnector(READ, problem, f"Its latest ones are: {known}.")
        schema = table.metadata.current_schema_id if chosen.schema_id is None else chosen.schema_id
        return TableSnapshot(self.table.place, table, self.snapshot, schema)


class TableSnapshot:
    """One snapshot of a table: its columns, and its data files by their paths."""

    def __init__(self, place: str, table: Any, number: int, schema: int) -> None:
        """``schema``: number of that of the table. The newest snapshot may be older than a change of columns."""
        self.place, self.number, self.schema = place, number, schema
        self.identity = str(table.metadata.table_uuid)
        with reading_table(READ, place):
            self.columns = columns_of(READ, table.schemas()[schema])
            tasks = list(table.scan(snapshot_id=number).plan_files())
        self.files: Mapping[str, SnapshotFile] = {
            task.file.file_path: SnapshotFile(place, table, number, task.file, tuple(task.delete_files))
            for task in tasks
        }
        if len(self.files) < len(tasks):
            problem = f"snapshot {number} of the table {place} has a data file twice"
            raise InvalidConnector(READ, problem, "Rewrite its files.")


class IcebergReader:
    """Reader of data files, one after the other."""

    def __init__(self, source: IcebergRead) -> None:
        self._source = source
        self._rows: DataRows | None = None

    def open(self, split: bytes, mark: bytes | None) -> None:
        """Opens a data file at a mark.

        Raises: SnapshotGone: it is not there any more. SplitMalformed: the split or mark is none.
        """
        self.close()
        file = _file_of(split)
        found = self._source.opened(file)
        if file.path not in found.files:
            raise SnapshotGone(found.place, found.number, f"it has no file {file.path}")
        self._rows = DataRows(found.files[file.path], found.columns, self._source, mark)

    def read(self, records_max: int) -> Any | None:
        """Returns the next batch of at most ``records_max`` rows, None at the end."""
        assert self._rows is not None, "a reader is opened before it is read"
        return self._rows.read(records_max)

    def mark(self) -> bytes:
        """Returns the place of the next row."""
        assert self._rows is not None, "a reader is opened before it has a mark"
        return self._rows.mark()

    def close(self) -> None:
        """Closes the file."""
        if self._rows is not None:
            self._rows.close()
            self._rows = None


def _file_of(split: bytes) -> _File:
    return decoded_split(_files, "split of an Iceberg table", split)
