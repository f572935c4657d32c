"""Frames of other libraries in map_batches: what a function gets, and what it may return."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from functools import partial
from typing import Any

import pandas
import pyarrow
import pytest

from clonos.api.graph import JobGraph
from clonos.core.ports.operator_chain import StepFailed
from clonos.operators.steps.data_frames import (
    FrameNotAnnotated,
    IndexUnnamed,
    NoFrame,
    as_batch,
    as_wanted,
    frame_wanted,
)
from tests.unit.operators.driver import Outbox, run
from tests.unit.operators.samples import ColumnsGiven

RECORDS = [{"word": "a", "count": 1}, {"word": "b", "count": 5}, {"word": "a", "count": 7}]
BATCH = pyarrow.RecordBatch.from_pylist(RECORDS)


class Streaming:
    """A frame of another library, known only by Arrow's C stream."""

    def __init__(self, table: Any) -> None:
        self.table = table

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self.table.__arrow_c_stream__(requested_schema)


class Exported:
    """A batch of another library, known only by Arrow's C array."""

    def __arrow_c_array__(self, requested_schema: Any = None) -> Any:
        return BATCH.__arrow_c_array__(requested_schema)


def rows_of(function: Callable[[Any], Any]) -> list[Any]:
    """Returns what a job makes of the records by map_batches and a step on rows."""
    graph = JobGraph("frames")
    columns = graph.source(ColumnsGiven(RECORDS)).map_batches(function)
    columns.map(lambda record: record).sink(Outbox())
    (rows,) = run(graph, 1).written.values()
    return rows


def chunked(batch: Any) -> Any:
    """Returns the batch as a table of chunks of one row."""
    return pyarrow.Table.from_batches([batch.slice(index, 1) for index in range(batch.num_rows)])


@pytest.mark.parametrize(
    "frame_of",
    [
        lambda batch: batch,
        lambda batch: pyarrow.Table.from_batches([batch]),
        chunked,
        lambda batch: Streaming(chunked(batch)),
        lambda batch: pyarrow.RecordBatchReader.from_batches(batch.schema, [batch]),
    ],
    ids=["batch", "table", "chunks", "stream", "reader"],
)
def test_a_function_returns_whatever_speaks_arrow(frame_of: Callable[[Any], Any]) -> None:
    assert rows_of(frame_of) == RECORDS


def test_a_batch_of_another_library_is_taken_by_its_array() -> None:
    assert as_batch(Exported()).equals(BATCH)


def test_a_result_without_rows_has_the_columns() -> None:
    empty = as_batch(Streaming(chunked(BATCH).slice(0, 0)))
    assert (empty.num_rows, empty.schema.names) == (0, ["word", "count"])


def test_views_of_texts_become_texts() -> None:
    views = pyarrow.table({"word": pyarrow.array(["a", "b"], pyarrow.string_view()), "count": [1, 2]})
    batch = as_batch(Streaming(views))
    assert batch.schema.types == [pyarrow.string(), pyarrow.int64()]
    assert batch.to_pylist() == [{"word": "a", "count": 1}, {"word": "b", "count": 2}]


@pytest.mark.parametrize(
    "result", [None, [1], {"a": 1}, "text", pyarrow.array([1])], ids=lambda result: type(result).__name__
)
def test_anything_else_is_refused_with_what_to_return(result: Any) -> None:
    with pytest.raises(
        NoFrame, match=r"which does not speak Arrow\. Return a RecordBatch or Table of pyarrow, or a frame"
    ):
        as_batch(result)


def takes_table(table: pyarrow.Table) -> Any:
    assert isinstance(table, pyarrow.Table)
    return table


class TakingTable:
    """A callable object whose parameter is annotated."""

    def __call__(self, table: pyarrow.Table) -> Any:
        return takes_table(table)


def unresolved(frame: missing.DataFrame) -> Any:  # type: ignore[name-defined]  # noqa: F821  as under TYPE_CHECKING
    return frame


@pytest.mark.parametrize(
    "function", [takes_table, TakingTable(), partial(takes_table)], ids=["function", "object", "partial"]
)
def test_a_function_gets_the_frame_of_its_annotation(function: Any) -> None:
    assert frame_wanted(function) == "pyarrow.Table"
    assert rows_of(function) == RECORDS


@pytest.mark.parametrize(
    "function", [lambda batch: batch, unresolved, len, str.upper], ids=["lambda", "unresolved", "builtin", "method"]
)
def test_a_function_without_a_known_annotation_gets_a_batch(function: Any) -> None:
    assert frame_wanted(function) == ""
    assert as_wanted(BATCH, frame_wanted(function)) is BATCH


def test_frames_of_pandas_come_and_go_with_named_indexes_as_columns() -> None:
    pandas = pytest.importorskip("pandas")

    def large(frame: Any) -> Any:
        assert isinstance(frame, pandas.DataFrame)
        return frame[frame["count"] > 1]

    large.__annotations__["frame"] = pandas.DataFrame
    assert rows_of(large) == RECORDS[1:]
    sums = as_batch(BATCH.to_pandas().groupby("word").sum())
    assert sums.to_pylist() == [{"count": 8, "word": "a"}, {"count": 5, "word": "b"}]


