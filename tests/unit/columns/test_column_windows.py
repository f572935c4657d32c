"""Windows over columns give what those over rows do: same input, same results in the same order, at any restore."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clonos.agg import count, first, last, max_, mean, min_, sum_
from clonos.api.event_time import Timestamps
from clonos.api.graph import JobGraph
from clonos.api.windows import Sliding, Tumbling
from clonos.operators.columnar.column_windows import ColumnWindows
from clonos.operators.columnar.windows_by_type import ColumnTypeChanged
from clonos.operators.tags import Tag
from clonos.operators.windows.pane_windows import PaneWindows
from tests.unit.operators.driver import START_NS, Given, Outbox, Run, run
from tests.unit.operators.restoring import actions, check_restores

START = START_NS // 1_000_000_000
SCHEMA = pa.schema([("key", pa.string()), ("at", pa.int64()), ("x", pa.int64()), ("y", pa.float64())])
LATE = Tag[Any]("late")

KINDS = (
    Tumbling("5s"),
    Tumbling("3s", offset="1s"),
    Sliding("6s", every="2s"),
    Sliding("7s", every="3s"),
    Sliding("4s", every="10s"),
    Tumbling("1d", timezone="Europe/Berlin"),
)

records = st.lists(
    st.fixed_dictionaries(
        {
            "key": st.sampled_from(["a", "b", "c", None]),
            "at": st.integers(START, START + 30),
            "x": st.none() | st.integers(-5, 5),
            "y": st.none() | st.integers(-5, 5).map(float),
        }
    ),
    max_size=40,
)


class ColumnsOf:
    """Dicts, read as columns of one schema: task i of n has every n-th."""

    is_columnar = True

    def __init__(self, records: Iterable[dict[str, Any]], schema: Any = SCHEMA) -> None:
        self.given, self.schema = Given(records), schema

    def splits(self, parallelism: int) -> list[bytes]:
        return self.given.splits(parallelism)

    def reader(self) -> ColumnsReader:
        return ColumnsReader(self.given.reader(), self.schema)


class ColumnsReader:
    """Reader of columns."""

    def __init__(self, rows: Any, schema: Any) -> None:
        self.rows, self.schema = rows, schema
        self.open, self.mark, self.close = rows.open, rows.mark, rows.close

    def read(self, records_max: int) -> Any:
        rows = self.rows.read(records_max)
        return None if rows is None else pa.RecordBatch.from_pylist(rows, self.schema)


def aggregates() -> dict[str, Any]:
    """One of each kind that columns have."""
    return {
        "n": count(),
        "total": sum_("x"),
        "mean": mean("y"),
        "least": min_("x"),
        "most": max_("y"),
        "first": first("x"),
        "last": last("y"),
    }


def windowed(graph: JobGraph, source: Any, kind: Any, *, is_event_time: bool = True) -> None:
    """Adds the job: aggregates of each window, and the late records."""
    timestamps: Any = Timestamps("at", out_of_order="4s", watermark_every="1s", future_max=None)
    stream = graph.source(source, timestamps=timestamps if is_event_time else None)
    windows = stream.key_by("key").window(kind, **({"late": LATE} if is_event_time else {}))
    results = windows.aggregate(**aggregates(), name="totals")
    results.sink(Outbox(), name="out")
    if is_event_time:
        results.side_output(LATE).sink(Outbox(), name="late")


@settings(max_examples=60, deadline=None)
@given(records, st.sampled_from(KINDS), st.integers(1, 2), st.integers(1, 9))
def test_windows_over_columns_give_what_windows_over_rows_do(
    rows: list[dict[str, Any]], kind: Any, parallelism: int, records_max: int
) -> None:
    found = []
    for source in (Given(rows), ColumnsOf(rows)):
        graph = JobGraph("job")
        windowed(graph, source, kind)
        found.append(run(graph, parallelism, records_max).written)
    assert found[1] == found[0]


@settings(max_examples=40, deadline=None)
@given(records, st.sampled_from(KINDS), actions, st.integers(1, 2), st.integers(1, 5), st.booleans())
def test_windows_over_columns_restored_at_any_barrier_give_the_same(
    rows: list[dict[str, Any]], kind: Any, actions: list[str], parallelism: int, records_max: int, is_event_time: bool
) -> None:
    def build(graph: JobGraph, given: list[Any]) -> None:
        windowed(graph, ColumnsOf(given), kind, is_event_time=is_event_time)

    check_restores(build, rows, actions, parallelism, records_max)


def played(build: Callable[[JobGraph], Any], records_max: int = 3) -> dict[str, list[Any]]:
    graph = JobGraph("job")
    build(graph)
    return run(graph, 1, records_max).written


@pytest.mark.parametrize("is_column", [True, False])
def test_windows_by_the_clock_over_columns_give_what_those_over_rows_do(is_column: bool) -> None:
    rows = [{"key": key, "at": START, "x": 1, "y": 0.5} for key in "abacab"]
    graph = JobGraph("job")
    windowed(graph, ColumnsOf(rows) if is_column else Given(rows), Tumbling("5s"), is_event_time=False)
    from clonos.core.model.options import Options

    running = Run(graph.compile(Options(), parallelism=1))
    while running.read(2):
        running.drain()
        running.pass_time(3)
    running.finish()
    (written,) = running.written.values()
    assert [(row.key, row.value["n"], row.start.second % 5) for row in written] == [
        ("a", 2, 0),
        ("b", 1, 0),
        ("c", 1, 0),
        ("a", 1, 0),
        ("b", 1, 0),
    ]


def classes_used(rows: list[dict[str, Any]], schema: Any, monkeypatch: pytest.MonkeyPatch, **named: Any) -> set[type]:
    used: set[type] = set()
    for cls in (ColumnWindows, PaneWindows):
        monkeypatch.setattr(cls, "_emit", lambda self, end, emit=cls._emit: (used.add(type(self)), emit(self, end)))

    def build(graph: JobGraph) -> None:
        stream = graph.source(ColumnsOf(rows, schema), timestamps=Timestamps("at", future_max=None))
        stream.key_by("key").window(Tumbling("5s")).aggregate(**named).sink(Outbox())

    assert played(build)
    return used


def test_types_that_have_no_column_of_state_are_aggregated_in_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [{"key": "a", "at": START, "name": "x"}]
    schema = pa.schema([("key", pa.string()), ("at", pa.int64()), ("name", pa.string())])
    assert classes_used(rows, schema, monkeypatch, n=count()) == {ColumnWindows}
    assert classes_used(rows, schema, monkeypatch, n=count(), name=min_("name")) == {PaneWindows}


def test_a_column_that_changes_its_type_is_refused() -> None:
    class Changing(ColumnsReader):
        def read(self, records_max: int) -> Any:
            batch = super().read(1)
            if batch is not None and batch.column("x").to_pylist() == [2]:
                return batch.set_column(2, "x", pa.array([2.0]))
            return batch

    class Source(ColumnsOf):
        def reader(self) -> Any:
            return Changing(self.given.reader(), self.schema)

    rows = [{"key": "a", "at": START, "x": 1, "y": 0.0}, {"key": "a", "at": START, "x": 2, "y": 0.0}]
    with pytest.raises(ColumnTypeChanged, match="the step window_sum gets the column 'x' as double, and it was int64"):
        played(lambda graph: graph.source(Source(rows)).key_by("key").window(Tumbling("5s")).sum("x").sink(Outbox()))


def test_columns_with_timestamps_may_be_keyed_by_a_function() -> None:
    rows = [{"key": key, "at": START + at, "x": 1, "y": 0.0} for at, key in enumerate("abab")]

    def build(graph: JobGraph) -> None:
        stream = graph.source(ColumnsOf(rows), timestamps=Timestamps("at", future_max=None))
        stream.key_by(lambda row: row["key"]).window(Tumbling(timedelta(seconds=100))).count().sink(Outbox())

    (written,) = played(build).values()
    assert [(row.key, row.value) for row in written] == [("a", 2), ("b", 2)]
