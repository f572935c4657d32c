"""Windows over columns with lateness, and without a key, against those over rows."""

from __future__ import annotations

from functools import partial
from random import Random
from typing import Any

import pytest

from clonos.agg import count, sum_
from clonos.api.event_time import Timestamps
from clonos.api.graph import JobGraph
from clonos.api.windows import Session, Sliding, Tumbling
from clonos.core.model.options import Options
from tests.unit.columns.test_column_windows import (
    KINDS,
    LATE,
    START,
    Changing,
    ColumnsOf,
    Wide,
    WideColumns,
    played,
    records_of,
    sums,
    windowed,
)
from tests.unit.operators.driver import Given, Outbox, Run
from tests.unit.operators.joins.given_sides import steady_and_troubled


@pytest.mark.parametrize("seed", range(12))
def test_windows_with_lateness_give_what_those_over_rows_do_restored_at_any_barrier_or_taken_over(seed: int) -> None:
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
    assert played(Changing(rows), 1) == played(Given(rows), 1)


def test_late_results_of_windows_are_in_columns() -> None:
    rows = [{"key": key, "at": START + at, "x": 1, "y": 0.5} for key, at in [("a", 0), ("b", 9), ("a", 1), ("c", 2)]]

    def build(graph: JobGraph) -> None:
        stream = graph.source(ColumnsOf(rows), timestamps=Timestamps("at", future_max=None))
        counts = stream.key_by("key").window(Tumbling("5s"), lateness="10s").count()
        counts.select("key", "value").sink(Outbox())

    (written,) = played(build, records_max=1).values()
    assert [(row["key"], row["value"]) for row in written] == [("a", 1), ("a", 2), ("c", 1), ("b", 1)]


@pytest.mark.parametrize("seed", range(8))
def test_windows_without_a_key_give_what_those_over_rows_do_restored_at_any_barrier_or_taken_over(seed: int) -> None:
    rng = Random(seed)
    rows = records_of(rng, length=80, seconds=60, disorder=10)
    kind = [Tumbling("5s"), Sliding("6s", every="2s"), Session("1s"), Session("3s")][seed % 4]
    actions = [rng.choice(["read", "read", "restore", "barrier"]) for _ in range(30)]
    named = {"n": count()} if rng.random() < 0.3 else sums()

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
    assert played(Changing(rows), 1) == played(Given(rows), 1)


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
