"""Patterns of victims: which tasks a fault hits together."""

from __future__ import annotations

from random import Random

import pytest

from clonos.core.model.errors import JobError
from clonos_chaos.scenario.scenario import FaultKind, FaultSpec, FaultTrigger, Pattern
from clonos_chaos.scenario.victims import Shape, choose, steps_of

SHAPE = Shape(
    ("read/0", "ask/0", "ask/1", "merge/0"),
    (("read/0", "ask/0"), ("read/0", "ask/1"), ("ask/0", "merge/0"), ("ask/1", "merge/0")),
)


def _chosen(pattern: Pattern, victim: str = "ask", count: int = 3) -> list[set[str]]:
    fault = FaultSpec(FaultKind.KILL_WORKER, FaultTrigger(seconds=1), victim, pattern, count)
    return [set(choose(fault, SHAPE, Random(seed))) for seed in range(20)]


def test_each_pattern_selects_its_victims() -> None:
    assert all(chosen in ({"ask/0"}, {"ask/1"}) for chosen in _chosen(Pattern.ONE))
    assert all(chosen in ({"ask/0", "merge/0"}, {"ask/1", "merge/0"}) for chosen in _chosen(Pattern.LINKED))
    assert all(chosen == {"read/0", "merge/0"} for chosen in _chosen(Pattern.UNLINKED, "read"))
    assert all(chosen == {"ask/0", "ask/1"} for chosen in _chosen(Pattern.SIBLINGS))
    assert all(chosen == {"ask/0", "ask/1"} for chosen in _chosen(Pattern.LAYER))
    assert all(chosen in ({"ask/0"}, {"ask/1"}) for chosen in _chosen(Pattern.STANDBY))
    assert all(len(chosen) == 3 for chosen in _chosen(Pattern.AT_ONCE))
    assert all(chosen == set(SHAPE.tasks) for chosen in _chosen(Pattern.ALL))
    assert not any(_chosen(Pattern.DRIVER))


def test_one_seed_chooses_the_same_victims_every_time() -> None:
    assert _chosen(Pattern.AT_ONCE, "") == _chosen(Pattern.AT_ONCE, "")


def test_a_victim_with_an_unknown_step_is_refused_with_the_known_steps() -> None:
    with pytest.raises(JobError, match=r"'asks'.*'ask', 'merge', 'read'"):
        _chosen(Pattern.ONE, "asks")


def test_a_pattern_that_finds_no_second_task_is_refused() -> None:
    with pytest.raises(JobError, match="siblings finds no second task"):
        _chosen(Pattern.SIBLINGS, "read")


def test_a_task_of_several_steps_is_found_by_each_of_them() -> None:
    assert steps_of("read,stamp/3") == ["read", "stamp"]
