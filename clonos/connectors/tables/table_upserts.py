"""Upserted rows of a table: one row per key, replaced by later rows and restored by a rollback.

The previous row of each written row is kept in a side table, by number and in the same transaction, until no checkpoint
needs it. A rollback restores the row from before the first withdrawn one, if the table still holds the row that the
last withdrawn one wrote. A row that others have changed since is left as it is.
"""

from __future__ import annotations

import logging
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple, cast

from clonos.connectors.connector_errors import TableRefused, row_not_writable
from clonos.connectors.tables.table_appends import end_of_missing
from clonos.connectors.tables.table_database import Database, TableDescription
from clonos.core.values import ValueBeyondLimit, ValueUnsupported, decode_value, encode_value
from clonos.operators.connector_contract import WriterIdentity

logger = logging.getLogger("clonos.slot")

Key = tuple[Any, ...]
Row = dict[str, Any]
"""Values by column name."""


def key_of(fields: Sequence[Any], positions: Sequence[int], connector: str, names: Sequence[str]) -> Key:
    """Returns the key of a row from its fields.

    Raises: RowNotWritable: a part of it is None, or cannot be a key.
    """
    key = tuple([fields[index] for index in positions])
    try:
        is_whole = None not in key and hash(key) is not None
    except TypeError:
        is_whole = False
    if not is_whole:
        reason = f"its key ({', '.join(names)}) is {key!r:.100}, but NULL and lists cannot be keys"
        raise row_not_writable(connector, 0, tuple(fields), reason)
    return key


class _KeyHistory(NamedTuple):
    """History of one key in a withdrawal. Rows are packed."""

    previous: str | None  # the row before the first withdrawn one
    written: str | None  # the row that the last withdrawn one wrote
    follows: int | None  # number of the row of the same transaction that had written ``previous``


