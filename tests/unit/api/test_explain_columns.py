"""Columns in a plan: which steps work on rows and why, and the stretches over which records stay in columns."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyarrow import parquet

from clonos import (
    Global,
    Job,
    Session,
    Stream,
    Tumbling,
    ValueState,
    blackhole,
    col,
    each,
    every,
    files,
    last_values,
    sqlite,
    values,
)
from clonos.agg import collect, count, mean, min_, sum_
from clonos.api.graph_errors import ColumnsNeeded
from clonos.api.plan.explain_text import explanation_text
from clonos.api.plan.explaining import explain_graph
from clonos.api.plan.explanation import Explanation, StepInfo
from clonos.core.model.options import Options
from clonos.job.description import graph_of
from tests.unit.columns.test_column_windows import ColumnsOf
from tests.unit.operators.samples import ColumnsGiven


def plan_of(job: Job) -> Explanation:
    return explain_graph(graph_of(job), Options(), 2)


def step(plan: Explanation, name: str) -> StepInfo:
    return next(each for each in plan.steps if each.name == name)


def numbers(job: Job) -> Stream[int]:
    return job.source(values([1, 2, 3]), name="numbers")


class Remember:
    seen = ValueState("seen", default=False)

    def process(self, value: Any, context: Any) -> None:
        context.emit(value)


@pytest.mark.parametrize(
    ("extend", "reason"),
    [
        (lambda stream: stream.filter(len, name="next"), "it calls len with each row"),
        (
            lambda stream: stream.key_by(len, name="by_length").count(name="next"),
            'by_length calls len with each row; name a column instead: key_by("...")',
        ),
        (lambda stream: stream.key_by("a").count(name="next"), ""),
        (lambda stream: stream.key_by("a").window(Tumbling("1s")).sum("n", name="next"), ""),
        (
            lambda stream: stream.key_by("a").window(Tumbling("1s")).sum(len, name="next"),
            "it calls len with each row",
        ),
        (
            lambda stream: stream.key_by("a").process(Remember, name="next"),
            "it calls Remember with each row",
        ),
        (lambda stream: stream.map_batches(len, name="next"), ""),
        (lambda stream: stream.with_timestamps("at", name="next"), ""),
        (lambda stream: stream.union(stream).process(Remember, name="next"), "it calls Remember with each row"),
        (
            lambda stream: stream.key_by("a").window(Session("1s")).aggregate(all=collect(), name="next"),
            "collect() works on rows",
        ),
        (
            lambda stream: stream.key_by("a").window(Session("1s", max_length="9s")).count(name="next"),
            "sessions with max_length= work on rows",
        ),
        (lambda stream: stream.key_by("a").window(Tumbling("1s")).aggregate(all=collect(), name="next"), ""),
        (lambda stream: stream.key_by("a").window(Tumbling("1s")).aggregate(all=collect("n"), name="next"), ""),
        (
            lambda stream: stream.key_by("a").window(Tumbling("1s"), early=each(2)).count(name="next"),
            "windows with a trigger work on rows",
        ),
        (
            lambda stream: stream.key_by("a").window(Tumbling("1s"), evictor=last_values(2)).count(name="next"),
            "windows with an evictor work on rows",
        ),
        (
            lambda stream: stream.key_by("a").window(Global(), trigger=each(2)).count(name="next"),
            "windows with a trigger work on rows",
        ),
        (
            lambda stream: stream.key_by("a").window(Global()).count(name="next"),
            "windows of the kind Global work on rows",
        ),
        (lambda stream: stream.key_by("a").aggregate(n=count(), emit=every("5s"), name="next"), ""),
        (
            lambda stream: stream.key_by("a").aggregate(a=count(), name="next"),
            "its results would have two columns 'a'",
        ),
        (lambda stream: stream.key_by("a").aggregate(b=collect(), name="next"), "collect() works on rows"),
        (
            lambda stream: stream.key_by("start").window(Tumbling("5s")).count(name="next"),
            "its results would have two columns 'start'",
        ),
        (lambda stream: stream.aggregate(b=count(), name="next"), ""),
        (lambda stream: stream.aggregate(b=collect(), name="next"), "collect() works on rows"),
    ],
    ids=[
        *("filter", "key function", "count", "sum", "sum of a function", "process", "batches", "timestamps", "union"),
        *(
            "list of a session",
            "long session",
            "list of records",
            "list",
            "trigger",
            "evictor",
            "global trigger",
            "global",
            "interval",
            "two names",
            "running",
            "window of two names",
            "no key",
            "list without a key",
        ),
    ],
)
def test_the_plan_has_the_reason_for_which_a_step_turns_columns_into_rows(extend: Any, reason: str) -> None:
    job = Job("columns")
    extend(job.source(ColumnsGiven([{"a": 1, "n": 2, "at": 3, "start": 4}]), name="batches")).sink(blackhole())
    plan = plan_of(job)
    found = step(plan, "next")
    assert (found.takes, found.row_reason) == ("columns", reason)
    assert step(plan, "batches").gives == "columns"
    line = f"rows from next on: {reason}" if reason else "columns batches"
    assert line in " ".join(explanation_text(plan).split())


def test_a_plan_of_rows_does_not_mention_columns() -> None:
    job = Job("rows")
    numbers(job).map(abs, name="next").sink(blackhole())
    plan = plan_of(job)
    assert {(each.takes, each.gives, each.row_reason) for each in plan.steps} == {
        ("", "rows", ""),
        ("rows", "rows", ""),
        ("rows", "", ""),
    }
    assert "columns" not in explanation_text(plan)


def test_an_immediate_sink_of_columns_writes_rows(tmp_path: Path) -> None:
    job = Job("rows")
    stream = job.source(ColumnsGiven([{"a": 1}]))
    stream.sink(sqlite(tmp_path / "a.db", "t", columns=["a"]), name="table")
    assert step(plan_of(job), "table").row_reason == "its sink writes rows"


def test_the_plan_names_an_aggregate_that_works_on_rows_for_the_type_of_its_column(tmp_path: Path) -> None:
    pairs = pyarrow.array([b"yz"], pyarrow.binary(2))
    prices = pyarrow.array([Decimal("1.50")], pyarrow.decimal128(9, 2))
    batch = pyarrow.record_batch({"a": ["x"], "n": [1], "text": ["y"], "pair": pairs, "price": prices})
    parquet.write_table(pyarrow.Table.from_batches([batch]), tmp_path / "some.parquet")
    job = Job("columns")
    stream = job.source(files.parquet(str(tmp_path / "*.parquet")), name="read")
    stream.key_by("a").aggregate(least=min_("pair"), n=count(), name="texts").sink(blackhole())
    stream.key_by("a").aggregate(total=sum_("n"), name="ints").sink(blackhole())
    stream.key_by("a").aggregate(average=mean("price"), name="means").sink(blackhole())
    stream.key_by("pair").window(Tumbling("1s")).count(name="pairs").sink(blackhole())
    plan = plan_of(job)
    assert step(plan, "texts").row_reason == "min_('pair') of the type fixed_size_binary[2] works on rows"
    assert step(plan, "ints").row_reason == ""
    assert step(plan, "means").row_reason == (
        "mean('price') of the type decimal128(9, 2) works on rows; cast the column to float in front of it for columns"
    )
    assert step(plan, "pairs").row_reason == ""


def test_the_plan_lists_the_stretches_of_columns() -> None:
    job = Job("columns")
    stream = job.source(ColumnsGiven([{"a": 1, "n": 2}]), name="read")
    dear = stream.filter(col("n") > 1, name="dear")
    counted = dear.key_by("a").count(name="counted")
    counted.map(str, name="texts").sink(blackhole(), name="first")
    dear.union(stream.select("a", "n", name="chosen")).map_batches(len, name="both").sink(blackhole(), name="second")
    numbers(job).map(abs, name="rows").sink(blackhole(), name="third")
    plan = plan_of(job)
    assert [(each.steps, each.rows_from) for each in plan.columns] == [
        (("read", "dear", "counted", "chosen", "both", "second"), ("texts",))
    ]
    text = " ".join(explanation_text(plan).split())
    assert "Columns - 6 steps: read, dear, counted, chosen, both, second; rows from texts on" in text


def test_a_join_of_two_stretches_makes_one() -> None:
    job = Job("columns")
    one, other = (job.source(ColumnsGiven([{"a": 1}]), name=name) for name in ("one", "other"))
    one.select("a", name="chosen").union(other).map_batches(len, name="both").sink(blackhole(), name="out")
    job.source(ColumnsGiven([{"a": 1}]), name="alone").map(str, name="texts").sink(blackhole())
    assert [(each.steps, each.rows_from) for each in plan_of(job).columns] == [
        (("one", "other", "chosen", "both", "out"), ()),
        (("alone",), ("texts",)),
    ]


def test_a_step_on_columns_after_rows_names_the_reason(tmp_path: Path) -> None:
    batch = pyarrow.record_batch({"a": ["x"], "text": ["y"], "tags": [["y"]]})
    parquet.write_table(pyarrow.Table.from_batches([batch]), tmp_path / "some.parquet")
    job = Job("columns")
    keyed = job.source(files.parquet(str(tmp_path / "*.parquet")), name="read").key_by("a")
    with pytest.raises(
        ColumnsNeeded, match=r"works on columns, and texts gives it rows, because collect\('text'\) works"
    ):
        keyed.aggregate(all=collect("text"), name="texts").select("a")
    with pytest.raises(ColumnsNeeded, match=r"because min_\('tags'\) of the type list<.*> works on rows\."):
        keyed.aggregate(least=min_("tags"), name="least").filter(col("least").is_null())
    with pytest.raises(ColumnsNeeded, match=r"shown gives it rows, because it calls str with each row\."):
        keyed.count(name="counted").map(str, name="shown").select("a")
    with pytest.raises(ColumnsNeeded, match=r"numbers gives it rows\."):
        numbers(Job("rows")).select("a")


def test_a_sink_after_columns_whose_rows_have_another_form_writes_rows(tmp_path: Path) -> None:
    job = Job("columns")
    schema = pyarrow.schema({"a": pyarrow.int64(), "n": pyarrow.int64()})
    keyed = job.source(ColumnsOf([{"a": 1, "n": 2}], schema), name="read").key_by("a")
    streams: dict[str, Any] = {
        "aggregated": keyed.aggregate(total=sum_("n"), name="totals"),
        "chosen": keyed.aggregate(total=sum_("n"), name="others").select("a", "total"),
        "windowed": keyed.window(Tumbling("1s")).count(name="windows"),
        "counted": keyed.count(name="counts"),
        "joined": keyed.join(keyed, ttl="1h", name="pairs"),
        "kept": keyed.join(keyed, ttl="1h", how="semi", name="with_match"),
    }
    for name, results in streams.items():
        results.sink(files.jsonl(str(tmp_path / name)), name=name)
    plan = plan_of(job)
    reasons = {each.name: each.row_reason for each in plan.steps if each.sink is not None}
    assert reasons == {
        "aggregated": "it writes the rows that totals gives; put select(...) in front of it for columns",
        "chosen": "",
        "windowed": "it writes the rows that windows gives; put select(...) in front of it for columns",
        "counted": "",
        "joined": "it writes the rows that pairs gives; put select(...) in front of it for columns",
        "kept": "",
    }
