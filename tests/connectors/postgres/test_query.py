"""``postgres.query`` on a real server: ranges that are read again alike, keys that cannot order, lost connections."""

from __future__ import annotations

import datetime
import decimal
from contextlib import closing
from itertools import chain
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

from clonos.connectors import collect
from clonos.connectors import postgres as pg
from clonos.connectors.connector_errors import InvalidConnector, SplitMalformed
from clonos.connectors.kit.external_system import SystemRefused
from clonos.connectors.postgres import QueryChanged, QueryKeyUnusable
from clonos.connectors.postgres.query import PostgresQuery
from clonos.job import Job
from tests.connectors.servers.postgres import PostgresServer

pytestmark = pytest.mark.connectors


def read_all(source: PostgresQuery, split: bytes, mark: bytes | None = None, step: int = 7) -> list[Any]:
    """Reads a split to its end, a few records at a time."""
    found: list[Any] = []
    with closing(source.reader()) as reader:
        reader.open(split, mark)
        while (rows := reader.read(step)) is not None:
            assert 1 <= len(rows) <= step
            found += rows
    return found


def read_splits(source: PostgresQuery, parallelism: int = 1) -> list[list[Any]]:
    """Reads all splits."""
    return [read_all(source, split, step=3) for split in source.splits(parallelism)]


@pytest.fixture
def orders(postgres: PostgresServer) -> PostgresServer:
    """A table with 100 rows, whose numbers have gaps."""
    postgres.run("CREATE TABLE orders (id int PRIMARY KEY, item text)")
    postgres.run("INSERT INTO orders SELECT n * n, 'item ' || n FROM generate_series(1, 100) n")
    return postgres


ALL = [{"id": n * n, "item": f"item {n}"} for n in range(1, 101)]


@pytest.mark.parametrize("parts", [1, 3, 4])
def test_ranges_have_each_row_once_in_the_order_of_the_key(orders: PostgresServer, parts: int) -> None:
    source = pg.query(orders.full_url, "SELECT * FROM orders;", key="id", parts=parts)
    splits = source.splits(2)
    assert len(splits) == parts
    found = [read_all(cloudpickle.loads(cloudpickle.dumps(source)), split) for split in splits]
    assert list(chain(*found)) == ALL
    assert max(map(len, found)) - min(map(len, found)) <= 1


def test_there_are_no_more_ranges_than_keys(orders: PostgresServer) -> None:
    assert len(pg.query(orders.full_url, "SELECT * FROM orders", key="id", parts=500).splits(1)) == 100


def test_a_range_opened_at_any_mark_gives_the_same_rest(orders: PostgresServer) -> None:
    source = pg.query(orders.full_url, "SELECT * FROM orders WHERE item LIKE 'item %'", key="id", parts=2)
    split = source.splits(1)[1]
    reader = source.reader()
    reader.open(split, None)
    for taken in range(0, 50, 10):
        assert read_all(source, split, reader.mark()) == ALL[50 + taken :]
        reader.read(10)
    assert reader.read(10) is None
    assert reader.read(10) is None
    reader.close()


def test_rows_inserted_after_the_last_key_do_not_belong_to_the_job(orders: PostgresServer) -> None:
    source = pg.query(orders.full_url, "SELECT * FROM orders", key="id")
    splits = source.splits(2)
    orders.run("INSERT INTO orders VALUES (20000, 'late'), (0, 'early')")
    assert [row for split in splits for row in read_all(source, split)] == ALL


@pytest.mark.parametrize("kind", ["text", "uuid", "timestamptz", "numeric"])
def test_a_key_of_any_type_with_an_order_makes_ranges(postgres: PostgresServer, kind: str) -> None:
    made = {
        "text": "'k''%' || n",
        "uuid": "('00000000-0000-0000-0000-' || lpad(n::text, 12, '0'))::uuid",
        "timestamptz": "timestamptz '2026-01-01' + n * interval '1 day'",
        "numeric": "n / 7.0",
    }[kind]
    sql = f"SELECT {made} AS k, n FROM generate_series(1, 40) n"
    source = pg.query(postgres.full_url, sql, key="k", parts=4)
    found = [read_all(source, split) for split in source.splits(1)]
    assert sorted(row["n"] for rows in found for row in rows) == list(range(1, 41))
    assert [len(rows) for rows in found] == [10, 10, 10, 10]


