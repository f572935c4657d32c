"""Databases of a register, opened by its address: a file of SQLite, or a database of PostgreSQL by its URL."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from clonos.server.register.postgres_database import PostgresDatabase
from clonos.server.register.register import JobRegister, RegisterFailed, Rows, Transaction

SCHEMES: Final = ("postgresql", "postgres")
DEFAULT_FILE: Final = "register.sqlite"


BUSY_TIMEOUT_S: Final = 10.0


class SqliteDatabase:
    """File of SQLite with a write-ahead log: one connection, which threads use in turn.

    A transaction that has returned is on the disk.
    """

    def __init__(self, file: Path) -> None:
        """Opens the file, or creates it. Raises: RegisterFailed."""
        self._file, self._lock = file, threading.Lock()
        try:
            self._connection = sqlite3.connect(
                file, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False
            )
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.execute("PRAGMA synchronous = FULL")
        except sqlite3.Error as error:
            raise RegisterFailed(str(file), str(error)) from None

    def run(self, work: Callable[[Transaction], Any]) -> Any:
        """Runs ``work`` in one transaction and returns its result. Raises: RegisterFailed."""
        with self._lock:
            try:
                self._connection.execute("BEGIN IMMEDIATE")
                try:
                    result = work(self._execute)
                except BaseException:
                    self._connection.execute("ROLLBACK")
                    raise
                self._connection.execute("COMMIT")
            except sqlite3.Error as error:
                raise RegisterFailed(str(self._file), str(error)) from error
            return result

    def _execute(self, sql: str, *values: object) -> Rows:
        return self._connection.execute(sql, values).fetchall()

    def close(self) -> None:
        """Closes the file."""
        with self._lock:
            self._connection.close()


def open_register(address: str | None, folder: Path) -> JobRegister:
    """Opens a register. ``address``: None for a file in the server's ``folder``.

    Raises: RegisterFailed. RegisterInUse. FormatUnknown. ExtraMissing.
    """
    scheme = urlsplit(address or "").scheme
    if address is None or not scheme:
        file = folder / DEFAULT_FILE if address is None else Path(address)
        return JobRegister(SqliteDatabase(file), str(file))
    if scheme not in SCHEMES:
        raise RegisterFailed(address, "it is neither a path nor a URL of PostgreSQL, postgresql://user@host/database")
    database = PostgresDatabase(address)
    try:
        return JobRegister(
            database, urlsplit(address)._replace(netloc=urlsplit(address).netloc.rpartition("@")[2]).geturl()
        )
    except BaseException:
        database.close()
        raise
