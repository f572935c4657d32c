"""Joins by time over columns give what those over rows do: the same results in the same order, at any restore."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clonos import col
from clonos.api.graph import JobGraph
from clonos.api.windows import Tumbling
from clonos.core.model.options import Options
from clonos.operators.columnar.joins.sorted_runs import SortedRuns
from clonos.operators.kinds.column_buffers import ColumnBuffers
from tests.unit.columns.joined_sides import LATE, LEFT, RIGHT, SIDES, START, joined, stamped, written_by
from tests.unit.columns.test_column_windows import ColumnsOf
from tests.unit.operators.driver import Given, Outbox, Run
from tests.unit.operators.joins.given_sides import ACTIONS, steady_and_troubled


@pytest.fixture(autouse=True)
def early_forgetting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Records are forgotten when there are a few."""
    monkeypatch.setattr(ColumnBuffers, "records_min", 2)


HOWS = st.sampled_from(["inner", "left", "right", "full", "full", "full", "semi", "anti"])
BOUNDS = st.tuples(st.integers(-8, 8), st.integers(0, 8)).map(lambda each: (each[0], each[0] + each[1]))
RULES = st.one_of(
    BOUNDS.map(lambda bounds: {"between": bounds}),
    st.just({"between": (0, "9d"), "closed": "left"}),
    st.sampled_from([{"window": Tumbling(size, offset=(size % 3 and 1) or None)} for size in (2, 5, 9)]),
)
TTL = {"ttl": "3s"}


def matched(graph: JobGraph, sides: Any, how: Any, rule: Any, make: Any) -> None:
    is_timed = rule is not TTL
    keywords = {"on": "key", "how": how, **({"late": LATE} if is_timed else {}), **rule}
    found = joined(graph, sides, lambda left, right: left.join(right, **keywords), make, is_timed)
    stamped(found, is_timed=is_timed, has_late=is_timed)


@pytest.mark.slow
@settings(max_examples=80, deadline=None)
@given(SIDES, HOWS, RULES, st.integers(1, 2), st.integers(1, 9), st.sampled_from([1, 5, 1 << 16]), st.booleans())
def test_joins_over_columns_give_what_joins_over_rows_do(
    sides: Any, how: str, rule: Any, parallelism: int, records_max: int, pairs_max: int, is_passed: bool
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SortedRuns, "new_per_key_min", 0 if is_passed else SortedRuns.new_per_key_min)
        patch.setattr(SortedRuns, "pairs_max", pairs_max)
        found = [
            written_by(partial(matched, sides=sides, how=how, rule=rule, make=make), parallelism, records_max)
            for make in (Given, ColumnsOf)
        ]
    assert found[1] == found[0]


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(SIDES, HOWS, RULES, ACTIONS, st.integers(1, 2), st.integers(1, 5))
def test_joins_over_columns_restored_at_any_barrier_give_the_same(
    sides: Any, how: str, rule: Any, actions: list[str], parallelism: int, records_max: int
) -> None:
    build = partial(matched, sides=sides, how=how, rule=rule, make=ColumnsOf)
    steady, troubled = steady_and_troubled(build, actions, parallelism, records_max)
    assert troubled == steady


def by_the_clock(sides: Any, how: str, make: Any, actions: list[str], records_max: int, restores: bool) -> Any:
    """What a join by the clock gives in a run in which time goes on, and which is restored now and then."""
    graph = JobGraph("job")
    matched(graph, sides, how, TTL, make)
    image = graph.compile(Options(), parallelism=1)
    running = Run(image)
    for checkpoint, action in enumerate(actions, start=1):
        if action == "read":
            running.read(records_max)
            running.drain()
        elif action == "time":
            running.pass_time(1.5)
        else:
            taken, written = running.barrier(checkpoint, full=action.startswith("full")), running.written
            if action == "restore" and restores:
                running = Run(image, taken, running.clock)
                running.written = written
    running.finish(records_max)
    return running.written


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(SIDES, HOWS, ACTIONS, st.integers(1, 5))
def test_joins_by_the_clock_over_columns_give_what_those_over_rows_do(
    sides: Any, how: str, actions: list[str], records_max: int
) -> None:
    make = ColumnsOf
    rows = by_the_clock(sides, how, Given, actions, records_max, False)
    assert by_the_clock(sides, how, make, actions, records_max, False) == rows
    assert by_the_clock(sides, how, make, actions, records_max, True) == rows


def sides_of(left: str, right: str) -> Any:
    lefts = [{"key": key, "at": START + at, "x": at} for at, key in enumerate(left)]
    return lefts, [{"key": key, "at": START + at, "name": f"n{at}", "x": at} for at, key in enumerate(right)]


