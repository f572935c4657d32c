"""Windows over columns give what those over rows do: same input, same results in the same order, at any restore."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import timedelta
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clonos import col
from clonos.agg import count, first, last, max_, mean, min_, stddev, sum_, variance
from clonos.api.event_time import Timestamps
from clonos.api.graph import JobGraph
from clonos.api.graph_errors import ColumnsNeeded
from clonos.api.windows import Cumulative, Session, Sliding, Tumbling
from clonos.core.model.options import Options
from clonos.operators.columnar.window_columns import WindowColumns
from clonos.operators.kinds.column_panes import ColumnPanes
from clonos.operators.kinds.object_panes import ObjectPanes
from clonos.operators.tags import Tag
from tests.unit.operators.driver import START_NS, Given, GivenReader, Outbox, Run, run
from tests.unit.operators.joins.given_sides import ACTIONS, steady_and_troubled

START = START_NS // 1_000_000_000
SCHEMA = pa.schema([("key", pa.string()), ("at", pa.int64()), ("x", pa.int64()), ("y", pa.float64())])
LATE = Tag[Any]("late")

KINDS = (
    Tumbling("5s"),
    Tumbling("3s", offset="1s"),
    Sliding("6s", every="2s"),
    Sliding("7s", every="3s"),
    Cumulative("6s", every="2s"),
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


@st.composite
def disordered(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Draws records whose times rise, with disorder, so that windows begin and end, and some records are late."""
    rng = draw(st.randoms(use_true_random=True))
    length, seconds, disorder = rng.randint(1, 120), rng.choice((5, 40, 200)), rng.choice((0, 3, 10, 60))
    return records_of(rng, length, seconds, disorder)


