"""Immediate sinks into database tables: ``sqlite`` and, for every driver of PEP 249, ``dbapi``.

``table_writer`` has the rules of writing, ``table_appends`` and ``table_upserts`` how rows are written and withdrawn,
``table_database`` transactions, ``table_statements`` the SQL.
"""

from __future__ import annotations

import dataclasses
import enum
import os
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from functools import partial
from typing import Any

import msgspec

from clonos.connectors.connector_errors import (
    InvalidConnector,
    RowNotWritable,
    TableRefused,
    TableUnavailable,
    row_not_writable,
)
from clonos.connectors.json_text import scalar_text
from clonos.connectors.row_fields import columns_of, fields_of
from clonos.connectors.tables import sqlite_values
from clonos.connectors.tables.database_text import database_text
from clonos.connectors.tables.exact_columns import ColumnChecks, NotStored, TableColumn
from clonos.connectors.tables.table_database import Database, Query
from clonos.connectors.tables.table_statements import Dialect
from clonos.connectors.tables.table_upserts import key_of
from clonos.connectors.tables.table_writer import TableWriter
from clonos.core.model.wrong_calls import explains_calls
from clonos.kernels.record_batch import RecordBatch
from clonos.operators.lineage import Dataset

SQLITE_BUSY_MS = 10_000
NO_TABLE = "no such table"
"""What SQLite says of a table that does not exist, as an OperationalError; other drivers give a ProgrammingError."""

_CONTAINERS = (list, tuple, dict, set, frozenset, enum.Enum, msgspec.Struct)


