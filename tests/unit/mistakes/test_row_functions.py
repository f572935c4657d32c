"""Functions that turn columns into rows in front of an exchange: a warning, with the expression to write instead."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from clonos import col
from clonos.api.checks.row_functions import expression_text, row_function_warnings, warn_of_row_functions
from clonos.api.graph import JobGraph
from tests.unit.operators.driver import Given, Outbox
from tests.unit.operators.samples import ColumnsGiven

FACTOR = 3


def doubled(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "double": row["n"] * 2}


def parsed(row: dict[str, Any]) -> dict[str, Any]:
    return {"n": int(row["n"])}


WRITTEN: list[tuple[str, Any, str]] = [
    ("filter", lambda row: row["price"] > 100, "filter(col('price') > 100)"),
    ("filter", lambda row: row["n"] % 2 == 0, "filter(col('n') % 2 == 0)"),
    ("filter", lambda row: row["flag"], ""),
    ("filter", lambda row: row["n"] > 1 and row["n"] < 9, ""),
    ("filter", lambda row: row["n"] is None, ""),
    ("filter", lambda row: row["n"] > FACTOR, ""),
    ("filter", lambda row: len(row["text"]) > 3, ""),
    ("filter", lambda row: row.price > 3, ""),
    ("filter", lambda row, limit=3: row["n"] > limit, ""),
    ("map", lambda row: {"a": row["a"], "b": row["n"] * 2}, "select(\"a\", b=col('n') * 2)"),
    ("map", lambda row: {"b": row["n"] * 2, "a": row["a"]}, "select(\"a\", b=col('n') * 2)"),
    ("map", doubled, "with_columns(double=col('n') * 2)"),
    ("map", lambda row: {"a": 1}, ""),
    ("map", lambda row: {"a": "x%s" % row["a"]}, ""),  # noqa: UP031
    ("map", lambda row: row["a"], ""),
    ("map", parsed, ""),
    ("map", abs, ""),
    ("key_by", lambda row: row["a"], 'key_by("a")'),
    ("key_by", lambda row: (row["a"], row["b"]), 'key_by("a", "b")'),
    ("key_by", lambda row: row["n"] % 10, "with_columns(key=col('n') % 10).key_by(\"key\")"),
    ("flat_map", lambda row: row["n"] * 2, ""),
]


@pytest.mark.parametrize("place", range(len(WRITTEN)))
def test_a_function_of_fields_is_written_as_an_expression(place: int) -> None:
    kind, function, text = WRITTEN[place]
    assert expression_text(kind, function) == text


def test_a_function_that_does_more_is_not_called() -> None:
    called: list[Any] = []

    def appended(row: dict[str, Any]) -> bool:
        called.append(row)
        return bool(row["n"] > 3)

    assert expression_text("filter", appended) == ""
    assert called == []


def graph_of(build: Any, source: Any = None) -> JobGraph:
    graph = JobGraph("job")
    build(graph.source(source or ColumnsGiven([]), name="read")).sink(Outbox())
    return graph


def test_a_lambda_in_front_of_an_exchange_is_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    def build(stream: Any) -> Any:
        return stream.filter(lambda row: row["n"] > 3, name="large").map(parsed, name="parsed").key_by("n").count()

    graph = graph_of(build)
    (text,) = row_function_warnings(graph)
    assert text.startswith(
        "the step large turns columns into rows in front of an exchange, which costs a multiple: it calls lambda at"
        " test_row_functions.py:"
    )
    assert text.endswith("with each row. Write filter(col('n') > 3) instead (docs/columns.md).")
    with caplog.at_level(logging.WARNING, "clonos.run"):
        warn_of_row_functions(graph)
        warn_of_row_functions(graph)
    assert [record.getMessage() for record in caplog.records] == [text]


@pytest.mark.parametrize(
    "build",
    [
        lambda stream: stream.filter(lambda row: row["n"] > 3),  # no exchange after it
        lambda stream: stream.filter(col("n") > 3).key_by("n").count(),
        lambda stream: stream.map(parsed).key_by("n").count(),  # a function that no expression replaces
        lambda stream: stream.key_by("n").count().map(lambda pair: pair),
    ],
    ids=["no exchange", "expression", "function", "behind"],
)
def test_other_steps_on_columns_are_not_warned_of(build: Any) -> None:
    assert row_function_warnings(graph_of(build)) == []


def test_a_lambda_on_rows_is_not_warned_of() -> None:
    def build(stream: Any) -> Any:
        return stream.filter(lambda row: row["n"] > 3).key_by(lambda row: row["n"]).count()

    assert row_function_warnings(graph_of(build, Given([]))) == []
    assert len(row_function_warnings(graph_of(build))) == 1


def test_a_key_function_and_a_lambda_without_an_expression_are_warned_of() -> None:
    (text,) = row_function_warnings(graph_of(lambda stream: stream.key_by(lambda row: row["n"], name="by").count()))
    assert "the step by turns columns into rows" in text
    assert 'Write key_by("n") instead' in text
    (other,) = row_function_warnings(graph_of(lambda stream: stream.flat_map(lambda row: [row]).shuffle().map(str)))
    assert "Use expressions or map_batches if you can" in other