def records_of(rng: Random, length: int, seconds: int, disorder: int) -> list[dict[str, Any]]:
    """Makes records of some seconds, each at most ``disorder`` seconds late."""
    keys = [None, "a", "b", "c", "d", "e", "f", "g"][: rng.choice((1, 3, 8))]
    found = []
    for place in range(length):
        at = max(0, place * seconds // length - rng.randint(0, disorder))
        x, y = (rng.choice([None, *range(-5, 6)]) for _ in "xy")
        found.append({"key": rng.choice(keys), "at": START + at, "x": x, "y": None if y is None else float(y)})
    return found


class ColumnsOf:
    """Dicts, read as columns of one schema: task i of n has every n-th."""

    is_columnar = True

    def __init__(self, records: Iterable[dict[str, Any]], schema: Any = SCHEMA) -> None:
        self.given, self.schema = Given(records), schema

    def splits(self, parallelism: int) -> list[bytes]:
        return self.given.splits(parallelism)

    def reader(self) -> ColumnsReader:
        return ColumnsReader(self.given.reader(), self.schema)

    def column_schema(self) -> Any:
        return self.schema


class UnknownColumns(ColumnsOf):
    """The same with columns that the plan does not know."""

    def column_schema(self) -> Any:
        return None


class ColumnsReader:
    """Reader of columns."""

    def __init__(self, rows: Any, schema: Any) -> None:
        self.rows, self.schema = rows, schema
        self.open, self.mark, self.close = rows.open, rows.mark, rows.close

    def read(self, records_max: int) -> Any:
        rows = self.rows.read(records_max)
        return None if rows is None else pa.RecordBatch.from_pylist(rows, self.schema)


class Wide(Given):
    """Records, read in batches as long as the task asks for."""

    def reader(self) -> Any:
        return WideReader(self.records)


class WideReader(GivenReader):
    """Reader of a share of the records."""

    def read(self, records_max: int) -> list[Any] | None:
        chunk = self.share[self.place : self.place + records_max]
        self.place += len(chunk)
        return chunk or None


class WideColumns(ColumnsOf):
    """The same records, as columns."""

    def __init__(self, records: list[dict[str, Any]]) -> None:
        super().__init__(records)
        self.given = Wide(records)


def in_tenths(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns records whose floats are rounded, and sums of which are."""
    return [{**row, "y": None if row["y"] is None else row["y"] / 10} for row in rows]


def aggregates() -> dict[str, Any]:
    """One of each kind that columns have."""
    return {
        "n": count(),
        "total": sum_("x"),
        "mean": mean("x"),
        "least": min_("x"),
        "most": max_("y"),
        "first": first("x"),
        "last": last("y"),
        "floats": sum_("y"),
        "share": mean("y"),
        "spread": stddev("x"),
        "variance": variance("y", ddof=0),
    }


def windowed(graph: JobGraph, source: Any, kind: Any, *, is_event_time: bool = True, **lateness: Any) -> None:
    """Adds the job: aggregates of each window, and the late records."""
    windowed_by(graph, source, kind, ("key",), is_event_time=is_event_time, **lateness)


def windowed_by(
    graph: JobGraph, source: Any, kind: Any, keys: tuple[str, ...], *, is_event_time: bool = True, **lateness: Any
) -> None:
    """Adds the job, keyed by these fields."""
    timestamps: Any = Timestamps("at", out_of_order="4s", watermark_every="1s", future_max=None)
    stream = graph.source(source, timestamps=timestamps if is_event_time else None)
    windows = stream.key_by(*keys).window(kind, late=LATE if is_event_time else None, **lateness)
    results = windows.aggregate(**aggregates(), name="totals")
    results.sink(Outbox(), name="out")
    if is_event_time:
        results.side_output(LATE).sink(Outbox(), name="late")


@settings(max_examples=40, deadline=None)
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


@settings(max_examples=20, deadline=None)
@given(records, st.sampled_from(KINDS), ACTIONS, st.integers(1, 2), st.integers(1, 5), st.booleans())
def test_windows_over_columns_restored_at_any_barrier_give_the_same(
    rows: list[dict[str, Any]], kind: Any, actions: list[str], parallelism: int, records_max: int, is_event_time: bool
) -> None:
    def build(graph: JobGraph) -> None:
        windowed(graph, ColumnsOf(in_tenths(rows)), kind, is_event_time=is_event_time)

    steady, troubled = steady_and_troubled(build, actions, parallelism, records_max)
    assert troubled == steady


def played(build: Callable[[JobGraph], Any], records_max: int = 3) -> dict[str, list[Any]]:
    graph = JobGraph("job")
    build(graph)
    return run(graph, 1, records_max).written


@pytest.mark.parametrize("is_column", [True, False])
def test_windows_by_the_clock_over_columns_give_what_those_over_rows_do(is_column: bool) -> None:
    rows = [{"key": key, "at": START, "x": 1, "y": 0.5} for key in "abacab"]
    graph = JobGraph("job")
    windowed(graph, ColumnsOf(rows) if is_column else Given(rows), Tumbling("5s"), is_event_time=False)
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

    def tracking(emit: Any) -> Any:
        def tracked(self: Any, end: int, late: Any) -> None:
            used.add(type(self))
            emit(self, end, late)

        return tracked

    for cls in (ColumnPanes, ObjectPanes):
        monkeypatch.setattr(cls, "emit", tracking(cls.emit))

    def build(graph: JobGraph) -> None:
        stream = graph.source(ColumnsOf(rows, schema), timestamps=Timestamps("at", future_max=None))
        stream.key_by("key").window(Tumbling("5s")).aggregate(**named).sink(Outbox())

    assert played(build)
    return used


def test_types_that_have_no_column_of_state_are_aggregated_in_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [{"key": "a", "at": START, "name": ["x"]}]
    schema = pa.schema([("key", pa.string()), ("at", pa.int64()), ("name", pa.list_(pa.string()))])
    assert classes_used(rows, schema, monkeypatch, n=count()) == {ColumnPanes}
    assert classes_used(rows, schema, monkeypatch, n=count(), least=min_("name")) == {ObjectPanes}


def test_columns_with_timestamps_may_be_keyed_by_a_function() -> None:
    rows = [{"key": key, "at": START + at, "x": 1, "y": 0.0} for at, key in enumerate("abab")]

    def build(graph: JobGraph) -> None:
        stream = graph.source(ColumnsOf(rows), timestamps=Timestamps("at", future_max=None))
        stream.key_by(lambda row: row["key"]).window(Tumbling(timedelta(seconds=100))).count().sink(Outbox())

    (written,) = played(build).values()
    assert [(row.key, row.value) for row in written] == [("a", 2), ("b", 2)]


@pytest.mark.parametrize("is_batches", [True, False])
def test_a_step_on_columns_after_windows_in_rows_fails_with_one_sentence(is_batches: bool) -> None:
    rows = [{"key": "a", "at": START, "x": 1, "y": 0.5}]

    def build(graph: JobGraph) -> None:
        stream = graph.source(ColumnsOf(rows), timestamps=Timestamps("at", future_max=None))
        sums = stream.key_by("key").window(Session("5s")).aggregate(total=min_("key"))
        out = sums.map_batches(lambda batch: batch, name="next") if is_batches else sums.select("total", name="next")
        out.sink(Outbox())

    with pytest.raises(ColumnsNeeded, match=r"the step next works on columns, and .* gives it rows, because min_"):
        played(build)


def test_windows_over_columns_stay_in_columns() -> None:
    rows = [{"key": key, "at": START + at, "x": at, "y": 0.5} for at, key in enumerate("aabab")]

    def build(graph: JobGraph) -> None:
        stream = graph.source(ColumnsOf(rows), timestamps=Timestamps("at", future_max=None))
        sums = stream.key_by("key").window(Tumbling("100s")).aggregate(n=count(), total=sum_("x"))
        sums.filter(col("n") > 2).select("key", "end", "window_time", mean=col("total") / col("n")).sink(Outbox())

    (written,) = played(build).values()
    (row,) = written
    assert (row["key"], row["mean"]) == ("a", 4 / 3)
    assert row["end"] - row["window_time"] < timedelta(microseconds=2)


def first_with_size(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Returns the first row of a batch, with the number of its rows."""
    return batch.slice(0, 1).append_column("rows", pa.array([batch.num_rows])).replace_schema_metadata(None)


@pytest.mark.parametrize(("gathered_min", "sizes"), [(1 << 14, [2, 8, 8]), (4, [2, 4, 4, 4, 4]), (1, [2] * 9)])
def test_windows_that_end_at_one_watermark_emit_in_common_batches(
    monkeypatch: pytest.MonkeyPatch, gathered_min: int, sizes: list[int]
) -> None:
    monkeypatch.setattr(WindowColumns, "gathered_min", gathered_min)
    rows = [{"key": "ab"[at % 2], "at": START + at, "x": at, "y": None} for at in range(18)]
    graph = JobGraph("job")
    timestamps = Timestamps("at", watermark_every="8s")
    windows = graph.source(ColumnsOf(rows), timestamps=timestamps).key_by("key").window(Tumbling("2s")).count(name="n")
    windows.map_batches(first_with_size, name="first").sink(Outbox())
    (written,) = run(graph, 1, records_max=99).written.values()
    assert [row["rows"] for row in written] == sizes


def test_rows_of_a_batch_that_a_function_returns_are_dicts() -> None:
    rows = [{"key": "a", "at": START, "x": 1, "y": 0.5}]

    def build(graph: JobGraph) -> None:
        stream = graph.source(ColumnsOf(rows), timestamps=Timestamps("at", future_max=None))
        counts = stream.key_by("key").window(Tumbling("5s")).count()
        counts.map_batches(lambda batch: batch.select(["key", "value", "window_time"])).map(dict).sink(Outbox())

    (written,) = played(build).values()
    assert [(row["key"], row["value"]) for row in written] == [("a", 1)]
