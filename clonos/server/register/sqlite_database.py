"""The register's database in a file of SQLite, with a write-ahead log."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from clonos.server.register.register import RegisterFailed, Rows, Transaction

BUSY_TIMEOUT_S: Final = 10.0


class SqliteDatabase:
    """One connection, which threads use in turn. A transaction that has returned is on the disk."""

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
