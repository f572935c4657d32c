"""Tables of a database as an immediate sink: ``sqlite`` and, for every driver of PEP 249, ``dbapi``.

Rules: the rows, the check that no later incarnation has registered, and the number of the next output are one
transaction. So a row is there once, whatever dies, and a fenced incarnation writes nothing.
"""

from __future__ import annotations

import dataclasses
import enum
import os
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import msgspec

from clonos.connectors.faults import ConnectorMisused
from clonos.connectors.json_text import scalar_text
from clonos.connectors.row_fields import columns_of, fields_of
from clonos.connectors.table_statements import Dialect, Statement
from clonos.core.errors import EnvironmentFault, InternalError, JobError
from clonos.operators.connect import OutsideFenced, OutsideIdentity, Registration

SQLITE_BUSY_MS = 10_000
SQLITE_INT_END = 1 << 63
ATTEMPTS_MAX = 3
"""Of one transaction, where the database was busy or unreachable."""

_CONTAINERS = (list, tuple, dict, set, frozenset, enum.Enum, msgspec.Struct)
_FAULTS_OF_THE_JOB = frozenset({"DataError", "IntegrityError", "NotSupportedError", "ProgrammingError"})
_FAULTS_OF_THE_DATABASE = frozenset({"OperationalError", "InterfaceError", "InternalError", "DatabaseError", "Error"})

Answer = TypeVar("Answer")


class TableRefused(JobError):
    """The database does not take what the job gives it."""

    def __init__(self, table: str, doing: str, reason: str) -> None:
        super().__init__(table, doing, reason)
        self.table = table
        self.doing = doing
        self.reason = reason

    def __str__(self) -> str:
        return (
            f"the table {self.table} refused {self.doing}: {self.reason}. Nothing of this batch was written."
            " Mend the rows with a step before the sink, or the table."
        )


class TableUnavailable(EnvironmentFault):
    """The database cannot be used now."""

    def __init__(self, table: str, doing: str, reason: str) -> None:
        super().__init__(table, doing, reason)
        self.table = table
        self.doing = doing
        self.reason = reason

    def __str__(self) -> str:
        return (
            f"the database of the table {self.table} failed at {self.doing}: {self.reason}. Nothing is lost or written"
            " twice: see that it runs, has space and can be reached from every process of the job, then resume."
        )


