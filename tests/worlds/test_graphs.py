"""Random graphs of steps in simulated worlds: the rows of a dumb twin come out, or on time and late are the input."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from clonos_chaos.jobs.graphs.graph_jobs import EXACT, EXACT_LAST, PASSING, GraphJob, LateGraphJob, Output
from clonos_chaos.swarm.environments import Swarm
from tests.worlds.playing import swarmed
from tests.worlds.search import Search

pytestmark = pytest.mark.worlds

JOBS = 90


@pytest.mark.exhaustive
def test_random_worlds_of_random_graphs_are_correct(search: Search) -> None:
    assert swarmed(search, Swarm("graphs"), part=5).checkpoints > 0


def test_every_step_is_drawn_before_and_after_others() -> None:
    drawn: Counter[str] = Counter()
    for seed in range(JOBS):
        job = GraphJob("graphs", Random(seed), 60, None)
        drawn.update(type(step).__name__ for step in job.steps)
    kinds = {getattr(maker, "func", maker).__name__ for maker in (*EXACT, *EXACT_LAST, *PASSING)}
    assert {name for name, count in drawn.items() if count > 2} == kinds | {"Branching"}


def outputs(rows: Counter[tuple[int, tuple[object, ...]]], *, is_late: bool = False) -> list[Output]:
    return [(row[0], (), row, is_late) for row in rows.elements()]


def test_the_twin_sees_a_row_that_is_missing_repeated_strange_or_late() -> None:
    exact = [job for seed in range(60) if not (job := GraphJob("graphs", Random(seed), 40, None)).is_late]
    for job in exact:
        right = outputs(job.wanted)
        assert job.complaints_of_rows(right) == []
        if right:
            number, lineage, row, _ = right[0]
            assert job.complaints_of_rows(right[1:])
            assert job.complaints_of_rows([*right, right[0]])
            assert job.complaints_of_rows([*right[1:], (number, lineage, (number, (*row[1], "other")), False)])
            assert job.complaints_of_rows([*right[1:], (number, lineage, row, True)])


def test_on_time_and_late_together_have_to_be_the_input() -> None:
    job = LateGraphJob("graphs", Random(0), 40, None)
    rows = outputs(job.wanted)
    late = [(number, lineage, row, True) for number, lineage, row, _ in rows]
    assert job.complaints_of_rows([*rows[:7], *late[7:]]) == []
    assert job.complaints_of_rows([*rows[:7], *late[8:]])
    assert job.complaints_of_rows([*rows[:8], *late[7:]])
