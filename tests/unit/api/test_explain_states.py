"""Explanation of state: lengths of time have units, what is not given is left out, and side outputs leave columns."""

from __future__ import annotations

from typing import Any

import pyarrow
import pytest

from clonos import Stream, Tag, Timestamps, Tumbling
from clonos.api.graph import JobGraph
from clonos.api.plan.explain_text import explanation_text
from clonos.api.plan.explaining import explain_graph
from clonos.api.plan.explanation import Explanation
from clonos.core.model.options import Options
from tests.unit.columns.test_column_windows import ColumnsOf
from tests.unit.operators.driver import Outbox

LATE: Tag[Any] = Tag("late")
SCHEMA = pyarrow.schema([("a", pyarrow.int64()), ("b", pyarrow.int64()), ("at", pyarrow.int64())])


def source(graph: JobGraph, name: str) -> Stream[Any]:
    return graph.source(ColumnsOf([], SCHEMA), name=name, timestamps=Timestamps("at"))


def plan_of(graph: JobGraph) -> Explanation:
    return explain_graph(graph, Options(), 2)


@pytest.mark.parametrize(
    ("extend", "properties"),
    [
        (lambda one, _: one.deduplicate("b", within="90s"), {"keep": "first", "within": "90s", "field": "'b'"}),
        (lambda one, _: one.deduplicate(), {"keep": "first"}),
        (lambda one, other: one.join(other, between=("-1s", "2min")), {"how": "inner", "match": "-1s to 2min"}),
        (lambda one, other: one.join(other, between=(0, "500ms")), {"how": "inner", "match": "0s to 500ms"}),
        (lambda one, other: one.join_as_of(other, tolerance="1h"), {"direction": "backward", "tolerance": "1h"}),
        (lambda one, other: one.join_as_of(other), {"direction": "backward"}),
    ],
    ids=["within", "for ever", "between", "zero", "tolerance", "no tolerance"],
)
def test_lengths_of_time_have_units_and_none_is_left_out(extend: Any, properties: dict[str, str]) -> None:
    graph = JobGraph("job")
    one, other = (source(graph, name).key_by("a") for name in ("one", "other"))
    stream = extend(one, other)
    stream.sink(Outbox())
    (state,) = [each.state for each in plan_of(graph).steps if each.state is not None]
    assert {
        name: text for name, text in state.properties.items() if name not in ("event time", "state of")
    } == properties


def test_the_plan_keeps_the_texts_that_a_resume_compares() -> None:
    graph = JobGraph("job")
    source(graph, "one").key_by("a").deduplicate("b", within="1s").sink(Outbox())
    (state,) = [each for vertex in graph.compile(Options(), parallelism=1).plan.vertices for each in vertex.steps]
    assert dict(state.properties)["within"] == "1000000000"


def test_a_stretch_of_columns_names_the_steps_that_read_side_outputs_as_rows() -> None:
    graph = JobGraph("job")
    windows = source(graph, "one").key_by("a").window(Tumbling("5s"), late=LATE).count(name="windows")
    windows.select("a", name="chosen").sink(Outbox(), name="out")
    windows.side_output(LATE).map(str, name="late").sink(Outbox(), name="late_out")
    plan = plan_of(graph)
    assert [(each.steps, each.rows_from) for each in plan.columns] == [(("one", "windows", "chosen"), ("out", "late"))]
    assert "3 steps: one, windows, chosen; rows from out and late on" in " ".join(explanation_text(plan).split())
