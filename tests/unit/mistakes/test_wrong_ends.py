"""Sources and sinks that are something else: a path, a list, a frame, ``print``, a function that is not called."""

from __future__ import annotations

import io
import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas
import pyarrow
import pytest

from tests.harnesses.mistakes import check, describe


def records() -> Iterator[int]:
    """Yields a record."""
    yield 1


SOURCES: dict[str, tuple[Any, str]] = {
    "a pattern": ("orders/*.csv", 'Write files.csv("orders/*.csv").'),
    "a compressed file": ("in/a.JSONL.gz", 'Write files.jsonl("in/a.JSONL.gz").'),
    "a path": (Path("in/a.txt"), 'Write files.lines("in/a.txt").'),
    "an address of Postgres": ("postgresql://db/shop", 'Write postgres.query("postgresql://db/shop", "select ...").'),
    "an address of Kafka": ("kafka://host:9092", 'Write kafka.source("topic", servers="host:9092").'),
    "an address of the web": ("https://host/a.csv", 'Write web.poll("https://host/a.csv", every="10s"), or files.csv('),
    "an address of an object store": ("s3://bucket/day/", 'Write files.lines("s3://bucket/day/").'),
    "a list": ([1, 2], "Write values(records)."),
    "a range": (range(3), "Write values(records)."),
    "a generator": (records(), "Write values(records)."),
    "a generator function": (records, "Call it, and give what it returns: values(records()) for a function that"),
    "a record": ({"a": 1}, "Write values([record]) for one record"),
    "a frame": (pandas.DataFrame({"a": [1]}), "Write values(frame.to_dict('records')) with pandas"),
    "a table": (pyarrow.table({"a": [1]}), "values(table.to_pylist()) with Arrow"),
    "an open file": (io.StringIO("a"), "which opens the file itself."),
    "nothing": (None, "A source has splits() and reader()"),
}
SINKS: dict[str, tuple[Any, str]] = {
    "a file": ("out.csv", 'Write files.csv("out.csv").'),
    "a path": (Path("out"), 'Write files.lines("out").'),
    "an address of Postgres": ("postgresql+psycopg://db/shop", 'Write postgres.table("postgresql+psycopg://db/shop"'),
    "an address of the web": ("http://host/hook", 'Write web.post("http://host/hook").'),
    "print": (print, "Give stdout() instead."),
    "standard output": (sys.__stdout__, "Give stdout() instead."),
    "a list": ([], "Write rows = collect() and .sink(rows); rows.rows has the records"),
    "a frame": (pandas.DataFrame(), "Write rows = collect() and .sink(rows)"),
    "a function": (records, "is a step: write .map(records, effects=True).sink(blackhole())."),
    "a lambda": (lambda row: None, "write .map(<lambda>, effects=True).sink(blackhole())."),
    "a connection": (sqlite3.connect(":memory:"), 'Write sqlite("path.db", "table"), postgres.table(...)'),
    "an open file": (io.BytesIO(), "which opens its files itself."),
}


@pytest.mark.parametrize("name", SOURCES)
def test_something_else_than_a_source_is_answered_by_what_to_write(name: str) -> None:
    given, advice = SOURCES[name]
    check(describe("Job('etl').source(given)", given=given), "which is not a source.", advice)


@pytest.mark.parametrize("name", SINKS)
def test_something_else_than_a_sink_is_answered_by_what_to_write(name: str) -> None:
    given, advice = SINKS[name]
    check(describe("Job('etl').source(values([1])).sink(given)", given=given), "which is not a sink.", advice)
    check(describe("Job('etl', errors=given)", given=given), "the step errors gets a", advice)


@pytest.mark.parametrize(
    ("code", "advice"),
    [
        ("Job('etl').source(kafka)", "It is a module: write kafka.source(...)."),
        ("Job('etl').source(kafka.source)", "It is not called: write kafka.source(...)."),
        ("Job('etl').source(values)", "It is not called: write values(...)."),
        ("Job('etl').source(stdout())", "It is a sink: a stream ends with .sink(...)."),
        ("Job('etl').source(rows)", "It is a stream already: call its methods"),
        ("Job('etl').source(Tumbling)", "It is a class: give an object of it, Tumbling(...)."),
        ("rows.sink(stdout)", "It is not called: write stdout(...)."),
        ("rows.sink(files)", "It is a module: write files.lines(...) or files.jsonl(...)"),
        ("Job('etl').source(files)", "It is a module: write files.lines(...) or files.tail(...)"),
        ("Job('etl').source(redis)", "It is a module: write redis.source(...)."),
        ("rows.sink(postgres)", "It is a module: write postgres.table(...)."),
        ("rows.sink(values([1]))", "It is a source: job.source(...) reads it."),
        ("rows.sink(rows)", "union(...) joins two streams."),
    ],
)
def test_a_name_of_the_library_in_the_wrong_place_is_answered_by_what_to_write(code: str, advice: str) -> None:
    check(describe(f"rows = Job('other').source(values([1]))\n{code}"), advice)


@pytest.mark.parametrize(
    "code", ["for row in rows: pass", "list(rows)", "a, b = rows.key_by(str)", "len(rows)", "rows and 1"]
)
def test_a_stream_that_is_iterated_is_answered_by_how_its_records_are_read(code: str) -> None:
    check(
        describe(f"rows = Job('etl').source(values([1]))\n{code}"),
        "Stream has no records before its job runs, so it has no length and cannot be iterated."
        " take(5) returns the first records",
    )


def test_the_aggregates_do_not_hide_the_sink_that_collects() -> None:
    rows = "rows = Job('etl').source(values([{'a': 1}]))\n"
    assert describe(f"from clonos import *\nfrom clonos.agg import *\n{rows}rows.sink(collect())") == ""
    check(
        describe(f"from clonos.agg import collect\n{rows}rows.sink(collect())"),
        "It is an aggregate of clonos.agg. The sink that collects records is collect() of clonos.",
    )
    check(
        describe(f"from clonos import collect\n{rows}rows.aggregate(all=collect())"),
        "It is a sink: write all=agg.collect(), with from clonos import agg.",
    )
