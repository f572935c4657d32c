"""Samples of the tests of tables: four ways to the same table, and connections that fail."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

from clonos.connectors import dbapi, sqlite
from clonos.connectors.tables.table_sink import TableSink
from clonos.operators.connector_contract import WriterIdentity
from tests.unit.connectors.tables import strict_driver

JOB = "wordcount-0123456789abcdef"
COLUMNS = {"word": "TEXT", "seen": "INTEGER"}


def by_path(path: Path, **options: Any) -> TableSink:
    return sqlite(path, "words", COLUMNS, **options)


def by_driver(path: Path, **options: Any) -> TableSink:
    return dbapi(lambda: sqlite3.connect(path), "words", COLUMNS, **options)


def by_strict_driver(path: Path, **options: Any) -> TableSink:
    return dbapi(lambda: strict_driver.connect(path), "words", COLUMNS, paramstyle="pyformat", quote="`", **options)


def by_places(path: Path, **options: Any) -> TableSink:
    return dbapi(lambda: strict_driver.connect(path), "words", COLUMNS, paramstyle="format", quote="`", **options)


MAKERS = [by_path, by_driver, by_strict_driver, by_places]
Make = Callable[..., TableSink]


def identity(incarnation: int, generation: int = 0, index: int = 0) -> WriterIdentity:
    return WriterIdentity(JOB, f"words/{index}", generation, incarnation)


def run(path: Path, sql: str) -> list[Any]:
    """Runs one statement in a separate transaction."""
    connection = sqlite3.connect(path)
    try:
        found = connection.execute(sql).fetchall()
        connection.commit()
        return found
    finally:
        connection.close()


def words_in(path: Path) -> list[Any]:
    """The rows of the table that all makers make, in the order in which they came."""
    return run(path, "SELECT word, seen FROM words ORDER BY rowid")


class Unruly(sqlite3.Connection):
    """A connection of SQLite whose commits fail: before they take place, or after."""

    faults: ClassVar[list[str]] = []

    def commit(self) -> None:
        fault = self.faults.pop() if self.faults else ""
        if fault == "before":
            raise sqlite3.OperationalError("the connection broke before the commit")
        super().commit()
        if fault == "after":
            raise sqlite3.OperationalError("the connection broke after the commit")
