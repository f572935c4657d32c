"""``iceberg.changes``: the rows that are appended to an Iceberg table, as a source that follows it by its snapshots.

A split follows all snapshots, and reads its share of the files. A mark is the snapshot before, the one whose files are
read, the place of a file among those that the split reads, and the position in it. So it does not grow.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from clonos.connectors.columns.followed_tables import Looks, TableChanges, files_of_share
from clonos.connectors.columns.narrowed_source import NarrowedSource
from clonos.connectors.connector_errors import InvalidConnector, SplitMalformed
from clonos.connectors.iceberg.data_rows import DataRows, SnapshotFile, TableColumns, columns_of
from clonos.connectors.iceberg.iceberg_catalog import CHANGES, IcebergTable
from clonos.connectors.iceberg.iceberg_errors import AppendsUnknown
from clonos.connectors.iceberg.snapshot_appends import AFRESH, NONE, Done, appended_files, done_with, snapshots_after
from clonos.connectors.kit.history import LateCut
from clonos.connectors.kit.splits import decoded_split
from clonos.core.model.errors import ClonosError
from clonos.operators.lineage import Dataset


class _Share(msgspec.Struct, frozen=True, array_like=True):
    """Split: files of all snapshots after ``done`` to ``last`` (None: without end), by a hash of their paths."""

    format: int
    table: str
    done: Done
    last: int | None
    index: int
    count: int
    schema: bytes


class _Mark(msgspec.Struct, frozen=True, array_like=True):
    """Position: ``mark`` of a reader in a file of ``snapshot``, or NONE if that is not known yet."""

    done: Done
    snapshot: int
    file: int
    mark: bytes


_shares: Final = msgspec.msgpack.Decoder(_Share)
_marks: Final = msgspec.msgpack.Decoder(_Mark)


class IcebergChanges(NarrowedSource, TableChanges):
    """Unbounded source of the rows that are appended."""

    connector = CHANGES

    def __init__(
        self, table: IcebergTable, after: int | None, is_bounded: bool, watch_ns: int, ordered: bool | None
    ) -> None:
        super().__init__(is_bounded, watch_ns, ordered)
        self.table, self.after = table, after

    def __repr__(self) -> str:
        return f"{CHANGES}({self.table.name!r})"

    def datasets(self) -> list[Dataset]:
        """See ``lineage.NamingConnector``."""
        return [self.table.dataset]

    def splits(self, parallelism: int) -> list[bytes]:
        """Returns shares of the files after the first snapshot.

        Raises: InvalidConnector: there is no such table or snapshot. SnapshotGone: a snapshot that follows
        has expired. AppendsUnknown: none follows. InputUnreadable.
        """
        table = self.table.found()
        current = table.metadata.current_snapshot_id
        newest = NONE if current is None else current
        done = done_with(table, newest if self.after is None else self.after)
        ids = {number for each in table.snapshots() for number in (each.snapshot_id, each.parent_snapshot_id)}
        if done.number not in {NONE, *ids}:
            problem = f"the table {self.table.name} has no snapshot {done.number}"
            raise InvalidConnector(CHANGES, problem, f"Its newest one is {newest}.")
        snapshots_after(self.table.place, table, done)
        columns_of(CHANGES, table.schema())
        count = 1 if self.ordered else parallelism
        last = newest if self.is_bounded else None
        identity, schema = str(table.metadata.table_uuid), zlib.compress(table.schema().model_dump_json().encode(), 9)
        shares = [_Share(1, identity, done, last, index, count, schema) for index in range(count)]
        return [msgspec.msgpack.encode(share) for share in shares]

    def check_cut(self) -> None:
        """See ``kit.history.CutSource``.

        Raises: LateCut: it begins after the newest snapshot, and the history may have another one.
        """
        if self.after is None:
            advice = "Read a snapshot= as the history, and give it as after_snapshot= too"
            raise LateCut(repr(self), "without after_snapshot= it begins after the newest snapshot", advice)

    def check_split(self, split: bytes) -> None:
        """Checks that a split is of this table.

        Raises: SplitMalformed: it is none. TableReplaced: it is of another one. InputUnreadable.
        """
        self.table.found(_share_of(split).table)

    def sampled_schema(self, splits: Sequence[bytes]) -> Any | None:
        """See ``column_contract.SampledSource``: the columns that the table had when the job began."""
        if splits:
            return _columns_in(_share_of(splits[0])).arrow
        try:
            return columns_of(CHANGES, self.table.found().schema()).arrow
        except ClonosError:
            return None

    def column_schema(self) -> Any | None:
        """See ``column_contract.DescribedSource``."""
        return self.sampled_schema(())

    def reader(self) -> AppendsFollower:
        """Creates a reader of appended rows."""
        return AppendsFollower(self)


class AppendsFollower:
    """Reader of a share of the files that are appended. It ends at the last snapshot, if there is one."""

    def __init__(self, source: IcebergChanges) -> None:
        self._source = source
        self._share: _Share | None = None
        self._columns: Any = None
        self._at = _Mark(Done(NONE, NONE), NONE, 0, b"")  # of the file that is opened next
        self._table: Any = None
        self._waiting: list[Any] = []  # snapshots that follow, latest first
        self._files: list[SnapshotFile] | None = None  # of the snapshot
        self._rows: DataRows | None = None
        self._looks = Looks(source.watch_ns)

    def open(self, split: bytes, mark: bytes | None) -> None:
        """Opens a share at a mark.

        Raises: SplitMalformed: the split or the mark is none.
        """
        self.close()
        self._share = share = _share_of(split)
        self._columns = _columns_in(share)
        self._at = _Mark(share.done, NONE, 0, b"")
        if mark is not None:
            self._at = decoded_split(_marks, "position in the appends of an Iceberg table", mark)
        self._waiting, self._files = [], None
        self._looks.reset()

    def read(self, records_max: int) -> Any | None:
        """Returns the next rows; [] if there are none now, None after the last snapshot.

        Raises: SnapshotGone, TableReplaced: what comes next is not there. AppendsUnknown: it is more than appends.
        """
        assert self._share is not None, "a reader is opened before it is read"
        while True:
            at = self._at
            if self._rows is not None:
                if (found := self._rows.read(records_max)) is not None:
                    return found
                self.close()
                self._at = _Mark(at.done, at.snapshot, at.file + 1, b"")
            elif self._files is not None and at.file < len(self._files):
                self._rows = DataRows(self._files[at.file], self._columns, self._source, at.mark or None)
            elif self._files is not None:
                self._at, self._files = _Mark(done_with(self._table, at.snapshot), NONE, 0, b""), None
            elif at.done.number == self._share.last:
                return None
            elif not self._load():
                return []

    def mark(self) -> bytes:
        """Returns the snapshot, the file and the position in it."""
        at = self._at
        inner = at.mark if self._rows is None else self._rows.mark()
        return msgspec.msgpack.encode(_Mark(at.done, at.snapshot, at.file, inner))

    def close(self) -> None:
        """Closes the file."""
        if self._rows is not None:
            self._rows.close()
            self._rows = None

    def _load(self) -> bool:
        """Loads the files of the next snapshot; returns False if there is none now."""
        if not self._waiting and not self._look():
            return False
        assert self._share is not None, "a reader is opened before it is read"
        snapshot, place, at = self._waiting.pop(), self._source.table.place, self._at
        if at.snapshot not in (NONE, snapshot.snapshot_id):
            reason = f"was read in part, and {snapshot.snapshot_id} is in its place: the table was set back"
            raise AppendsUnknown(place, at.snapshot, reason, f"{AFRESH}, and with the rows that the table has now.")
        files = appended_files(place, self._table, snapshot, self._columns.fields)
        self._files = files_of_share(files, self._share.index, self._share.count)
        self._at = _Mark(at.done, snapshot.snapshot_id, at.file, at.mark)
        return True

    def _look(self) -> bool:
        """Looks for snapshots that follow; returns False if there are none now."""
        assert self._share is not None, "a reader is opened before it is read"
        if not self._looks.is_due():
            return False
        table = self._source.table.found(self._share.table)
        self._waiting = snapshots_after(self._source.table.place, table, self._at.done, self._share.last)[::-1]
        self._table = table
        return bool(self._waiting)


def _share_of(split: bytes) -> _Share:
    return decoded_split(_shares, "share of the appends of an Iceberg table", split)


def _columns_in(share: _Share) -> TableColumns:
    """Returns the columns of a split.

    Raises: SplitMalformed: it has none.
    """
    from pyiceberg.schema import Schema

    try:
        return columns_of(CHANGES, Schema.model_validate_json(zlib.decompress(share.schema)))
    except (ValueError, zlib.error) as error:
        raise SplitMalformed("share of the appends of an Iceberg table", share.schema, str(error)) from None
