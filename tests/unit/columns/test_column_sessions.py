"""Sessions over columns give what those over rows do: same input, same results in the same order, at any restore."""

from __future__ import annotations

from collections import Counter
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clonos import col
from clonos.agg import collect, count, first, last, sum_
from clonos.api.event_time import Timestamps
from clonos.api.graph import JobGraph
from clonos.api.windows import Session, Tumbling
from clonos.operators.kinds.column_sessions import ColumnSessions
from clonos.operators.kinds.object_windows import ObjectSessions, ObjectWindows
from clonos.operators.state import column_spec
from clonos.operators.state.column_spec import ColumnSizes
from clonos.operators.tags import Tag
from clonos.operators.windows.window_results import Window
from tests.unit.columns.test_column_windows import (
    START,
    ColumnsOf,
    Wide,
    WideColumns,
    aggregates,
    disordered,
    in_tenths,
    played,
)
from tests.unit.operators.driver import Given, Outbox, run
from tests.unit.operators.joins.given_sides import ACTIONS, steady_and_troubled

LATE = Tag[Any]("late")
GAPS = st.sampled_from(["1s", "2s", "3s", "10s"])
DISORDERS = st.sampled_from(["1s", "4s", "20s"])
LATE_RULES: Any = st.sampled_from(
    [{}, {"lateness": "3s"}, {"lateness": "20s"}, {"lateness": "5s", "accumulate": False}]
)


def ends(_: None, window: Window, found: list[Any]) -> list[Any]:
    """Lists the results in a window."""
    return [(window.start, result.key, result.end) for result in found]


def sessions(
    graph: JobGraph, source: Any, gap: str, disorder: str = "4s", *, is_followed: bool = False, **rules: Any
) -> None:
    """Adds the job: aggregates of each session, and the late records; ``is_followed``: and windows of the results."""
    timestamps = Timestamps("at", out_of_order=disorder, watermark_every="1s", future_max=None)
    stream = graph.source(source, timestamps=timestamps)
    results = stream.key_by("key").window(Session(gap), late=LATE, **rules).aggregate(**aggregates(), name="totals")
    results.sink(Outbox(), name="out")
    if is_followed:
        results.window(Tumbling("3s")).apply(ends, name="ends", parallelism=1).sink(Outbox(), name="windows")
    results.side_output(LATE).sink(Outbox(), name="late")


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(disordered(), GAPS, DISORDERS, LATE_RULES, st.integers(1, 2), st.integers(1, 60))
def test_sessions_over_columns_give_what_sessions_over_rows_do(
    rows: list[dict[str, Any]], gap: str, disorder: str, rules: Any, parallelism: int, records_max: int
) -> None:
    found = []
    for source in (Wide(rows), WideColumns(rows)):
        graph = JobGraph("job")
        sessions(graph, source, gap, disorder, **rules)
        found.append(run(graph, parallelism, records_max).written)
    assert found[1] == found[0]


@pytest.mark.slow
@settings(max_examples=15, deadline=None)
@given(disordered(), GAPS, LATE_RULES, ACTIONS, st.integers(1, 2), st.integers(1, 30))
def test_sessions_over_columns_restored_at_any_barrier_give_the_same(
    rows: list[dict[str, Any]], gap: str, rules: Any, actions: list[str], parallelism: int, records_max: int
) -> None:
    def build(graph: JobGraph) -> None:
        sessions(graph, WideColumns(in_tenths(rows)), gap, "1s", **rules)

    with patch.object(column_spec, "SIZES", ColumnSizes(compacted_min=2)):
        steady, troubled = steady_and_troubled(build, actions, parallelism, records_max)
    assert troubled == steady


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("aaab"), st.integers(0, 40)), min_size=3, max_size=20), st.integers(2, 20))
def test_first_and_last_values_of_sessions_that_meet_are_those_over_rows(
    records: list[tuple[str, int]], records_max: int
) -> None:
    rows = [{"key": key, "at": START + at, "x": place, "y": 0.5} for place, (key, at) in enumerate(records)]
    found = []
    for source in (Wide(rows), WideColumns(rows)):
        graph = JobGraph("job")
        stream = graph.source(source, timestamps=Timestamps("at", out_of_order="60s", future_max=None))
        values: dict[str, Any] = {"first": first("x"), "last": last("x"), "n": count()}
        stream.key_by("key").window(Session("6s")).aggregate(**values).sink(Outbox())
        found.append(run(graph, 1, records_max).written)
    assert found[1] == found[0]


