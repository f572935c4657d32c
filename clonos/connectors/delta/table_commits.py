"""Commits of a Delta table: what one version has added to the log, as files whose rows are changes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import msgspec

from clonos.connectors.connector_errors import InputMalformed
from clonos.connectors.delta.delta_errors import ChangesUnknown
from clonos.connectors.delta.table_log import LOG, library
from clonos.connectors.delta.table_versions import CHANGE_FEED, CHANGES, check_readable
from clonos.core.wire.decoding import DECODE_ERRORS

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


def read_commit(table: str, version: int, data: bytes, has_feed: bool, schema: Any) -> VersionChanges:
    """Returns what a version has changed, for a source whose columns are those of ``schema``.

    Raises: ChangesUnknown: it removes rows, and no change data feed tells which. InputMalformed: it is damaged.
    InvalidConnector: from here on the table uses what is not supported.
    """
    try:
        actions = [_decoder.decode(line) for line in data.splitlines() if line.strip()]
    except DECODE_ERRORS as error:
        path = f"{table.partition('?')[0]}/{LOG}/{log_name(version)}"
        raise InputMalformed(path, 0, f"it is no commit of a Delta table: {error}", "Repair the table.") from None
    information = _Information()
    for action in actions:
        information = action.commit_info or information
        if action.protocol is not None:
            check_readable(CHANGES, table, set(action.protocol.reader_features or ()), {})
        if action.meta_data is not None:
            configuration = {name: value or "" for name, value in action.meta_data.configuration.items()}
            check_readable(CHANGES, table, set(), configuration)
            _check_columns(table, version, action.meta_data.schema_string, schema)
            has_feed = configuration.get(CHANGE_FEED) == "true"
    time_ms = information.in_commit_timestamp or information.timestamp
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
    return VersionChanges([*_changed(removed, "delete"), *_changed(added, "insert")], time_ms, has_feed)


def _changed(files: Sequence[_File], change: str) -> list[ChangedFile]:
    return [ChangedFile(file.path, file.partition_values or {}, change) for file in files]


def _check_columns(table: str, version: int, text: str, schema: Any) -> None:
    import pyarrow

    found = pyarrow.schema(library(CHANGES).Schema.from_json(text).to_arrow())
    for field in schema:
        if field.name in found.names and found.field(field.name).type != field.type:
            types = f"{found.field(field.name).type}, which was {field.type} when the job first started"
            raise ChangesUnknown(table, version, f"has the column {field.name} as {types}", AFRESH)
