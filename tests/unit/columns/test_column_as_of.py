"""As-of joins over columns give what those over rows do: the same results in the same order, at any restore."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clonos import col
from clonos.api.graph import JobGraph
from clonos.operators.kinds.column_versions import ColumnVersions
from tests.unit.columns.joined_sides import LATE, SIDES, START, joined, stamped, written_by
from tests.unit.columns.test_column_windows import ColumnsOf
from tests.unit.operators.driver import Given, Outbox
from tests.unit.operators.joins.given_sides import ACTIONS, steady_and_troubled

HOWS = st.sampled_from(["left", "inner"])
RULES: st.SearchStrategy[dict[str, Any]] = st.one_of(
    st.just({}),
    st.integers(0, 9).map(lambda seconds: {"tolerance": seconds}),
    st.tuples(st.sampled_from(["forward", "nearest"]), st.integers(0, 9)).map(
        lambda each: {"direction": each[0], "tolerance": each[1]}
    ),
)


@pytest.fixture(autouse=True)
def early_forgetting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Versions are forgotten when there are a few."""
    monkeypatch.setattr(ColumnVersions, "versions_min", 2)


def valid(graph: JobGraph, sides: Any, how: Any, rule: Any, make: Any) -> None:
    found = joined(graph, sides, lambda a, b: a.join_as_of(b, on="key", how=how, late=LATE, **rule), make)
    stamped(found, has_late=True)


@pytest.mark.slow
@settings(max_examples=80, deadline=None)
@given(SIDES, HOWS, RULES, st.integers(1, 2), st.integers(1, 9))
def test_as_of_joins_over_columns_give_what_those_over_rows_do(
    sides: Any, how: str, rule: Any, parallelism: int, records_max: int
) -> None:
    found = [
        written_by(partial(valid, sides=sides, how=how, rule=rule, make=make), parallelism, records_max)
        for make in (Given, ColumnsOf)
    ]
    assert found[1] == found[0]


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(SIDES, HOWS, RULES, ACTIONS, st.integers(1, 2), st.integers(1, 5))
def test_as_of_joins_over_columns_restored_at_any_barrier_give_the_same(
    sides: Any, how: str, rule: Any, actions: list[str], parallelism: int, records_max: int
) -> None:
    build = partial(valid, sides=sides, how=how, rule=rule, make=ColumnsOf)
    steady, troubled = steady_and_troubled(build, actions, parallelism, records_max)
    assert troubled == steady


@pytest.mark.parametrize("rule", [{}, {"direction": "forward", "tolerance": 3}])
def test_versions_that_no_record_meets_any_more_are_forgotten(rule: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    most = [0, 0]
    forget = ColumnVersions.forget

    def forgetting(self: ColumnVersions, earliest_ns: int) -> None:
        forget(self, earliest_ns)
        most[:] = [max(each) for each in zip(most, (len(self), self.key_count), strict=True)]

    monkeypatch.setattr(ColumnVersions, "forget", forgetting)
    count = 300
    key_of = "a".__add__ if rule else lambda _: "a"
    lefts = [{"key": key_of(str(at)), "at": START + at, "x": at} for at in range(count)]
    rights = [{"key": key_of(str(at)), "at": START + at, "name": "n", "x": at} for at in range(count)]
    (written,) = written_by(
        lambda graph: joined(graph, (lefts, rights), lambda a, b: a.join_as_of(b, on="key", **rule)).sink(Outbox()),
        1,
        3,
    ).values()
    assert [right["x"] for _, right in written] == list(range(count))
    assert 0 < most[0] < 40
    assert 0 < most[1] < 80


def test_as_of_joins_stay_in_columns() -> None:
    lefts = [{"key": "a", "at": START + at, "x": at} for at in range(4)]
    rights = [{"key": "a", "at": START + at, "name": f"n{at}", "x": at} for at in (1, 3)]

    def build(graph: JobGraph) -> None:
        found = joined(graph, (lefts, rights), lambda a, b: a.join_as_of(b, on="key"))
        found.filter(col("x") > 0).select("at", "name", "x").sink(Outbox())

    (written,) = written_by(build, 1, 3).values()
    assert [(row["x"], row["name"]) for row in written] == [(1, "n1"), (2, "n1"), (3, "n3")]


def test_a_version_after_a_late_one_of_its_batch_is_late() -> None:
    lefts = [{"key": "c", "at": START + at, "x": at} for at in (18, 19, 20)] + [{"key": "a", "at": START + 21, "x": 21}]
    rights = [{"key": "c", "at": START + at, "name": "n", "x": at} for at in (18, 19, 20)]
    rights += [{"key": "a", "at": START + at, "name": "n", "x": x} for at, x in ((6, 6), (7, 7), (6, -6))]
    written = [
        written_by(partial(valid, sides=(lefts, rights), how="inner", rule={}, make=make), 1, 3)
        for make in (Given, ColumnsOf)
    ]
    assert written[1] == written[0]
    late = written[1].pop("late")
    (pairs,) = written[1].values()
    assert [row["x"] for row in late] == [-6]
    assert [(left["x"], right["x"]) for (left, right), _ in pairs][-1] == (21, 7)
