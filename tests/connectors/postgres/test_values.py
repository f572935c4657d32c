"""Values of every type, from changes and queries alike: equal to what was written, or an error of their row."""

from __future__ import annotations

import datetime
import struct
from contextlib import closing
from datetime import UTC, timedelta
from decimal import Decimal
from math import isnan
from typing import Any

import pytest

from clonos.connectors import postgres as pg
from clonos.connectors.postgres.column_values import ValueUnreadable
from clonos.operators.connector_contract import MalformedRecord
from tests.connectors.servers.postgres import PostgresServer
from tests.speed import scaled

pytestmark = pytest.mark.connectors

WAIT_S = scaled(20.0)

READABLE: list[tuple[str, str, Any]] = [
    ("date", "9999-12-31", datetime.date.max),
    ("timestamp", "0001-01-01", datetime.datetime.min),
    ("timestamptz", "2026-01-02 03:04:05+02", datetime.datetime(2026, 1, 2, 1, 4, 5, tzinfo=UTC)),
    ("time", "23:59:59.999999", datetime.time.max),
    ("interval", "-1 day 2 hours 0.000001 seconds", timedelta(days=-1, hours=2, microseconds=1)),
    ("interval[]", "{1 day,NULL}", [timedelta(days=1), None]),
    ("numeric", "Infinity", Decimal("Infinity")),
    ("numeric", "123456789012345678901234567890.5", Decimal("123456789012345678901234567890.5")),
    ("float8", "-Infinity", float("-inf")),
    ("money", "1.5", "$1.50"),
    ("int4range", "[1,3)", "[1,3)"),
    ("int4multirange", "{[1,3)}", "{[1,3)}"),
    ("int4range[]", '{"[1,3)"}', ["[1,3)"]),
    ("inet", "10.0.0.1", "10.0.0.1"),
    ("inet[]", "{10.0.0.1,NULL}", ["10.0.0.1", None]),
    ("int[]", "{{1,2},{3,NULL}}", [[1, 2], [3, None]]),
    ("bit varying", "0101", "0101"),
    ("bytea", r"\x00ff", b"\0\xff"),
    ("jsonb", '{"a": 9007199254740993}', {"a": 9007199254740993}),
    ("mood", "sad", "sad"),
    ("pair", "(1,x)", "(1,x)"),
    ("small", "7", 7),
    ("smaller", "7", 7),
    ("span", "1 day", timedelta(days=1)),
]
UNREADABLE: list[tuple[str, str]] = [
    ("date", "infinity"),
    ("date", "-infinity"),
    ("date", "0044-03-15 BC"),
    ("date", "10000-01-01"),
    ("timestamp", "infinity"),
    ("timestamp", "0044-03-15 00:00:00 BC"),
    ("timestamptz", "-infinity"),
    ("timestamptz", "10000-01-01 00:00:00+00"),
    ("time", "24:00:00"),
    ("timetz", "24:00:00+00"),
    ("interval", "P1M"),
    ("timestamp[]", '{"2026-01-01 00:00:00",infinity}'),
    ("jsonb", "0.12345678901234567890"),
]
TYPES = (
    "CREATE TYPE mood AS ENUM ('sad', 'glad')",
    "CREATE TYPE pair AS (a int, b text)",
    "CREATE DOMAIN small AS int CHECK (value < 10)",
    "CREATE DOMAIN smaller AS small",
    "CREATE DOMAIN span AS interval",
)


def columns(cells: list[tuple[Any, ...]]) -> str:
    return ", ".join(f"c{number} {cell[0]}" for number, cell in enumerate(cells))


def literals(cells: list[tuple[Any, ...]]) -> str:
    return ", ".join("'" + cell[1].replace("'", "''") + "'" for cell in cells)


def values_of(server: PostgresServer, count: int) -> list[tuple[str, list[Any]]]:
    """What changes and a query give of the table `cells`, each in the order of the key."""
    changes = pg.changes(server.full_url, "cells", slot="cells_slot")
    (split,) = changes.splits(1)
    server.run("INSERT INTO cells SELECT * FROM source")
    followed: list[Any] = []
    with closing(changes.reader()) as reader:
        reader.open(split, None)
        while len(followed) < count:
            found = reader.read(count, WAIT_S)
            assert found, f"{len(followed)} of {count} changes have come"
            followed += found
    query = pg.query(server.full_url, "SELECT * FROM cells", key="id", parts=1)
    (split,) = query.splits(1)
    queried: list[Any] = []
    with closing(query.reader()) as rows:
        rows.open(split, None)
        while (some := rows.read(100)) is not None:
            queried += some
    return [("changes", followed), ("query", queried)]


