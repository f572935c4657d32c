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
from clonos.core.ports.operator_chain import StepFailed
from clonos.operators.columnar.joins.column_lookup import ColumnLookup
from clonos.operators.columnar.row_forms import ColumnsLost
from clonos.operators.joins.lookup import Lookup
from tests.unit.columns.joined_sides import LEFT, RIGHT, SIDES, START, Growing, joined, stamped, written_by
from tests.unit.columns.test_column_windows import ColumnsOf
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


@settings(max_examples=20, deadline=None)
@given(SIDES, HOWS, ACTIONS, st.integers(1, 2), st.integers(1, 5), st.sampled_from([ColumnsOf, Growing]))
def test_lookups_over_columns_restored_at_any_barrier_give_the_same(
    sides: Any, how: str, actions: list[str], parallelism: int, records_max: int, make: Any
) -> None:
    def build(graph: JobGraph) -> None:
        looked_up(graph, sides, how, make, True)

    steady, troubled = steady_and_troubled(build, actions, parallelism, records_max)
    assert troubled == steady


@settings(max_examples=20, deadline=None)
@given(SIDES, HOWS, st.integers(1, 2))
def test_a_lookup_over_rows_takes_over_when_a_side_changes_its_columns(sides: Any, how: str, parallelism: int) -> None:
    found = [
        written_by(partial(looked_up, sides=sides, how=how, make=make, is_timed=True), parallelism, 1)
        for make in (Given, Growing)
    ]
    assert found[1] == found[0]


ROWS = ([{"key": key, "at": START, "x": 1} for key in "ab"], [{"key": "a", "at": START, "name": "n", "x": 2}])


def classes_used(monkeypatch: pytest.MonkeyPatch, left: Any, right: Any, rows: Any = ROWS) -> set[type]:
    used: set[type] = set()

    def tracked(cls: Any, method: str) -> None:
        before = getattr(cls, method)

        def called(self: Any, *given: Any) -> None:
            used.add(cls)
            before(self, *given)

        monkeypatch.setattr(cls, method, called)

    tracked(ColumnLookup, "take")
    tracked(Lookup, "first")
    tracked(Lookup, "second")

    def build(graph: JobGraph) -> None:
        streams = [graph.source(ColumnsOf(*each)) for each in zip(rows, (left, right), strict=True)]
        streams[0].lookup(streams[1], on="key").sink(Outbox())

    written_by(build, 1, 3)
    return used


def test_keys_of_types_that_are_not_equal_as_in_rows_are_looked_up_in_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    assert classes_used(monkeypatch, LEFT, RIGHT) == {ColumnLookup}
    numbers = pa.schema([("key", pa.uint64()), ("at", pa.int64()), ("x", pa.int64())])
    rows = [[{**row, "key": 1 << 63} for row in each] for each in ROWS]
    right = RIGHT.set(0, pa.field("key", pa.uint64()))
    assert classes_used(monkeypatch, numbers, right, rows) == {Lookup}


class Described(ColumnsOf):
    """Columns that the plan knows."""

    def column_schema(self) -> Any:
        return self.schema


@pytest.mark.parametrize("how", ["left", "inner"])
def test_lookups_stay_in_columns(how: Any) -> None:
    rows = [{"key": key, "at": START + at, "x": at} for at, key in enumerate("ba", 3)]
    table = [{"key": "a", "at": START, "name": "n", "x": 2}]

    def build(graph: JobGraph) -> None:
        first = graph.source(Described(table, RIGHT)).key_by("key")
        left = graph.source(ColumnsOf(rows, LEFT))
        left.key_by("key").lookup(first, how=how).select("key", "key_right", both=col("x") + col("x_right")).sink(
            Outbox()
        )

    (written,) = written_by(build, 1, 1).values()
    expected = [{"key": "b", "key_right": None, "both": None}, {"key": "a", "key_right": "a", "both": 6}]
    assert written == expected[1 if how == "inner" else 0 :]


@pytest.mark.parametrize("make", [ColumnsOf, Described])
def test_columns_of_a_table_without_rows_are_null_if_the_plan_knows_them(make: Any) -> None:
    rows = [{"key": "a", "at": START, "x": 1}]

    def build(graph: JobGraph) -> None:
        left, table = graph.source(ColumnsOf(rows, LEFT)), graph.source(make([], RIGHT))
        left.lookup(table, on="key").select("key", "name", name="chosen").sink(Outbox())

    if make is Described:
        assert list(written_by(build, 1, 3).values()) == [[{"key": "a", "name": None}]]
    else:
        with pytest.raises(StepFailed) as failure:
            written_by(build, 1, 3)
        assert "no column 'name'" in str(failure.value.__cause__)


def test_a_step_on_columns_after_a_lookup_in_rows_fails_with_one_sentence() -> None:
    def build(graph: JobGraph) -> None:
        found = joined(graph, [ROWS[0] * 3, ROWS[1]], lambda left, right: left.lookup(right, on="key"), Growing, False)
        found.select("key", name="next").sink(Outbox())

    with pytest.raises(ColumnsLost, match="the step next works on columns, and gets rows"):
        written_by(build, 1, 1)
