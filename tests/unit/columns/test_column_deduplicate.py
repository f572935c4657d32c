"""deduplicate and distinct over columns give what they do over rows: same input, same results in the same order."""

from __future__ import annotations

from datetime import UTC, date, datetime
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from clonos import Job, col, files
from clonos.agg import count
from clonos.api.event_time import Timestamps
from clonos.api.graph import JobGraph
from clonos.api.plan.explaining import explain_graph
from clonos.api.windows import Tumbling
from clonos.core.model.options import Options
from clonos.job.description import graph_of
from clonos.operators.kinds.column_kind import ColumnKind
from clonos.operators.kinds.object_kind import ObjectKind
from tests.unit.columns.choice_in_front import in_front
from tests.unit.columns.test_column_windows import START, ColumnsOf
from tests.unit.operators.driver import Given, Outbox, Run, run
from tests.unit.operators.joins.given_sides import ACTIONS, steady_and_troubled

__all__ = ["in_front"]

records = st.lists(
    st.fixed_dictionaries(
        {
            "key": st.sampled_from(["a", "b", None]),
            "at": st.sampled_from([START + at for at in (0, 1, 2, 2, 3, 4, 6, 9)]),
            "x": st.none() | st.integers(0, 2),
            "y": st.integers(0, 9).map(float),
        }
    ),
    max_size=40,
)


class Kind(NamedTuple):
    """Arguments of a step."""

    by: str | None
    keep: Any
    within: str | None
    is_event_time: bool
    keys: tuple[str, ...] = ("key",)


kinds = st.builds(
    Kind,
    st.sampled_from([None, "x", "key"]),
    st.just("first"),
    st.sampled_from([None, "1s", "3s", "7s"]),
    st.booleans(),
    st.sampled_from([("key",), ("key", "x")]),
) | st.builds(
    Kind,
    st.sampled_from([None, "x"]),
    st.just("last"),
    st.sampled_from([None, "1s", "3s", "7s"]),
    st.booleans(),
    st.just(("key",)),
)


def deduplicated(graph: JobGraph, source: Any, kind: Kind) -> None:
    """Adds the job."""
    timestamps: Any = Timestamps("at", out_of_order="4s", watermark_every="1s", future_max=None)
    stream = graph.source(source, timestamps=timestamps if kind.is_event_time else None)
    chosen = stream.key_by(*kind.keys).deduplicate(kind.by, keep=kind.keep, within=kind.within, name="chosen")
    chosen.sink(Outbox(), name="out")


def written(source: Any, kind: Kind, parallelism: int, records_max: int) -> dict[str, list[Any]]:
    """Runs the job while a second passes at each turn."""
    graph = JobGraph("job")
    deduplicated(graph, source, kind)
    running = Run(graph.compile(Options(), parallelism=parallelism))
    while running.read(records_max):
        running.drain()
        running.pass_time(1)
    running.finish(records_max)
    running.close()
    return running.written


@pytest.mark.slow
@settings(max_examples=80, deadline=None)
@given(records, kinds, st.integers(1, 2), st.integers(1, 9))
def test_deduplicate_over_columns_gives_what_it_does_over_rows(
    rows: list[dict[str, Any]], kind: Kind, parallelism: int, records_max: int
) -> None:
    found = [written(source, kind, parallelism, records_max) for source in (Given(rows), ColumnsOf(rows))]
    assert found[1] == found[0]


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(records, kinds, ACTIONS, st.integers(1, 2), st.integers(1, 5), st.booleans())
def test_deduplicate_restored_at_any_barrier_gives_the_same(
    rows: list[dict[str, Any]],
    kind: Kind,
    actions: list[str],
    parallelism: int,
    records_max: int,
    changes_types: bool,
) -> None:
    def build(graph: JobGraph) -> None:
        deduplicated(graph, ChangingText(rows) if changes_types else ColumnsOf(rows), kind)

    steady, troubled = steady_and_troubled(build, actions, parallelism, records_max)
    assert troubled == steady