def test_frames_of_polars_come_and_go() -> None:
    polars = pytest.importorskip("polars")

    def large(frame: Any) -> Any:
        assert isinstance(frame, polars.DataFrame)
        return frame.filter(polars.col("count") > 1)

    large.__annotations__["frame"] = polars.DataFrame
    assert rows_of(large) == RECORDS[1:]


def test_relations_of_duckdb_are_returned() -> None:
    duckdb = pytest.importorskip("duckdb")

    def large(batch: Any) -> Any:
        table = pyarrow.Table.from_batches([batch])
        return duckdb.connect().from_arrow(table).filter("count > 1")

    assert rows_of(large) == RECORDS[1:]


def compares(frame: Any) -> Any:
    return frame[frame["count"] > 1]


def assigns(frame: Any) -> Any:
    frame["twice"] = frame["count"] * 2
    return frame


@pytest.mark.parametrize(
    "function",
    [compares, assigns, lambda frame: frame.assign(c=1), lambda frame: frame.count.sum()],
    ids=["compares", "assigns", "method", "column"],
)
def test_a_function_that_takes_a_batch_for_a_frame_names_the_annotation_to_write(
    function: Callable[[Any], Any],
) -> None:
    with pytest.raises(StepFailed) as raised:
        rows_of(function)
    error = raised.value.__cause__
    assert isinstance(error, FrameNotAnnotated)
    assert "annotate its parameter: def function(frame: pandas.DataFrame)" in str(error)
    assert any(entry.filename == __file__ for entry in traceback.extract_tb(error.__traceback__))


def test_other_errors_of_a_function_of_batches_stay_as_they_are() -> None:
    def own(batch: Any) -> Any:
        raise TypeError("of my own") from ValueError("first")

    with pytest.raises(StepFailed) as raised:
        rows_of(own)
    error = raised.value.__cause__
    assert isinstance(error, TypeError)
    assert (str(error), type(error.__cause__)) == ("of my own", ValueError)


@pytest.mark.parametrize(
    "index", [["x", "y"], [0.5, 1.5], pandas.date_range("2026-11-28", periods=2), [(1, 2), (3, 4)]]
)
def test_an_index_of_pandas_that_has_data_and_no_name_is_refused(index: Any) -> None:
    frame = pandas.DataFrame({"n": [1, 2]}, index=index)
    with pytest.raises(IndexUnnamed, match=r'Name it with \.rename_axis\("at"\)'):
        as_batch(frame)
    assert as_batch(frame.reset_index(drop=True)).to_pydict() == {"n": [1, 2]}
    assert as_batch(frame[:0]).num_rows == 0
    assert as_batch(frame.reset_index(drop=True)[1:]).to_pydict() == {"n": [2]}


def test_integers_with_nulls_stay_exact_in_pandas() -> None:
    pytest.importorskip("pandas")
    large = 2**53 + 1
    columns = {
        "gaps": pyarrow.array([large, None]),
        "unsigned": pyarrow.array([None, 2**64 - 1], pyarrow.uint64()),
        "small": pyarrow.array([None, -3], pyarrow.int8()),
        "whole": pyarrow.array([large, 1]),
        "share": pyarrow.array([0.5, None]),
    }
    batch = pyarrow.record_batch(columns)
    frame = as_wanted(batch, "pandas.DataFrame")
    assert list(map(str, frame.dtypes)) == ["Int64", "UInt64", "Int8", "int64", "float64"]
    assert frame["gaps"].tolist()[0] == large
    assert as_batch(frame).equals(batch)


def test_columns_of_one_name_stay_exact_in_pandas() -> None:
    pytest.importorskip("pandas")
    batch = pyarrow.record_batch([[1, None], [None, 2**53 + 1]], names=["n", "n"])
    assert int(as_wanted(batch, "pandas.DataFrame").iloc[1, 1]) == 2**53 + 1


def test_a_job_keeps_integers_with_nulls_exact() -> None:
    pandas = pytest.importorskip("pandas")

    def passed(frame: Any) -> Any:
        return frame.assign(twice=frame["n"] * 2)

    records = [{"n": 2**53 + number if number % 2 else None} for number in range(6)]
    passed.__annotations__["frame"] = pandas.DataFrame
    graph = JobGraph("frames")
    graph.source(ColumnsGiven(records)).map_batches(passed).map(lambda record: record).sink(Outbox())
    (rows,) = run(graph, 1).written.values()
    assert rows == [{**record, "twice": record["n"] and record["n"] * 2} for record in records]


def test_one_column_or_one_value_is_answered_by_how_to_make_a_frame() -> None:
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    frame = pandas.DataFrame(RECORDS)
    for series in (frame["count"], frame.groupby("word")["count"].sum(), polars.Series([1])):
        with pytest.raises(NoFrame, match=r"returned a Series.*\.to_frame\(\), or \.reset_index\(\)"):
            as_batch(series)
    for value in (frame["count"].sum(), 7, "text"):
        with pytest.raises(NoFrame, match=r'pandas\.DataFrame\(\{"total": \[value\]\}\)'):
            as_batch(value)
