"""``postgres.table`` on a real server: each row once, withdrawn after a rollback, and every failure named."""

from __future__ import annotations

import datetime
import decimal
import uuid
from pathlib import Path
from typing import Any

import cloudpickle
import pyarrow as pa
import pyarrow.parquet
import pytest

from clonos import col
from clonos.connectors import files
from clonos.connectors import postgres as pg
from clonos.connectors.connector_errors import RowNotWritable
from clonos.job import Job
from clonos.operators.connector_contract import Registration, WriterFenced
from tests.connectors.postgres.table_samples import COLUMNS, JOB, identity, registered, sink_to, words_in
from tests.connectors.servers.postgres import PostgresServer

pytestmark = pytest.mark.connectors


def test_rows_their_task_and_their_number_are_one_transaction(postgres: PostgresServer) -> None:
    sink = sink_to(postgres)
    with registered(sink, identity(1), 7) as writer:
        assert writer.write(7, [("a", 1), {"seen": None, "word": ""}]) == 9
        assert writer.write(7, [("a", 1), ("", None), ("tab\t\\line\n", -3)]) == 10  # two of them are known
        assert writer.write(10, []) == 10
    assert words_in(postgres) == [("a", 1), ("", None), ("tab\t\\line\n", -3)]
    assert postgres.run("SELECT clonos_task, clonos_number FROM words LIMIT 1") == [(f"{JOB}/words/0", 7)]
    assert sink.registrations(JOB) == {"words/0": (1, 1, 10)}


COLUMN_TYPES = {
    "n": ("bigint", pa.int64(), [1, None, -(1 << 60)]),
    "ratio": ("double precision", pa.float64(), [0.1, float("inf"), -1e300]),
    "is_new": ("boolean", pa.bool_(), [True, False, None]),
    "text": ("text", pa.string(), ["", None, 'a "b",\n\\.\n\\N ä']),
    "day": ("date", pa.date32(), [datetime.date(2026, 1, 2), None, datetime.date(1, 1, 1)]),
    "at": (
        "timestamptz",
        pa.timestamp("us", "UTC"),
        [datetime.datetime(2026, 1, 2, 3, 4, 5, 6, datetime.UTC), None, None],
    ),
    "price": ("numeric", pa.decimal128(9, 2), [decimal.Decimal("1.50"), None, decimal.Decimal("-0.01")]),
}


def test_columns_are_written_as_their_rows_are(postgres: PostgresServer) -> None:
    batch = pa.record_batch({name: pa.array(column, kind) for name, (_, kind, column) in COLUMN_TYPES.items()})
    types = {name: kind for name, (kind, _, _) in COLUMN_TYPES.items()}
    for index, (table, write) in enumerate((("by_rows", "write"), ("by_columns", "write_columns"))):
        with registered(pg.table(postgres.full_url, table, types), identity(1, index=index), 5) as writer:
            given = batch.to_pylist() if write == "write" else batch
            assert getattr(writer, write)(5, given) == 8
            assert getattr(writer, write)(6, given) == 9  # two of them are known
            assert getattr(writer, write)(9, given[:0]) == 9
    found = postgres.run("SELECT * FROM by_columns ORDER BY clonos_number")
    as_rows = postgres.run("SELECT * FROM by_rows ORDER BY clonos_number")
    assert [(*row[:-2], row[-1]) for row in found] == [(*row[:-2], row[-1]) for row in as_rows]
    assert [row[:-2] for row in found[:3]] == [tuple(row.values()) for row in batch.to_pylist()]
    assert found[3][:-2] == found[2][:-2]


def test_columns_of_other_types_and_under_a_key_are_written_as_rows(postgres: PostgresServer) -> None:
    batch = pa.record_batch({"word": ["a", "b"], "seen": [[1], None]})
    with registered(pg.table(postgres.full_url, "words", {"word": "text", "seen": "jsonb"}), identity(1)) as writer:
        assert writer.write_columns(0, batch) == 2
    assert words_in(postgres) == [("a", [1]), ("b", None)]
    keyed = pg.table(postgres.full_url, "keyed", {"word": "text", "seen": "jsonb"}, upsert="word")
    with registered(keyed, identity(1, index=1)) as writer:
        assert writer.write_columns(0, batch) == 2
        assert writer.write_columns(2, batch.slice(0, 1)) == 3
    assert postgres.run("SELECT word, seen FROM keyed ORDER BY 1") == [("a", [1]), ("b", None)]


def test_a_job_of_columns_writes_each_row_once(postgres: PostgresServer, tmp_path: Path) -> None:
    pa.parquet.write_table(
        pa.table({"n": range(3_000), "item": [f"item {n}" for n in range(3_000)]}), tmp_path / "in.parquet"
    )
    job = Job("columns", slots="process", store=tmp_path / "store")
    rows = job.source(files.parquet(str(tmp_path / "in.parquet"))).filter(col("n") >= 1_000)
    rows.sink(pg.table(postgres.full_url, "items", {"n": "int", "item": "text"}))
    assert "columns     source, filter, sink" in job.explain()
    job.run()
    assert postgres.psql("SELECT count(*), count(DISTINCT n), min(n), max(n) FROM items") == [
        ("2000", "2000", "1000", "2999")
    ]


