"""Small sinks into SQLite: a right one, and three that lose, repeat or change rows, which a check has to find."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from clonos import Registration, WriterFenced, WriterIdentity

TABLES = """
CREATE TABLE IF NOT EXISTS writers (task PRIMARY KEY, generation, incarnation, next);
CREATE TABLE IF NOT EXISTS rows (task, number, n, draw);
CREATE INDEX IF NOT EXISTS places ON rows (task, number);
"""


@dataclass
class Rows:
    """A right sink: rows and the next number change in one transaction, and a new generation withdraws."""

    path: str
    writer: ClassVar[type[RowsWriter]]
    can_roll_back = True

    def immediate_writer(self) -> RowsWriter:
        return self.writer(self.path)


class RowsWriter:
    """Writer of one task."""

    def __init__(self, path: str) -> None:
        self.database = sqlite3.connect(path, timeout=20, isolation_level=None)
        self.database.execute("PRAGMA synchronous = OFF")  # a kill of the process loses nothing
        self.database.executescript(TABLES)

    def register(self, identity: WriterIdentity, restored_number: int) -> Registration:
        self.task = f"{identity.job_id} {identity.task_name}"
        self.life = identity.generation, identity.incarnation
        with self.database:
            last, next_number = self.registered()
            if last > self.life:
                raise WriterFenced(f"{last} has registered", by=last)
            if last[0] < identity.generation:
                self.withdraw(restored_number)
                next_number = restored_number
            next_number = self.chosen(next_number, restored_number)
            self.advance(next_number)
        return Registration(next_number, None)

    def write(self, first_number: int, rows: list[Any]) -> int:
        with self.database:
            last, next_number = self.registered()
            if last != self.life:
                raise WriterFenced(f"{last} has registered", by=last)
            for number, row in enumerate(rows, first_number):
                if number >= next_number:
                    self.insert(number, row)
            next_number = max(next_number, first_number + len(rows))
            self.advance(next_number)
        return next_number

    def close(self) -> None:
        self.database.close()

    def insert(self, number: int, row: dict[str, int]) -> None:
        self.database.execute("INSERT INTO rows VALUES (?, ?, ?, ?)", (self.task, number, row["n"], row["draw"]))

    def withdraw(self, restored_number: int) -> None:
        self.database.execute("DELETE FROM rows WHERE task = ? AND number >= ?", (self.task, restored_number))

    def chosen(self, next_number: int, _restored_number: int) -> int:
        return next_number

    def registered(self) -> tuple[tuple[int, int], int]:
        """Begins a transaction; returns who has registered last, and the number of the next row."""
        self.database.execute("BEGIN IMMEDIATE")
        query = "SELECT generation, incarnation, next FROM writers WHERE task = ?"
        generation, incarnation, number = self.database.execute(query, (self.task,)).fetchone() or (0, 0, 0)
        return (generation, incarnation), number

    def advance(self, next_number: int) -> None:
        self.database.execute("REPLACE INTO writers VALUES (?, ?, ?, ?)", (self.task, *self.life, next_number))


Rows.writer = RowsWriter


class RepeatingWriter(RowsWriter):
    """Does not remember the next number."""

    def chosen(self, _next_number: int, restored_number: int) -> int:
        return restored_number


class Repeating(Rows):
    """A sink that writes rows again."""

    writer = RepeatingWriter


class LosingWriter(RowsWriter):
    """Keeps the rows of the last call in memory until the next one, although their numbers are stored."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.held: list[tuple[int, dict[str, int]]] = []

    def write(self, first_number: int, rows: list[Any]) -> int:
        held, self.held = self.held, []
        for number, row in held:
            super().insert(number, row)
        return super().write(first_number, rows)

    def insert(self, number: int, row: dict[str, int]) -> None:
        self.held.append((number, row))

    def close(self) -> None:
        for number, row in self.held:
            super().insert(number, row)
        super().close()


class Losing(Rows):
    """A sink that loses rows with its process."""

    writer = LosingWriter


class ChangingWriter(RowsWriter):
    """Keeps the first content of each row, also after a rollback, which may give it another one."""

    def insert(self, number: int, row: dict[str, int]) -> None:
        if not self.database.execute("SELECT 1 FROM rows WHERE n = ?", (row["n"],)).fetchone():
            super().insert(number, row)

    def withdraw(self, restored_number: int) -> None:
        pass


class Changing(Rows):
    """A sink whose rows are not those of the job after a rollback."""

    writer = ChangingWriter


def stored(path: Path) -> list[tuple[int, int]]:
    """Number and content of all rows."""
    with closing(sqlite3.connect(path, timeout=20)) as database:
        return database.execute("SELECT n, draw FROM rows").fetchall()
