"""Joins over columns with select= give what those over rows do, and keep their state in columns."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clonos.api.graph import JobGraph
from clonos.api.stream import Stream
from clonos.operators.kinds.column_sides import ColumnSides
from tests.unit.columns.joined_sides import SIDES, joined, stamped, written_by
from tests.unit.columns.test_column_windows import ColumnsOf
from tests.unit.operators.driver import Given, Outbox, run
from tests.unit.operators.joins.given_sides import ACTIONS, steady_and_troubled

pytestmark = pytest.mark.slow

Record = dict[str, Any]
Join = Callable[[Stream[Record], Stream[Record]], Stream[Any]]


def chosen(left: Record | None, right: Record | None) -> Any:
    """Makes a result of a pair; some pairs are too large for it."""
    if left is not None and left["x"] == 5:
        raise ValueError("too large")
    return (None if left is None else left["x"], None if right is None else right["name"])


JOINS: dict[str, Join] = {
    "inner": lambda left, right: left.join(right, on="key", between=(-4, 4), select=chosen),
    "full": lambda left, right: left.join(right, on="key", between=(0, 6), how="full", select=chosen),
    "as of": lambda left, right: left.join_as_of(right, on="key", how="left", select=chosen),
    "lookup": lambda left, right: left.lookup(right, on="key", how="left", select=chosen),
}


def selected(graph: JobGraph, sides: Any, join: str, make: Any) -> None:
    """Adds the job: results with their timestamps, and the records that raise."""
    graph.errors = Outbox()
    stamped(joined(graph, sides, JOINS[join], make))


@pytest.mark.parametrize("join", JOINS)
@settings(max_examples=12, deadline=None)
@given(SIDES, st.integers(1, 2), st.integers(1, 9))
def test_a_function_of_pairs_over_columns_gives_what_it_does_over_rows(
    join: str, sides: Any, parallelism: int, records_max: int
) -> None:
    found = [
        written_by(partial(selected, sides=sides, join=join, make=each), parallelism, records_max)
        for each in (Given, ColumnsOf)
    ]
    assert found[1] == found[0]


@pytest.mark.parametrize("join", JOINS)
@settings(max_examples=8, deadline=None)
@given(SIDES, ACTIONS, st.integers(1, 2), st.integers(1, 5))
def test_a_function_of_pairs_over_columns_restored_at_any_barrier_gives_the_same(
    join: str, sides: Any, actions: list[str], parallelism: int, records_max: int
) -> None:
    build = partial(selected, sides=sides, join=join, make=ColumnsOf)
    steady, troubled = steady_and_troubled(build, actions, parallelism, records_max)
    assert troubled == steady


@pytest.mark.parametrize("join", JOINS)
def test_joins_with_a_function_of_pairs_keep_columns(join: str, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[bool] = []
    monkeypatch.setattr(ColumnSides, "of_columns", _counting(taken, ColumnSides.of_columns))
    graph = JobGraph("job")
    rows = [{"key": "a", "at": 1_700_000_000, "x": 1, "name": "x"}]
    joined(graph, (rows, rows), JOINS[join]).sink(Outbox())
    (written,) = run(graph, 1).written.values()
    assert written in ([(1, "x")], [(1, None)])
    assert sorted(taken) == [False, True]


def _counting(taken: list[bool], take: Any) -> Any:
    def counted(self: Any, is_left: bool, *given: Any) -> Any:
        taken.append(is_left)
        return take(self, is_left, *given)

    return counted