@pytest.fixture
def typed(replicated: PostgresServer) -> PostgresServer:
    """A server with types of its own."""
    for creation in TYPES:
        replicated.run(creation)
    return replicated


def row_of(record: Any) -> Any:
    return record if isinstance(record, dict) else record.row


def test_values_of_every_type_come_as_they_are(typed: PostgresServer) -> None:
    for table in ("cells", "source"):
        typed.run(f"CREATE TABLE {table} (id int PRIMARY KEY, nan numeric, {columns(READABLE)})")
    typed.run(f"INSERT INTO source VALUES (1, 'NaN', {literals(READABLE)})")
    for _, found in values_of(typed, 1):
        (row,) = map(row_of, found)
        assert isnan(row["nan"])
        assert [row[f"c{number}"] for number in range(len(READABLE))] == [value for _, _, value in READABLE]


def test_vectors_come_with_the_numbers_that_were_written(vectors_replicated: PostgresServer) -> None:
    tenth, small = (struct.unpack("f", struct.pack("f", number))[0] for number in (0.1, 1e-40))
    cells: list[tuple[str, str, Any]] = [
        (
            "vector(4)",
            f"[{tenth},-0,{small},3e38]",
            [tenth, -0.0, small, struct.unpack("f", struct.pack("f", 3e38))[0]],
        ),
        ("halfvec(2)", "[0.1,65504]", [struct.unpack("e", struct.pack("e", 0.1))[0], 65504.0]),
        ("near", "[1,2]", [1.0, 2.0]),
        ("vector(1)[]", '{"[1]"}', "{[1]}"),
    ]
    vectors_replicated.run("CREATE DOMAIN near AS vector(2)")
    for table in ("cells", "source"):
        vectors_replicated.run(f"CREATE TABLE {table} (id int PRIMARY KEY, {columns(cells)})")
    vectors_replicated.run(f"INSERT INTO source VALUES (1, {literals(cells)})")
    for place, found in values_of(vectors_replicated, 1):
        (row,) = map(row_of, found)
        assert [repr(row[f"c{number}"]) for number in range(len(cells))] == [repr(cell[2]) for cell in cells], place


def test_a_value_that_python_does_not_have_is_an_error_of_its_row_alone(typed: PostgresServer) -> None:
    for table in ("cells", "source"):
        typed.run(f"CREATE TABLE {table} (id int PRIMARY KEY, {columns(UNREADABLE)})")
    for number, (_, text) in enumerate(UNREADABLE):
        typed.run(f"INSERT INTO source (id, c{number}) VALUES ({2 * number}, '{text}'), ({2 * number + 1}, NULL)")
    for place, found in values_of(typed, 2 * len(UNREADABLE)):
        assert [row_of(each)["id"] for each in found[1::2]] == list(range(1, 2 * len(UNREADABLE), 2))
        for number, ((_, text), bad) in enumerate(zip(UNREADABLE, found[::2], strict=True)):
            assert type(bad) is MalformedRecord, (place, text)
            assert isinstance(bad.error, ValueUnreadable)
            assert (bad.error.field, bad.error.value) == (f"c{number}", text)
            assert row_of(bad.record)[f"c{number}"] == text
            assert f"id = {2 * number}" == bad.error.row.replace('"', "")


def test_a_column_that_is_read_as_text_has_every_value(replicated: PostgresServer) -> None:
    replicated.run("CREATE TABLE dates (id int PRIMARY KEY, at date)")
    source = pg.changes(replicated.full_url, "dates", slot="dates_slot", as_text=["at"])
    (split,) = source.splits(1)
    replicated.run("INSERT INTO dates VALUES (1, 'infinity')")
    with closing(source.reader()) as reader:
        reader.open(split, None)
        (change,) = reader.read(1, WAIT_S)
    assert change.row == {"id": 1, "at": "infinity"}
