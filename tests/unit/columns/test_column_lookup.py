"""Lookups over columns give what those over rows do: same input, same results in the same order, at any restore."""

from __future__ import annotations

from functools import partial
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clonos import col
from clonos.api.graph import JobGraph
from clonos.api.graph_errors import ColumnsNeeded
from clonos.operators.kinds.column_sides import ColumnSides
from clonos.operators.kinds.object_sides import ObjectSides
from tests.unit.columns.joined_sides import LEFT, RIGHT, SIDES, START, joined, stamped, written_by
from tests.unit.columns.test_column_windows import ColumnsOf, UnknownColumns
from tests.unit.operators.driver import Given, Outbox
from tests.unit.operators.joins.given_sides import ACTIONS, steady_and_troubled

HOWS = st.sampled_from(["left", "inner"])


def looked_up(graph: JobGraph, sides: Any, how: Any, make: Any, is_timed: bool) -> None:
    found = joined(graph, sides, lambda left, right: left.lookup(right, on="key", how=how), make, is_timed)
    stamped(found, is_timed=is_timed)


@settings(max_examples=30, deadline=None)
@given(SIDES, HOWS, st.integers(1, 2), st.integers(1, 9), st.booleans())
def test_lookups_over_columns_give_what_lookups_over_rows_do(
    sides: Any, how: str, parallelism: int, records_max: int, is_timed: bool
) -> None:
    found = [
        written_by(partial(looked_up, sides=sides, how=how, make=make, is_timed=is_timed), parallelism, records_max)
        for make in (Given, ColumnsOf)
    ]
    assert found[1] == found[0]


@pytest.mark.slow
@settings(max_examples=20, deadline=None)
@given(SIDES, HOWS, ACTIONS, st.integers(1, 2), st.integers(1, 5))
def test_lookups_over_columns_restored_at_any_barrier_give_the_same(
    sides: Any, how: str, actions: list[str], parallelism: int, records_max: int
) -> None:
    def build(graph: JobGraph) -> None:
        looked_up(graph, sides, how, ColumnsOf, True)

    steady, troubled = steady_and_troubled(build, actions, parallelism, records_max)
    assert troubled == steady


ROWS = ([{"key": key, "at": START, "x": 1} for key in "ab"], [{"key": "a", "at": START, "name": "n", "x": 2}])


def kinds_used(monkeypatch: pytest.MonkeyPatch, left: Any, right: Any, rows: Any = ROWS) -> set[type]:
    used: set[type] = set()

    def tracked(cls: Any, method: str) -> None:
        before = getattr(cls, method)

        def called(self: Any, *given: Any) -> Any:
            used.add(cls)
            return before(self, *given)

        monkeypatch.setattr(cls, method, called)

    tracked(ColumnSides, "of_columns")
    tracked(ObjectSides, "of_rows")

    def build(graph: JobGraph) -> None:
        streams = [graph.source(ColumnsOf(*each)) for each in zip(rows, (left, right), strict=True)]
        streams[0].lookup(streams[1], on="key").sink(Outbox())

    written_by(build, 1, 3)
    return used


def test_keys_of_types_that_are_not_equal_as_in_rows_are_looked_up_in_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    assert kinds_used(monkeypatch, LEFT, RIGHT) == {ColumnSides}
    numbers = pa.schema([("key", pa.uint64()), ("at", pa.int64()), ("x", pa.int64())])
    rows = [[{**row, "key": 1 << 63} for row in each] for each in ROWS]
    right = RIGHT.set(0, pa.field("key", pa.uint64()))
    assert kinds_used(monkeypatch, numbers, right, rows) == {ObjectSides}


@pytest.mark.parametrize("how", ["left", "inner"])
def test_lookups_stay_in_columns(how: Any) -> None:
    rows = [{"key": key, "at": START + at, "x": at} for at, key in enumerate("ba", 3)]
    table = [{"key": "a", "at": START, "name": "n", "x": 2}]

    def build(graph: JobGraph) -> None:
        first = graph.source(ColumnsOf(table, RIGHT)).key_by("key")
        left = graph.source(ColumnsOf(rows, LEFT))
        left.key_by("key").lookup(first, how=how).select("key", "key_right", both=col("x") + col("x_right")).sink(
            Outbox()
        )

    (written,) = written_by(build, 1, 1).values()
    expected = [{"key": "b", "key_right": None, "both": None}, {"key": "a", "key_right": "a", "both": 6}]
    assert written == expected[1 if how == "inner" else 0 :]


def test_columns_of_a_table_without_rows_are_null() -> None:
    rows = [{"key": "a", "at": START, "x": 1}]

    def build(graph: JobGraph) -> None:
        left, table = graph.source(ColumnsOf(rows, LEFT)), graph.source(ColumnsOf([], RIGHT))
        left.lookup(table, on="key").select("key", "name", name="chosen").sink(Outbox())

    assert list(written_by(build, 1, 3).values()) == [[{"key": "a", "name": None}]]


def test_a_step_on_columns_after_a_lookup_in_rows_is_refused_with_the_reason() -> None:
    def build(graph: JobGraph) -> None:
        lookup = joined(graph, ROWS, lambda left, right: left.lookup(right, on="key"), UnknownColumns, False)
        lookup.select("key", name="next").sink(Outbox())

    with pytest.raises(ColumnsNeeded, match=r"next .*lookup.* the plan does not know the columns of source"):
        written_by(build, 1, 1)


def test_rows_of_a_table_of_results_have_the_form_of_these() -> None:
    rows = [{"key": "a", "at": START, "x": at} for at in range(3)]

    def build(graph: JobGraph, make: Any) -> None:
        table, left = (graph.source(make(rows) if make is Given else make(rows, LEFT)) for _ in range(2))
        counts: Any = table.key_by("key").count()
        by = "key" if make is ColumnsOf else lambda pair: pair[0]
        left.lookup(counts, on=("key", by), how="inner").sink(Outbox())

    found = [written_by(partial(build, make=make), 1, 1) for make in (Given, ColumnsOf)]
    assert found[1] == found[0]
    (written,) = found[0].values()
    assert written[-1] == (rows[2], ("a", 2))
