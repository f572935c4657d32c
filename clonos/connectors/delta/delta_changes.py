"""``delta.changes``: the changes of a Delta table as a source that follows its log, version by version.

A split follows the whole log, and reads its share of the files. A mark is a version, the place of a file among those of
the version that the split reads, and the position in it. So it does not grow with the versions.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Final

import msgspec
import pyarrow

from clonos.connectors.columns.followed_tables import Looks, TableChanges, files_of_share
from clonos.connectors.connector_errors import InputUnreadable, InvalidConnector, UnexpectedInput
from clonos.connectors.delta.data_files import (
    WHOLE,
    DataFileReader,
    DataFileSource,
    DataFileSplit,
    packed_schema,
    place_of,
    unpacked_schema,
)
from clonos.connectors.delta.delta_errors import DataFileGone, VersionsGone
from clonos.connectors.delta.table_commits import (
    ChangedFile,
    VersionChanges,
    content_of,
    log_name,
    read_commit,
    reading_log,
)
from clonos.connectors.delta.table_log import LOG
from clonos.connectors.delta.table_versions import CHANGE_FEED, CHANGES, TableVersion, open_version
from clonos.connectors.filesystem.file_sinks import absolute
from clonos.connectors.filesystem.file_splits import SPLIT_FORMAT, regular_status
from clonos.connectors.filesystem.output_files import files_of
from clonos.connectors.kit.history import LateCut
from clonos.connectors.kit.splits import decoded_split
from clonos.core.model.errors import ClonosError
from clonos.operators.columnar.plain_columns import plain_schema
from clonos.operators.lineage import Dataset, dataset_at

ADDED: Final = pyarrow.schema(
    [
        ("_change_type", pyarrow.string()),
        ("_commit_version", pyarrow.int64()),
        ("_commit_timestamp", pyarrow.timestamp("us", "UTC")),
    ]
)
"""Columns of a change, beside those of the table: the same as of Delta's own readers of changes."""

LOOKS_UNTIL_LISTED: Final = 60
"""Looks for a version that is not there, after each of which the log is listed: it may have lost this version."""


class _Share(msgspec.Struct, frozen=True, array_like=True):
    """Split: files of all versions from ``first`` to ``last`` (None: without end), by a hash of their paths."""

    format: int
    table: str
    first: int
    last: int | None
    has_feed: bool
    index: int
    count: int
    schema: bytes
    is_partitioned: bool = False


class _Mark(msgspec.Struct, frozen=True, array_like=True):
    """Position: ``mark`` of a reader in a file of a version."""

    version: int
    file: int
    mark: bytes
    has_feed: bool


_shares: Final = msgspec.msgpack.Decoder(_Share)
_marks: Final = msgspec.msgpack.Decoder(_Mark)


class DeltaChanges(DataFileSource, TableChanges):
    """Unbounded source of the changes of a table."""

    connector = CHANGES
    routes_malformed = True

    def __init__(self, path: str, first: int | None, is_bounded: bool, watch_ns: int, ordered: bool | None) -> None:
        super().__init__(is_bounded, watch_ns, ordered)
        self.path, self.first = absolute(path), first

    def __repr__(self) -> str:
        return f"{CHANGES}({self.path!r})"

    def datasets(self) -> list[Dataset]:
        """See ``lineage.NamingConnector``."""
        return [dataset_at(self.path)]

    def splits(self, parallelism: int) -> list[bytes]:
        """Returns shares of the files from the first version on.

        Raises: InvalidConnector: there is no such table or version, or it cannot be read. VersionsGone.
        """
        newest = self._newest()
        first = newest.version + 1 if self.first is None else self.first
        if first > newest.version + 1:
            problem = f"from_version is {first}"
            raise InvalidConnector(CHANGES, problem, f"The newest version of {self.path} is {newest.version}.")
        if first <= newest.version and content_of(self.path, first) is None:
            raise VersionsGone(self.path, first, "it was removed")
        count = 1 if self.ordered else parallelism
        last = newest.version if self.is_bounded else None
        feed, schema = self._had_feed(first), packed_schema(newest.schema)
        is_partitioned = bool(newest.partition_columns)
        shares = [
            _Share(1, self.path, first, last, feed, index, count, schema, is_partitioned) for index in range(count)
        ]
        return [msgspec.msgpack.encode(share) for share in shares]

    def check_cut(self) -> None:
        """See ``kit.history.CutSource``.

        Raises: LateCut: it begins after the newest version, and the history may have another one.
        """
        if self.first is None:
            advice = "Read a version= as the history, and give from_version= the next one"
            raise LateCut(repr(self), "without from_version= it begins after the newest version", advice)

    def check_split(self, split: bytes) -> None:
        """Checks that a split is of this table.

        Raises: UnexpectedInput: it is of another one. SplitMalformed: it is none.
        """
        table = _share_of(split).table
        if table != self.path:
            raise UnexpectedInput(CHANGES, table, (self.path,), os.getcwd())

    def column_schema(self) -> Any | None:
        """See ``column_contract.DescribedSource``."""
        try:
            return _with_added(self._newest().schema)
        except ClonosError:
            return None

    def sampled_schema(self, splits: Sequence[bytes]) -> Any | None:
        """See ``column_contract.SampledSource``: the columns that the table had when the job began."""
        return _with_added(unpacked_schema(_share_of(splits[0]).schema)) if splits else self.column_schema()

    def reader(self) -> TableFollower:
        """Creates a reader of changes."""
        return TableFollower(self)

    def _newest(self) -> TableVersion:
        found = open_version(CHANGES, self.path)
        if taken := [name for name in ADDED.names if name in found.schema.names]:
            problem = f"the table {self.path} has a column {taken[0]!r}, which changes have"
            raise InvalidConnector(CHANGES, problem, "Give it another name.")
        return found

    def _had_feed(self, first: int) -> bool:
        if first == 0:
            return False
        try:
            return open_version(CHANGES, self.path, first - 1).settings.get(CHANGE_FEED) == "true"
        except InputUnreadable as error:
            raise VersionsGone(self.path, first - 1, error.reason) from error


