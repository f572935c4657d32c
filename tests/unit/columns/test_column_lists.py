"""top_k without ranks over columns gives the lists that it does over rows, in the same order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clonos import Job, files
from clonos.api.columns.schemas import known_schema
from clonos.api.event_time import Timestamps
from clonos.api.graph import JobGraph
from clonos.api.graph_errors import InvalidJob
from clonos.api.plan.explaining import explain_graph
from clonos.api.step import StepInput
from clonos.api.windows import Tumbling
from clonos.core.model.options import Options
from clonos.expressions.expression_errors import InvalidExpression
from clonos.job.description import graph_of
from clonos.operators.columnar.row_forms import TotalForm, for_sink, metadata_of
from tests.unit.columns.test_column_top_k import SCHEMA, records
from tests.unit.columns.test_column_windows import START, ColumnsOf, WideColumns
from tests.unit.operators.driver import Given, Outbox, run
from tests.unit.operators.joins.given_sides import ACTIONS, Stamped, steady_and_troubled


def listed(graph: JobGraph, source: Any, k: int, by: str, has_times: bool = False) -> None:
    """Adds the job, which shows the timestamps of results if there are any; by ``y`` the key is of two columns."""
    timestamps = Timestamps("at", out_of_order="9s", future_max=None) if has_times else None
    keys: Any = ("key", "x") if by == "y" else ("key",)
    lists = graph.source(source, timestamps=timestamps).key_by(*keys).top_k(k, by, name="top")
    (lists.process(Stamped) if has_times else lists).sink(Outbox(), name="out")


def written(source: Any, k: int, by: str, parallelism: int = 1, records_max: int = 9, has_times: bool = False) -> Any:
    graph = JobGraph("job")
    listed(graph, source, k, by, has_times)
    return run(graph, parallelism, records_max).written


def started(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Gives records instants, in disorder."""
    return [row | {"at": START + (row["at"] ^ 3)} for row in rows]


@settings(max_examples=40, deadline=None)
@given(
    records,
    st.integers(1, 4),
    st.sampled_from(["x", "y", "at"]),
    st.integers(1, 2),
    st.integers(1, 9),
    st.booleans(),
)
def test_lists_over_columns_are_those_over_rows(
    rows: list[dict[str, Any]], k: int, by: str, parallelism: int, records_max: int, has_times: bool
) -> None:
    rows = started(rows)
    sources = (Given(rows), ColumnsOf(rows, SCHEMA))
    found = [written(source, k, by, parallelism, records_max, has_times) for source in sources]
    assert repr(found[1]) == repr(found[0])


@settings(max_examples=25, deadline=None)
@given(records, st.integers(1, 4), ACTIONS, st.integers(1, 2), st.integers(1, 5))
def test_lists_restored_at_any_barrier_are_the_same(
    rows: list[dict[str, Any]], k: int, actions: list[str], parallelism: int, records_max: int
) -> None:
    def build(graph: JobGraph) -> None:
        listed(graph, ColumnsOf(rows, SCHEMA), k, "x")

    steady, troubled = steady_and_troubled(build, actions, parallelism, records_max)
    assert repr(troubled) == repr(steady)


def test_lists_that_are_long_together_leave_in_several_batches() -> None:
    rows = [{"key": "a", "at": 0, "x": x, "y": None} for x in range(400)]
    graph = JobGraph("job")
    lists = graph.source(WideColumns(rows)).key_by("key").top_k(400, "x")
    lists.map_batches(_sized).sink(Outbox())
    (found,) = run(graph, 1, 400).written.values()
    assert [row["lists"] for row in found] == [163, 163, 74]  # 163 * 400 is just below 65,536
    assert [each for row in found for each in row["highest"]] == list(range(1, 401))


def _sized(batch: Any) -> Any:
    sizes = pa.compute.list_value_length(batch.column("records")).to_pylist()
    return pa.RecordBatch.from_pylist([{"lists": batch.num_rows, "highest": sizes}])


def test_the_schema_of_lists_is_known_in_the_plan_and_is_that_of_the_results(tmp_path: Path) -> None:
    rows = [{"key": "a", "at": START, "x": x, "y": 0.5} for x in (2, 1)]
    pa.parquet.write_table(pa.Table.from_pylist(rows, SCHEMA), tmp_path / "part.parquet")
    job = Job("job")
    source = job.source(files.parquet(f"{tmp_path}/*.parquet"), timestamps=Timestamps("at", future_max=None))
    lists = source.key_by("key").top_k(1, "x")
    with pytest.raises(InvalidExpression, match=r"key: string, at: int64, records: list<.*: struct<key: string, at"):
        lists.select("prices")
    lists.map_batches(_schema).sink(Outbox())
    graph = graph_of(job)
    known = known_schema(graph.steps, StepInput(1))
    ((_, found),) = run(graph, 1, 9).written.items()
    assert known is not None
    assert {row["schema"] for row in found} == {str(known.remove_metadata())}


def _schema(batch: Any) -> Any:
    return pa.RecordBatch.from_pylist([{"at": START, "schema": str(batch.schema.remove_metadata())}])


def test_a_file_right_after_lists_gets_columns(tmp_path: Path) -> None:
    graph = JobGraph("job")
    graph.source(ColumnsOf([], SCHEMA)).key_by("key").top_k(2, "x").sink(files.parquet(tmp_path), name="out")
    (sink,) = [step for step in explain_graph(graph, Options(), 1).steps if step.name == "out"]
    assert (sink.takes, sink.row_reason) == ("columns", "")
    batch = pa.RecordBatch.from_pylist([{"key": "a", "records": [{"x": 2}]}])
    written = for_sink(batch.replace_schema_metadata(metadata_of(TotalForm(("key",), ("records",), True))))
    assert pa.RecordBatch.equals(written, batch)


def test_a_file_after_lists_by_texts_is_refused_in_the_plan(tmp_path: Path) -> None:
    pa.parquet.write_table(SCHEMA.empty_table(), tmp_path / "part.parquet")
    job = Job("job")
    lists = job.source(files.parquet(f"{tmp_path}/*.parquet")).key_by("x").top_k(2, "key")
    lists.sink(files.parquet(tmp_path / "out"))
    with pytest.raises(InvalidJob, match="tuple"):
        explain_graph(graph_of(job), Options(), 1)


def test_windows_are_ranked_by_the_columns_of_their_results() -> None:
    rows = [{"key": key, "at": START, "x": 0, "y": 0.0} for key in "aabbbc"]
    graph = JobGraph("job")
    timed = graph.source(ColumnsOf(rows, SCHEMA), timestamps=Timestamps("at", future_max=None))
    top = timed.key_by("key").window(Tumbling("5s")).count().key_by("start").top_k(2, "value")
    top.map(_highest).sink(Outbox())
    ((_, found),) = run(graph, 1, 9).written.items()
    assert found == [[("a", 2)], [("b", 3), ("a", 2)]]


def _highest(pair: Any) -> Any:
    return [(row["key"], row["value"]) for row in pair[1]]


def test_a_column_with_the_name_of_the_lists_keeps_the_step_in_rows() -> None:
    schema = pa.schema([("records", pa.string()), ("x", pa.int64())])
    rows = [{"records": "a", "x": 1}, {"records": "a", "x": 2}]
    graph = JobGraph("job")
    graph.source(ColumnsOf(rows, schema)).key_by("records").top_k(1, "x", name="top").sink(Outbox())
    ((_, found),) = run(graph, 1, 9).written.items()
    assert found == [("a", [rows[0]]), ("a", [rows[1]])]
    assert graph.steps[1].row_reason == "its results would have two columns 'records'"
