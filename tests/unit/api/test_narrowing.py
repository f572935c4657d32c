"""A source of columns reads what steps use, and skips what filters drop, unless a record of it could fail."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.compute as compute
import pyarrow.parquet
import pytest

from clonos import Sliding, Tag, Tumbling, WatermarkStrategy, col, files
from clonos.agg import count, max_
from clonos.api.columns.narrowing import Narrowing, narrowing_of
from clonos.api.event_time import Timestamps
from clonos.api.graph import JobGraph
from clonos.api.plan.explaining import explained
from clonos.api.stream import Stream
from clonos.core.model.options import Options
from clonos.operators.column_contract import Bound
from tests.unit.operators.driver import Outbox, run
from tests.unit.operators.samples import ColumnsGiven

RECORDS: list[dict[str, Any]] = [
    {"n": number, "text": str(number), "share": number / 4, "at": 1_700_000_000 + number} for number in range(100)
]
LATE: Tag[Any] = Tag("late")
Build = Callable[[Stream[Any]], Stream[Any]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder with one file of ten row groups."""
    path = tmp_path_factory.mktemp("records")
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(RECORDS), path / "a.parquet", row_group_size=10)
    return str(path)


def narrowing(folder: str, build: Build, timestamps: Any = None) -> Narrowing | None:
    """Returns what the source of a job may leave out."""
    graph = JobGraph("job")
    build(graph.source(files.parquet(folder), timestamps=timestamps)).sink(Outbox())
    return narrowing_of(graph.steps[0], graph.steps)


@pytest.mark.parametrize(
    ("build", "columns", "bounds"),
    [
        (lambda s: s.select("n"), ("n",), ()),
        (lambda s: s.filter(col("n") > 7), None, (Bound("n", ">", 7),)),
        (lambda s: s.filter((col("n") > 7) & (col("text") == "9")).select("share"), ("n", "text", "share"), 2),
        (lambda s: s.with_columns(m=col("n") + 1).filter(col("m") > 7).select("m"), ("n",), ()),
        (lambda s: s.rename({"n": "m"}).filter(col("m") <= 7).select("m"), ("n",), (Bound("n", "<=", 7),)),
        (lambda s: s.filter(col("n").is_between(3, 5)).select("n"), ("n",), 2),
        (lambda s: s.filter(col("n").is_in([5, 3, 4])), None, (Bound("n", ">=", 3), Bound("n", "<=", 5))),
        (lambda s: s.drop("text").select("n"), ("n",), ()),
        (lambda s: s.drop("text").map(str), ("n", "share", "at"), ()),
        (lambda s: s.filter(col("n") > 7.5), None, ()),
        (lambda s: s.filter(compute.field("n") > 7).select("n"), ("n",), ()),
        (lambda s: s.filter((col("n") > 7) & (col("text").cast(int) > 1)).select("n"), ("n", "text"), ()),
        (lambda s: s.with_columns(m=col("text").cast(int)).filter(col("n") > 7).select("n"), ("n", "text"), ()),
        (lambda s: s.select("n").union(s.select("share")), ("n", "share"), ()),
        (lambda s: s.filter(col("n") > 7).union(s.filter(col("n") < 3)).select("n"), ("n",), ()),
    ],
    ids=[
        *(
            "select",
            "filter",
            "both",
            "computed",
            "renamed",
            "between",
            "is_in",
            "drop",
            "rest",
            "float",
            "arrow",
            "cast",
        ),
        *("cast before", "two readers", "two filters"),
    ],
)
def test_a_source_reads_what_the_steps_use(folder: str, build: Build, columns: Any, bounds: Any) -> None:
    found = narrowing(folder, build) or Narrowing(None, ())
    assert found.columns == columns
    assert len(found.bounds) == bounds if isinstance(bounds, int) else found.bounds == bounds


@pytest.mark.parametrize(
    "build",
    [
        lambda s: s.map(str),
        lambda s: s.filter(lambda row: row["n"] > 7),
        lambda s: s.with_columns(m=col("n"), text=col("n")),
        lambda s: s.limit(3).filter(col("n") > 7),
        lambda s: s.shuffle().map_batches(lambda batch: batch).filter(col("n") > 7).select("n"),
    ],
    ids=["rows", "function", "all columns", "limit", "batches"],
)
def test_a_source_reads_all_for_steps_that_may_use_all(folder: str, build: Build) -> None:
    assert narrowing(folder, build) is None


def test_a_source_reads_the_column_of_its_timestamps(folder: str) -> None:
    assert narrowing(folder, lambda s: s.select("n"), Timestamps("at")) == Narrowing(("n", "at"), ())