def test_an_earlier_incarnation_writes_nothing_once_a_later_one_has_registered(postgres: PostgresServer) -> None:
    sink = cloudpickle.loads(cloudpickle.dumps(sink_to(postgres)))
    with registered(sink, identity(1)) as early, registered(sink, identity(2)) as late:
        with pytest.raises(WriterFenced, match="but incarnation 2 of generation 1 is registered"):
            early.write(0, [("of a dead life", 1)])
        late.write(0, [("b", 2)])
    assert words_in(postgres) == [("b", 2)]


def test_rows_after_the_restored_checkpoint_are_withdrawn(postgres: PostgresServer) -> None:
    sink = sink_to(postgres)
    with registered(sink, identity(1)) as early:
        early.write(0, [("a", 1), ("b", 2), ("c", 3)])
    late = sink.immediate_writer()
    assert late.register(identity(2, generation=2), 1) == Registration(1, None)
    assert words_in(postgres) == [("a", 1)]
    late.write(1, [("B", 2)])
    late.close()
    assert words_in(postgres) == [("a", 1), ("B", 2)]


ANY_TYPES = {
    "key": "uuid",
    "at": "timestamptz",
    "day": "date",
    "took": "interval",
    "price": "numeric(12,4)",
    "ratio": "double precision",
    "data": "bytea",
    "document": "jsonb",
    "address": "inet",
    "tags": "text[]",
    "span": "int4range",
    "is_new": "boolean",
}


def row_of_all_types(number: int) -> dict[str, Any]:
    return {
        "key": uuid.UUID(int=7),
        "at": datetime.datetime(2026, 1, 2, 3, 4, 5, number, tzinfo=datetime.UTC),
        "day": datetime.date(2026, 1, 2),
        "took": datetime.timedelta(days=1, microseconds=number),
        "price": decimal.Decimal(f"{number}.25"),
        "ratio": 0.1 + number,
        "data": bytes([0, 255, number]),
        "document": {"number": number, "deep": [None, "ä"]},
        "address": f"10.0.0.{number}",
        "tags": f'{{a,"b {number}"}}',
        "span": f"[1,{number + 2})",
        "is_new": bool(number % 2),
    }


def test_a_row_of_any_types_is_replaced_by_its_key_and_restored(postgres: PostgresServer) -> None:
    sink = pg.table(postgres.full_url, "things", ANY_TYPES, upsert="key")
    all_of_it = "SELECT * FROM things"
    with registered(sink, identity(1)) as early:
        early.write(0, [row_of_all_types(1)])
        first = postgres.run(all_of_it)
        early.write(1, [row_of_all_types(2), row_of_all_types(3)])
    assert postgres.run("SELECT price, document->>'number' FROM things") == [(decimal.Decimal("3.2500"), "3")]
    late = sink.immediate_writer()
    assert late.register(identity(2, generation=2), 1) == Registration(1, None)
    assert postgres.run(all_of_it) == first
    assert late.write(1, [row_of_all_types(4)]) == 2
    late.close()
    again = sink.immediate_writer()
    assert again.register(identity(3, generation=3), 0) == Registration(0, None)
    again.close()
    assert postgres.run(all_of_it) == []


def test_a_row_that_others_have_changed_stays(postgres: PostgresServer) -> None:
    sink = sink_to(postgres, upsert="word")
    with registered(sink, identity(1)) as early:
        early.write(0, [("a", 1), ("b", 2)])
        postgres.run("UPDATE words SET seen = 99 WHERE word = 'a'")
    with registered(sink, identity(2, generation=2)):
        assert postgres.run("SELECT word, seen FROM words") == [("a", 99)]


def test_a_key_that_its_column_cannot_have_is_refused(postgres: PostgresServer) -> None:
    sink = pg.table(postgres.full_url, "words", COLUMNS, upsert="seen")
    with registered(sink, identity(1)) as writer:
        with pytest.raises(RowNotWritable, match="its seen is 'many'"):
            writer.write(0, [("a", "many")])
        assert writer.write(0, [("a", 1)]) == 1
    assert postgres.run("SELECT * FROM words") == [("a", 1)]


def test_numbers_of_different_types_are_keys_of_one_column(postgres: PostgresServer) -> None:
    sink = pg.table(postgres.full_url, "sums", {"key": "numeric", "n": "int"}, upsert="key")
    with registered(sink, identity(1)) as writer:
        writer.write(0, [(1, 1), (2.5, 2), (decimal.Decimal("3.25"), 3)])
        writer.write(3, [(decimal.Decimal(1), 4), (2.5, 5), (3.25, 6)])
    assert postgres.psql("SELECT key, n FROM sums ORDER BY 1") == [("1", "4"), ("2.5", "5"), ("3.25", "6")]


def test_many_keys_of_two_columns_are_found_replaced_and_restored(postgres: PostgresServer) -> None:
    sink = pg.table(postgres.full_url, "pairs", {"day": "date", "word": "text", "n": "int"}, upsert=["day", "word"])
    days = [datetime.date(2026, 1, 1) + datetime.timedelta(n) for n in range(30)]
    rows = [(day, f"w{n}", n) for day in days for n in range(20)]
    with registered(sink, identity(1)) as writer:
        assert writer.write(0, rows) == 600
        assert writer.write(600, [(day, word, -n) for day, word, n in rows[:300]]) == 900
    written = {(day, word): n for day, word, n in postgres.run("SELECT * FROM pairs")}
    assert written == {(day, word): -n if at < 300 else n for at, (day, word, n) in enumerate(rows)}
    with registered(sink, identity(2, generation=2), 600):
        assert sorted(postgres.run("SELECT * FROM pairs")) == sorted(rows)
