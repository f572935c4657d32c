"""Any order of writes, deaths and rollbacks leaves a table with what counts."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clonos.connectors import dbapi, sqlite
from clonos.connectors.tables import TableSink
from clonos.operators.connect import OutsideIdentity
from tests.tidy.source import ROOT
from tests.unit.connectors import strict_driver

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


def identity(incarnation: int, generation: int, index: int = 0) -> OutsideIdentity:
    return OutsideIdentity(JOB, f"words/{index}", generation, incarnation)


def run(path: Path, sql: str) -> list[Any]:
    connection = sqlite3.connect(path)
    try:
        found = connection.execute(sql).fetchall()
        connection.commit()
        return found
    finally:
        connection.close()


def rows_in(path: Path) -> list[Any]:
    return run(path, "SELECT word, seen FROM words ORDER BY rowid")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "out.db"


# ------------------------------------------------------------------ any order

STEP: st.SearchStrategy[tuple[str, list[int]]] = st.one_of(
    st.tuples(st.just("write"), st.lists(st.integers(0, 3), min_size=1, max_size=5)),
    st.tuples(st.just("checkpoint"), st.lists(st.integers(0, 6), min_size=1, max_size=1)),
    st.tuples(st.just("replace"), st.just([])),
    st.tuples(st.just("roll back"), st.lists(st.integers(0, 1), min_size=1, max_size=1)),
)


class InMemory(sqlite3.Connection):
    """A database that lives as long as this object; a connection that is closed is lent again."""

    def close(self) -> None:
        if self.in_transaction:
            self.rollback()


def strictly(memory: InMemory, key: str | None) -> TableSink:
    return dbapi(
        lambda: strict_driver.Connection(memory), "words", COLUMNS, upsert=key, paramstyle="pyformat", quote="`"
    )


def plainly(memory: InMemory, key: str | None) -> TableSink:
    sink = sqlite(":memory:", "words", COLUMNS, upsert=key)
    sink.connect = lambda: memory
    return sink


@pytest.mark.parametrize("make", [plainly, strictly])
@pytest.mark.parametrize("key", [None, "word"])
@given(steps=st.lists(STEP, max_size=14))
def test_after_any_writes_deaths_and_rollbacks_the_table_is_that_of_what_counts(
    make: Callable[..., TableSink], key: str | None, steps: list[tuple[str, list[int]]]
) -> None:
    memory = sqlite3.connect(":memory:", factory=InMemory, isolation_level=None)
    sink = make(memory, key)
    outside = sink.outside()
    life, generation = 1, 1
    outside.register(identity(life, generation), 0)
    counting: list[tuple[str, int]] = []  # rows that count, by number
    kept = [0, 0]  # how many there were at the two checkpoints that are kept
    for serial, (what, numbers) in enumerate(steps):
        if what == "write":
            rows = [("abcd"[number], 10 * serial + place) for place, number in enumerate(numbers)]
            outside.write(len(counting), list(rows))
            counting += rows
        elif what == "checkpoint":
            outside.forget(kept[1])
            kept = [kept[1], max(kept[1], len(counting) - numbers[0])]  # a barrier may lie in the midst of a write
        else:
            outside.close()
            outside = sink.outside()
            life += 1
            if what == "roll back":
                generation += 1
                kept = [kept[0], kept[numbers[0]]]
                del counting[kept[1] :]
            assert outside.register(identity(life, generation), kept[1]) == (len(counting), None)
        assert_holds(memory, counting, key)
    sqlite3.Connection.close(memory)


def assert_holds(memory: sqlite3.Connection, counting: list[tuple[str, int]], key: str | None) -> None:
    if counting:
        found = memory.execute("SELECT word, seen FROM words ORDER BY rowid").fetchall()
        if key:
            assert sorted(found) == sorted(dict(counting).items())
        else:
            assert found == counting


# ------------------------------------------------------------------ a process that is killed


KILLED_IN_MID_TRANSACTION = """
import sqlite3, sys, time
from clonos.connectors import dbapi
from clonos.operators.connect import OutsideIdentity

class StopsBeforeCommit(sqlite3.Connection):
    stops = False
    def commit(self):
        if self.stops:
            print("rows are written, the commit is not", flush=True)
            sys.stdin.read()
        super().commit()

connections = []
def connect():
    connections.append(sqlite3.connect(sys.argv[1], factory=StopsBeforeCommit))
    return connections[-1]

outside = dbapi(connect, "words", {"word": "TEXT"}).outside()
outside.register(OutsideIdentity(sys.argv[2], "words/0", 0, 1), 0)
outside.write(0, ["a"])
connections[-1].stops = True
outside.write(1, ["b", "c"])
"""


@pytest.mark.processes
def test_a_process_killed_in_mid_transaction_leaves_no_part_of_it(path: Path) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", KILLED_IN_MID_TRANSACTION, str(path), JOB],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with child:
        assert child.stdout is not None
        assert child.stdout.readline() == "rows are written, the commit is not\n"
        child.kill()
    successor = dbapi(lambda: sqlite3.connect(path), "words", {"word": "TEXT"}).outside()
    assert successor.register(identity(2, 0), 0).next_number == 1
    assert successor.write(1, ["b", "c"]) == 3
    successor.close()
    assert run(path, "SELECT word FROM words ORDER BY rowid") == [("a",), ("b",), ("c",)]