def test_joins_stay_in_columns() -> None:
    def build(graph: JobGraph) -> None:
        pairs = joined(graph, sides_of("abc", "cba"), lambda a, b: a.join(b, on="key", how="left", between=(0, 2)))
        chosen = pairs.filter(col("x") < 2, name="few").select("key", "join_time", "name", "x_right")
        chosen.window(Tumbling("1d")).apply(lambda _, window, rows: rows, name="all").sink(Outbox(), name="out")

    (written,) = written_by(build, 1, 3).values()
    assert [(row["key"], row["name"], row["x_right"], row["join_time"].timestamp() - START) for row in written] == [
        ("b", "n1", 1, 1),
        ("a", "n2", 2, 2),
    ]


def test_records_that_match_no_more_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    most = [0, 0, 0]
    drop = ColumnBuffers.drop_before

    def dropping(self: ColumnBuffers, needed_ns: Any, *, at_once: bool) -> None:
        drop(self, needed_ns, at_once=at_once)
        if needed_ns is not None:
            held = [*map(len, self._rows), len(self._index)]
            most[:] = [max(*each) for each in zip(most, held, strict=True)]

    monkeypatch.setattr(ColumnBuffers, "drop_before", dropping)
    monkeypatch.setattr(ColumnBuffers, "keys_spare", 8)
    count = 300
    lefts = [{"key": f"k{at}", "at": START + at, "x": at} for at in range(count)]
    rights = [{"key": f"k{at}", "at": START + at, "name": "n", "x": at} for at in range(count)]

    def build(graph: JobGraph) -> None:
        pairs = joined(graph, (lefts, rights), lambda a, b: a.join(b, on="key", how="full", between=(-2, 2)))
        pairs.sink(Outbox())

    (written,) = written_by(build, 1, 3).values()
    assert len(written) == count
    assert 0 < max(most[:2]) < 30
    assert most[2] < 80


@pytest.mark.parametrize("how", ["semi", "anti"])
def test_a_window_keeps_one_right_record_of_a_key_where_results_are_of_the_left_side(
    monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    held: list[int] = []
    drop = ColumnBuffers.drop_before

    def dropping(self: ColumnBuffers, needed_ns: Any, *, at_once: bool) -> None:
        held.append(len(self._rows[1]))
        drop(self, needed_ns, at_once=at_once)

    monkeypatch.setattr(ColumnBuffers, "drop_before", dropping)
    lefts = [{"key": key, "at": START + 1 + at, "x": at} for at, key in enumerate("aabc")]
    rights = [{"key": "ab"[at % 2], "at": START + at % 10, "name": "n", "x": at} for at in range(100)]

    def build(graph: JobGraph, make: Any) -> None:
        found = joined(graph, (lefts, rights), lambda a, b: a.join(b, on="key", how=how, window=Tumbling(10)), make)
        found.sink(Outbox())

    rows, columns = (written_by(partial(build, make=make), 1, 20) for make in (Given, ColumnsOf))
    assert columns == rows
    assert [row["key"] for row in next(iter(rows.values()))] == (["a", "a", "b"] if how == "semi" else ["c"])
    assert max(held) <= 2


def test_a_join_of_joined_streams_gives_nested_pairs() -> None:
    sides = sides_of("ab", "ab")

    def build(graph: JobGraph, make: Any) -> None:
        streams = [
            graph.source(make(rows, schema) if make is ColumnsOf else make(rows), name=f"s{place}")
            for place, (rows, schema) in enumerate(zip((*sides, sides[1]), (LEFT, RIGHT, RIGHT), strict=True))
        ]
        pairs = streams[0].join(streams[1], on="key", ttl="1h")
        by = "key" if make is ColumnsOf else lambda pair: pair[0]["key"]
        pairs.join(streams[2], on=(by, "key"), ttl="1h", how="left").sink(Outbox())

    found = [written_by(partial(build, make=make), 1, 3) for make in (Given, ColumnsOf)]
    assert found[1] == found[0]
    assert len(next(iter(found[0].values()))) == 2


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(SIDES, HOWS, ACTIONS, st.integers(1, 2), st.integers(1, 9))
def test_joins_by_several_columns_give_what_joins_over_rows_do(
    sides: Any, how: str, actions: list[str], parallelism: int, records_max: int
) -> None:
    def build(graph: JobGraph, make: Any) -> None:
        found = joined(graph, sides, lambda a, b: a.join(b, on=["key", "x"], how=how, between=(-5, 5)), make)
        found.sink(Outbox(), name="out")

    found = [written_by(partial(build, make=make), parallelism, records_max) for make in (Given, ColumnsOf)]
    assert found[1] == found[0]
    steady, troubled = steady_and_troubled(partial(build, make=ColumnsOf), actions, parallelism, records_max)
    assert troubled == steady