class TableSink:
    """Immediate sink into one table. The slot calls ``connect``; the connection must have autocommit off.

    A row replaces the row with the same values of ``key_columns``; without key columns rows are appended.
    """

    connector = "dbapi"
    can_roll_back = True
    is_case_sensitive = True
    """Whether ``id`` and ``ID`` may be two columns. What a driver's database says of them is its error."""

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
            raise InvalidConnector(
                self.connector, f"columns is {columns!r}", "Give a list of names, or a dict from name to type."
            )
        self.dialect = Dialect(self.connector, paramstyle, quote)
        self.dialect.table(table)
        self.connect = connect
        self.table = table
        self.columns = None if columns is None else tuple(columns)
        for column in self.columns or ():
            self.dialect.name(column)
        if problem := self.repeated(self.columns or ()):
            raise InvalidConnector(self.connector, problem, "Give each column a name of its own.")
        self.types = dict(columns) if isinstance(columns, Mapping) else None
        self.key_columns = self._checked_key(upsert)
        self.checks: ColumnChecks | None = None  # of the table at the start of the job, where it was known

    def __repr__(self) -> str:
        return f"{self.connector}(table={self.table!r})"

    def _checked_key(self, upsert: str | Sequence[str] | None) -> tuple[str, ...]:
        if upsert is None:
            return ()
        key = (upsert,) if isinstance(upsert, str) or not isinstance(upsert, Sequence) else tuple(upsert)
        unknown = [column for column in key if column not in (self.columns or ())]
        if not key or unknown or len(set(key)) < len(key):
            raise InvalidConnector(
                self.connector,
                f"upsert is {upsert!r}, and columns is {None if self.columns is None else list(self.columns)!r}",
                "Name each key column once in upsert=, and all columns in columns=.",
            )
        return key

    def repeated(self, columns: Sequence[str]) -> str:
        """Says which names mean one column; "" if each means one of its own."""
        seen: dict[bytes, int] = {}
        for place, column in enumerate(columns):
            name = column.encode(errors="surrogatepass")
            first = seen.setdefault(name if self.is_case_sensitive else name.lower(), place)  # of A to Z alone
            if first != place:
                return f"the columns {columns[first]!r} and {column!r} are one column of the table"
        return ""

    def describe_output(self) -> list[tuple[str, str]]:
        """Returns what a resume compares: the table, its key, and the database as far as ``connect`` shows it."""
        found = [("table", self.table), ("key", ", ".join(self.key_columns) or "none: rows are appended")]
        database = database_text(self.connect)
        return [("database", database), *found] if database else found

    @property
    def replaces_rows(self) -> bool:
        """Whether rows replace others by a key: these are withdrawn in the order of the changes of widths."""
        return bool(self.key_columns)

    def immediate_writer(self) -> TableWriter:
        """Creates a connection, in the slot of the sink task."""
        return TableWriter(self)

    def check_row(self, row: Any) -> None:
        """Raises: RowNotWritable: the row does not fit the columns, or a column does not hold its value."""
        columns = self.columns or self.columns_of(row)
        fields = self.fields(row, columns, 0, self.checks)
        if self.key_columns:
            key_of(fields, [columns.index(column) for column in self.key_columns], self.connector, self.key_columns)

    def columns_of(self, row: Any) -> tuple[str, ...]:
        """Returns the names of the fields of a row.

        Raises: RowNotWritable: it has none, or two that are one column.
        """
        columns = columns_of(row, self.connector)
        if problem := self.repeated(columns):
            raise row_not_writable(self.connector, 0, row, problem)
        return columns

    def fields(self, row: Any, columns: tuple[str, ...], index: int, checks: ColumnChecks | None) -> tuple[Any, ...]:
        """Returns the fields of a row as they are written.

        Raises: RowNotWritable: the row does not fit the columns, or a column does not hold its value.
        """
        found = fields_of(row, columns, self.connector, index)
        try:
            if checks is not None:
                for name, value in zip(columns, found, strict=True):
                    checks.check(name, value)
            return tuple(map(self.field, found))
        except (NotStored, RowNotWritable):
            reasons = (self._reason(name, value, checks) for name, value in zip(columns, found, strict=True))
            raise row_not_writable(self.connector, index, row, next(filter(None, reasons))) from None

    def _reason(self, name: str, value: Any, checks: ColumnChecks | None) -> str:
        """Returns why a value is not written, "" if it is."""
        try:
            if checks is not None:
                checks.check(name, value)
            self.field(value)
        except NotStored as refused:
            return f"its {name} {refused}"
        except RowNotWritable as refused:
            return f"its {name}: {refused.reason}"
        return ""

    def takes_columns(self, batch: RecordBatch, checks: ColumnChecks | None) -> bool:
        """Returns whether a ``pyarrow.RecordBatch`` can be written as it is, because no row of it can be refused."""
        return False

    def holds(self, batch: RecordBatch) -> bool:
        """See ``RefusingSink``."""
        return self.takes_columns(batch, self.checks)

    def known_columns(self, query: Query) -> Sequence[TableColumn]:
        """Returns the columns of the table as the database has them; none if there is no such table, or no way to ask.

        ``query``: returns the rows of a statement with parameters.
        """
        return ()

    def checks_of(self, columns: Sequence[TableColumn]) -> ColumnChecks | None:
        """Returns the checks of values by the columns of the table; None without columns."""
        return None

    def registrations(self, job_id: str) -> dict[str, tuple[int, int, int]]:
        """Returns (generation, incarnation, next number) of each task of a job from the database."""
        writer = self.immediate_writer()
        try:
            return writer.registrations(job_id)
        finally:
            writer.close()

    def has_table(self) -> bool:
        """Returns whether the table exists; True if the database cannot be asked."""
        database = Database(self)
        try:
            database.in_transaction(
                "looking for it", lambda: database.columns(self.dialect.select_columns(self.table)), 1
            )
        except TableRefused:
            return False
        except TableUnavailable as error:
            return NO_TABLE not in str(error)
        except Exception:  # noqa: BLE001  whatever connect() raises: the tasks will say it
            return True
        finally:
            database.close()
        return True

    def begin(self, connection: Any) -> None:
        """Begins a transaction if the driver does not do so itself."""

    def field(self, value: Any) -> Any:
        """Converts a value for the driver: containers and records to JSON, other values unchanged."""
        is_plain = not isinstance(value, _CONTAINERS) and not dataclasses.is_dataclass(value)
        return value if is_plain else scalar_text(value)

    def types_of(self, columns: tuple[str, ...]) -> Mapping[str, str] | None:
        """Returns the column types with which to create the table; None if the table must exist."""
        return self.types