@settings(max_examples=40, deadline=None)
@given(records, kinds, st.integers(1, 2))
def test_deduplicate_over_columns_takes_values_of_wider_and_narrower_types(
    rows: list[dict[str, Any]], kind: Kind, parallelism: int
) -> None:
    found = [written(source, kind, parallelism, 1) for source in (Given(rows), ChangingText(rows))]
    assert found[1] == found[0]


class ChangingText(ColumnsOf):
    """Columns of which ``key`` is large text from the third record on, and ``x`` a smaller integer."""

    def reader(self) -> Any:
        return ChangingTextReader(self.given.reader(), self.schema)


class ChangingTextReader:
    """Reader of one record at a time."""

    def __init__(self, rows: Any, schema: Any) -> None:
        self.rows, self.schema = rows, schema
        self.open, self.mark, self.close = rows.open, rows.mark, rows.close

    def read(self, records_max: int) -> Any:
        rows = self.rows.read(1)
        if rows is None:
            return None
        batch = pa.RecordBatch.from_pylist(rows, self.schema)
        if int(self.mark()) < 3:
            return batch
        batch = batch.set_column(0, "key", batch.column(0).cast(pa.large_string()))
        return batch.set_column(2, "x", batch.column(2).cast(pa.int16()))


TYPES: tuple[tuple[Any, list[Any], bool], ...] = (
    (pa.int8(), [1, 2, 1, None], True),
    (pa.bool_(), [True, False, True, None], True),
    (pa.string(), ["a", "b", "a", None], True),
    (pa.dictionary(pa.int32(), pa.string()), ["a", "b", "a", None], True),
    (pa.date32(), [date(2026, 1, 1), None, date(2026, 1, 1), date(2026, 1, 2)], True),
    (pa.timestamp("us", "UTC"), [datetime(2026, 1, 1, tzinfo=UTC), None, datetime(2026, 1, 1, tzinfo=UTC)], True),
    (pa.list_(pa.int64()), [(1, 2), (2, 1), (1, 2)], False),
)


