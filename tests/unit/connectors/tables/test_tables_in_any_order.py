"""Tables after every order of writes, checkpoints, deaths and rollbacks, compared with a model."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clonos.connectors import dbapi, sqlite
from clonos.connectors.tables.table_sink import TableSink
from clonos.operators.connector_contract import Registration
from tests.unit.connectors.tables import strict_driver
from tests.unit.connectors.tables.table_samples import COLUMNS, identity

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
def test_every_sequence_of_writes_deaths_and_rollbacks_leaves_the_rows_of_the_model(
    make: Callable[..., TableSink], key: str | None, steps: list[tuple[str, list[int]]]
) -> None:
    memory = sqlite3.connect(":memory:", factory=InMemory, isolation_level=None)
    sink = make(memory, key)
    writer = sink.immediate_writer()
    life, generation = 1, 1
    writer.register(identity(life, generation), 0)
    counting: list[tuple[str, int]] = []  # rows that count, by number
    previous = [0, 0]  # how many there were at the two checkpoints that are kept
    for serial, (what, numbers) in enumerate(steps):
        if what == "write":
            rows = [("abcd"[number], 10 * serial + place) for place, number in enumerate(numbers)]
            writer.write(len(counting), list(rows))
            counting += rows
        elif what == "checkpoint":
            writer.forget(previous[1])
            previous = [
                previous[1],
                max(previous[1], len(counting) - numbers[0]),
            ]  # a barrier may lie in the midst of a write
        else:
            writer.close()
            writer = sink.immediate_writer()
            life += 1
            if what == "roll back":
                generation += 1
                previous = [previous[0], previous[numbers[0]]]
                del counting[previous[1] :]
            assert writer.register(identity(life, generation), previous[1]) == Registration(len(counting), None)
        assert_holds(memory, counting, key)
    sqlite3.Connection.close(memory)


def assert_holds(memory: sqlite3.Connection, counting: list[tuple[str, int]], key: str | None) -> None:
    if counting:
        found = memory.execute("SELECT word, seen FROM words ORDER BY rowid").fetchall()
        if key:
            assert sorted(found) == sorted(dict(counting).items())
        else:
            assert found == counting