@pytest.mark.slow
@settings(max_examples=15, deadline=None)
@given(disordered(), GAPS, LATE_RULES, st.integers(1, 60))
def test_windows_in_the_same_task_see_the_results_of_sessions_as_they_see_those_over_rows(
    rows: list[dict[str, Any]], gap: str, rules: Any, records_max: int
) -> None:
    found = []
    for source in (Wide(rows), WideColumns(rows)):
        graph = JobGraph("job")
        sessions(graph, source, gap, "1s", is_followed=True, **rules)
        found.append(run(graph, 1, records_max).written)
    assert found[1] == found[0]


@pytest.mark.parametrize(
    ("window", "named", "is_columnar"),
    [
        (Session("5s"), {"n": count(), "total": sum_("x")}, True),
        (Session("5s"), {"first": first("x"), "last": last("y")}, True),
        (Session("5s"), {"all": collect("x")}, False),
        (Session("5s", max_length="9s"), {"n": count()}, False),
        (Session(lambda row: "5s"), {"n": count()}, False),
        (Session("5s", time="processing"), {"n": count()}, False),
    ],
)
def test_the_sessions_that_columns_have(
    window: Session, named: dict[str, Any], is_columnar: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    used: set[type] = set()
    for cls in (ColumnSessions, ObjectWindows):
        monkeypatch.setattr(cls, "take", _tracking(cls.take, used))
    rows = [{"key": "a", "at": START, "x": 1, "y": 0.5}]

    def build(graph: JobGraph) -> None:
        stream = graph.source(ColumnsOf(rows), timestamps=Timestamps("at", future_max=None))
        stream.key_by("key").window(window).aggregate(**named).sink(Outbox())

    assert len(*played(build).values()) == 1
    assert used == {ColumnSessions if is_columnar else ObjectSessions}


def _tracking(take: Any, used: set[type]) -> Any:
    def tracked(self: Any, *arguments: Any) -> Any:
        used.add(type(self))
        return take(self, *arguments)

    return tracked


def test_late_records_of_sessions_stay_in_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    used: set[type] = set()
    for cls in (ColumnSessions, ObjectWindows):
        monkeypatch.setattr(cls, "take", _tracking(cls.take, used))
    rows = [{"key": "a", "at": START + at, "x": at, "y": 0.5} for at in (1, 2, 9, 3, 8, 30, 4)]

    def build(graph: JobGraph) -> None:
        stream = graph.source(ColumnsOf(rows), timestamps=Timestamps("at", watermark_every="1s", future_max=None))
        stream.key_by("key").window(Session("2s"), lateness="8s").aggregate(all=sum_("x"), n=count()).sink(Outbox())

    (written,) = played(build, records_max=1).values()
    assert [(row.value["all"], row.value["n"]) for row in written] == [(3, 2), (6, 3), (17, 2), (30, 1)]
    assert used == {ColumnSessions}


LATE_CASES: dict[str, tuple[str, str, list[tuple[str, int]], list[Any]]] = {
    "a further result at the next watermark": (
        *("2s", "8s", [("a", 1), ("c", 9), ("a", 2), ("c", 10), ("a", 3), ("c", 30)]),
        [("a", 1), ("a", 2), ("a", 3), ("c", 2), ("c", 1)],
    ),
    "forgotten when its lateness has passed": (
        *("5s", "1s", [("a", 1), ("b", 6), ("b", 8), ("a", 2)]),
        [("a", 1), ("b", 2)],
    ),
    "no further result of rows that take over": (
        *("2s", "20s", [("a", 1), ("b", 9), ("b", 10), ("b", 11)]),
        [("a", 1), ("b", 3)],
    ),
}


@pytest.mark.parametrize("source", [Given, ColumnsOf])
@pytest.mark.parametrize("case", LATE_CASES)
def test_a_session_takes_late_records_until_its_lateness_has_passed(source: Any, case: str) -> None:
    gap, lateness, records, expected = LATE_CASES[case]

    def build(graph: JobGraph) -> None:
        rows = [{"key": key, "at": START + at, "x": 1, "y": 0.5} for key, at in records]
        stream = graph.source(source(rows), timestamps=Timestamps("at", watermark_every="1s", future_max=None))
        counts = stream.key_by("key").window(Session(gap), lateness=lateness).aggregate(n=count(), total=sum_("x"))
        counts.sink(Outbox())

    (written,) = played(build, records_max=1).values()
    assert [(row.key, row.value["n"]) for row in written] == expected


def test_sessions_by_two_columns_give_what_those_over_rows_do() -> None:
    rows = [{"key": "ab"[at % 2], "at": START + at * (at % 3), "x": at % 4, "y": 0.5} for at in range(20)]
    found = []
    for source in (Wide(rows), WideColumns(rows)):
        graph = JobGraph("job")
        stream = graph.source(source, timestamps=Timestamps("at", out_of_order="60s", future_max=None))
        stream.key_by("key", "x").window(Session("6s")).count().sink(Outbox())
        found.append(run(graph, 1, 7).written)
    assert found[1] == found[0]
    assert len({row.key for row in next(iter(found[0].values()))}) == 4


@pytest.mark.parametrize("is_column", [True, False])
@pytest.mark.parametrize(
    ("before", "lateness", "is_torn"),
    [([4], None, True), ([2], None, True), ([2, 5], None, False), ([4], "3s", True), ([4], "4s", False)],
)
def test_a_session_that_begins_behind_the_watermark_gets_a_warning(
    is_column: bool, before: list[int], lateness: str | None, is_torn: bool, caplog: pytest.LogCaptureFixture
) -> None:
    def rows(times: list[int]) -> list[dict[str, Any]]:
        return [{"key": "a", "at": START + at, "x": 1, "y": 0.5} for at in times]

    def build(graph: JobGraph) -> None:
        given = [*rows(before), {"key": "b", "at": START + 7, "x": 1, "y": 0.5}, *rows([3])]
        stream = graph.source((ColumnsOf if is_column else Given)(given), timestamps=Timestamps("at", future_max=None))
        stream.key_by("key").window(Session("5s"), lateness=lateness).count(name="visits").sink(Outbox())

    assert played(build, records_max=1)
    assert ("the step visits began a session at 2023-11-14T22:13:23+00:00" in caplog.text) == is_torn


def test_sessions_over_columns_stay_in_columns() -> None:
    rows = [{"key": key, "at": START + at, "x": at, "y": 0.5} for at, key in enumerate("aabab")]

    def build(graph: JobGraph) -> None:
        stream = graph.source(ColumnsOf(rows), timestamps=Timestamps("at", future_max=None))
        sums = stream.key_by("key").window(Session("2s")).aggregate(n=count(), total=sum_("x"))
        sums.filter(col("n") > 1).select("key", "start", "end", "total").sink(Outbox())

    (written,) = played(build).values()
    second = [
        (row["key"], int(row["start"].timestamp()) - START, int(row["end"].timestamp()) - START) for row in written
    ]
    assert second == [("a", 0, 3)]
    assert [row["total"] for row in written] == [1]


@pytest.mark.parametrize("key", [pa.nulls(3), pa.array(["u", "v", "u"]).dictionary_encode()])
@pytest.mark.parametrize("window", [Session("5s"), Tumbling("5s")])
def test_keys_may_be_null_and_of_a_dictionary(key: Any, window: Any) -> None:
    batch = pa.record_batch({"key": key, "at": pa.array([START] * 3)})

    def build(graph: JobGraph) -> None:
        stream = graph.source(ColumnsOf([{"n": 1}], pa.schema([("n", pa.int64())])))
        timed = stream.map_batches(lambda _: batch).with_timestamps(Timestamps("at", future_max=None))
        timed.key_by("key").window(window).count().sink(Outbox())

    (written,) = played(build).values()
    assert Counter({row.key: row.value for row in written}) == Counter(key.to_pylist())
