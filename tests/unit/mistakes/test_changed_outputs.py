"""Jobs whose sinks were changed between their start and a resume, so that rows would end in two places."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow
import pytest

from clonos import Job, blackhole, collect, dbapi, files, sqlite, stdout, values
from clonos.core.checkpoint.checkpoint_metadata import (
    PlanChanged,
    check_resumable,
    decode_metadata,
    encode_metadata,
    metadata_of_start,
)
from clonos.core.model.options import Options
from clonos.core.model.plan import Plan
from clonos.job.description import graph_of
from tests.unit.operators.driver import Outbox


def plan_of(*sinks: Any, errors: Any = None) -> Plan:
    job = Job("etl", errors=errors)
    rows = job.source(values([{"id": 1}]), name="read").map(dict, name="rows")
    for number, sink in enumerate(sinks):
        rows.sink(sink, name=f"out{number or ''}")
    return graph_of(job).compile(Options()).plan


def stored(plan: Plan) -> bytes:
    return encode_metadata(metadata_of_start(plan, "etl-1", 1))


def differences(before: Plan, now: Plan) -> list[str]:
    """Returns the differences for which a resume is refused."""
    try:
        check_resumable(now, decode_metadata(stored(before), "entry"))
    except PlanChanged as error:
        return list(error.differences)
    return []


def database(url: str, **rest: Any) -> Any:
    return dbapi(partial(connect, url, **rest), "orders")


def connect(url: str = "", **rest: Any) -> Any:
    raise AssertionError("nothing connects")


class OwnSink(Outbox):
    """A sink of the user, which describes where it writes."""

    def __init__(self, topic: str) -> None:
        self.topic = topic

    def describe_output(self) -> list[tuple[str, str]]:
        return [("topic", self.topic)]


def test_another_folder_is_refused(tmp_path: Path) -> None:
    before, now = tmp_path / "rows", tmp_path / "rows2"
    found = differences(plan_of(files.jsonl(before)), plan_of(files.jsonl(now)))
    assert found == [f'the output of the step "out" was {before}, is {now}']


CHANGES: dict[str, tuple[Any, Any, str]] = {
    "format": (files.jsonl("out"), files.csv("out"), 'the step "out" was files.jsonl, is files.csv'),
    "single": (
        files.jsonl("out"),
        files.jsonl("out", single=True),
        'the form of the output of the step "out" was a folder, is a single file',
    ),
    "shown": (stdout(), collect(), 'the step "out" was stdout(), is collect()'),
    "discarded": (collect(), blackhole(), 'the step "out" was collect(), is blackhole()'),
    "table": (sqlite("a.db", "rows"), sqlite("a.db", "rows2"), 'the table of the step "out" was rows, is rows2'),
    "database": (
        sqlite("a.db", "rows"),
        sqlite("b.db", "rows"),
        f'the database of the step "out" was {os.path.realpath("a.db")}, is {os.path.realpath("b.db")}',
    ),
    "server": (
        database("postgresql://ann:s3cret@one:5432/shop?sslmode=require"),
        database("postgresql://ann:s3cret@two:5432/shop"),
        'the database of the step "out" was postgresql://one:5432/shop, is postgresql://two:5432/shop',
    ),
    "dsn": (
        database("host=one dbname=shop user=ann password=s3cret"),
        database("host=one dbname=test user=ann password=s3cret"),
        'the database of the step "out" was host=one dbname=shop, is host=one dbname=test',
    ),
    "arguments": (
        dbapi(partial(connect, host="one", password="s3cret", database="shop"), "orders"),
        dbapi(partial(connect, host="two", password="s3cret", database="shop"), "orders"),
        'the database of the step "out" was host=one database=shop, is host=two database=shop',
    ),
    "own": (OwnSink("a"), OwnSink("b"), 'the topic of the step "out" was a, is b'),
    "own kind": (Outbox(), OwnSink("b"), 'the step "out" was Outbox, is OwnSink'),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_sink_is_refused_in_words(change: str) -> None:
    before, now, sentence = CHANGES[change]
    plan = plan_of(before)
    assert differences(plan, plan_of(now)) == [sentence]
    assert differences(plan, plan_of(before)) == []
    assert b"s3cret" not in stored(plan)


def test_another_key_of_a_table_is_refused() -> None:
    job = Job("etl")
    keyed = job.source(values([("a", 1)]), name="read").key_by(lambda row: row[0])
    columns = ["word", "count"]
    keyed.count(name="count").sink(sqlite("a.db", "rows", columns, upsert="word"), name="out")
    now = Job("etl")
    again = now.source(values([("a", 1)]), name="read").key_by(lambda row: row[0])
    again.count(name="count").sink(sqlite("a.db", "rows", columns), name="out")
    found = differences(graph_of(job).compile(Options()).plan, graph_of(now).compile(Options()).plan)
    assert found == ['the key of the step "out" was word, is none: rows are appended']


def test_another_error_output_is_refused(tmp_path: Path) -> None:
    plans = [plan_of(collect(), errors=files.jsonl(tmp_path / name)) for name in ("bad", "wrong")]
    assert differences(*plans) == [f'the output of the step "errors" was {tmp_path}/bad, is {tmp_path}/wrong']


def test_sinks_in_another_order_are_refused_because_prepared_output_has_their_number(tmp_path: Path) -> None:
    one, two = files.jsonl(tmp_path / "one"), files.jsonl(tmp_path / "two")
    assert len(differences(plan_of(one, two), plan_of(two, one))) == 2
    assert differences(plan_of(one), plan_of(one, two)) == ['the sink "out1" is new']
    assert differences(plan_of(one, two), plan_of(one)) == ['the sink "out1" is gone, was files.jsonl']


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("postgresql://ann:p/w@one/shop", ""),
        ("postgresql://ann:p#w@one/shop", ""),
        ("postgresql://one/shop?user=ann@x&password=s3cret", "postgresql://one/shop"),
        ("scott/s3cret@one:1521/shop", ""),
        ("DRIVER={ODBC};SERVER=one;DATABASE=shop;UID=ann;PWD=s3cret", "server=one database=shop"),
        ("password='a b' host=one", "host=one"),
    ],
)
def test_no_secret_of_a_url_is_stored(url: str, text: str) -> None:
    (output,) = [output for vertex in plan_of(database(url)).vertices for output in vertex.outputs]
    assert dict(output.properties).get("database", "") == text


def test_a_change_that_does_not_move_the_output_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "link").symlink_to(tmp_path)
    spellings = ("rows", "./rows", "../" + tmp_path.name + "/rows/", "~/rows", tmp_path / "rows", "link/rows")
    same: list[list[Callable[[], Any]]] = [
        [partial(files.jsonl, path) for path in spellings],
        [partial(files.csv, "rows"), partial(files.csv, "rows", columns=["id"])],
        [partial(files.parquet, "rows"), partial(files.parquet, "rows", schema=pyarrow.schema([("id", "int64")]))],
        [partial(sqlite, "a.db", "rows"), partial(sqlite, tmp_path / "a.db", "rows", {"id": "INTEGER"})],
        [partial(database, f"mysql://ann:{password}@one/shop") for password in ("old", "new")],
        [partial(dbapi, partial(sqlite3.connect, path, timeout=limit), "rows") for path, limit in
         (("a.db", 1), ("./a.db", 2))],
        [lambda: dbapi(lambda: connect("one"), "orders"), lambda: dbapi(lambda: connect("two"), "orders")],
        [lambda: stdout(), lambda: stdout(str)],
    ]  # fmt: skip
    for makes in same:
        first, *others = [plan_of(make()) for make in makes]
        for other in others:
            assert differences(first, other) == []