@pytest.mark.parametrize(("kind", "values", "is_column"), TYPES)
def test_by_may_be_of_any_type_that_is_a_key(
    kind: Any, values: list[Any], is_column: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    used: set[type] = set()
    for cls in (ColumnKind, ObjectKind):
        monkeypatch.setattr(cls, "of_columns", _tracking(used, cls, cls.of_columns))
    rows = [{"key": "a", "by": value} for value in values]
    schema = pa.schema([("key", pa.string()), ("by", kind)])
    if is_column:
        sources: tuple[Any, ...] = (Given(rows), ColumnsOf(rows, schema))
        found = [written(source, Kind("by", "first", None, False), 1, 2) for source in sources]
        assert found[1] == found[0]
        assert [row["by"] for row in found[0]["chosen"]] == list(dict.fromkeys(values))
        assert used == {ColumnKind}
    else:
        with pytest.raises(Exception, match="chosen"):
            written(ColumnsOf(rows, schema), Kind("by", "first", None, False), 1, 2)


def _tracking(used: set[type], cls: type, process: Any) -> Any:
    def tracked(self: Any, operator: Any, batch: Any, key: Any) -> Any:
        used.add(cls)
        return process(self, operator, batch, key)

    return tracked


def test_distinct_over_columns_stays_in_columns() -> None:
    rows = [{"key": key, "at": START, "x": x % 2, "y": 0.0} for x, key in enumerate("aabab")]
    graph = JobGraph("job")
    source = graph.source(ColumnsOf(rows))
    source.distinct("key").select("key", "x").sink(Outbox(), name="whole")
    source.key_by("key").distinct("x").filter(col("x") == 0).select("key").sink(Outbox(), name="keyed")
    written = run(graph, 1).written
    assert sorted(map(repr, (row for rows in written.values() for row in rows))) == [
        "{'key': 'a', 'x': 0}",
        "{'key': 'a'}",
        "{'key': 'b', 'x': 0}",
        "{'key': 'b'}",
    ]


def test_of_several_last_records_in_a_batch_only_the_last_one_is_passed_on() -> None:
    rows = [{"key": key, "at": START + at, "x": number} for number, (key, at) in enumerate([("a", 2), ("b", 1)] * 3)]
    rows += [{"key": "a", "at": START + 1, "x": 9}, {"key": "b", "at": START + 3, "x": 10}]
    graph = JobGraph("job")
    stream = graph.source(Given(rows), timestamps=Timestamps("at", out_of_order="9s", future_max=None))
    stream.key_by("key").deduplicate(keep="last").sink(Outbox())
    ((_, found),) = run(graph, 1, 3).written.items()  # three records a batch
    assert [row["x"] for row in found] == [1, 2, 4, 5, 10]


@pytest.mark.parametrize("within", ["3s", "7s"])
def test_a_record_belongs_to_a_span_that_a_later_one_has_opened(within: str) -> None:
    rows = [{"key": key, "at": START + at, "x": at, "y": 0.0} for key in "ab" for at in (8, 6, 7, 5, 9, 1, 12)]
    kind = Kind(None, "first", within, True)
    found = [written(source, kind, 1, 9) for source in (Given(rows), ColumnsOf(rows))]
    assert found[1] == found[0]
    assert len(found[0]["chosen"]) < len(rows)


@pytest.mark.parametrize("actions", [[], ["read", "barrier", "restore"]])
@pytest.mark.parametrize(("times", "last"), [((8, 5, 6, 4), [5, 8]), ((5, 8, 6), [6, 8])])
def test_a_record_in_two_spans_belongs_to_that_which_was_opened_first(
    times: tuple[int, ...], last: list[int], actions: list[str]
) -> None:
    rows = [{"key": "a", "at": START + at, "x": at, "y": 0.0} for at in times]
    kind = Kind(None, "last", "3s", True)
    (given_rows, found), (_, restored) = (
        steady_and_troubled(partial(deduplicated, source=source, kind=kind), actions, 1, 1)
        for source in (Given(rows), ColumnsOf(rows))
    )
    assert restored == found == given_rows
    assert [row["x"] for row in found["chosen"]] == last


def test_of_last_records_of_one_instant_the_later_one_is_passed_on() -> None:
    rows = [{"key": "a", "at": START + at, "x": number, "y": 0.0} for number, at in enumerate([1, 3, 3, 3, 2])]
    kind = Kind(None, "last", None, True)
    found = [written(source, kind, 1, 3)["chosen"] for source in (Given(rows), ColumnsOf(rows))]
    assert found[1] == found[0]
    assert [row["x"] for row in found[0]] == [2, 3]


def test_records_keep_their_form() -> None:
    rows = [{"key": key, "at": START, "x": 1, "y": 0.5} for key in "aabb"]
    graph = JobGraph("job")
    stream = graph.source(ColumnsOf(rows), timestamps=Timestamps("at", future_max=None))
    windows = stream.key_by("key").window(Tumbling("5s")).count()
    windows.key_by("value").deduplicate().sink(Outbox(), name="first")
    ((_, found),) = run(graph, 1).written.items()
    assert [(row.key, row.value) for row in found] == [("a", 2)]


SPANS = [("a", 0), ("b", 1), ("a", 2), ("a", 9), ("b", 2), ("a", 5), ("b", 30)]


def spans_of(source: Any, add: Any) -> dict[str, list[Any]]:
    """Runs a job with the last records of spans of 4 s, and what ``add`` puts after them."""
    graph = JobGraph("job")
    stream = graph.source(source, timestamps=Timestamps("at", out_of_order="3s", watermark_every="1s", future_max=None))
    add(stream.key_by("key").deduplicate(keep="last", within="4s", name="last"))
    return run(graph, 1, 2).written


def spans_given() -> list[dict[str, Any]]:
    return [{"key": key, "at": START + at, "x": number, "y": 0.5} for number, (key, at) in enumerate(SPANS)]


def test_windows_after_the_last_records_of_spans_see_the_same_timestamps_as_over_rows() -> None:
    def add(last: Any) -> None:
        last.window(Tumbling("3s")).apply(in_window, name="windows", parallelism=1).sink(Outbox())

    found = [spans_of(source, add) for source in (Given(spans_given()), ColumnsOf(spans_given()))]
    assert found[1] == found[0]
    assert [row for rows in found[0].values() for row in rows] == [(1, 2), (4, 4), (7, 5), (10, 3), (31, 6)]


def in_window(_: None, window: Any, records: list[Any]) -> list[Any]:
    """Returns the start of the window, and the number of each record."""
    return [(round(window.start.timestamp()) - START, record["x"]) for record in records]


def test_the_last_records_of_spans_have_their_time_as_a_column_for_steps_on_columns() -> None:
    (found,) = spans_of(ColumnsOf(spans_given()), lambda last: last.filter(col("x") < 6).sink(Outbox())).values()
    times = [(row["x"], (row["span_time"] - datetime.fromtimestamp(START, UTC)).total_seconds()) for row in found]
    assert times == [(2, 3.999999), (4, 4.999999), (5, 8.999999), (3, 12.999999)]


def test_files_of_columns_get_the_last_records_of_spans_as_they_came(tmp_path: Path) -> None:
    graph = JobGraph("job")
    stream = graph.source(ColumnsOf(spans_given()), timestamps=Timestamps("at", out_of_order="9s", future_max=None))
    stream.key_by("key").deduplicate(keep="last", within="4s").sink(files.parquet(tmp_path), parallelism=1)
    assert list(written_table(graph, tmp_path).column_names) == ["key", "at", "x", "y"]


def written_table(graph: JobGraph, folder: Path) -> Any:
    """Runs a job with one sink of files, and returns what is in these."""
    image = graph.compile(Options(), parallelism=1)
    running = Run(image)
    sinks: dict[int, Any] = {number: each for number, each in image.sinks.items() if hasattr(each, "commit")}
    ((vertex, sink),) = sinks.items()
    sink.prepare_output("job", False, False)
    running.finish(9)
    running.barrier(1)
    sink.commit("job", 1, running.prepared.pop(vertex, []))
    running.close()
    return parquet.read_table(folder)


def test_the_last_results_of_windows_in_a_span_keep_their_form() -> None:
    rows = [{"key": key, "at": START + at, "x": 1, "y": 0.5} for at, key in enumerate("aabbaab")]
    found = []
    for source in (Given(rows), ColumnsOf(rows)):
        graph = JobGraph("job")
        stream = graph.source(source, timestamps=Timestamps("at", future_max=None))
        windows: Any = stream.key_by("key").window(Tumbling("1s")).aggregate(n=count())
        last = windows.key_by(*(("key",) if isinstance(source, ColumnsOf) else (key_of,))).deduplicate(
            keep="last", within="3s"
        )
        last.sink(Outbox())
        found.append(list(run(graph, 1, 2).written.values()))
    assert found[1] == found[0]
    assert [row.key for (written_rows,) in found[:1] for row in written_rows] == ["a", "b", "a", "b"]


def key_of(result: Any) -> Any:
    """Returns the key of a result of windows."""
    return result.key


def test_the_plan_has_the_reason_of_a_column_with_the_name_of_the_time_of_spans(tmp_path: Path) -> None:
    parquet.write_table(pa.table({"key": ["a"], "at": [START], "span_time": [1]}), tmp_path / "part.parquet")
    job = Job("job")
    read = job.source(files.parquet(f"{tmp_path}/*.parquet"), timestamps=Timestamps("at"))
    read.key_by("key").deduplicate(keep="last", within="1s", name="last").sink(Outbox())
    (step,) = [step for step in explain_graph(graph_of(job), Options(), 1).steps if step.name == "last"]
    assert step.row_reason == "it has a column 'span_time' of its own"


def test_a_column_with_the_name_of_the_time_of_spans_makes_rows() -> None:
    rows = [{"key": "a", "at": START, "x": 1, "y": 0.5}]
    graph = JobGraph("job")
    stream = graph.source(ColumnsOf(rows), timestamps=Timestamps("at", future_max=None))
    named = stream.with_columns(span_time=col("x"))
    named.key_by("key").deduplicate(keep="last", within="1s").sink(Outbox())
    ((_, found),) = run(graph, 1).written.items()
    assert found == [{**rows[0], "span_time": 1}]
