"""Frames of windows: what functions get and give, in columns and in rows, and that they equal groups of pandas."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Annotated, Any, NamedTuple, TypedDict

import pandas
import polars
import pyarrow
import pytest

from clonos import register
from clonos.api.event_time import Timestamps
from clonos.api.graph import JobGraph
from clonos.api.graph_errors import InvalidJob
from clonos.api.plan.explaining import explain_graph
from clonos.api.windowed import WindowedStream
from clonos.api.windows import CountSliding, CountTumbling, Session, Sliding, Tumbling, WindowKind
from clonos.core.model.options import Options
from clonos.core.ports.operator_chain import StepFailed
from clonos.operators.columnar.map_frames import ListFrames, NoColumns, with_joined
from clonos.operators.steps.data_frames import PANDAS, FrameNotAnnotated, NoFrame, as_batch
from clonos.operators.tags import Tag
from clonos.operators.user_errors import RoutedError
from clonos.operators.windows.window_results import Window
from tests.unit.operators.driver import Given, Outbox, run
from tests.unit.operators.samples import ColumnsGiven

BEGIN = datetime(2023, 1, 1, tzinfo=UTC)
SOURCES = [pytest.param(ColumnsGiven, id="columns"), pytest.param(Given, id="rows")]


def at(seconds: float) -> datetime:
    return BEGIN + timedelta(seconds=seconds)


READINGS = [
    {"key": "a", "size": 1, "at": at(0)},
    {"key": "b", "size": 2, "at": at(1)},
    {"key": "a", "size": 3, "at": at(2)},
    {"key": None, "size": 4, "at": at(3)},
    {"key": "a", "size": 5, "at": at(7)},
]


def windows_of(
    graph: JobGraph, records: list[Any], kind: WindowKind | None = None, source: Any = Given
) -> WindowedStream[Any, Any]:
    """The windows of records by their key, five seconds without another kind."""
    stream = graph.source(source(records), timestamps=Timestamps("at", out_of_order="1h"))
    return stream.key_by("key").window(kind or Tumbling("5s"))


def written_by(graph: JobGraph) -> dict[str, list[Any]]:
    """What the sinks of a job get, by their names; those in the vertex of other steps have no name."""
    found: dict[str, list[Any]] = {"out": [], "errors": [], "late": []}
    for vertex, rows in run(graph, parallelism=1).written.items():
        for row in rows:
            found["errors" if isinstance(row, RoutedError) else "late" if vertex == "late" else "out"].append(row)
    return found


def results_of(
    records: list[Any], function: Callable[..., Any], kind: WindowKind | None = None, source: Any = Given
) -> list[Any]:
    """What a function gives for the windows of records."""
    graph = JobGraph("job")
    windows_of(graph, records, kind, source).map_frames(function, name="frames").sink(Outbox())
    return written_by(graph)["out"]


def of_pandas(frame: pandas.DataFrame) -> pandas.DataFrame:
    return frame.assign(total=frame["size"].cumsum())


def of_polars(frame: polars.DataFrame) -> polars.DataFrame:
    return frame.with_columns(total=polars.col("size").cum_sum())


def of_table(table: pyarrow.Table) -> pyarrow.Table:
    return table.append_column("total", pyarrow.compute.cumulative_sum(table.column("size")))


def of_batch(batch: Any) -> Any:
    return batch.append_column("total", pyarrow.compute.cumulative_sum(batch.column("size")))


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("function", [of_pandas, of_polars, of_table, of_batch])
def test_a_function_gets_the_records_of_each_window_of_a_key(function: Any, source: Any) -> None:
    found = results_of(READINGS, function, source=source)
    assert [(row["key"], row["size"], row["total"]) for row in found] == [
        *(("a", 1, 1), ("a", 3, 4)),
        ("b", 2, 2),
        (None, 4, 4),
        ("a", 5, 5),
    ]
    assert [row["at"] for row in found if row["key"] == "a"] == [at(0), at(2), at(7)]


@pytest.mark.parametrize("source", SOURCES)
def test_a_function_of_more_parameters_gets_the_key_and_the_window(source: Any) -> None:
    def of_two(key: Any, frame: pandas.DataFrame) -> pandas.DataFrame:
        return pandas.DataFrame({"found": [f"{key} {len(frame)}"]})

    def of_three(key: Any, window: Window, frame: polars.DataFrame, unit: float = 1.0) -> polars.DataFrame:
        seconds = (window.end - window.start) / timedelta(seconds=unit)
        return polars.DataFrame({"found": [f"{key} {len(frame)} {seconds}"]})

    first = [row["found"] for row in results_of(READINGS, of_two, source=source)]
    second = [row["found"] for row in results_of(READINGS, of_three, source=source)]
    assert first == ["a 2", "b 1", "None 1", "a 1"]
    assert second == ["a 2 5.0", "b 1 5.0", "None 1 5.0", "a 1 5.0"]


def test_windows_without_a_key_have_the_key_none() -> None:
    def count(key: Any, frame: pandas.DataFrame) -> pandas.DataFrame:
        return pandas.DataFrame({"key": [str(key)], "n": [len(frame)]})

    source: Any
    for source in (Given, ColumnsGiven):
        graph = JobGraph("job")
        stream = graph.source(source(READINGS), timestamps="at")
        stream.window(Tumbling("5s")).map_frames(count).sink(Outbox())
        assert written_by(graph)["out"] == [{"key": "None", "n": 4}, {"key": "None", "n": 1}]


@pytest.mark.parametrize("kind", [Sliding("4s", every="2s"), Session("2s"), CountTumbling(2), CountSliding(2, every=1)])
def test_each_kind_of_window_gives_frames_of_what_apply_gets(kind: WindowKind) -> None:
    def sizes(key: Any, window: Window, frame: polars.DataFrame) -> polars.DataFrame:
        return polars.DataFrame({"found": [f"{key} {window} {frame['size'].to_list()}"]})

    def applied(key: Any, window: Window, values: list[Any]) -> list[Any]:
        return [f"{key} {window} {[each['size'] for each in values]}"]

    for source in (Given, ColumnsGiven):
        found = [row["found"] for row in results_of(READINGS, sizes, kind, source)]
        graph = JobGraph("job")
        windows_of(graph, READINGS, kind, source).apply(applied).sink(Outbox())
        assert found == written_by(graph)["out"]


@pytest.mark.parametrize("source", SOURCES)
def test_random_frames_equal_the_groups_of_pandas(source: Any) -> None:
    rng = Random(5)
    records = [
        {
            "key": rng.choice(("a", "b", "c", None)),
            "size": rng.choice((None, 0, 1, 1 << 60, -5)),
            "price": rng.choice((None, 0.5, -1.0, float("inf"))),
            "word": rng.choice((None, "", "x", "ä")),
            "is_new": rng.choice((None, True, False)),
            "at": at(place + rng.random()),
        }
        for place in range(400)
    ]

    def smoothed(frame: pandas.DataFrame) -> pandas.DataFrame:
        mean = frame["price"].rolling(3, min_periods=1).mean()
        return frame.assign(before=frame["price"].shift(1), mean=mean, n=len(frame))

    found = results_of(records, smoothed, Tumbling("10s"), source)
    expected: list[Any] = []
    frame = pyarrow.Table.from_pylist(records).to_pandas()
    frame["window"] = frame["at"].dt.floor("10s")
    for _, group in frame.groupby(["window", "key"], dropna=False, sort=False):
        expected += pyarrow.Table.from_pandas(smoothed(group).drop(columns="window"), preserve_index=False).to_pylist()
    shown = ("at", "price", "word", "is_new", "before", "mean", "n")
    assert sorted(repr([row[name] for name in shown]) for row in found) == sorted(
        repr([None if row[name] != row[name] else row[name] for name in shown]) for row in expected
    )


@pytest.mark.parametrize("source", SOURCES)
def test_types_of_a_frame_do_not_depend_on_other_frames(source: Any) -> None:
    """The frame of ``b`` has a null, for which pandas has another type of integers."""
    records = [{"key": key, "size": size, "at": at(0)} for key, size in (("a", 1), ("b", None), ("b", 2))]

    def types(key: Any, frame: pandas.DataFrame) -> pandas.DataFrame:
        return pandas.DataFrame({"key": [key], "type": [str(frame["size"].dtype)]})

    found = results_of(records, types, source=source)
    assert found == [{"key": "a", "type": "int64"}, {"key": "b", "type": "Int64"}]


@pytest.mark.parametrize("source", SOURCES)
def test_a_function_may_change_its_frame_and_finds_rows_by_number(source: Any) -> None:
    def changed(frame: pandas.DataFrame) -> pandas.DataFrame:
        frame["size"] = frame["size"] * 10
        frame["first"] = frame.loc[0, "size"]
        return frame

    found = results_of(READINGS, changed, source=source)
    assert [(row["size"], row["first"]) for row in found] == [(10, 10), (30, 10), (20, 20), (40, 40), (50, 50)]


@pytest.mark.parametrize("source", SOURCES)
def test_a_result_may_have_any_rows_and_columns(source: Any) -> None:
    def some(key: Any, frame: pandas.DataFrame) -> pandas.DataFrame:
        if key == "a":
            return pandas.DataFrame()
        return pandas.DataFrame({"n": range(3)}) if key == "b" else pandas.DataFrame({"text": ["none"]})

    found = results_of(READINGS, some, source=source)
    assert found == [{"n": 0}, {"n": 1}, {"n": 2}, {"text": "none"}]


@pytest.mark.parametrize("source", SOURCES)
def test_the_index_of_groups_becomes_columns(source: Any) -> None:
    def totals(frame: pandas.DataFrame) -> pandas.DataFrame:
        return frame.groupby("key", dropna=False)[["size"]].sum()

    found = results_of(READINGS, totals, source=source)
    assert [(row["key"], row["size"]) for row in found] == [("a", 4), ("b", 2), (None, 4), ("a", 5)]


@pytest.mark.parametrize("source", SOURCES)
def test_a_window_that_raises_goes_to_the_error_output_with_its_records(source: Any) -> None:
    def refuse(key: Any, frame: pandas.DataFrame) -> pandas.DataFrame:
        if key == "b":
            raise ValueError("no b")
        return frame if key == "a" else pandas.DataFrame({"mixed": [1, "x"]})  # no column of Arrow

    graph = JobGraph("job", errors=Outbox())
    windows_of(graph, READINGS, source=source).map_frames(refuse, name="frames").sink(Outbox())
    written = written_by(graph)
    assert [row["size"] for row in written["out"]] == [1, 3, 5]
    assert [(each.step, each.record.key, each.record.value) for each in written["errors"]] == [
        ("frames", "b", {"records": [READINGS[1]]}),
        ("frames", None, {"records": [READINGS[3]]}),
    ]
    assert written["errors"][0].error == "ValueError: no b"
    with pytest.raises(StepFailed, match="frames"):
        results_of(READINGS, refuse, source=source)


@pytest.mark.parametrize(
    ("function", "error"),
    [(lambda batch: batch["size"].mean(), FrameNotAnnotated), (len, NoFrame)],
    ids=["batch", "int"],
)
def test_a_wrong_result_reports_what_to_return(function: Callable[..., Any], error: type) -> None:
    with pytest.raises(StepFailed) as caught:
        results_of(READINGS, function, source=ColumnsGiven)
    assert isinstance(caught.value.__cause__, error)


@register
class Pair(NamedTuple):
    key: str
    at: datetime


@register
@dataclass
class Reading:
    key: str
    at: datetime


def test_rows_with_names_of_fields_make_columns() -> None:
    def plain(batch: Any) -> Any:
        return batch

    for record in (Pair("a", at(0)), Reading("a", at(0))):
        assert results_of([record], plain) == [{"key": "a", "at": at(0)}]
    mixed = [{"key": "a", "at": at(0)}, {"key": "a", "at": at(1), "extra": 1}]
    assert [row["extra"] for row in results_of(mixed, plain)] == [None, 1]
    graph = JobGraph("job")
    graph.source(Given([1, 2])).window(CountTumbling(2)).map_frames(plain).sink(Outbox())
    with pytest.raises(StepFailed) as caught:
        written_by(graph)
    assert isinstance(caught.value.__cause__, NoColumns)


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ([1, "x"], "the field 'size' of the records of a window makes no column of their frame: Could not convert 'x'"),
        ([1, 2**64], "'size' of .*: Python int too large .* Give all records a value of one type, and Decimal or str"),
        ([2**53 + 1, 0.5], "'size' of .*: Integer value 9007199254740993 is outside of the range exactly"),
        ([True, 1], "'size' of .*: Could not convert 1 with type int"),
    ],
)
def test_a_field_that_makes_no_column_is_named_in_the_error_of_its_window(values: list[Any], problem: str) -> None:
    graph = JobGraph("job", errors=Outbox())
    records = [{"key": "a", "at": at(0), "size": value} for value in values]
    windows_of(graph, [*records, {"key": "b", "at": at(0), "size": 3}]).map_frames(of_pandas).sink(Outbox())
    found = written_by(graph)
    assert [row["total"] for row in found["out"]] == [3]
    (error,) = found["errors"]
    assert re.match(f"FieldNotColumn: .*{problem}", error.error)
    assert error.record.value["records"] == records


def test_a_field_whose_name_is_no_text_is_named() -> None:
    with pytest.raises(StepFailed) as caught:
        results_of([{"key": "a", "at": at(0), 7: 1}], of_batch)
    assert "the field '7' of the records" in str(caught.value.__cause__)
    assert "its name is of the type int. Give it a str as name" in str(caught.value.__cause__)


class Total(TypedDict):
    key: str
    total: float


@pytest.mark.parametrize("source", SOURCES)
def test_declared_columns_are_those_of_the_results(source: Any) -> None:
    def total(key: Any, frame: pandas.DataFrame) -> Annotated[pandas.DataFrame, Total]:
        size = "many" if key == "b" else int(frame["size"].sum())
        return pandas.DataFrame({"other": [1], "total": [size], "key": [key]})

    graph = JobGraph("job", errors=Outbox())
    windows_of(graph, READINGS, source=source).map_frames(total).sink(Outbox())
    step = next(step for step in explain_graph(graph, Options(), 1).steps if step.name == "map_frames")
    assert step.schema[:2] == ("key: string", "total: double")
    written = written_by(graph)
    assert written["out"] == [{"key": key, "total": size} for key, size in (("a", 4.0), (None, 4.0), ("a", 5.0))]
    assert [each.record for each in written["errors"]] == [{"other": 1, "total": "many", "key": "b"}]
    with pytest.raises(InvalidJob, match="which are none"):
        windows_of(graph, READINGS).map_frames(total, schema=5)


@pytest.mark.parametrize("source", SOURCES)
def test_results_have_the_time_of_their_window_and_late_records_leave_beside(source: Any) -> None:
    late = Tag[Any]("late")
    records = [*READINGS, {"key": "a", "size": 100, "at": at(20)}, {"key": "b", "size": 7, "at": at(1)}]
    graph = JobGraph("job")
    stream = graph.source(source(records), timestamps="at")
    frames = stream.key_by("key").window(Tumbling("5s"), late=late).map_frames(of_pandas)
    frames.side_output(late).sink(Outbox(), name="late", parallelism=2)
    frames.key_by("key").window(Tumbling("10s")).count().sink(Outbox())
    written = written_by(graph)
    assert [row["size"] for row in written["late"]] == [7]
    assert [(each.key, each.start, each.value) for each in written["out"]] == [
        *(("a", at(0), 3), ("b", at(0), 1), (None, at(0), 1)),
        ("a", at(20), 1),
    ]


@pytest.mark.parametrize(
    ("own", "other"), [([1], [1.5]), ([{"a": 1}], [{"b": 2}]), ([[1]], [[1.5]]), ([None], ["a"])], ids=str
)
def test_results_of_a_key_do_not_depend_on_other_keys(own: list[Any], other: list[Any]) -> None:
    frames = [pandas.DataFrame({"x": pandas.Series(values, dtype=object)}) for values in (own, other)]
    alone, *_ = map(as_batch, with_joined(frames[:1]))
    beside, *_ = map(as_batch, with_joined(frames))
    assert beside.equals(alone)


@pytest.mark.parametrize(
    ("own", "other"), [({"c": [2**53 + 1]}, {"c": [None]}), ({"c": {"x": 1}}, {"c": {"x": None}})], ids=str
)
def test_a_frame_of_nested_values_does_not_depend_on_other_keys(own: dict[str, Any], other: dict[str, Any]) -> None:
    alone, beside = (ListFrames(pyarrow.array(lists), PANDAS).frame(0) for lists in ([[own]], [[own], [other]]))
    assert repr(beside["c"].tolist()) == repr(alone["c"].tolist())
