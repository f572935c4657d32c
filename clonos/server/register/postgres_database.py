"""The register's database in PostgreSQL.

A lock of the session keeps a second server away. When the connection breaks, the next transaction opens another one.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from importlib import import_module
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from clonos.core.model.errors import ExtraMissing
from clonos.server.register.register import RegisterFailed, RegisterInUse, Rows, Transaction

CONNECT_TIMEOUT_S: Final = "10"
LOCK_WAIT_S: Final = 10.0
"""Seconds to wait for the lock: the session of a killed server ends a moment later."""

_LOCK: Final = "SELECT pg_try_advisory_lock(hashtext('clonos_register ' || current_schema()))"
_DURABLE: Final = "SET synchronous_commit = on"


class PostgresDatabase:
    """One connection, which threads use in turn."""

    def __init__(self, url: str, lock_wait_s: float = LOCK_WAIT_S) -> None:
        """Connects. ``url``: without a password, which libpq takes from PGPASSWORD or ~/.pgpass.

        Raises: RegisterFailed. RegisterInUse: another server has the register. ExtraMissing.
        """
        parts = urlsplit(url)
        options = dict(parse_qsl(parts.query))
        self._where = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2], query=""))
        if parts.password is not None or "password" in options:
            raise RegisterFailed(
                self._where, "a password in its URL would be shown: put it into PGPASSWORD or ~/.pgpass"
            )
        try:
            self._library = import_module("psycopg")
        except ModuleNotFoundError:
            raise ExtraMissing("a register in PostgreSQL", "psycopg", "postgres") from None
        options.setdefault("connect_timeout", CONNECT_TIMEOUT_S)
        self._url = urlunsplit(parts._replace(query=urlencode(options)))
        self._lock, self._lock_wait_s = threading.Lock(), lock_wait_s
        self._connection: Any = None
        self._cursor: Any = None
        with self._lock:
            try:
                self._connect()
            except self._library.Error as error:
                raise RegisterFailed(self._where, _sentence(error)) from None

    def run(self, work: Callable[[Transaction], Any]) -> Any:
        """Runs ``work`` in one transaction and returns its result. Raises: RegisterFailed. RegisterInUse."""
        with self._lock:
            had_connection = self._connection is not None
            try:
                return self._transact(work)
            except (self._library.OperationalError, self._library.InterfaceError) as error:
                self._disconnect()
                if not had_connection:
                    raise RegisterFailed(self._where, _sentence(error)) from error
            except self._library.Error as error:
                raise RegisterFailed(self._where, _sentence(error)) from error
            try:  # the connection had broken since the last transaction
                return self._transact(work)
            except self._library.Error as error:
                self._disconnect()
                raise RegisterFailed(self._where, _sentence(error)) from error

    def _transact(self, work: Callable[[Transaction], Any]) -> Any:
        if self._connection is None:
            self._connect()
        with self._connection.transaction(), self._connection.cursor() as self._cursor:
            return work(self._execute)

    def _execute(self, sql: str, *values: object) -> Rows:
        self._cursor.execute(sql.replace("?", "%s"), values or None)
        rows: Rows = self._cursor.fetchall() if self._cursor.description else []
        return rows

    def _connect(self) -> None:
        connection = self._library.connect(self._url, autocommit=True)
        try:
            connection.execute(_DURABLE)
            deadline_s, pause = time.monotonic() + self._lock_wait_s, threading.Event()
            while not connection.execute(_LOCK).fetchone()[0]:
                if time.monotonic() > deadline_s:
                    raise RegisterInUse(f"the register in {self._where}")
                pause.wait(0.1)
        except BaseException:
            connection.close()
            raise
        self._connection = connection

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def close(self) -> None:
        """Closes the connection."""
        with self._lock:
            self._disconnect()


def _sentence(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
