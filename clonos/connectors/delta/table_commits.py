"""Commits of a Delta table: what one version has added to the log, as files whose rows are changes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

import msgspec

from clonos.connectors.connector_errors import InputMalformed, InputUnreadable, InvalidConnector, OutputFailed
from clonos.connectors.delta.delta_errors import ChangesUnknown
from clonos.connectors.delta.table_log import LOG, library
from clonos.connectors.delta.table_versions import CHANGE_FEED, CHANGES, READ, check_readable
from clonos.connectors.filesystem.output_files import files_of
from clonos.core.wire.decoding import DECODE_ERRORS

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
AFRESH: Final = "Start afresh with --overwrite"


class ChangedFile(NamedTuple):
    """File of a version. ``change``: what each of its rows is, "" if its rows say so."""

    path: str
    partition: dict[str, str | None]
    change: str


class VersionChanges(NamedTuple):
    """Changes of a version, in one order. ``has_feed``: whether the table has a change data feed from here on."""

    files: list[ChangedFile]
    time_ms: int | None
    has_feed: bool


class _File(msgspec.Struct, rename="camel"):
    path: str
    partition_values: dict[str, str | None] | None = None
    data_change: bool = True
    deletion_vector: Any = None


class _Information(msgspec.Struct, rename="camel"):
    timestamp: int | None = None
    in_commit_timestamp: int | None = None
    operation: str | None = None

    @property
    def time_ms(self) -> int | None:
        return self.in_commit_timestamp or self.timestamp


class _Columns(msgspec.Struct, rename="camel"):
    schema_string: str
    configuration: dict[str, str | None] = {}


class _Protocol(msgspec.Struct, rename="camel"):
    reader_features: list[str] | None = None


class _Action(msgspec.Struct, rename="camel"):
    add: _File | None = None
    remove: _File | None = None
    cdc: _File | None = None
    meta_data: _Columns | None = None
    protocol: _Protocol | None = None
    commit_info: _Information | None = None


_decoder: Final = msgspec.json.Decoder(_Action)


def log_name(version: int) -> str:
    """Returns the name of the file of a commit in the folder of the log."""
    return f"{version:020}.json"


def content_of(table: str, version: int) -> bytes | None:
    """Returns the commit of a version as the log has it, None if it is not there.

    Raises: InputUnreadable.
    """
    files, place = files_of(table)
    with reading_log(table):
        return files.content(f"{place}/{LOG}/{log_name(version)}")


@contextmanager
def reading_log(table: str) -> Iterator[None]:
    """Raises InputUnreadable if the files of the log cannot be read within."""
    try:
        yield
    except OutputFailed as error:
        raise InputUnreadable(table, error.reason) from error


def version_at(table: str, newest: int, at: datetime) -> int:
    """Returns the newest version that was committed at a time or before.

    That is the time in its commit. The library takes the one of the file, which a copy of a table does not keep, and
    gives the oldest version if all are younger.

    Raises: InvalidConnector: there is none, or a commit has no time. InputUnreadable. InputMalformed.
    """
    oldest = ""
    for version in range(newest, -1, -1):
        data = content_of(table, version)
        if data is None:
            break  # the log begins after it
        time_ms = _information_of(_actions_of(table, version, data)).time_ms
        if time_ms is None:
            raise InvalidConnector(READ, f"version {version} of {table} has no time in its commit", "Give version=.")
        time = EPOCH + timedelta(milliseconds=time_ms)
        if time <= at:
            return version
        oldest = f" The oldest one in its log is of {time.isoformat()}."
    problem = f"the table {table} has no version of {at.isoformat()} or before in its log"
    raise InvalidConnector(READ, problem, f"Give a later timestamp=, or version=.{oldest}")


def read_commit(
    table: str, version: int, data: bytes, has_feed: bool, schema: Any, *, is_partitioned: bool = False
) -> VersionChanges:
    """Returns what a version has changed, for a source whose columns are those of ``schema``.

    Raises: ChangesUnknown: it removes rows, and no change data feed tells which, or not in which partition they were.
    InputMalformed: it is damaged. InvalidConnector: from here on the table uses what is not supported.
    """
    actions = _actions_of(table, version, data)
    information = _information_of(actions)
    for action in actions:
        if action.protocol is not None:
            check_readable(CHANGES, table, set(action.protocol.reader_features or ()), {})
        if action.meta_data is not None:
            configuration = {name: value or "" for name, value in action.meta_data.configuration.items()}
            check_readable(CHANGES, table, set(), configuration)
            _check_columns(table, version, action.meta_data.schema_string, schema)
            has_feed = configuration.get(CHANGE_FEED) == "true"
    time_ms = information.time_ms
    feed = [action.cdc for action in actions if action.cdc is not None]
    if feed:
        return VersionChanges(_changed(feed, ""), time_ms, has_feed)
    removed = [action.remove for action in actions if action.remove is not None and action.remove.data_change]
    added = [action.add for action in actions if action.add is not None and action.add.data_change]
    if removed and not has_feed:
        reason = f"removes rows ({information.operation or 'it says not how'}), and the table has no change data feed"
        advice = f"Set {CHANGE_FEED} = true for the table before rows are changed. {AFRESH}, and from_version="
        raise ChangesUnknown(table, version, reason, f"{advice}{version + 1} after a delta.read of version {version}")
    if any(file.deletion_vector is not None for file in (*removed, *added)):
        reason = "marks rows as deleted by a deletion vector, without a change data feed"
        raise ChangesUnknown(table, version, reason, f"{AFRESH}, and from_version={version + 1}")
    if is_partitioned and any(file.partition_values is None for file in removed):
        reason = "removes a file and does not say of which partition, so the deleted rows would lack its columns"
        raise ChangesUnknown(table, version, reason, f"{AFRESH}, and from_version={version + 1}")
    return VersionChanges([*_changed(removed, "delete"), *_changed(added, "insert")], time_ms, has_feed)


def _actions_of(table: str, version: int, data: bytes) -> list[_Action]:
    try:
        return [_decoder.decode(line) for line in data.splitlines() if line.strip()]
    except DECODE_ERRORS as error:
        path = f"{table.partition('?')[0]}/{LOG}/{log_name(version)}"
        raise InputMalformed(path, 0, f"it is no commit of a Delta table: {error}", "Repair the table.") from None


def _information_of(actions: Sequence[_Action]) -> _Information:
    found = [action.commit_info for action in actions if action.commit_info is not None]
    return found[-1] if found else _Information()


def _changed(files: Sequence[_File], change: str) -> list[ChangedFile]:
    return [ChangedFile(file.path, file.partition_values or {}, change) for file in files]


def _check_columns(table: str, version: int, text: str, schema: Any) -> None:
    import pyarrow

    found = pyarrow.schema(library(CHANGES).Schema.from_json(text).to_arrow())
    for field in schema:
        if field.name in found.names and found.field(field.name).type != field.type:
            types = f"{found.field(field.name).type}, which was {field.type} when the job first started"
            raise ChangesUnknown(table, version, f"has the column {field.name} as {types}", AFRESH)
