"""Tables of a database as an immediate sink: ``sqlite`` and, for every driver of PEP 249, ``dbapi``.

``table_outside`` has the rules of writing, ``table_appends`` and ``table_upserts`` how rows get into a table and are
withdrawn, ``table_database`` transactions, ``table_statements`` the SQL.
"""

from __future__ import annotations

import dataclasses
import enum
import os
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec

from clonos.connectors.connector_errors import ConnectorMisused
from clonos.connectors.json_text import scalar_text
from clonos.connectors.tables.table_outside import TableOutside
from clonos.connectors.tables.table_statements import Dialect

SQLITE_BUSY_MS = 10_000
SQLITE_INT_END = 1 << 63

_CONTAINERS = (list, tuple, dict, set, frozenset, enum.Enum, msgspec.Struct)


class TableSink:
    """An immediate sink into one table. ``connect`` is called in the slot and must not commit by itself.

    ``key_columns``: those under which a row replaces the one before it; empty: rows are added.
    """

    connector = "dbapi"
    is_withdrawing = True

    def __init__(
        self,
        connect: Callable[[], Any],
        table: str,
        columns: Sequence[str] | Mapping[str, str] | None,
        upsert: str | Sequence[str] | None,
        *,
        paramstyle: str,
        quote: str,
    ) -> None:
        if isinstance(columns, str) or (columns is not None and not columns):
            raise ConnectorMisused(self.connector, f"columns is {columns!r}", "Give a list of names, or name: type.")
        self.dialect = Dialect(self.connector, paramstyle, quote)
        self.dialect.table(table)
        self.connect = connect
        self.table = table
        self.columns = None if columns is None else tuple(columns)
        for column in self.columns or ():
            self.dialect.name(column)
        self.types = dict(columns) if isinstance(columns, Mapping) else None
        self.key_columns = self._checked_key(upsert)

    def _checked_key(self, upsert: str | Sequence[str] | None) -> tuple[str, ...]:
        if upsert is None:
            return ()
        key = (upsert,) if isinstance(upsert, str) else tuple(upsert)
        unknown = [column for column in key if column not in (self.columns or ())]
        if not key or unknown or len(set(key)) < len(key):
            raise ConnectorMisused(
                self.connector,
                f"upsert is {upsert!r}, and columns is {None if self.columns is None else list(self.columns)!r}",
                "Name the columns of the key, each once, and all columns with columns=.",
            )
        return key

    def outside(self) -> TableOutside:
        """A connection, made in the sink task's slot."""
        return TableOutside(self)

    def registrations(self, job_id: str) -> dict[str, tuple[int, int, int]]:
        """What the database knows of a job's tasks: generation, incarnation, number of the next output."""
        outside = self.outside()
        try:
            return outside.registrations(job_id)
        finally:
            outside.close()

    def begin(self, connection: Any) -> None:
        """Begins a transaction where the driver does not by itself."""

    def field(self, value: Any) -> Any:
        """What the driver takes for a value: containers and records as JSON, the rest as it is."""
        is_plain = not isinstance(value, _CONTAINERS) and not dataclasses.is_dataclass(value)
        return value if is_plain else scalar_text(value)

    def types_of(self, columns: tuple[str, ...]) -> Mapping[str, str] | None:
        """What a table is created with; None: it has to be there."""
        return self.types


class SqliteSink(TableSink):
    """A table in a file of SQLite."""

    connector = "sqlite"

    def __init__(
        self,
        path: str,
        table: str,
        columns: Sequence[str] | Mapping[str, str] | None,
        upsert: str | Sequence[str] | None,
        *,
        busy_ms: int = SQLITE_BUSY_MS,
    ) -> None:
        self.path = os.path.abspath(os.path.expanduser(path))
        connect = partial(
            sqlite3.connect,
            self.path,
            timeout=busy_ms / 1000,
            isolation_level=None,
            check_same_thread=False,
        )
        super().__init__(connect, table, columns, upsert, paramstyle="qmark", quote='"')

    def begin(self, connection: Any) -> None:
        """Takes the lock for writing at once: what is read inside holds until the commit."""
        connection.execute("BEGIN IMMEDIATE")

    def field(self, value: Any) -> Any:
        """SQLite has None, int of 64 bits, float, str and bytes; a bool is 0 or 1, the rest is text."""
        if type(value) is int:
            return value if -SQLITE_INT_END <= value < SQLITE_INT_END else str(value)
        if value is None or type(value) in (float, str, bytes):
            return value
        return int(value) if type(value) is bool else scalar_text(value)

    def types_of(self, columns: tuple[str, ...]) -> Mapping[str, str] | None:
        """SQLite needs no types."""
        return self.types or dict.fromkeys(columns, "")


def sqlite(
    path: str | os.PathLike[str],
    table: str,
    columns: Sequence[str] | Mapping[str, str] | None = None,
    *,
    upsert: str | Sequence[str] | None = None,
) -> SqliteSink:
    """An immediate sink into a table of a SQLite file that all processes of the job reach under this path.

    ``columns``: names, or names with their SQL types; None: those that the first row brings. ``upsert``: columns of a
    key; a row replaces the one with its key, and the stream must be keyed by them. The table is created if it is
    missing. What SQLite has no type for is text, as JSON has it.
    """
    return SqliteSink(os.fspath(path), table, columns, upsert)


def dbapi(
    connect: Callable[[], Any],
    table: str,
    columns: Sequence[str] | Mapping[str, str] | None = None,
    *,
    upsert: str | Sequence[str] | None = None,
    paramstyle: str = "qmark",
    quote: str = '"',
) -> TableSink:
    """An immediate sink into a table of any database with a driver of PEP 249.

    ``connect``: called without arguments in the slot, gives a connection that does not commit by itself. ``columns``
    with types: the table is created if it is missing. ``upsert``: columns of a key; a row replaces the one with its
    key, and the stream must be keyed by them. ``paramstyle``: the driver module's own. ``quote``: around names.
    Registrations are kept in the table ``clonos_outside`` of the same database.
    """
    return TableSink(connect, table, columns, upsert, paramstyle=paramstyle, quote=quote)
