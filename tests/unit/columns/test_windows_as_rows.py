"""Windows over columns with exact sums, with lateness and without a key give what those over rows do."""

from __future__ import annotations

from decimal import Decimal
from functools import partial
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from clonos.agg import count, sum_
from clonos.api.event_time import Timestamps
from clonos.api.graph import JobGraph
from clonos.api.windows import Session, Sliding, Tumbling
from clonos.core.model.options import Options
from clonos.operators.columnar.sums.decimal_sums import DecimalSum
from tests.unit.columns.test_column_windows import (
    KINDS,
    LATE,
    START,
    ColumnsOf,
    Wide,
    WideColumns,
    aggregates,
    played,
    records_of,
    windowed,
)
from tests.unit.operators.driver import Given, Outbox, Run, run
from tests.unit.operators.joins.given_sides import steady_and_troubled

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("window", [Sliding("6s", every="2s"), Session("3s")])
def test_sums_of_decimals_are_exact_in_columns(window: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    prices = [Decimal("99999999999999999999.99"), Decimal("-0.01"), None, Decimal("1e19")]
    rows = [{"key": "ab"[at % 2], "at": START + at, "x": prices[at % 4]} for at in range(20)]
    schema = pa.schema([("key", pa.string()), ("at", pa.int64()), ("x", pa.decimal128(30, 2))])
    used: set[Any] = set()
    results = DecimalSum.results

    def tracked(self: DecimalSum, *state: Any) -> Any:
        used.add(type(self))
        return results(self, *state)

    monkeypatch.setattr(DecimalSum, "results", tracked)
    found = []
    for source in (Given(rows), ColumnsOf(rows, schema)):
        graph = JobGraph("job")
        stream = graph.source(source, timestamps=Timestamps("at", future_max=None))
        stream.key_by("key").window(window).aggregate(total=sum_("x"), n=count()).sink(Outbox())
        found.append(run(graph, 1, 5).written)
    assert found[1] == found[0]
    assert used == {DecimalSum}


@pytest.mark.parametrize("seed", range(8))
def test_windows_with_lateness_give_what_those_over_rows_do_restored_at_any_barrier(seed: int) -> None:
    rng = Random(seed)
    rows = records_of(rng, length=100, seconds=60, disorder=20)
    lateness: dict[str, Any] = {"lateness": rng.choice(["3s", "8s", "100s"]), "accumulate": rng.random() < 0.5}
    actions = [rng.choice(["read", "read", "restore", "barrier"]) for _ in range(40)]

    def build(source: Any, graph: JobGraph) -> None:
        windowed(graph, source, KINDS[seed % 4], **lateness)

    def played(source: Any, records_max: int) -> Any:
        steady, troubled = steady_and_troubled(partial(build, source), actions, 1, records_max)
        assert troubled == steady
        return steady

    width = rng.choice((5, 20, 40))
    assert played(WideColumns(rows), width) == played(Wide(rows), width)


@pytest.mark.parametrize("seed", range(4))
def test_windows_of_objects_take_late_columns_as_they_take_late_rows(seed: int) -> None:
    rng = Random(seed)
    rows = records_of(rng, length=60, seconds=60, disorder=30)
    kind = (Tumbling("5s"), Sliding("6s", every="2s"))[seed % 2]

    def build(source: Any, graph: JobGraph) -> None:
        stream = graph.source(source, timestamps=Timestamps("at", watermark_every="1s", future_max=None))
        windows = stream.key_by("key").window(kind, lateness="8s", late=LATE, accumulate=seed < 2)
        results = windows.reduce(lambda former, row: {**row, "x": (former["x"] or 0) + (row["x"] or 0)})
        results.sink(Outbox(), name="out")
        results.side_output(LATE).sink(Outbox(), name="late")

    found = [played(partial(build, source), records_max=1 + seed) for source in (Wide(rows), WideColumns(rows))]
    assert found[1] == found[0]
    assert found[0]["late"]


def test_late_results_of_windows_are_in_columns() -> None:
    rows = [{"key": key, "at": START + at, "x": 1, "y": 0.5} for key, at in [("a", 0), ("b", 9), ("a", 1), ("c", 2)]]

    def build(graph: JobGraph) -> None:
        stream = graph.source(ColumnsOf(rows), timestamps=Timestamps("at", future_max=None))
        counts = stream.key_by("key").window(Tumbling("5s"), lateness="10s").count()
        counts.select("key", "value").sink(Outbox())

    (written,) = played(build, records_max=1).values()
    assert [(row["key"], row["value"]) for row in written] == [("a", 1), ("a", 2), ("c", 1), ("b", 1)]


@pytest.mark.parametrize("seed", range(8))
def test_windows_without_a_key_give_what_those_over_rows_do_restored_at_any_barrier(seed: int) -> None:
    rng = Random(seed)
    rows = records_of(rng, length=80, seconds=60, disorder=10)
    kind = [Tumbling("5s"), Sliding("6s", every="2s"), Session("1s"), Session("3s")][seed % 4]
    actions = [rng.choice(["read", "read", "restore", "barrier"]) for _ in range(30)]
    named = {"n": count()} if rng.random() < 0.3 else aggregates()

    def build(source: Any, graph: JobGraph) -> None:
        timestamps = Timestamps("at", out_of_order="2s", watermark_every="1s", future_max=None)
        windows = graph.source(source, timestamps=timestamps).window(kind, late=LATE)
        results = windows.aggregate(**named, name="totals")
        results.sink(Outbox(), name="out")
        results.side_output(LATE).sink(Outbox(), name="late")

    def played(source: Any, records_max: int) -> Any:
        steady, troubled = steady_and_troubled(partial(build, source), actions, 1, records_max)
        assert troubled == steady
        return steady

    assert played(WideColumns(rows), 20) == played(Wide(rows), 20)


def test_windows_without_a_key_stay_in_columns() -> None:
    rows = [{"key": "a", "at": START + at, "x": at, "y": 0.5} for at in range(20)]

    def build(graph: JobGraph) -> None:
        stream = graph.source(ColumnsOf(rows), timestamps=Timestamps("at", future_max=None))
        counts = stream.window(Tumbling("10s")).count()
        counts.select("value", "window_time").window(Session("100s")).sum("value").select("value").sink(Outbox())

    (written,) = played(build).values()
    assert written == [{"value": 20}]


@pytest.mark.parametrize("is_column", [True, False])
def test_windows_by_the_clock_without_a_key_give_what_those_over_rows_do(is_column: bool) -> None:
    rows = [{"key": key, "at": START, "x": 1, "y": 0.5} for key in "abacab"]
    graph = JobGraph("job")
    source = graph.source(ColumnsOf(rows) if is_column else Given(rows))
    source.window(Tumbling("5s")).aggregate(n=count(), total=sum_("x")).sink(Outbox())
    running = Run(graph.compile(Options(), parallelism=1))
    while running.read(2):
        running.drain()
        running.pass_time(3)
    running.finish()
    (written,) = running.written.values()
    assert [(row.key, row.value) for row in written] == [(None, {"n": 3, "total": 3})] * 2


@pytest.mark.parametrize(
    ("key", "aggregates"), [("value", {}), ("start", {}), ("key", {"end": count()}), ("key", {"key": count()})]
)
def test_windows_whose_results_would_have_two_columns_of_one_name_work_on_rows(
    key: str, aggregates: dict[str, Any]
) -> None:
    batch = pa.record_batch({"value": ["a", "b", "a"], "start": [1, 2, 1], "key": ["c", "d", "c"]})
    found = []
    for source in (ColumnsOf(batch.to_pylist(), batch.schema), Given(batch.to_pylist())):
        graph = JobGraph("job")
        windows = graph.source(source).key_by(key).window(Tumbling("5s"))
        (windows.aggregate(**aggregates) if aggregates else windows.count()).sink(Outbox())
        found.append(run(graph, 1).written)
    assert found[0] == found[1]
