"""A key that a join has had already needs no exchange: its steps run in the tasks of the join."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clonos import col
from clonos.agg import count, last, sum_
from clonos.api.emission import each
from clonos.api.graph import JobGraph
from clonos.core.model.options import Options
from clonos.core.model.plan import Partitioning
from tests.unit.columns.joined_sides import SIDES, joined, written_by
from tests.unit.operators.driver import Outbox
from tests.unit.operators.joins.given_sides import ACTIONS, steady_and_troubled

HOWS = ("inner", "left", "semi", "anti", "as of")


def totals(graph: JobGraph, sides: Any, how: Any, key: str) -> None:
    """Adds a join, and aggregates of its key; another name for the key needs an exchange."""
    if how == "as of":
        found = joined(graph, sides, lambda left, right: left.join_as_of(right, on="key"))
    else:
        found = joined(graph, sides, lambda left, right: left.join(right, on="key", how=how, between=(-4, 4)))
    chosen = found.filter(col("x") != 0, name="filter").with_columns(same=col("key"), name="chosen")
    results = chosen.key_by(key).aggregate(n=count(), total=sum_("x"), last=last("x"), name="totals")
    results.select(key=col(key), n=col("n"), total=col("total"), last=col("last"), name="shown").sink(Outbox())


def by_key(written: dict[str, list[Any]]) -> dict[Any, list[Any]]:
    """Returns the results of each key, in their order."""
    found: dict[Any, list[Any]] = {}
    for row in (row for rows in written.values() for row in rows):
        found.setdefault(row["key"], []).append(row)
    return found


@pytest.mark.slow
@settings(max_examples=12, deadline=None)
@given(SIDES, st.sampled_from(HOWS), st.integers(1, 3))
def test_results_of_a_key_in_place_are_those_after_an_exchange(sides: Any, how: str, parallelism: int) -> None:
    in_place, exchanged = (
        by_key(written_by(partial(totals, sides=sides, how=how, key=key), parallelism, 9)) for key in ("key", "same")
    )
    assert {key: rows[-1]["n"] for key, rows in in_place.items()} == {
        key: rows[-1]["n"] for key, rows in exchanged.items()
    }
    for key, rows in in_place.items():
        assert sorted(row["total"] or 0 for row in rows[-1:]) == sorted(
            row["total"] or 0 for row in exchanged[key][-1:]
        )
        assert [row["n"] for row in rows] == list(range(1, len(rows) + 1))


@pytest.mark.slow
@settings(max_examples=8, deadline=None)
@given(SIDES, st.sampled_from(HOWS), ACTIONS, st.integers(1, 2))
def test_steps_with_a_key_in_place_restored_at_any_barrier_give_the_same(
    sides: Any, how: str, actions: list[str], parallelism: int
) -> None:
    steady, troubled = steady_and_troubled(partial(totals, sides=sides, how=how, key="key"), actions, parallelism, 5)
    assert troubled == steady


BEHIND: dict[str, tuple[Callable[[Any, Any], Any], bool]] = {
    "the key of an inner join": (lambda left, right: left.join(right, on="key", ttl="9s").key_by("key").count(), True),
    "the key of a left join": (
        lambda left, right: left.join(right, on="key", how="left", ttl="9s").key_by("key").count(),
        True,
    ),
    "the key of an as-of join": (lambda left, right: left.join_as_of(right, on="key").key_by("key").count(), True),
    "the key of a lookup": (lambda left, right: left.lookup(right, on="key").key_by("key").count(), True),
    "a renamed key": (
        lambda left, right: left.join(right, on="key", ttl="9s").rename({"key": "k"}).key_by("k").count(),
        True,
    ),
    "top_k": (lambda left, right: left.join(right, on="key", ttl="9s").key_by("key").top_k(1, "x", rank="r"), True),
    "a fold": (
        lambda left, right: left.join(right, on="key", ttl="9s").key_by("key").fold(0, max, emit=each(1)),
        True,
    ),
    "a key that a right join may lack": (
        lambda left, right: left.join(right, on="key", how="right", ttl="9s").key_by("key").count(),
        False,
    ),
    "another key": (lambda left, right: left.join(right, on="key", ttl="9s").key_by("x").count(), False),
    "more than the key": (lambda left, right: left.join(right, on="key", ttl="9s").key_by("key", "x").count(), False),
    "a computed key": (
        lambda left, right: (
            left.join(right, on="key", ttl="9s").with_columns(key=col("key") + "a").key_by("key").count()
        ),
        False,
    ),
    "another parallelism": (
        lambda left, right: left.join(right, on="key", ttl="9s").key_by("key").count(parallelism=3),
        False,
    ),
    "another parallelism on the way": (
        lambda left, right: (
            left.join(right, on="key", ttl="9s")
            .with_columns(y=col("x"), parallelism=3)
            .key_by("key")
            .count(parallelism=3)
        ),
        False,
    ),
    "a rebalance on the way": (
        lambda left, right: (
            left.join(right, on="key", ttl="9s").rebalance().with_columns(y=col("x")).key_by("key").count()
        ),
        False,
    ),
}


@pytest.mark.parametrize("name", BEHIND)
def test_a_key_runs_in_place_where_the_join_has_brought_its_records(name: str) -> None:
    build, is_in_place = BEHIND[name]
    graph = JobGraph("job")
    joined(graph, ([], []), build).sink(Outbox(), name="out")
    plan = graph.compile(Options(), parallelism=2).plan
    kinds = [step.kind for step in plan.vertices[-1].steps]
    assert (kinds[0] in ("join", "join as of", "lookup")) == is_in_place
    assert {edge.partitioning for edge in plan.edges if edge.target == len(plan.vertices) - 1} == {Partitioning.HASH}