class TableSink:
    """An immediate sink into one table. ``connect`` is called in the slot and must not commit by itself."""

    connector = "dbapi"

    def __init__(
        self,
        connect: Callable[[], Any],
        table: str,
        columns: Sequence[str] | Mapping[str, str] | None,
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

    def types_of(self, columns: tuple[str, ...]) -> dict[str, str] | None:
        """What a table is created with; None: it has to be there."""
        return self.types


class SqliteSink(TableSink):
    """A table in a file of SQLite."""

    connector = "sqlite"

    def __init__(self, path: str, table: str, columns: Sequence[str] | Mapping[str, str] | None) -> None:
        self.path = os.path.abspath(os.path.expanduser(path))
        connect = partial(
            sqlite3.connect,
            self.path,
            timeout=SQLITE_BUSY_MS / 1000,
            isolation_level=None,
            check_same_thread=False,
        )
        super().__init__(connect, table, columns, paramstyle="qmark", quote='"')

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

    def types_of(self, columns: tuple[str, ...]) -> dict[str, str] | None:
        """SQLite needs no types."""
        return self.types or dict.fromkeys(columns, "")


class TableOutside:
    """One registered connection of one incarnation."""

    def __init__(self, sink: TableSink) -> None:
        self._sink = sink
        self._dialect = sink.dialect
        self._connection: Any = None
        self._identity: dict[str, Any] = {}
        self._columns = sink.columns
        self._has_table = False
        self._superseded_next: int | None = None

    def register(self, identity: OutsideIdentity, restored_number: int) -> Registration:
        """Fences earlier incarnations. Raises ``OutsideFenced`` for one, ``TableUnavailable`` and ``TableRefused``."""
        self._identity = {
            "job_id": identity.job_id,
            "task": identity.task_name,
            "generation": identity.generation,
            "incarnation": identity.incarnation,
        }
        self._superseded_next = None
        # Definitions have transactions of their own: some databases commit at each of them.
        self._in_transaction("registering", lambda: self._execute(self._dialect.create_outside))
        return self._in_transaction("registering", lambda: self._register(restored_number))

    def write(self, first_number: int, rows: list[Any]) -> int:
        """Rows from ``first_number`` on, in one transaction with the next number, which is answered."""
        assert self._identity, "an outside is registered with before it is written to"
        columns = self._columns
        if columns is None:
            columns = columns_of(rows[0], self._sink.connector) if rows else ()
        if not self._has_table and rows:
            if types := self._sink.types_of(columns):
                create = self._dialect.create_table(self._sink.table, types)
                self._in_transaction("creating", lambda: self._execute(create))
            self._has_table = True
        return self._in_transaction("writing", lambda: self._write(first_number, rows, columns))

    def registrations(self, job_id: str) -> dict[str, tuple[int, int, int]]:
        """What is registered for a job, by task."""
        self._in_transaction("registering", lambda: self._execute(self._dialect.create_outside))
        rows = self._in_transaction(
            "reading", lambda: _query(self._connection, self._dialect.find_all, {"job_id": job_id})
        )
        return {
            task: (int(generation), int(incarnation), int(number)) for task, generation, incarnation, number in rows
        }

    def close(self) -> None:
        """Closes the connection; an open transaction is rolled back."""
        if self._connection is not None:
            connection, self._connection = self._connection, None
            connection.close()

    def _register(self, restored_number: int) -> Registration:
        registered = self._registered()
        if registered is None:
            self._execute(self._dialect.enter, next_number=restored_number)
            return Registration(restored_number, None)
        generation, incarnation, next_number = registered
        mine = (self._identity["generation"], self._identity["incarnation"])
        if (generation, incarnation) > mine:
            raise self._fenced(registered)
        is_new_generation = mine[0] > generation
        new_number = restored_number if is_new_generation else next_number
        if (generation, incarnation) < mine:
            changed = self._execute(
                self._dialect.take_over,
                old_generation=generation,
                old_incarnation=incarnation,
                next_number=next_number,
                new_number=new_number,
            )
            if changed != 1:
                raise _Overtaken
        if is_new_generation:
            # Kept, for the commit of this may have to be tried again and then finds itself registered.
            self._superseded_next = next_number
        return Registration(new_number, self._superseded_next)

    def _write(self, first_number: int, rows: list[Any], columns: tuple[str, ...]) -> int:
        registered = self._registered()
        mine = (self._identity["generation"], self._identity["incarnation"])
        if registered is None or registered[:2] != mine:
            raise self._fenced(registered)
        next_number = registered[2]
        if first_number > next_number:
            raise InternalError(
                f"output {first_number} of {self._identity['task']} came to the table {self._sink.table},"
                f" which lacks those from {next_number} on. Please report it."
            )
        fresh = rows[next_number - first_number :]
        if not fresh:
            return next_number
        new_number = next_number + len(fresh)
        if self._execute(self._dialect.advance, next_number=next_number, new_number=new_number) != 1:
            raise _Overtaken
        self._insert(fresh, len(rows) - len(fresh), columns)
        return new_number

    def _insert(self, rows: list[Any], first_index: int, columns: tuple[str, ...]) -> None:
        insert = self._dialect.insert(self._sink.table, columns)
        places = [f"c{number}" for number in range(len(columns))]
        field = self._sink.field
        parameters = []
        for index, row in enumerate(rows, first_index):
            fields = map(field, fields_of(row, columns, self._sink.connector, index))
            parameters.append(insert.parameters(dict(zip(places, fields, strict=True))))
        cursor = self._connection.cursor()
        try:
            cursor.executemany(insert.sql, parameters)
        finally:
            cursor.close()

    def _registered(self) -> tuple[int, int, int] | None:
        rows = _query(self._connection, self._dialect.find, self._identity)
        return tuple(map(int, rows[0])) if rows else None  # type: ignore[return-value]

    def _execute(self, statement: Statement, **values: Any) -> int:
        cursor = self._connection.cursor()
        try:
            cursor.execute(statement.sql, statement.parameters(self._identity | values))
            return int(cursor.rowcount)
        finally:
            cursor.close()

    def _fenced(self, registered: tuple[int, int, int] | None) -> OutsideFenced:
        who = "nobody" if registered is None else f"incarnation {registered[1]} of generation {registered[0]}"
        return OutsideFenced(
            f"{self._identity['task']} writes to the table {self._sink.table} as incarnation"
            f" {self._identity['incarnation']} of generation {self._identity['generation']}, but {who} is registered",
            by=registered[:2] if registered is not None else None,
        )

    def _in_transaction(self, doing: str, work: Callable[[], Answer]) -> Answer:
        """Does the work in one transaction. A repeat is harmless: the number in the database says what is done."""
        for attempt in range(1, ATTEMPTS_MAX + 1):
            try:
                if self._connection is None:
                    self._connection = self._opened()
                self._sink.begin(self._connection)
                answer = work()
                self._connection.commit()
            except (JobError, InternalError, OutsideFenced):
                self._roll_back()
                raise
            except Exception as error:  # each driver has its own classes
                kind = _kind_of(error)
                self._roll_back()
                # Two tasks that define or register at once may collide: then one looks again.
                if kind in _FAULTS_OF_THE_JOB and (doing == "writing" or attempt == ATTEMPTS_MAX):
                    raise TableRefused(self._sink.table, doing, str(error)) from error
                if kind is None:
                    raise
                self.close()
                if attempt == ATTEMPTS_MAX:
                    raise TableUnavailable(self._sink.table, doing, str(error) or kind) from error
            else:
                return answer
        raise AssertionError("the last attempt returns or raises")

    def _opened(self) -> Any:
        connection = self._sink.connect()
        if getattr(connection, "autocommit", False) is True:
            connection.close()
            raise ConnectorMisused(
                self._sink.connector,
                "the connection commits by itself",
                "Turn its autocommit off: rows and number are one.",
            )
        return connection

    def _roll_back(self) -> None:
        if self._connection is not None:
            try:
                self._connection.rollback()
            except Exception as error:
                if _kind_of(error) is None:
                    raise
                self.close()  # the connection is broken: the database rolls back by itself


class _Overtaken(Exception):
    """Somebody else changed the registration within this transaction: look again."""


def _kind_of(error: Exception) -> str | None:
    """The name of the PEP 249 class that an error of whatever driver derives from."""
    if isinstance(error, _Overtaken):
        return "OperationalError"
    names = [cls.__name__ for cls in type(error).__mro__]
    return next((name for name in names if name in _FAULTS_OF_THE_JOB | _FAULTS_OF_THE_DATABASE), None)


def _query(connection: Any, statement: Statement, values: Mapping[str, Any]) -> list[Any]:
    cursor = connection.cursor()
    try:
        cursor.execute(statement.sql, statement.parameters(values))
        return list(cursor.fetchall())
    finally:
        cursor.close()


def sqlite(
    path: str | os.PathLike[str], table: str, columns: Sequence[str] | Mapping[str, str] | None = None
) -> SqliteSink:
    """An immediate sink into a table of a SQLite file that all processes of the job reach under this path.

    ``columns``: names, or names with their SQL types; None: those that the first row brings. The table is created if it
    is missing. What SQLite has no type for is text, as JSON has it.
    """
    return SqliteSink(os.fspath(path), table, columns)


def dbapi(
    connect: Callable[[], Any],
    table: str,
    columns: Sequence[str] | Mapping[str, str] | None = None,
    *,
    paramstyle: str = "qmark",
    quote: str = '"',
) -> TableSink:
    """An immediate sink into a table of any database with a driver of PEP 249.

    ``connect``: called without arguments in the slot, gives a connection that does not commit by itself. ``columns``
    with types: the table is created if it is missing. ``paramstyle``: the driver module's own. ``quote``: around names.
    Registrations are kept in the table ``clonos_outside`` of the same database.
    """
    return TableSink(connect, table, columns, paramstyle=paramstyle, quote=quote)
