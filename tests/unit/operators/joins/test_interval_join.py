"""Interval joins and joins within windows against a dumb twin over the whole input."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clonos.api.graph import JobGraph
from clonos.api.windows import Tumbling
from clonos.core.model.options import Options
from clonos.operators.joins.buffered_join import EventJoin
from clonos.operators.joins.match_rules import Between, How, MatchRule, SameWindow
from clonos.operators.kinds.object_sides import ObjectJoinKind
from clonos.operators.operator import Scope
from clonos.operators.state.declared_state import StepState
from clonos.operators.state.keyed_state import StateBackend
from tests.unit.operators.driver import Run
from tests.unit.operators.joins.given_sides import (
    ACTIONS,
    LATE,
    START,
    Given,
    key_of,
    odd_or_even,
    on_time,
    ordered,
    played,
    same,
    script_of,
    scripts,
    steady_and_troubled,
    sunk,
    timed,
)

HOWS = ("inner", "left", "right", "full", "semi", "anti")
Matches = Callable[[Given, Given], bool]


def within(lower: int, upper: int, closed: str = "both") -> Matches:
    """The rule of ``between``, as the documents have it."""

    def matches(left: Given, right: Given) -> bool:
        distance = right.at - left.at
        above = distance >= lower if closed in ("both", "left") else distance > lower
        below = distance <= upper if closed in ("both", "right") else distance < upper
        return above and below

    return matches


def same_window(size: int, offset: int) -> Matches:
    """The rule of ``window``."""
    return lambda left, right: (START + left.at - offset) // size == (START + right.at - offset) // size


def twin(lefts: Iterable[Given], rights: Iterable[Given], how: str, matches: Matches) -> list[Any]:
    """What a join gives, with timestamps, from all records that are on time."""
    lefts, rights = list(lefts), list(rights)
    pairs = [(left, right) for left in lefts for right in rights if left.key == right.key and matches(left, right)]
    with_match = {left for left, _ in pairs}
    if how in ("semi", "anti"):
        return [(left, left.at) for left in lefts if (left in with_match) == (how == "semi")]
    found: list[Any] = [((left, right), max(left.at, right.at)) for left, right in pairs]
    if how in ("left", "full"):
        found += [((left, None), left.at) for left in lefts if left not in with_match]
    if how in ("right", "full"):
        matched = {right for _, right in pairs}
        found += [((None, right), right.at) for right in rights if right not in matched]
    return found


RULES = st.one_of(
    st.tuples(st.integers(-8, 8), st.integers(0, 8), st.sampled_from(("both", "left", "right", "neither"))).filter(
        lambda bounds: bounds[2] == "both" or bounds[1] > 0
    ),
    st.integers(2, 9),
)


def arguments(rule: Any) -> tuple[dict[str, Any], Matches]:
    """The keywords of a rule, and its twin."""
    if isinstance(rule, int):
        offset = rule % 3 and 1
        return {"window": Tumbling(rule, offset=offset or None)}, same_window(rule, offset)
    lower, width, closed = rule
    return {"between": (lower, lower + width), "closed": closed}, within(lower, lower + width, closed)


@settings(max_examples=50, deadline=None)
@given(scripts(), scripts(), st.sampled_from(HOWS), RULES, st.integers(1, 2), st.integers(1, 5), st.booleans())
def test_a_join_gives_what_its_twin_does_from_the_records_that_are_on_time(
    left: list[Any], right: list[Any], how: Any, rule: Any, parallelism: int, records_max: int, idle: bool
) -> None:
    keywords, matches = arguments(rule)
    left, right = odd_or_even(left, False), odd_or_even(right, True)

    def build(graph: JobGraph) -> None:
        lefts, rights = timed(graph, left, 3, idle), timed(graph, right, 3, idle)
        sunk(lefts.join(rights, on=(key_of, key_of), how=how, late=LATE, **keywords))

    written = played(build, parallelism, records_max, seconds=4)
    late = written.get("late", [])
    assert len(late) == len(set(late))
    expected = twin(on_time(left, late), on_time(right, late), how, matches)
    assert same(written.get("out", []), expected)


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(scripts(), scripts(), st.sampled_from(HOWS), RULES, st.integers(0, 6), st.integers(1, 5))
def test_no_record_within_the_disorder_is_late(
    left: list[Any], right: list[Any], how: Any, rule: Any, disorder: int, records_max: int
) -> None:
    keywords, matches = arguments(rule)
    left, right = ordered(left, disorder), ordered(right, disorder)

    def build(graph: JobGraph) -> None:
        lefts, rights = timed(graph, left, disorder), timed(graph, right, disorder)
        sunk(lefts.join(rights, on=(key_of, key_of), how=how, late=LATE, **keywords))

    written = played(build, 1, records_max)
    assert "late" not in written
    assert same(written.get("out", []), twin(left, right, how, matches))


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(
    scripts(waits=False),
    scripts(waits=False),
    st.sampled_from(HOWS),
    RULES,
    ACTIONS,
    st.integers(1, 2),
    st.integers(1, 4),
)
def test_a_join_restored_at_any_barrier_gives_the_same(
    left: list[Any], right: list[Any], how: Any, rule: Any, actions: list[str], parallelism: int, records_max: int
) -> None:
    keywords, _ = arguments(rule)

    def build(graph: JobGraph) -> None:
        lefts, rights = timed(graph, left, 3), timed(graph, right, 3)
        sunk(lefts.join(rights, on=(key_of, key_of), how=how, late=LATE, **keywords))

    steady, troubled = steady_and_troubled(build, actions, parallelism, records_max)
    assert repr(troubled) == repr(steady)


@pytest.mark.parametrize(
    ("how", "rule", "retained"),
    [
        (How.SEMI, SameWindow(10), [0, 3, 4]),
        (How.ANTI, SameWindow(10), [0, 3, 4]),
        (How.INNER, SameWindow(10), [0, 1, 2, 3, 4]),
        (How.SEMI, Between(-10, 10), [0, 1, 2, 3, 4]),
    ],
)
def test_one_right_record_of_a_key_is_retained_where_all_of_a_window_decide_the_same(
    how: How, rule: MatchRule, retained: list[int]
) -> None:
    state = StateBackend(None)
    join = EventJoin("join", ObjectJoinKind(None), rule, how, None)
    join.open(Scope(cast(Any, SimpleNamespace(recorder=None)), StepState(state, "join", join.state_specs)))
    records = [("a", 12), ("a", 19), ("a", 10), ("a", 20), ("b", 12)]
    join.second([(key, "row") for key, _ in records], [at for _, at in records])
    found = [(key, at) for at, _, _, key in state.table("join/right").entries.values()]
    assert found == [records[place] for place in retained]


@pytest.mark.parametrize("how", ["left", "anti", "full"])
def test_a_record_without_a_match_leaves_when_nothing_can_match_any_more(how: Any) -> None:
    def written_at(watermark: int) -> list[Any]:
        graph = JobGraph("job")
        lefts = timed(graph, script_of([("a", 10), ("b", watermark), *[None] * 50]))
        rights = timed(graph, script_of([("c", watermark), *[None] * 50]))
        sunk(lefts.join(rights, on=(key_of, key_of), how=how, between=(0, 2), late=LATE))
        running = Run(graph.compile(Options(), parallelism=1))
        for _ in range(6):
            running.read(1)
            running.drain()
        return running.written.get("out", [])

    assert written_at(12) == []
    assert [(row if how == "anti" else row[0]).at for row, _ in written_at(13)] == [10]