class UpsertedRows:
    """Rows that one registered incarnation upserts."""

    def __init__(
        self, sink: TableDescription, database: Database, identity: WriterIdentity, key_columns: tuple[str, ...]
    ) -> None:
        self._sink, self._database, self._key_columns = sink, database, key_columns
        self._task = {
            "job_id": identity.job_id,
            "task": identity.task_name,
            "generation": identity.generation,
            "incarnation": identity.incarnation,
        }

    def prepare(self) -> None:
        """Creates the side table."""
        create = self._sink.dialect.create_previous
        self._database.in_transaction("registering", lambda: self._database.execute(create, {}))

    def warn(self, is_fresh: bool) -> None:
        """Does nothing: every key can be withdrawn."""

    def check(self, columns: tuple[str, ...]) -> None:
        """Does nothing: any column name is allowed."""

    def on_created(self) -> None:
        """Does nothing: the table needs no extra columns."""

    def insert(self, first_number: int, rows: Sequence[Sequence[Any]], columns: tuple[str, ...]) -> None:
        """Upserts rows numbered from ``first_number``, within the caller's transaction."""
        positions = [columns.index(column) for column in self._key_columns]
        keys = [key_of(fields, positions, self._sink.connector, self._key_columns) for fields in rows]
        present = self._find(dict.fromkeys(keys), columns)
        now: dict[Key, Row | None] = dict(present)
        history: list[Row] = []
        last: dict[Key, Row] = {}
        for number, (key, fields) in enumerate(zip(keys, rows, strict=True), first_number):
            entry = self._task | {
                "number": number,
                "row_key": self._encoded(dict(zip(self._key_columns, key, strict=True))),
                "previous": self._encoded(now[key]),
                "written": None,
                "follows": last[key]["number"] if key in last else None,
            }
            history.append(entry)
            last[key] = entry
            now[key] = dict(zip(columns, fields, strict=True))
        self._put(now, present, columns)
        for key, row in self._find(
            now, columns
        ).items():  # as the database stored it, after type conversions and triggers
            last[key]["written"] = self._encoded(row)
        self._database.insert_rows_by(self._sink.dialect.insert_history, history)

    def withdraw(self, first_number: int, next_number: int) -> int | None:
        """Restores the rows from before ``first_number``.

        Returns the end of the range without history; None if all of it has one.
        """
        touched: dict[tuple[str, ...], dict[Key, _KeyHistory]] = {}
        count, lowest = 0, None
        mine = self._task | {"first": first_number}
        dialect = self._sink.dialect
        for number, row_key, previous, written, follows in self._database.rows(dialect.find_previous, mine):
            count, lowest = count + 1, number if lowest is None else lowest
            named = _decoded(row_key) or {}
            keys, key = touched.setdefault(tuple(named), {}), tuple(named.values())
            before = keys.get(key)
            if before is not None:
                previous, written, follows = before.previous, written or before.written, before.follows
            keys[key] = _KeyHistory(previous, written, follows)
        changed = sum(self._restore_rows(key_columns, keys) for key_columns, keys in touched.items())
        if changed:
            logger.warning(
                "%d rows of the table %s were not restored, because others have changed them", changed, self._sink.table
            )
        self._database.execute(dialect.delete_previous, mine)
        return end_of_missing(first_number, next_number, count, lowest)

    def forget(self, before_number: int) -> None:
        """Deletes the previous rows of rows below ``before_number``."""
        statement, values = self._sink.dialect.forget_previous, self._task | {"before": before_number}
        self._database.in_transaction("forgetting", lambda: self._database.execute(statement, values))

    def _restore_rows(self, key_columns: tuple[str, ...], keys: Mapping[Key, _KeyHistory]) -> int:
        """Restores rows that are still as the last withdrawn row left them. Returns the number of rows that are not."""
        alike: dict[tuple[tuple[str, ...], tuple[str, ...]], dict[Key, Row | None]] = {}  # by the columns of both rows
        for key, row in keys.items():
            previous, written = _decoded(row.previous), _decoded(row.written) or {}
            alike.setdefault((tuple(written), tuple(previous or written)), {})[key] = previous
        changed = 0
        for (written_columns, columns), wanted in alike.items():
            present = self._find(wanted, written_columns, key_columns) if written_columns else dict.fromkeys(wanted)
            ours = [k for k in wanted if present[k] is not None and self._encoded(present[k]) == keys[k].written]
            self._put({key: wanted[key] for key in ours}, present, columns, key_columns)
            self._complete_history(
                {k: follows for k in ours if (follows := keys[k].follows) is not None}, columns, key_columns
            )
            changed += len(wanted) - len(ours)
        return changed

    def _complete_history(
        self, numbers: Mapping[Key, int], columns: tuple[str, ...], key_columns: tuple[str, ...]
    ) -> None:
        """Completes the history of keys that were written twice in a transaction: stores the present row."""
        statement = self._sink.dialect.update_previous
        found = self._find(numbers, columns, key_columns)
        self._database.execute_many(
            statement, [self._task | {"number": numbers[k], "written": self._encoded(row)} for k, row in found.items()]
        )

    def _find(
        self, keys: Iterable[Key], columns: tuple[str, ...], key_columns: tuple[str, ...] | None = None
    ) -> dict[Key, Row | None]:
        """Returns the row of each key from the database, None for a key without a row."""
        found: dict[Key, Row | None] = dict.fromkeys(keys)
        key_columns = key_columns or self._key_columns
        rest = iter(list(found))
        dialect = self._sink.dialect
        while asked := list(islice(rest, dialect.keys_per_query)):
            for index, *fields in dialect.find_rows(
                self._database.query, self._sink.table, columns, key_columns, asked
            ):
                if found[asked[int(index)]] is not None:
                    key = ", ".join(map(repr, asked[int(index)]))
                    reason = f"it has several rows whose {', '.join(key_columns)} is {key:.200}"
                    raise TableRefused(self._sink.table, "writing by key", reason)
                found[asked[int(index)]] = dict(zip(columns, map(_plain, fields), strict=True))
        return found

    def _put(
        self,
        wanted: Mapping[Key, Row | None],
        present: Mapping[Key, Row | None],
        columns: tuple[str, ...],
        key_columns: tuple[str, ...] | None = None,
    ) -> None:
        """Changes rows so that each key has its wanted row (None: no row), given the ``present`` rows."""
        dialect, table = self._sink.dialect, self._sink.table
        key_columns = key_columns or self._key_columns
        others = tuple(column for column in columns if column not in key_columns)

        def values(key: Key, row: Row | None, names: tuple[str, ...]) -> Row:
            fields = {f"c{n}": row[name] for n, name in enumerate(names)} if row is not None else {}
            return fields | {f"k0_{n}": value for n, value in enumerate(key)}

        new = [[row[name] for name in columns] for k, row in wanted.items() if row is not None and present[k] is None]
        old = [values(key, row, others) for key, row in wanted.items() if row is not None and present[key] is not None]
        deleted = [values(key, None, ()) for key, row in wanted.items() if row is None]
        self._database.insert_rows(table, columns, new)
        if others:
            self._database.execute_many(dialect.update_key(table, others, key_columns), old)
        self._database.execute_many(dialect.delete_key(table, key_columns), deleted)

    def _encoded(self, row: Row | None) -> str | None:
        """Encodes a row as text; ``_decoded`` decodes it."""
        if row is None:
            return None
        try:
            return b64encode(encode_value(row)).decode("ascii")
        except (ValueUnsupported, ValueBeyondLimit) as error:
            raise TableRefused(self._sink.table, "storing the previous row", str(error)) from error


def _decoded(text: str | None) -> Row | None:
    return None if text is None else cast("Row", decode_value(b64decode(text)))


def _plain(value: Any) -> Any:
    """Converts the byte types of drivers to bytes."""
    return bytes(value) if isinstance(value, bytearray | memoryview) else value
