"""Columns that a function of map_batches declares: what gives them, who chooses by them, and what does not fit them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, NamedTuple, TypedDict

import pyarrow as pa
import pytest

from clonos import col
from clonos.api.columns.schemas import declared_columns
from clonos.api.graph import JobGraph
from clonos.api.graph_errors import InvalidJob
from clonos.api.plan.explaining import explain_graph
from clonos.core.model.options import Options
from clonos.expressions.expression_errors import InvalidExpression
from tests.unit.operators.driver import Given, Outbox, run
from tests.unit.operators.samples import ColumnsGiven

RECORDS = [{"word": "a", "size": 1}, {"word": "b", "size": 5}, {"word": "a", "size": 7}]
SCHEMA = pa.schema([("word", pa.string()), ("size", pa.int64())])


@dataclass
class Words:
    word: str
    size: int | None


class Pairs(NamedTuple):
    word: str
    size: int


class Rows(TypedDict):
    word: str
    size: Annotated[int, pa.int64()]


class Typed(TypedDict):
    at: datetime
    small: Annotated[int, pa.int32()]
    texts: list[str | None]


def plain(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch


def annotated(batch: pa.RecordBatch) -> Annotated[pa.RecordBatch, Words]:
    return batch


def test_types_of_python_and_of_arrow_are_types_of_columns() -> None:
    assert declared_columns("step", plain, Typed) == pa.schema(
        [("at", pa.timestamp("us", "UTC")), ("small", pa.int32()), ("texts", pa.list_(pa.string()))]
    )


@pytest.mark.parametrize(
    ("function", "schema"),
    [(plain, SCHEMA), (plain, Words), (plain, Pairs), (plain, Rows), (annotated, None)],
    ids=["arrow", "dataclass", "named tuple", "typed dict", "annotation"],
)
def test_a_step_after_declared_columns_works_on_columns(function: Callable[[Any], Any], schema: Any) -> None:
    top = top_of(function, schema)
    assert (top.row_reason, top.schema) == ("", ("word: string", "size: int64", "rank: int64"))


def test_a_step_after_undeclared_columns_works_on_rows_and_the_plan_gives_the_way_out() -> None:
    assert top_of(plain, None).row_reason == "the plan does not know the columns of split; give it schema="


def top_of(function: Callable[[Any], Any], schema: Any) -> Any:
    """Returns the step that chooses after the columns of a function, as the plan explains it."""
    graph = JobGraph("declared")
    words = graph.source(ColumnsGiven(RECORDS)).map_batches(function, schema=schema, name="split")
    words.key_by("word").top_k(1, "size", rank="rank", name="top").sink(Outbox())
    return next(step for step in explain_graph(graph, Options(), 1).steps if step.name == "top")


@pytest.mark.parametrize("schema", [Words, None], ids=["columns", "rows"])
def test_results_are_the_same_in_both_forms(schema: Any) -> None:
    graph = JobGraph("declared")
    words = graph.source(ColumnsGiven(RECORDS)).map_batches(plain, schema=schema)
    words.key_by("word").top_k(1, "size", rank="rank").sink(Outbox())
    (rows,) = run(graph, 1).written.values()
    assert {row["word"]: row["size"] for row in rows} == {"a": 7, "b": 5}


def test_a_wrong_column_after_declared_ones_is_refused_in_its_line() -> None:
    words = JobGraph("declared").source(ColumnsGiven(RECORDS)).map_batches(plain, schema=Words)
    with pytest.raises(InvalidExpression, match="there is no column 'ward'"):
        words.filter(col("ward") == "a")


def test_a_result_that_does_not_fit_is_an_error_of_its_record_at_the_step_of_the_function() -> None:
    def odd(batch: pa.RecordBatch) -> pa.Table:
        return pa.table({"more": [1, 2, 3], "word": ["a", "b", "c"], "size": ["one", None, "two"]})

    graph = JobGraph("declared", errors=Outbox())
    graph.source(ColumnsGiven(RECORDS)).map_batches(odd, schema=Words, name="odd").sink(Outbox())
    written = run(graph, 1).written
    errors = written.pop("errors")
    assert [error.step for error in errors] == ["odd", "odd"]
    assert "the field 'size' is 'one'" in errors[0].error
    assert list(written.values()) == [[{"word": "b", "size": None}]]


@pytest.mark.parametrize("schema", [3, int, {"word": str}, Given])
def test_a_schema_without_columns_is_refused(schema: Any) -> None:
    with pytest.raises(InvalidJob, match="split gets the columns"):
        JobGraph("declared").source(ColumnsGiven(RECORDS)).map_batches(plain, schema=schema, name="split")


def test_metadata_of_other_libraries_declares_no_columns() -> None:
    def foreign(batch: pa.RecordBatch) -> Annotated[pa.RecordBatch, "checked", Given]:
        return batch

    def both(batch: pa.RecordBatch) -> Annotated[pa.RecordBatch, "checked", Words]:
        return batch

    assert declared_columns("step", foreign, None) is None
    assert declared_columns("step", both, None) == SCHEMA


def test_a_column_of_no_type_is_refused_by_its_name() -> None:
    class Wrong(TypedDict):
        word: Callable[[], int]

    with pytest.raises(InvalidJob, match="gives the column 'word' the type"):
        declared_columns("split", plain, Wrong)
