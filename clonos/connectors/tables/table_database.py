"""Database connection of a table sink: transactions with retries, and the classification of driver errors.

Every piece of work is one transaction and may be repeated, because a number in the database says what is done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeAlias, TypeVar

from clonos.connectors.connector_errors import InvalidConnector, TableRefused, TableUnavailable
from clonos.connectors.tables.table_statements import Dialect, SqlStatement
from clonos.core.model.errors import InternalError, JobError
from clonos.kernels.record_batch import RecordBatch
from clonos.operators.connector_contract import WriterFenced

ATTEMPTS_MAX = 3
"""Attempts of one transaction while the database is busy or unreachable."""

FETCHED_ROWS = 500
"""Rows fetched at a time from a large result."""

_FAULTS_OF_THE_JOB = frozenset({"DataError", "IntegrityError", "NotSupportedError", "ProgrammingError"})
_FAULTS_OF_THE_DATABASE = frozenset({"OperationalError", "InterfaceError", "InternalError", "DatabaseError", "Error"})

_WRONG_COLUMNS = ("duplicate column", "has no column named")
"""What SQLite and MySQL say of columns that do not fit the table, as an OperationalError."""

Result = TypeVar("Result")

Query: TypeAlias = Callable[[SqlStatement, Mapping[str, Any]], list[Any]]
"""Returns the rows of a statement with parameters."""


class RegistrationChanged(Exception):
    """Another connection changed the registration during this transaction, which is therefore retried."""


class TableDescription(Protocol):
    """Properties of a sink that a connection uses."""

    connector: str
    table: str
    dialect: Dialect
    connect: Callable[[], Any]

    def begin(self, connection: Any) -> None: ...


class Database:
    """Connection that is opened at the first transaction, and again after a failed one."""

    def __init__(self, sink: TableDescription) -> None:
        self._sink = sink
        self._connection: Any = None

    def in_transaction(self, doing: str, work: Callable[[], Result], attempts: int = ATTEMPTS_MAX) -> Result:
        """Does ``work`` in one transaction, with up to ``attempts`` attempts.

        Raises: TableRefused: the database rejects the work. TableUnavailable: the database stays busy or unreachable.
        """
        for attempt in range(1, attempts + 1):
            try:
                if self._connection is None:
                    self._connection = self._opened()
                self._sink.begin(self._connection)
                result = work()
                self._connection.commit()
            except (JobError, InternalError, WriterFenced):
                self._roll_back()
                raise
            except Exception as error:  # each driver has its own error classes
                kind = _kind_of(error)
                self._roll_back()
                # Two tasks that create or register at the same time may collide: the next attempt sees the result.
                if kind in _FAULTS_OF_THE_JOB and (doing == "writing" or attempt == attempts):
                    raise TableRefused(self._sink.table, doing, str(error)) from error
                if kind is None:
                    raise
                self.close()
                if attempt == attempts:
                    raise TableUnavailable(self._sink.table, doing, str(error) or kind) from error
            else:
                return result
        raise AssertionError("the last attempt returns or raises")

    def execute(self, statement: SqlStatement, values: Mapping[str, Any]) -> int:
        """Executes a statement; returns the number of changed rows."""
        cursor = self._connection.cursor()
        try:
            cursor.execute(statement.sql, statement.parameters(values))
            return int(cursor.rowcount)
        finally:
            cursor.close()

    def execute_many(self, statement: SqlStatement, values: Sequence[Mapping[str, Any]]) -> None:
        """Executes a statement once per set of values."""
        if not values:
            return
        cursor = self._connection.cursor()
        try:
            cursor.executemany(statement.sql, [statement.parameters(each) for each in values])
        finally:
            cursor.close()

    def insert_rows(self, table: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        """Inserts rows, each with a value per column."""
        if rows:
            self.insert_rows_by(lambda cursor, rows: self._sink.dialect.insert_rows(cursor, table, columns, rows), rows)

    def insert_rows_by(self, insert: Callable[[Any, Any], None], rows: Any) -> None:
        """Calls a method of the dialect with a cursor and rows."""
        cursor = self._connection.cursor()
        try:
            insert(cursor, rows)
        finally:
            cursor.close()

    def insert_columns(self, table: str, batch: RecordBatch) -> None:
        """Inserts the rows of a batch of columns, where the dialect can."""
        self.insert_rows_by(lambda cursor, batch: self._sink.dialect.insert_columns(cursor, table, batch), batch)

    def query(self, statement: SqlStatement, values: Mapping[str, Any]) -> list[Any]:
        """Returns all rows of a result."""
        return list(self.rows(statement, values))

    def rows(self, statement: SqlStatement, values: Mapping[str, Any]) -> Iterator[Any]:
        """Yields the rows of a result, fetched 500 at a time."""
        cursor = self._connection.cursor()
        try:
            cursor.execute(statement.sql, statement.parameters(values))
            while found := cursor.fetchmany(FETCHED_ROWS):
                yield from found
        finally:
            cursor.close()

    def columns(self, statement: SqlStatement) -> frozenset[str]:
        """Returns the column names of a result, in lower case."""
        cursor = self._connection.cursor()
        try:
            cursor.execute(statement.sql, statement.parameters({}))
            cursor.fetchall()
            return frozenset(str(column[0]).lower() for column in cursor.description)
        finally:
            cursor.close()

    def close(self) -> None:
        """Closes the connection; an open transaction is rolled back."""
        if self._connection is not None:
            connection, self._connection = self._connection, None
            connection.close()

    def _opened(self) -> Any:
        connection = self._sink.connect()
        if getattr(connection, "autocommit", False) is True:
            connection.close()
            raise InvalidConnector(
                self._sink.connector,
                "the connection has autocommit on",
                "Turn it off: rows and their number must be one transaction.",
            )
        return connection

    def _roll_back(self) -> None:
        if self._connection is not None:
            try:
                self._connection.rollback()
            except Exception as error:
                if _kind_of(error) is None:
                    raise
                self.close()  # the connection is broken, so the database rolls back on its own


def _kind_of(error: Exception) -> str | None:
    """Returns the name of the PEP 249 class that a driver's error derives from, None for any other error."""
    if isinstance(error, RegistrationChanged):
        return "OperationalError"
    if any(text in str(error).lower() for text in _WRONG_COLUMNS):
        return "ProgrammingError"
    names = [cls.__name__ for cls in type(error).__mro__]
    return next((name for name in names if name in _FAULTS_OF_THE_JOB | _FAULTS_OF_THE_DATABASE), None)