class TableFollower:
    """Reader of a share of the files of a table. It ends at the last version, if there is one."""

    def __init__(self, source: DeltaChanges) -> None:
        self._source = source
        self._share: _Share | None = None
        self._schema: Any = None
        self._version = self._file = 0
        self._has_feed = False
        self._mark = b""  # of the file that is opened next
        self._commit: VersionChanges | None = None
        self._files: list[ChangedFile] = []
        self._reader: DataFileReader | None = None
        self._looks = Looks(source.watch_ns)
        self._missed = 0  # looks that found no version

    def open(self, split: bytes, mark: bytes | None) -> None:
        """Opens a share at a mark.

        Raises: SplitMalformed: the split or the mark is none.
        """
        self.close()
        self._share = share = _share_of(split)
        at = _Mark(share.first, 0, b"", share.has_feed)
        if mark is not None:
            at = decoded_split(_marks, "position in the changes of a Delta table", mark)
        self._schema = unpacked_schema(share.schema)
        self._version, self._file, self._mark, self._has_feed = at.version, at.file, at.mark, at.has_feed
        self._commit, self._missed = None, 0
        self._looks.reset()

    def read(self, records_max: int) -> Any | None:
        """Returns the next changes; [] if there are none now, None after the last version.

        Raises: VersionsGone, DataFileGone: the table has dropped what comes next. ChangesUnknown: it cannot be told.
        """
        assert self._share is not None, "a reader is opened before it is read"
        while True:
            if self._reader is not None:
                if (found := self._reader.read(records_max)) is not None:
                    return found
                self.close()
                self._file, self._mark = self._file + 1, b""
            if self._share.last is not None and self._version > self._share.last:
                return None
            if self._commit is None and not self._load():
                return []
            assert self._commit is not None, "it was loaded"
            if self._file < len(self._files):
                self._open(self._files[self._file], self._commit)
            else:
                self._version, self._file, self._has_feed = self._version + 1, 0, self._commit.has_feed
                self._commit, self._missed = None, 0
                self._looks.reset()

    def mark(self) -> bytes:
        """Returns the version, the file and the position in it."""
        inner = self._mark if self._reader is None else self._reader.mark()
        return msgspec.msgpack.encode(_Mark(self._version, self._file, inner, self._has_feed))

    def close(self) -> None:
        """Closes the file."""
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    def _load(self) -> bool:
        """Reads the commit of the version; returns False if it is not there now."""
        assert self._share is not None, "a reader is opened before it is read"
        if not self._looks.is_due():
            return False
        table = self._source.path
        data = content_of(table, self._version)
        if data is None:
            if self._missed % LOOKS_UNTIL_LISTED == 0:
                self._check_not_gone()
            self._missed += 1
            return False
        share = self._share
        self._commit = read_commit(
            table, self._version, data, self._has_feed, self._schema, is_partitioned=share.is_partitioned
        )
        self._files = files_of_share(self._commit.files, share.index, share.count)
        return True

    def _check_not_gone(self) -> None:
        table, version = self._source.path, self._version
        files, place = files_of(table)
        with reading_log(table):
            names = files.names(f"{place}/{LOG}")
        commits = [name for name in names if name.endswith(".json") and name.removesuffix(".json").isdigit()]
        if not commits or commits[-1] < log_name(version - 1):
            raise VersionsGone(table, version, "the table was replaced, and has fewer versions")
        if commits[-1] > log_name(version) and content_of(table, version) is None:
            raise VersionsGone(table, version, f"it was removed, and the oldest one is {int(commits[0][:20])}")

    def _open(self, file: ChangedFile, commit: VersionChanges) -> None:
        place = place_of(self._source.path, file.path)
        try:
            status = regular_status(place)
        except InputUnreadable as error:
            if isinstance(error.__cause__, FileNotFoundError):
                raise DataFileGone(place, self._version) from None
            raise
        time_us = None if commit.time_ms is None else commit.time_ms * 1_000
        values = dict(zip(ADDED.names, (file.change, self._version, time_us), strict=True))
        schema = self._schema
        if not file.change:
            schema = schema.append(ADDED.field(0))
            del values[ADDED.names[0]]
        source = self._source
        reader = source.file_reader()
        reader.added = {name: pyarrow.scalar(value, ADDED.field(name).type) for name, value in values.items()}
        packed = packed_schema(schema)
        part = DataFileSplit(SPLIT_FORMAT, place, *status, 0, WHOLE, self._version, file.partition, packed)
        reader.open(msgspec.msgpack.encode(part), self._mark or None)
        self._reader = reader


def _share_of(split: bytes) -> _Share:
    return decoded_split(_shares, "share of the changes of a Delta table", split)


def _with_added(schema: Any) -> Any:
    return plain_schema(pyarrow.schema([*schema, *ADDED]))
