"""A record that does not fit the columns of the plan is an error of its own; a step asks for the columns it needs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from clonos import col, files
from clonos.api.graph import JobGraph
from clonos.api.graph_errors import ColumnsNeeded
from clonos.api.plan.explaining import explain_graph
from clonos.config import resolve_settings
from clonos.connectors.connector_errors import InputMissing
from clonos.core.model.options import Options
from clonos.job.launch import compiled
from tests.unit.columns.test_column_top_k import Strange
from tests.unit.columns.test_column_windows import ColumnsOf
from tests.unit.operators.driver import Outbox, run

SCHEMA = pa.schema([("key", pa.string()), ("at", pa.int64()), ("x", pa.int64())])
ROWS = [{"key": "a", "at": at, "x": at} for at in range(4)]


def test_a_misfit_of_a_file_is_an_error_of_the_source_with_the_file_and_the_row(tmp_path: Path) -> None:
    large = pa.array([2, 1 << 63, 3], pa.uint64())
    parquet.write_table(pa.table({"key": ["a"], "x": pa.array([1], pa.int64())}), tmp_path / "1.parquet")
    parquet.write_table(pa.table({"key": ["a", "b", "a"], "x": large}), tmp_path / "2.parquet")
    graph = JobGraph("job", errors=Outbox())
    read = graph.source(files.parquet(f"{tmp_path}/*.parquet"), name="read").with_columns(y=col("x") + 1)
    read.key_by("key").top_k(1, "x", rank="rank").select("key", "y").sink(Outbox(), name="out")
    found = run(graph, 1, 9).written
    (error,) = found.pop("errors")
    ((_, rows),) = found.items()
    assert [row["y"] for row in rows] == [2, 3, 4]
    assert error.step == "read"
    assert error.record == {"key": "b", "x": 1 << 63}
    assert f"{tmp_path}/2.parquet at byte 0: row 1: the field 'x' is {1 << 63}, which does not fit" in error.error


def test_a_misfit_that_python_has_no_value_for_is_an_error_of_its_record(tmp_path: Path) -> None:
    far = pa.array([0, 1 << 60], pa.timestamp("us"))
    parquet.write_table(pa.table({"key": ["a"], "x": pa.array([1], pa.int64())}), tmp_path / "1.parquet")
    parquet.write_table(pa.table({"key": ["b", "c"], "x": far}), tmp_path / "2.parquet")
    graph = JobGraph("job", errors=Outbox())
    read = graph.source(files.parquet(f"{tmp_path}/*.parquet"), name="read").with_columns(y=col("x") + 1)
    read.key_by("key").top_k(1, "x", rank="rank").select("key", "y").sink(Outbox(), name="out")
    errors = run(graph, 1, 9).written.pop("errors")
    assert [error.record["key"] for error in errors] == ["b", "c"]
    assert f"{1 << 60}" in errors[1].error


def test_a_misfit_of_another_source_is_an_error_of_the_source_behind_steps_on_columns() -> None:
    graph = JobGraph("job", errors=Outbox())
    left = graph.source(Strange(ROWS, SCHEMA), name="read").with_columns(y=col("at") + 1)
    right = graph.source(ColumnsOf(ROWS[:1], SCHEMA), name="others")
    left.join(right, on="key", ttl="1d").sink(Outbox(), name="out")
    found = run(graph, 1, 9).written
    errors = found.pop("errors")
    assert [(each.step, each.record["at"]) for each in errors] == [("read", 1), ("read", 2)]
    assert "the field 'x' is 'many', which does not fit the column" in errors[0].error
    assert [left["at"] for rows in found.values() for left, _ in rows] == [0, 3]


def test_streams_of_a_union_may_differ_in_columns_that_a_step_does_not_depend_on() -> None:
    wider = SCHEMA.append(pa.field("note", pa.string()))

    def state_of(choose: Any, x: Any = None) -> Any:
        graph = JobGraph("job")
        other = wider if x is None else wider.set(2, pa.field("x", x))
        streams = [
            graph.source(ColumnsOf([], schema), name=f"s{place}") for place, schema in enumerate((SCHEMA, other))
        ]
        choose(streams[0].union(streams[1]).key_by("key")).sink(Outbox())
        (step,) = [step for vertex in graph.compile(Options(), parallelism=1).plan.vertices for step in vertex.steps]
        return dict(step.properties)["state of"]

    assert state_of(lambda keyed: keyed.deduplicate("x")) == "key: string, x: int64"
    assert state_of(lambda keyed: keyed.deduplicate("x"), pa.int32()) == "rows"
    assert state_of(lambda keyed: keyed.top_k(1, "x")) == "rows"  # whole records


def chosen(source: Any) -> JobGraph:
    graph = JobGraph("job")
    top = graph.source(source, name="read").key_by("a").top_k(1, "n", rank="rank", name="top")
    top.select("a", "n", name="choose").sink(Outbox())
    return graph


@pytest.mark.parametrize("content", ["a,n\n", ""])
def test_a_csv_file_with_a_header_alone_gives_no_rows(tmp_path: Path, content: str) -> None:
    (tmp_path / "a.csv").write_text(content)
    assert not any(run(chosen(files.csv(tmp_path / "a.csv")), 1).written.values())


def test_a_job_waits_for_the_first_records_of_a_watched_folder_whose_columns_it_needs(tmp_path: Path) -> None:
    waits: list[float] = []
    contents = ["a,n\n", "a,n\nx,1\n"]

    def wait(seconds: float) -> None:
        waits.append(seconds)
        (tmp_path / f"{len(waits)}.csv").write_text(contents[len(waits) - 1])

    def image_of(**options: Any) -> Any:
        graph = chosen(files.csv(f"{tmp_path}/*.csv", watch="3s", **options))
        return compiled(graph, resolve_settings({}), None, wait)

    def states(image: Any) -> list[Any]:
        return [step.properties[1] for vertex in image.plan.vertices for step in vertex.steps]

    known = [("state of", "a: string, n: int64")]
    schema = pa.schema([("a", pa.string()), ("n", pa.int64())])
    assert states(image_of(schema=schema)) == known
    assert not waits
    image = image_of()
    assert states(image) == known
    assert image.splits["read"]
    assert waits == [3.0, 3.0]


def test_the_plan_asks_for_the_schema_of_a_source_whose_columns_it_needs(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a,n\nx,1\n")
    graph = JobGraph("job")
    streams = [graph.source(files.csv(tmp_path / name), name=name[0]) for name in ("a.csv", "b.csv")]
    (tmp_path / "b.csv").write_text("a,n\n")
    streams[0].join(streams[1], on="a", ttl="1h", name="both").select("a", name="choose").sink(Outbox())
    with pytest.raises(ColumnsNeeded, match=r"choose works on columns.* the columns of b; give it schema="):
        graph.compile(Options())


def test_missing_files_that_are_not_watched_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputMissing, match="no file matches"):
        chosen(files.csv(f"{tmp_path}/*.csv")).compile(Options())


@pytest.mark.parametrize(
    ("sides", "reason"),
    [
        (lambda left, right: (left, right), ""),
        (lambda left, right: (left, right.with_columns(key=col("x").cast("uint64"))), "a key of the type .* on rows"),
        (lambda left, right: (left.map_batches(lambda batch: batch), right), ".* columns of map_batches; give it sch"),
        (
            lambda left, right: (left.join(right, on="key", how="full", ttl="1h"), right),
            "it keeps results of a full jo",
        ),
    ],
    ids=["fits", "type", "unknown", "full"],
)
def test_explain_reports_why_a_join_works_on_rows(sides: Any, reason: str) -> None:
    graph = JobGraph("job")
    left, right = sides(*(graph.source(ColumnsOf(ROWS, SCHEMA), name=name) for name in ("left", "right")))
    on = ("x", "key") if reason.startswith("a key") else "key"
    left.join(right, on=on, ttl="1h", name="both").sink(Outbox())
    (step,) = [step for step in explain_graph(graph, Options(), 1).steps if step.name == "both"]
    assert re.match(reason, step.row_reason)
    assert bool(step.row_reason) == bool(reason)
    assert step.state is not None
    assert (step.state.properties["state of"] == "rows") == bool(reason)
