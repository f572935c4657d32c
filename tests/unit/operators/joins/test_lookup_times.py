"""Results of a lookup have the times of the left stream, whatever its table has, and event time goes on with it."""

from __future__ import annotations

from typing import Any

import pytest

from clonos.api.event_time import Timestamps
from clonos.api.graph import JobGraph
from clonos.api.windows import Tumbling
from clonos.core.model.options import Options
from tests.unit.columns.joined_sides import LEFT, RIGHT, START, Stamped
from tests.unit.columns.test_column_windows import ColumnsOf
from tests.unit.operators.driver import Given, Outbox, Run, run
from tests.unit.operators.joins.given_sides import restored

LEFTS = [{"key": "a", "at": START + at, "x": at} for at in (0, 10, 20)]
TABLE = [{"key": f"k{at}", "at": START + at, "name": "n", "x": at} for at in range(100)]
TIMES = Timestamps("at", watermark_every="1s", future_max=None)


def looked_up(graph: JobGraph, make: Any, table_has_times: bool) -> Any:
    sides: list[Any] = [(LEFTS, LEFT, TIMES), (TABLE, RIGHT, TIMES if table_has_times else None)]
    left, table = (
        graph.source(make(rows) if make is Given else make(rows, schema), timestamps=times, parallelism=1)
        for rows, schema, times in sides
    )
    return left.lookup(table, on="key", parallelism=1)


@pytest.mark.parametrize("make", [Given, ColumnsOf])
@pytest.mark.parametrize("table_has_times", [False, True])
def test_results_have_the_timestamps_of_the_left_stream(make: Any, table_has_times: bool) -> None:
    graph = JobGraph("job")
    looked_up(graph, make, table_has_times).process(Stamped, name="out").sink(Outbox())
    (written,) = run(graph).written.values()
    assert sorted((left["x"], second) for (left, _), second in written) == [(0, 0), (10, 10), (20, 20)]


@pytest.mark.parametrize("make", [Given, ColumnsOf])
def test_windows_after_a_lookup_end_while_its_table_without_timestamps_goes_on(make: Any) -> None:
    graph = JobGraph("job")
    windows = looked_up(graph, make, False).window(Tumbling("10s"))
    windows.apply(lambda _, window, pairs: [left["x"] for left, _ in pairs], name="all").sink(Outbox())
    running = Run(graph.compile(Options(), parallelism=1))
    for checkpoint in range(1, 5):
        running.read(1)
        running.drain()
        running = restored(running, checkpoint)
    assert list(running.written.values()) == [[0, 10]]
    running.close()


@pytest.mark.parametrize("make", [Given, ColumnsOf])
def test_an_as_of_join_with_a_table_of_one_early_time_waits_until_the_table_is_read(make: Any) -> None:
    graph = JobGraph("job")
    table = [{**row, "at": 0, "key": "a" if row["x"] == 99 else "b"} for row in TABLE]
    left, right = (
        graph.source(make(rows) if make is Given else make(rows, schema), timestamps=TIMES, parallelism=1)
        for rows, schema in ((LEFTS, LEFT), (table, RIGHT))
    )
    left.join_as_of(right, on="key", parallelism=1).sink(Outbox())
    running = Run(graph.compile(Options(), parallelism=1))
    for _ in range(20):
        running.read(3)
        running.drain()
    assert running.written == {}
    running.finish(3)
    (written,) = running.written.values()
    assert [(each["x"], version["x"]) for each, version in written] == [(0, 99), (10, 99), (20, 99)]
    running.close()
