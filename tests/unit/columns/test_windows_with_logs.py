"""Windows over columns with lists, ranks and sketches give what those over rows do, at any cut and restore."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clonos import col
from clonos.agg import (
    approx_distinct,
    bottom_k,
    collect,
    count,
    count_distinct,
    distinct,
    first,
    last,
    max_,
    min_,
    quantile,
    top_k,
)
from clonos.api.event_time import Timestamps
from clonos.api.graph import JobGraph
from clonos.api.plan.explaining import explain_graph
from clonos.api.windows import Session, Sliding, Tumbling
from clonos.core.model.options import Options
from clonos.operators.columnar.logs.log_aggregate import LogAggregate
from clonos.operators.kinds.column_panes import ColumnPanes
from clonos.operators.kinds.object_panes import ObjectPanes
from tests.unit.columns.test_column_windows import (
    KINDS,
    LATE,
    START,
    ColumnsOf,
    classes_used,
    disordered,
    played,
)
from tests.unit.operators.driver import Given, Outbox, run
from tests.unit.operators.joins.given_sides import ACTIONS, steady_and_troubled

LATENESS = st.sampled_from([{}, {"lateness": "3s"}, {"lateness": "20s", "accumulate": False}])


@pytest.fixture(autouse=True)
def compacted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LogAggregate, "compacted_min", 3)


def aggregates() -> dict[str, Any]:
    return {
        "top": top_k(2, "x"),
        "bottom": bottom_k(3, "y"),
        "all": collect("key"),
        "records": collect(),
        "distinct": distinct("y"),
        "number": count_distinct("x"),
        "some": approx_distinct("x", error=0.2),
        "median": quantile("x", 0.5),
        "earliest": first("key"),
        "latest": last("key"),
        "least": min_("key"),
        "greatest": max_("key"),
    }


def windowed(graph: JobGraph, source: Any, kind: Any, more: dict[str, Any], *, is_keyed: bool = True) -> None:
    """Adds the job; ``more``: aggregates or the lateness."""
    timestamps = Timestamps("at", out_of_order="4s", watermark_every="1s", future_max=None)
    stream: Any = graph.source(source, timestamps=timestamps)
    lateness = {name: each for name, each in more.items() if name in ("lateness", "accumulate")}
    named = {name: each for name, each in more.items() if name not in lateness}
    windows = (stream.key_by("key") if is_keyed else stream).window(kind, late=LATE, **lateness)
    results = windows.aggregate(**aggregates(), **named, name="lists")
    results.sink(Outbox(), name="out")
    results.side_output(LATE).sink(Outbox(), name="late")


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(disordered(), st.sampled_from(KINDS), LATENESS, st.integers(1, 9), st.booleans(), st.booleans())
def test_windows_with_logs_give_what_those_over_rows_do(
    rows: list[dict[str, Any]], kind: Any, lateness: Any, records_max: int, is_keyed: bool, has_count: bool
) -> None:
    found, more = [], {**lateness, **({"n": count()} if has_count else {})}
    for source in (Given(rows), ColumnsOf(rows)):
        graph = JobGraph("job")
        windowed(graph, source, kind, more, is_keyed=is_keyed)
        found.append(run(graph, 1, records_max).written)
    assert found[1] == found[0]


@pytest.mark.slow
@settings(max_examples=15, deadline=None)
@given(disordered(), st.sampled_from(KINDS), LATENESS, ACTIONS, st.integers(1, 2), st.integers(1, 5))
def test_windows_with_logs_restored_at_any_barrier_give_the_same(
    rows: list[dict[str, Any]], kind: Any, lateness: Any, actions: list[str], parallelism: int, records_max: int
) -> None:
    steady, troubled = steady_and_troubled(
        lambda graph: windowed(graph, ColumnsOf(rows), kind, lateness), actions, parallelism, records_max
    )
    assert troubled == steady


def test_windows_with_logs_stay_in_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [{"key": "a", "at": START, "x": 1, "name": "x"}]
    schema = pa.schema([("key", pa.string()), ("at", pa.int64()), ("x", pa.int64()), ("name", pa.string())])
    columns: Any = {**aggregates(), "bottom": bottom_k(1, "at"), "distinct": distinct("name")}
    assert classes_used(rows, schema, monkeypatch, **columns) == {ColumnPanes}
    assert classes_used(rows, schema, monkeypatch, longest=top_k(1, "name")) == {ObjectPanes}
    assert classes_used(rows, schema, monkeypatch, median=quantile("x", 0.5)) == {ColumnPanes}


VALUES: dict[str, tuple[Any, list[Any]]] = {
    "texts": (pa.string(), ["b", None, "a", "\N{LATIN SMALL LETTER U WITH DIAERESIS}", "Z", ""]),
    "large texts": (pa.large_string(), ["b", "a", None]),
    "dictionary": (pa.dictionary(pa.int32(), pa.string()), ["b", "a", "b", None, "c"]),
    "bytes": (pa.binary(), [b"\xff", b"", b"a", None]),
    "decimals": (pa.decimal128(9, 2), [Decimal("1.10"), Decimal("-3.00"), None, Decimal("1.10")]),
    "unsigned": (pa.uint64(), [2**63 + 1, 5, None, 2**64 - 1]),
}


@pytest.mark.parametrize("values", VALUES)
def test_first_last_least_and_greatest_values_of_any_type_are_those_over_rows(
    values: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    type_, cells = VALUES[values]
    rows = [{"key": "ab"[place % 2], "at": START + place, "x": cell} for place, cell in enumerate([*cells, *cells])]
    schema = pa.schema([("key", pa.string()), ("at", pa.int64()), ("x", type_)])
    named = {"first": first("x"), "last": last("x"), "least": min_("x"), "most": max_("x")}
    assert classes_used(rows, schema, monkeypatch, **named) == {ColumnPanes}
    found = []
    for source in (Given(rows), ColumnsOf(rows, schema)):
        graph = JobGraph("job")
        stream: Any = graph.source(source, timestamps=Timestamps("at", out_of_order="9s", future_max=None))
        stream.key_by("key").window(Sliding("6s", every="3s")).aggregate(**named).sink(Outbox())
        found.append(run(graph, 1, 3).written)
    assert found[1] == found[0]


def test_first_values_of_lists_stay_in_columns_and_least_ones_go_on_in_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = pa.schema([("key", pa.string()), ("at", pa.int64()), ("x", pa.list_(pa.int64()))])
    rows = [{"key": "a", "at": START, "x": [2, 1]}]
    assert classes_used(rows, schema, monkeypatch, first=first("x")) == {ColumnPanes}
    assert classes_used(rows, schema, monkeypatch, least=min_("x")) == {ObjectPanes}


def test_lists_of_windows_are_columns_of_lists() -> None:
    rows = [{"key": key, "at": START + at, "x": at, "y": 0.5} for at, key in enumerate("aabab")]

    def build(graph: JobGraph) -> None:
        stream: Any = graph.source(ColumnsOf(rows), timestamps=Timestamps("at", future_max=None))
        lists = stream.key_by("key").window(Tumbling("100s")).aggregate(top=top_k(2, "x"), all=collect("x"))
        lists.filter(col("key") == "b").select("all", "top").sink(Outbox())

    (written,) = played(build).values()
    assert written == [{"all": [2, 4], "top": [rows[4], rows[2]]}]


@pytest.mark.parametrize(
    ("kind", "name", "reason"),
    [
        (Tumbling("5s"), "all", ""),
        (Session("5s"), "all", "collect('x') works on rows"),
        (Session("5s"), "top", "top_k(2, by='x') works on rows"),
    ],
)
def test_explain_names_the_lists_that_work_on_rows(kind: Any, name: str, reason: str) -> None:
    graph = JobGraph("job")
    stream: Any = graph.source(ColumnsOf([]), timestamps=Timestamps("at", future_max=None))
    found = {"all": collect("x"), "top": top_k(2, "x")}[name]
    stream.key_by("key").window(kind).aggregate(each=found, name="lists").sink(Outbox())
    (step,) = [each for each in explain_graph(graph, Options(), 1).steps if each.name == "lists"]
    assert step.row_reason == reason