class SqliteSink(TableSink):
    """Immediate sink into a table of a SQLite file."""

    connector = "sqlite"
    is_case_sensitive = False

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

    def datasets(self) -> list[Dataset]:
        """See ``lineage.NamingConnector``."""
        return [Dataset("file", f"{self.path}#{self.table}")]

    def has_table(self) -> bool:
        """Returns whether the table exists, without creating a file."""
        return os.path.exists(self.path) and super().has_table()

    def begin(self, connection: Any) -> None:
        """Begins a transaction with the write lock, so that what it reads holds until the commit."""
        connection.execute("BEGIN IMMEDIATE")

    def check_start(self) -> None:
        """Looks up the columns of the table, in the driver, so that each task refuses the same rows.

        A file that only the slots can read is not looked at.
        """
        if not os.path.exists(self.path):
            self.checks = self.checks_of([TableColumn(name, kind) for name, kind in (self.types or {}).items()])
            return
        try:
            with closing(self.connect()) as connection:
                found = self.known_columns(
                    lambda asked, values: connection.execute(asked.sql, asked.parameters(values)).fetchall()
                )
        except sqlite3.Error:
            return
        self.checks = self.checks_of(found or [TableColumn(name, kind) for name, kind in (self.types or {}).items()])

    def known_columns(self, query: Query) -> Sequence[TableColumn]:
        """See ``TableSink``."""
        schema, _, table = self.table.rpartition(".")
        statement = self.dialect.statement(sqlite_values.TABLE_COLUMNS)
        rows = query(statement, {"table": table, "schema": schema or "main"})
        return [TableColumn(name, kind, bool(is_required)) for name, kind, is_required in rows]

    def checks_of(self, columns: Sequence[TableColumn]) -> ColumnChecks | None:
        """See ``TableSink``."""
        return ColumnChecks(self.table, columns, sqlite_values.check_of, str.lower) if columns else None

    def field(self, value: Any) -> Any:
        """Converts a value for SQLite. Raises: NotStored. RowNotWritable."""
        return sqlite_values.stored_value(value)

    def types_of(self, columns: tuple[str, ...]) -> Mapping[str, str] | None:
        """Returns the given types, else no types, which SQLite does not need."""
        return self.types or dict.fromkeys(columns, "")


@explains_calls
def sqlite(
    path: str | os.PathLike[str],
    table: str,
    columns: Sequence[str] | Mapping[str, str] | None = None,
    *,
    upsert: str | Sequence[str] | None = None,
) -> SqliteSink:
    """Immediate sink into a table of a SQLite file, which all processes of the job must reach under this path.

    Values without a SQLite type are written as text in their JSON form.

    Args:
        path: the database file; created if it does not exist.
        table: the table, with its schema before a dot if it has one; created if it does not exist.
        columns: column names, or a dict from column name to SQL type; None for the fields of the first row.
        upsert: key column or columns. A row replaces the row with the same key, and the stream must be keyed by one of
            them. None: rows are appended.

    Raises:
        InvalidConnector: an option cannot work.

    Example::

        stream.sink(clonos.sqlite("out.db", "counts", ["word", "count"], upsert="word"))
    """
    return SqliteSink(os.fspath(path), table, columns, upsert)


@explains_calls
def dbapi(
    connect: Callable[[], Any],
    table: str,
    columns: Sequence[str] | Mapping[str, str] | None = None,
    *,
    upsert: str | Sequence[str] | None = None,
    paramstyle: str = "qmark",
    quote: str = '"',
) -> TableSink:
    """Immediate sink into a table of any database with a PEP 249 driver.

    The connection must have autocommit off. The sink keeps its registrations in the table ``clonos_registrations`` of
    the same database.

    Args:
        connect: called without arguments in the slot; returns a new connection.
        table: the table, with its schema before a dot if it has one.
        columns: column names, or a dict from column name to SQL type, with which the table is created if it does not
            exist; without types it must exist. None for the fields of the first row.
        upsert: key column or columns. A row replaces the row with the same key, and the stream must be keyed by one of
            them. None: rows are appended.
        paramstyle: the ``paramstyle`` of the driver module.
        quote: the character around SQL identifiers.

    Raises:
        InvalidConnector: an option cannot work.

    Example::

        stream.sink(clonos.dbapi(partial(psycopg.connect, dsn), "counts", paramstyle="pyformat"))
    """
    return TableSink(connect, table, columns, upsert, paramstyle=paramstyle, quote=quote)