def test_a_row_has_values_that_streams_carry(postgres: PostgresServer) -> None:
    sql = """SELECT 1 AS id, 1.50::numeric AS price, timestamptz '2026-01-02 03:04:05+02' AS at, '{"a": [1]}'::jsonb AS
    doc, ARRAY['x', NULL] AS tags, '10.0.0.1'::inet AS address, '[1,3)'::int4range AS span, '\\x00ff'::bytea AS data
    -- 100 % of it"""
    (split,) = (source := pg.query(postgres.full_url, sql, key="id")).splits(4)
    assert read_all(source, split) == [
        {
            "id": 1,
            "price": decimal.Decimal("1.50"),
            "at": datetime.datetime(2026, 1, 2, 1, 4, 5, tzinfo=datetime.UTC),
            "doc": {"a": [1]},
            "tags": ["x", None],
            "address": "10.0.0.1",
            "span": "[1,3)",
            "data": b"\x00\xff",
        }
    ]


@pytest.mark.parametrize(
    ("sql", "error", "message"),
    [
        ("SELECT 1 AS id UNION ALL SELECT NULL", QueryKeyUnusable, 'the key "id" of some row is NULL'),
        ("SELECT 1 AS id FROM generate_series(1, 3)", QueryKeyUnusable, 'several rows have the same "id"'),
        ("SELECT n / 8 AS id FROM generate_series(1, 30) n", QueryKeyUnusable, 'several rows have the same "id"'),
        ("SELECT 1 AS other", SystemRefused, 'column "id" does not exist.*Correct the query: SELECT 1 AS other'),
        ("SELECT * FROM missing", SystemRefused, 'relation "missing" does not exist'),
        ("SELECT 1 AS id, 2 AS id", SystemRefused, 'column reference "id" is ambiguous'),
        ("SELECT 1 AS id, 2 AS a, 3 AS a", SystemRefused, "two columns of the query have one name"),
        ("SELECT json '{}' AS id", SystemRefused, "could not identify an ordering operator for type json"),
        ("SELECT 1 AS id, 1 / 0", SystemRefused, "division by zero"),
        ("DELETE FROM orders", SystemRefused, "syntax error"),
    ],
)
def test_a_query_that_cannot_be_read_is_named(
    postgres: PostgresServer, sql: str, error: type[Exception], message: str
) -> None:
    source = pg.query(postgres.full_url, sql, key="id", parts=1)
    with pytest.raises(error, match=message):
        read_splits(source)


def test_splits_of_another_query_and_bytes_that_are_none_are_refused(orders: PostgresServer) -> None:
    source = pg.query(orders.full_url, "SELECT * FROM orders", key="id")
    (split, *_) = source.splits(1)
    source.check_split(split)
    with pytest.raises(QueryChanged, match="started with another query or another key than"):
        pg.query(orders.full_url, "SELECT * FROM orders WHERE id > 1", key="id").check_split(split)
    for data in (b"", b"\xc1", split[:-1]):
        with pytest.raises(SplitMalformed):
            source.check_split(data)
    with pytest.raises(SplitMalformed):
        source.reader().open(split, b"\xff")
    for options in ({"parts": 0}, {"parts": 2, "ordered": True}, {"key": "a.b"}, {"sql": " "}):
        with pytest.raises(InvalidConnector, match=r"postgres\.query"):
            pg.query(**{"dsn": "postgresql://h/d", "sql": "SELECT 1", "key": "id"} | options)


def test_a_lost_connection_is_opened_again_after_the_last_row(orders: PostgresServer) -> None:
    source = pg.query(orders.full_url, "SELECT * FROM orders", key="id", parts=1)
    (split,) = source.splits(1)
    reader = source.reader()
    reader.open(split, None)
    found: list[Any] = []
    for number in range(10):
        if number % 3 == 1:
            orders.run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'clonos'")
        if number == 6:
            orders.kill()
            orders.start()
        found += reader.read(10) or []
    reader.close()
    assert found == ALL


def test_a_job_reads_every_row_once(orders: PostgresServer, tmp_path: Path) -> None:
    output: Any = collect()
    job = Job("orders", slots="process", parallelism=2, store=tmp_path / "store")
    job.source(pg.query(orders.full_url, "SELECT * FROM orders", key="id")).sink(output)
    job.run()
    assert sorted(output.rows, key=lambda row: row["id"]) == ALL


def test_a_query_without_rows_ends_at_once(orders: PostgresServer, tmp_path: Path) -> None:
    output: Any = collect()
    job = Job("nothing", slots="process", store=tmp_path / "store")
    job.source(pg.query(orders.full_url, "SELECT * FROM orders WHERE id < 0", key="id")).sink(output)
    job.run()
    assert output.rows == []
