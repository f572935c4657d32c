"""Keys of several fields or columns: ``key_by("a", "b")`` gives tuples, the same in rows and in columns."""

from __future__ import annotations

from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clonos import register
from clonos.api.graph import JobGraph
from clonos.api.graph_errors import InvalidJob
from clonos.api.plan.explaining import explain_graph
from clonos.api.windows import Tumbling
from clonos.connectors import sqlite
from clonos.core.model.options import Options
from clonos.core.ports.operator_chain import StepFailed
from tests.unit.columns.test_column_windows import ColumnsOf, windowed_by
from tests.unit.operators.driver import START_NS, Given, Outbox, run
from tests.unit.operators.joins.given_sides import ACTIONS, steady_and_troubled

START = START_NS // 1_000_000_000
SCHEMA = pa.schema([("a", pa.string()), ("b", pa.int64()), ("at", pa.int64()), ("x", pa.int64()), ("y", pa.float64())])

records = st.lists(
    st.fixed_dictionaries(
        {
            "a": st.sampled_from(["a", "b", "", None]),
            "b": st.sampled_from([0, 1, None]),
            "at": st.integers(START, START + 30),
            "x": st.none() | st.integers(-5, 5),
            "y": st.none() | st.integers(-5, 5).map(float),
        }
    ),
    max_size=40,
)


@register
class Point(NamedTuple):
    a: str
    b: int


def played(build: Any, source: Any, parallelism: int = 2, records_max: int = 3) -> list[Any]:
    graph = JobGraph("job")
    build(graph.source(source)).sink(Outbox(), name="out")
    (written,) = run(graph, parallelism, records_max).written.values()
    return written


@pytest.mark.parametrize("as_object", [False, True])
def test_several_fields_are_a_tuple(as_object: bool) -> None:
    points = [Point("x", 1), Point("x", 2), Point("x", 1)]
    given = points if as_object else [point._asdict() for point in points]
    counted = played(lambda stream: stream.key_by("a", "b").count(), Given(given), 1)
    assert counted == [(("x", 1), 1), (("x", 2), 1), (("x", 1), 2)]


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(records, st.integers(1, 3), st.integers(1, 9))
def test_windows_and_counts_by_several_columns_are_those_by_several_fields(
    rows: list[dict[str, Any]], parallelism: int, records_max: int
) -> None:
    windows, counts = [], []
    for source in (Given(rows), ColumnsOf(rows, SCHEMA)):
        graph = JobGraph("job")
        windowed_by(graph, source, Tumbling("5s"), ("a", "b"))
        windows.append(run(graph, parallelism, records_max).written)
    for source in (Given(rows), ColumnsOf(rows, SCHEMA)):
        graph = JobGraph("job")
        graph.source(source).key_by("a", "b").count().sink(Outbox(), name="out")
        counts.append(run(graph, parallelism, records_max).written)
    assert windows[1] == windows[0]
    assert counts[1] == counts[0]


@settings(max_examples=20, deadline=None)
@given(records, ACTIONS, st.integers(1, 2), st.integers(1, 5))
def test_windows_by_several_columns_restored_at_any_barrier_give_the_same(
    rows: list[dict[str, Any]], actions: list[str], parallelism: int, records_max: int
) -> None:
    def build(graph: JobGraph) -> None:
        windowed_by(graph, ColumnsOf(rows, SCHEMA), Tumbling("5s"), ("a", "b"))

    steady, troubled = steady_and_troubled(build, actions, parallelism, records_max)
    assert troubled == steady


def test_windows_by_several_columns_stay_in_columns() -> None:
    graph = JobGraph("job")
    stream = graph.source(ColumnsOf([], SCHEMA), timestamps="at")
    stream.key_by("a", "b", name="both").window(Tumbling("5s")).count(name="counted").select("a", "b", "value").sink(
        Outbox(), name="out"
    )
    plan = explain_graph(graph, Options(), 1)
    counted = next(step for step in plan.steps if step.name == "counted")
    assert counted.gives == "columns"
    assert counted.row_reason == ""
    assert counted.inputs[0].key is not None
    assert counted.inputs[0].key.by == "the fields 'a' and 'b'"
    assert counted.state is not None
    assert counted.state.key == "the fields 'a' and 'b'"


@pytest.mark.parametrize("is_column", [False, True])
@pytest.mark.parametrize(
    "on", [["a", "b"], (["a", "b"], ["b2", "a2"]), (["a", "b"], lambda row: (row["b2"], row["a2"]))]
)
def test_a_join_takes_several_fields(on: Any, is_column: bool) -> None:
    left = [{"a": "x", "b": 1, "n": 1}, {"a": "x", "b": 2, "n": 2}]
    right = [{"a": "x", "b": 2, "b2": "x", "a2": 2}, {"a": "y", "b": 1, "b2": "y", "a2": 1}]
    graph = JobGraph("job")
    sources: list[Any] = [
        ColumnsOf(rows, pa.RecordBatch.from_pylist(rows).schema) if is_column else Given(rows) for rows in (left, right)
    ]
    one, other = map(graph.source, sources)
    one.join(other, on=on, ttl="1h", select=lambda row, match: (row["n"], match["a2"])).sink(Outbox(), name="out")
    (written,) = run(graph, 2).written.values()
    assert written == [(2, 2)]


def test_a_keyed_sink_takes_a_stream_that_is_keyed_by_several_of_its_columns(tmp_path: Any) -> None:
    def written(*keys: str) -> None:
        graph = JobGraph("job")
        sink = sqlite(str(tmp_path / "db"), "points", columns=["a", "b", "n"], upsert=["a", "b"])
        graph.source(Given([])).key_by(*keys).sink(sink)
        graph.compile(Options())

    written("a", "b")
    written("b", "a")
    with pytest.raises(InvalidJob, match="is not keyed by that but by a, n"):
        written("a", "n")


def test_the_first_field_that_a_record_lacks_is_named() -> None:
    with pytest.raises(StepFailed) as raised:
        played(lambda stream: stream.key_by("a", "c", "d").count(), Given([{"a": 1, "d": 2}]))
    assert str(raised.value.__cause__).startswith("the record has no field 'c'; it has a, d.")


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        (("a", len), "several keys are names of fields. Give the names of the fields, or one function that returns a"),
        (("a", "a"), "gets the field 'a' twice in its key"),
        ((["a", "b"],), 'Give the names without brackets: key_by("a", "b").'),
    ],
)
def test_keys_that_are_no_fields_are_refused(keys: Any, problem: str) -> None:
    with pytest.raises(InvalidJob) as raised:
        JobGraph("job").source(Given([])).key_by(*keys)
    assert problem in str(raised.value)


@pytest.mark.parametrize("on", [[], ["a", 1], ("a", "b", "c"), (["a", "b"], "c"), (["a"], ["b", "c"])])
def test_a_join_refuses_fields_that_cannot_be_a_key(on: Any) -> None:
    graph = JobGraph("job")
    with pytest.raises(InvalidJob, match="gets on="):
        graph.source(Given([])).join(graph.source(Given([])), on=on, ttl="1h")
