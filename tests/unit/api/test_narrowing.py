"""What a source need not read: columns that no step uses, and rows that no filter lets pass; results do not change."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from clonos import PunctuatedWatermarks, Tag, Timestamps, Tumbling, col, lit
from clonos.agg import count, sum_
from clonos.api.graph import JobGraph
from clonos.api.narrowing import narrowed_source
from clonos.connectors import files
from clonos.core.model.options import Options
from clonos.expressions.pushdown import Comparison
from tests.unit.operators.driver import Outbox, run

NOON = 1_767_268_800
ROWS = [
    {"n": number, "word": f"w{number % 3}", "x": number / 2, "at": NOON + number, "flag": number % 2 == 0}
    for number in range(40)
]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """40 rows in row groups of 5."""
    found = tmp_path_factory.mktemp("parquet") / "in.parquet"
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(ROWS), found, row_group_size=5)
    return found


LATE: Tag[Any] = Tag("late")


def late_of(stream: Any) -> None:
    windows = stream.key_by("word").window(Tumbling("5s"), late=LATE).count(name="counted")
    windows.sink(Outbox(), name="out")
    windows.side_output(LATE).sink(Outbox(), name="late")


def two_readers(stream: Any) -> None:
    stream.filter(col("n") > 30).select("n").sink(Outbox(), name="out")
    stream.filter(col("n") < 5).select("x").sink(Outbox(), name="out2")


def with_side_reader(stream: Any) -> None:
    stream.select("n").sink(Outbox(), name="out")
    stream.map(lambda row: row["x"]).sink(Outbox(), name="out2")


Build = Callable[[Any], Any]

CASES: list[tuple[str, Build, set[str] | None, list[Comparison]]] = [
    ("rows", lambda s: s.map(lambda row: row["n"]).sink(Outbox(), name="out"), None, []),
    ("sink", lambda s: s.sink(Outbox(), name="out"), None, []),
    ("select", lambda s: s.select("n", y=col("x") * 2).sink(Outbox(), name="out"), {"n", "x"}, []),
    ("nothing", lambda s: s.select(one=lit(1)).sink(Outbox(), name="out"), set(), []),
    ("with_columns", lambda s: s.with_columns(y=col("x") * 2).sink(Outbox(), name="out"), None, []),
    (
        "with_columns, select",
        lambda s: s.with_columns(y=col("x") * 2).select("y").sink(Outbox(), name="out"),
        {"x"},
        [],
    ),
    ("drop", lambda s: s.drop("n").select("x").sink(Outbox(), name="out"), {"n", "x"}, []),
    (
        "filter",
        lambda s: s.filter((col("n") > 20) & (col("word") == "w1")).select("x").sink(Outbox(), name="out"),
        {"n", "word", "x"},
        [Comparison("n", ">", 20), Comparison("word", "==", "w1")],
    ),
    (
        "filters",
        lambda s: s.filter(col("n") > 20).filter(col("n") < 30).sink(Outbox(), name="out"),
        None,
        [Comparison("n", ">", 20), Comparison("n", "<", 30)],
    ),
    (
        "part of a condition",
        lambda s: s.filter((col("n") > 20) & col("word").str.starts_with("w")).sink(Outbox(), name="out"),
        None,
        [Comparison("n", ">", 20)],
    ),
    (
        "a cast may fail for a record that is not read",
        lambda s: s.filter((col("n") > 20) & (col("word").str.slice(1).cast(int) > 0)).sink(Outbox(), name="out"),
        None,
        [],
    ),
    (
        "a filter behind a computed column",
        lambda s: s.with_columns(n=col("n") % 7).filter(col("n") > 3).select("n").sink(Outbox(), name="out"),
        {"n"},
        [],
    ),
    ("two readers", two_readers, {"n", "x"}, []),
    ("a reader of rows beside", with_side_reader, None, []),
    ("count", lambda s: s.key_by("word").count(name="counted").sink(Outbox(), name="out"), {"word"}, []),
    (
        "filter, count",
        lambda s: s.filter(col("n") > 20).key_by("word").count(name="counted").sink(Outbox(), name="out"),
        {"n", "word"},
        [Comparison("n", ">", 20)],
    ),
    (
        "count by a function",
        lambda s: s.key_by(lambda row: row["n"] % 2).count(name="c").sink(Outbox(), name="out"),
        None,
        [],
    ),
    ("limit", lambda s: s.limit(7).filter(col("n") > 3).select("x").sink(Outbox(), name="out"), {"n", "x"}, []),
]


def graph_of(build: Build, path: Path, **options: Any) -> JobGraph:
    graph = JobGraph("job")
    build(graph.source(files.parquet(path), name="read", **options))
    return graph


def checked(graph: JobGraph, used: set[str] | None, comparisons: list[Comparison]) -> None:
    source = narrowed_source(graph.steps[0], graph.steps, {})
    assert source.used == (None if used is None else frozenset(used))
    assert list(source.comparisons) == comparisons


@pytest.mark.parametrize(
    ("build", "used", "comparisons"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_a_source_reads_what_steps_use_and_results_do_not_change(
    path: Path, build: Build, used: set[str] | None, comparisons: list[Comparison], monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = graph_of(build, path)
    checked(graph, used, comparisons)
    narrowed = run(graph, parallelism=1).written
    monkeypatch.setattr("clonos.api.plan.compiling.narrowed_source", lambda step, steps, sources: step.source)
    assert run(graph_of(build, path), parallelism=1).written == narrowed


def window_count(stream: Any) -> None:
    stream.key_by("word").window(Tumbling("5s")).count(name="counted").sink(Outbox(), name="out")


def window_sum(stream: Any) -> None:
    windows = stream.key_by("word").window(Tumbling("5s"))
    windows.aggregate(n=count(), total=sum_("x"), name="summed").sink(Outbox(), name="out")


@pytest.mark.parametrize(
    ("build", "used"),
    [
        (window_count, {"word", "at"}),
        (late_of, None),
        (window_sum, None),
        (lambda s: window_count(s.filter(col("n") > 20)), {"n", "word", "at"}),
        (lambda s: window_count(s.with_timestamps(Timestamps("x", unit="s"))), {"word", "at", "x"}),
    ],
)
def test_a_source_with_timestamps_reads_their_column_and_skips_no_rows(
    path: Path, build: Build, used: set[str] | None
) -> None:
    checked(graph_of(build, path, timestamps="at"), used, [])


def test_a_strategy_of_watermarks_that_sees_records_gets_them_whole(path: Path) -> None:
    marks = Timestamps("at", watermarks=PunctuatedWatermarks(lambda record, at: None))
    checked(graph_of(window_count, path, timestamps=marks), None, [])


def test_a_compiled_job_reads_the_narrowed_source(path: Path) -> None:
    graph = graph_of(lambda s: s.select("n").sink(Outbox(), name="out"), path)
    image = graph.compile(Options(), parallelism=1)
    makers = [node.make for each in image.vertices for node in each.nodes]
    sources = [argument for make in makers for argument in getattr(make, "args", ()) if hasattr(argument, "used")]
    assert [source.used for source in sources] == [frozenset({"n"})]
