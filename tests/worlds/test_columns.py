"""Random steps on columns in simulated worlds: the records of a dumb twin come out, the same after every replay."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest

from clonos_chaos.jobs.column_jobs import ColumnJob
from clonos_chaos.swarm.environments import Swarm
from tests.worlds.playing import swarmed

pytestmark = pytest.mark.worlds

JOBS = 60


def test_random_worlds_of_columns_are_correct(seeds: range) -> None:
    assert swarmed(seeds[: len(seeds) // 5], Swarm("columns")).checkpoints > 0


def test_every_step_on_columns_is_drawn() -> None:
    drawn: Counter[str] = Counter()
    failing = 0
    for seed in range(JOBS):
        job = ColumnJob("columns", Random(seed), 40, None)
        drawn.update(job.kinds)
        failing += job.wanted.total() < 40
    assert {kind for kind in drawn if drawn[kind] > 2} >= {
        "filter",
        "with_columns",
        "rename",
        "select",
        "drop",
        "map_batches",
        "window_aggregate",
        "join",
    }
    assert failing > JOBS // 4


def test_the_twin_sees_a_record_that_is_missing_repeated_or_strange() -> None:
    for seed in range(20):
        job = ColumnJob("columns", Random(seed), 40, None)
        rows: list[Any] = [(0, (), values) for values in job.wanted.elements()]
        assert job.complaints_of_rows(rows) == []
        if rows:
            assert job.complaints_of_rows(rows[1:])
            assert job.complaints_of_rows([*rows, rows[0]])
            assert job.complaints_of_rows([*rows[1:], (0, (), (("n", 0),))])