@pytest.mark.parametrize(
    ("build", "columns"),
    [
        (lambda s: s.key_by("text").count(), ("text", "at")),
        (lambda s: s.key_by("text").window(Tumbling("10s")).count(), ("text", "at")),
        (lambda s: s.key_by("text").window(Tumbling("10s")).aggregate(n=count(), most=max_("n")), ("n", "text", "at")),
        (lambda s: s.filter(col("n") > 3).key_by("text").window(Tumbling("10s")).count(), ("n", "text", "at")),
        (lambda s: s.key_by("text").window(Tumbling("10s"), late=Tag("late")).count(), None),
        (lambda s: s.key_by("text").window(Tumbling("10s")).reduce(max), None),
        (lambda s: s.key_by(lambda row: row["text"]).count(), None),
        (lambda s: s.key_by("text").top_k(3, by="n"), None),
        (lambda s: s.key_by("text", "n").count(), ("n", "text", "at")),
    ],
    ids=["count", "window", "aggregates", "filter", "late", "reduce", "function", "top_k", "two"],
)
def test_a_source_reads_what_columnar_aggregates_use(folder: str, build: Build, columns: Any) -> None:
    found = narrowing(folder, build, Timestamps("at"))
    assert (None if found is None else found.columns) == columns


def test_a_narrowed_job_has_the_same_results_and_its_plan_shows_what_it_reads(folder: str) -> None:
    graph = JobGraph("job")
    stream = graph.source(files.parquet(folder)).filter((col("n") > 71) & (col("n") % 2 == 0), name="large")
    stream.select("text", name="chosen").sink(Outbox())
    assert list(run(graph, 1).written.values()) == [[{"text": str(number)} for number in range(72, 100, 2)]]
    text = explained(graph, Options(), 1, "text")
    assert "reads       source: only n, text" in text
    assert "skips       source: what its statistics exclude from n > 71" in text


def test_a_column_that_is_dropped_is_not_read(folder: str) -> None:
    graph = JobGraph("job")
    dropped = graph.source(files.parquet(folder)).drop("text", "share", "at")
    dropped.filter(col("n") > 97).map(lambda row: row).sink(Outbox())
    assert list(run(graph, 1).written.values()) == [[{"n": 98}, {"n": 99}]]
    assert "reads       source: only n" in explained(graph, Options(), 1, "text")


def test_files_that_do_not_exist_yet_are_read_whole(tmp_path: Path) -> None:
    assert narrowing(str(tmp_path / "later"), lambda s: s.filter(col("n") > 7).select("n")) is None


def test_windows_over_a_narrowed_source_give_what_they_give_over_all_columns(folder: str) -> None:
    def results(source: Any) -> list[Any]:
        graph = JobGraph("job")
        stream = graph.source(source, timestamps=Timestamps("at", out_of_order="1s"))
        windows = stream.filter(col("n") > 40).key_by("half").window(Sliding("10s", every="5s"))
        windows.aggregate(n=count(), most=max_("n")).map(lambda each: each).sink(Outbox())
        (rows,) = run(graph, 1).written.values()
        return rows

    path = f"{folder}-halves"
    halves = [{**record, "half": record["n"] % 2} for record in RECORDS]
    Path(path).mkdir()
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(halves), f"{path}/a.parquet", row_group_size=10)
    assert results(files.parquet(path)) == results(ColumnsGiven(halves))
    assert len(results(files.parquet(path))) > 20


def test_a_source_with_timestamps_skips_no_records_because_they_move_event_time(folder: str) -> None:
    found = narrowing(folder, lambda s: s.filter(col("n") > 7).select("n", "at"), Timestamps("at"))
    assert found == Narrowing(("n", "at"), ())


def counted(stream: Any) -> Any:
    return stream.key_by("n").count(name="counted")


def counted_in_windows(stream: Any) -> Any:
    return stream.key_by("n").window(Tumbling("5s")).count(name="counted")


def counted_with_late(stream: Any) -> Any:
    windows = stream.key_by("n").window(Tumbling("5s"), late=LATE).count(name="counted")
    windows.side_output(LATE).sink(Outbox(), name="late")
    return windows


@pytest.mark.parametrize(
    ("build", "timestamps", "columns"),
    [
        (counted, None, ("n",)),
        (lambda s: counted(s.filter(col("share") > 3)), None, ("n", "share")),
        (counted_in_windows, "at", ("n", "at")),
        (counted_with_late, "at", None),
        (lambda s: s.key_by(lambda record: record["n"]).count(name="counted"), None, None),
    ],
)
def test_a_count_by_a_column_uses_no_other(
    folder: str, build: Any, timestamps: Any, columns: tuple[str, ...] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = narrowing(folder, build, timestamps)
    assert (None if found is None else found.columns) == columns
    graphs = [JobGraph("job"), JobGraph("job")]
    for graph in graphs:
        build(graph.source(files.parquet(folder), timestamps=timestamps)).sink(Outbox())
    narrowed = run(graphs[0], parallelism=1).written
    monkeypatch.setattr("clonos.api.plan.compiling.narrowed_sources", lambda steps, ordered: {})
    assert run(graphs[1], parallelism=1).written == narrowed
    assert any(narrowed.values())


class Own(WatermarkStrategy):
    """A strategy that looks at a column."""

    def watermark(self, before_ns: int | None, records: Any, timestamps_ns: Any) -> int | None:
        return max(records.column("share").to_pylist()) and timestamps_ns[-1]  # type: ignore[no-any-return]


def test_a_strategy_of_the_user_gets_all_columns(folder: str) -> None:
    assert narrowing(folder, lambda s: s.select("n", "at"), "at") == Narrowing(("n", "at"), ())
    times = Timestamps("at", watermarks=Own())
    assert narrowing(folder, lambda s: s.select("n", "at"), times) is None
