"""Aggregates over columns that emit at a pace, and those without a key, give what those over rows do."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clonos import col
from clonos.agg import collect, count, count_distinct, first, max_, mean, sum_
from clonos.api.emission import at_end, changes, each, every
from clonos.api.event_time import Timestamps
from clonos.api.graph import JobGraph
from clonos.api.plan.explaining import explain_graph
from clonos.core.model.options import Options
from clonos.operators.emission_times import Emission
from clonos.operators.kinds.column_totals import ColumnTotalKind
from tests.unit.columns.test_column_totals import SCHEMA, START, aggregates, records
from tests.unit.columns.test_column_windows import ColumnsOf
from tests.unit.operators.driver import Given, Outbox, Run, run
from tests.unit.operators.joins.given_sides import ACTIONS, steady_and_troubled

PACES = (each(2), each(3), each(7), every("2s"))
WITHOUT_KEY = (each(1), changes(), at_end(), *PACES)


def aggregated(graph: JobGraph, source: Any, emit: Emission, keys: tuple[str, ...], *, has_order: bool = True) -> None:
    """Adds the job. ``has_order``: the order of records matters to some aggregate."""
    stream: Any = graph.source(source, timestamps=Timestamps("at", future_max=None) if emit.count == 1 else None)
    named: dict[str, Any] = {"n": count(), "total": sum_("x"), "most": max_("y"), "mean": mean("x")}
    if has_order:
        named["first"] = first("x")
    if not emit.count:
        named["different"] = count_distinct("x")
    results = (stream.key_by(*keys) if keys else stream).aggregate(emit=emit, name="totals", **named)
    results.sink(Outbox(), name="out")
    results.map(lambda row: row, name="shown").sink(Outbox(), name="shown-out")


def paused(graph: JobGraph, parallelism: int, records_max: int) -> Any:
    """What is written where the clock goes on between reads."""
    running = Run(graph.compile(Options(), parallelism=parallelism))
    while running.read(records_max):
        running.drain()
        running.pass_time(1)
    running.finish()
    return running.written


KEYS = st.sampled_from([("key",), ("key", "other"), ()])


@settings(max_examples=25, deadline=None)
@given(records, st.sampled_from(WITHOUT_KEY), KEYS, st.integers(1, 2), st.integers(1, 20), st.booleans())
def test_paced_totals_over_columns_are_those_over_rows(
    rows: list[dict[str, Any]], emit: Emission, keys: Any, parallelism: int, records_max: int, has_order: bool
) -> None:
    found = []
    for source in (Given(rows), ColumnsOf(rows, SCHEMA)):
        graph = JobGraph("job")
        aggregated(graph, source, emit, keys, has_order=has_order)
        found.append(paused(graph, parallelism, records_max))
    assert found[1] == found[0]


@settings(max_examples=15, deadline=None)
@given(records, st.sampled_from(WITHOUT_KEY), KEYS, ACTIONS, st.integers(1, 9), st.booleans())
def test_paced_totals_restored_at_any_barrier_are_the_same(
    rows: list[dict[str, Any]], emit: Emission, keys: Any, actions: list[str], records_max: int, has_order: bool
) -> None:
    def build(graph: JobGraph) -> None:
        aggregated(graph, ColumnsOf(rows, SCHEMA), emit, keys, has_order=has_order)

    steady, troubled = steady_and_troubled(build, actions, 1, records_max)
    assert troubled == steady


def opening(method: Any, opened: list[str]) -> Any:
    """A method that notes its calls."""

    def wrapped(self: Any, *args: Any) -> Any:
        opened.append(type(self).__name__)
        return method(self, *args)

    return wrapped


@pytest.mark.parametrize("has_key", [True, False])
@pytest.mark.parametrize("emit", WITHOUT_KEY, ids=str)
def test_totals_stay_in_columns(emit: Emission, has_key: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [{"key": "a", "other": True, "at": START, "x": x, "y": 0.5, "money": None} for x in range(20)]
    opened: list[str] = []
    monkeypatch.setattr(ColumnTotalKind, "totals", opening(ColumnTotalKind.totals, opened))
    graph = JobGraph("job")
    stream: Any = graph.source(ColumnsOf(rows, SCHEMA))
    totals = (stream.key_by("key") if has_key else stream).aggregate(emit=emit, name="totals", **aggregates())
    is_row = emit.is_final and not has_key  # one record
    if not is_row:
        totals = totals.filter(col("n") > 0).select("n", "total")
    totals.sink(Outbox())
    (step,) = [each for each in explain_graph(graph, Options(), 1).steps if each.name == "totals"]
    assert (step.row_reason, step.gives) == ("", "rows" if is_row else "columns")
    (written,) = run(graph, 1, 7).written.values()
    assert written[-1]["total"] == sum(range(20))
    assert opened


def test_a_total_of_no_records_is_emitted_at_the_end() -> None:
    for named, wanted in (({"n": count()}, {"n": 0}), ({"n": count(), "first": first("x")}, {"n": 0, "first": None})):
        graph = JobGraph("job")
        stream: Any = graph.source(ColumnsOf([], SCHEMA))
        stream.aggregate(emit=at_end(), **named).sink(Outbox())
        assert list(run(graph, 1, 7).written.values()) == [[wanted]]


def test_explain_names_an_aggregate_without_a_key_that_works_on_rows() -> None:
    graph = JobGraph("job")
    stream: Any = graph.source(ColumnsOf([], pa.schema([("x", pa.int64())])))
    stream.aggregate(all=collect("x"), name="totals").sink(Outbox())
    (step,) = [each for each in explain_graph(graph, Options(), 1).steps if each.name == "totals"]
    assert step.row_reason == "collect('x') works on rows"
