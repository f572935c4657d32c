"""Ordered merges: records leave in the order of their timestamps, and none before its time."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clonos.api.graph import JobGraph
from clonos.api.graph_errors import InvalidJob
from tests.unit.operators import driver
from tests.unit.operators.joins.given_sides import (
    ACTIONS,
    LATE,
    odd_or_even,
    on_time,
    played,
    scripts,
    steady_and_troubled,
    sunk,
    timed,
)


@settings(max_examples=50, deadline=None)
@given(scripts(), scripts(), st.integers(1, 2), st.integers(1, 5), st.booleans())
def test_a_merge_gives_all_records_that_are_on_time_in_order(
    first: list[Any], second: list[Any], parallelism: int, records_max: int, idle: bool
) -> None:
    first, second = odd_or_even(first, False), odd_or_even(second, True)

    def build(graph: JobGraph) -> None:
        merged = timed(graph, first, 3, idle).merge_ordered(timed(graph, second, 3, idle), late=LATE)
        sunk(merged, parallelism=1)

    written = played(build, parallelism, records_max, seconds=4)
    late = written.get("late", [])
    found = [row for row, _ in written.get("out", [])]
    assert [row.at for row, at in written.get("out", []) if row.at != at] == []
    assert len(late) + len(found) == len({*late, *found})
    assert sorted(found) == sorted([*on_time(first, late), *on_time(second, late)])
    assert [(row.at, row.number % 2) for row in found] == sorted((row.at, row.number % 2) for row in found)
    if parallelism == 1:  # the order of arrival is that of the source
        assert found == sorted(found, key=lambda row: (row.at, row.number % 2, row.number))


@settings(max_examples=30, deadline=None)
@given(scripts(waits=False), scripts(waits=False), ACTIONS, st.integers(1, 2), st.integers(1, 4))
def test_a_merge_restored_at_any_barrier_gives_the_same(
    first: list[Any], second: list[Any], actions: list[str], parallelism: int, records_max: int
) -> None:
    def build(graph: JobGraph) -> None:
        sunk(timed(graph, first, 3).merge_ordered(timed(graph, second, 3), late=LATE), parallelism=1)

    steady, troubled = steady_and_troubled(build, actions, parallelism, records_max)
    assert repr(troubled) == repr(steady)


def test_a_merge_of_streams_without_timestamps_is_refused() -> None:
    graph = JobGraph("job")
    with pytest.raises(InvalidJob, match=r"merges a stream without timestamps by time\. Give the records timestamps"):
        timed(graph, []).merge_ordered(graph.source(driver.Given([])))
    with pytest.raises(InvalidJob, match="merges streams of two jobs"):
        timed(graph, []).merge_ordered(timed(JobGraph("other"), []))
