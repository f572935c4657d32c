"""One connection of a table sink: transactions that are tried again, and whose fault an error of a driver is.

Rules: every piece of work is one transaction, and may be repeated: a number in the database says what is done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from clonos.connectors.connector_errors import ConnectorMisused, TableRefused, TableUnavailable
from clonos.connectors.tables.table_statements import Dialect, Statement
from clonos.core.model.errors import InternalError, JobError
from clonos.operators.connector_contract import OutsideFenced

ATTEMPTS_MAX = 3
"""Of one transaction, where the database was busy or unreachable."""

FETCHED_ROWS = 500
"""Rows that are fetched together where there may be many."""

_FAULTS_OF_THE_JOB = frozenset({"DataError", "IntegrityError", "NotSupportedError", "ProgrammingError"})
_FAULTS_OF_THE_DATABASE = frozenset({"OperationalError", "InterfaceError", "InternalError", "DatabaseError", "Error"})

Answer = TypeVar("Answer")


class Overtaken(Exception):
    """Somebody else changed the registration within this transaction: it is tried again."""


class TableDescription(Protocol):
    """What a connection needs to know of its sink."""

    connector: str
    table: str
    dialect: Dialect
    connect: Callable[[], Any]

    def begin(self, connection: Any) -> None: ...


class Database:
    """Opened at the first transaction, and again after one that failed."""

    def __init__(self, sink: TableDescription) -> None:
        self._sink = sink
        self._connection: Any = None

    def in_transaction(self, doing: str, work: Callable[[], Answer], attempts: int = ATTEMPTS_MAX) -> Answer:
        """Does the work in one transaction, several times if need be. TableRefused, TableUnavailable."""
        for attempt in range(1, attempts + 1):
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
                if kind in _FAULTS_OF_THE_JOB and (doing == "writing" or attempt == attempts):
                    raise TableRefused(self._sink.table, doing, str(error)) from error
                if kind is None:
                    raise
                self.close()
                if attempt == attempts:
                    raise TableUnavailable(self._sink.table, doing, str(error) or kind) from error
            else:
                return answer
        raise AssertionError("the last attempt returns or raises")

    def execute(self, statement: Statement, values: Mapping[str, Any]) -> int:
        """One statement; how many rows it has changed."""
        cursor = self._connection.cursor()
        try:
            cursor.execute(statement.sql, statement.parameters(values))
            return int(cursor.rowcount)
        finally:
            cursor.close()

    def execute_many(self, statement: Statement, values: Sequence[Mapping[str, Any]]) -> None:
        """One statement for each of several sets of values."""
        if not values:
            return
        cursor = self._connection.cursor()
        try:
            cursor.executemany(statement.sql, [statement.parameters(each) for each in values])
        finally:
            cursor.close()

    def query(self, statement: Statement, values: Mapping[str, Any]) -> list[Any]:
        """All rows of an answer."""
        return list(self.rows(statement, values))

    def rows(self, statement: Statement, values: Mapping[str, Any]) -> Iterator[Any]:
        """The rows of an answer, fetched a few at a time."""
        cursor = self._connection.cursor()
        try:
            cursor.execute(statement.sql, statement.parameters(values))
            while found := cursor.fetchmany(FETCHED_ROWS):
                yield from found
        finally:
            cursor.close()

    def columns(self, statement: Statement) -> frozenset[str]:
        """Names of the columns of an answer, in lower case."""
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


def _kind_of(error: Exception) -> str | None:
    """The name of the PEP 249 class that an error of any driver derives from."""
    if isinstance(error, Overtaken):
        return "OperationalError"
    names = [cls.__name__ for cls in type(error).__mro__]
    return next((name for name in names if name in _FAULTS_OF_THE_JOB | _FAULTS_OF_THE_DATABASE), None)
