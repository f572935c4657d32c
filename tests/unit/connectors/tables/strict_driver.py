"""A strict PEP 249 driver over SQLite: the second dialect in the tests of table sinks.

Parameters are ``%(name)s`` or ``%s``, names stand in backticks, a statement that fails spoils its transaction until
that is rolled back, what is unknown is a ProgrammingError, bytes come as memoryviews, a query counts no rows.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

apilevel, threadsafety, paramstyle = "2.0", 1, "pyformat"


class Error(Exception):
    """Base of the driver's errors."""


class OperationalError(Error):
    """The database is at fault."""


class ProgrammingError(Error):
    """The statement is at fault."""


class IntegrityError(Error):
    """The data is at fault."""


class InterfaceError(Error):
    """The driver is used wrongly."""


class Connection:
    """Begins a transaction by itself at the first statement."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._is_spoiled = False

    def cursor(self) -> Cursor:
        return Cursor(self)

    def commit(self) -> None:
        if self._is_spoiled:
            raise InterfaceError("the transaction is spoiled: roll it back")
        if self._connection.in_transaction:
            self._connection.execute("COMMIT")

    def rollback(self) -> None:
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")
        self._is_spoiled = False

    def close(self) -> None:
        self._connection.close()

    def run(self, sql: str, parameters: Any) -> sqlite3.Cursor:
        """One statement, in the dialect of SQLite."""
        if self._is_spoiled:
            raise ProgrammingError("commands are ignored until the transaction is rolled back")
        spelled = re.sub(r"%\((\w+)\)s", r":\1", sql).replace("%s", "?")
        if '"' in spelled or not isinstance(parameters, dict if ":" in spelled else (list, tuple, dict)):
            raise ProgrammingError(f"{sql} with {parameters!r}")
        try:
            if not self._connection.in_transaction:
                self._connection.execute("BEGIN IMMEDIATE")
            return self._connection.execute(spelled, parameters)
        except sqlite3.IntegrityError as error:
            self._is_spoiled = True
            raise IntegrityError(str(error)) from error
        except sqlite3.Error as error:
            self._is_spoiled = True
            kind = ProgrammingError if "no such" in str(error) or "syntax" in str(error) else OperationalError
            raise kind(str(error)) from error


class Cursor:
    """A cursor for one statement at a time."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._found: sqlite3.Cursor | None = None
        self.rowcount = -1
        self.description: Sequence[tuple[Any, ...]] | None = None

    def execute(self, sql: str, parameters: Any = ()) -> None:
        self._found = self._connection.run(sql, parameters)
        self.rowcount = self._found.rowcount
        self.description = self._found.description

    def executemany(self, sql: str, sets: Iterable[Any]) -> None:
        for parameters in sets:
            self.execute(sql, parameters)
        self.rowcount = -1

    def fetchmany(self, size: int = 1) -> list[list[Any]]:
        assert self._found is not None
        return [list(map(_as_a_server_gives_it, row)) for row in self._found.fetchmany(size)]

    def fetchall(self) -> list[list[Any]]:
        assert self._found is not None
        return [list(map(_as_a_server_gives_it, row)) for row in self._found.fetchall()]

    def close(self) -> None:
        if self._found is not None:
            self._found.close()


def _as_a_server_gives_it(value: Any) -> Any:
    return memoryview(value) if isinstance(value, bytes) else value


def connect(path: Path) -> Connection:
    """A connection of its own."""
    return Connection(sqlite3.connect(path, isolation_level=None))
