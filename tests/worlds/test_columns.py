"""Random steps on columns in simulated worlds: the records of a dumb twin come out, the same after every replay."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest

from clonos.api.emission import at_end, changes
from clonos.api.graph import JobGraph
from clonos.operators.emission_times import Emission
from clonos_chaos.jobs.columns.chosen_columns import ChosenColumns
from clonos_chaos.jobs.columns.column_jobs import ColumnJob
from clonos_chaos.jobs.columns.keyed_totals import EMISSIONS, TotalsOfColumns
from clonos_chaos.jobs.columns.looked_up_columns import LookedUpColumns
from clonos_chaos.swarm.environments import Swarm
from tests.worlds.playing import swarmed
from tests.worlds.search import Search

pytestmark = [pytest.mark.worlds, pytest.mark.slow]

JOBS = 120


@pytest.mark.exhaustive
def test_random_worlds_of_columns_are_correct(search: Search) -> None:
    assert swarmed(search, Swarm("columns"), part=5).checkpoints > 0


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
        "gather",
        "window_aggregate",
        "join",
        "join_as_of",
        "lookup",
        "aggregate",
        "top_k",
        "deduplicate",
        "distinct",
    }
    assert failing > JOBS // 4


def test_the_twin_sees_a_record_that_is_missing_repeated_or_strange() -> None:
    for seed in range(20):
        job = ColumnJob("columns", Random(seed), 40, None)
        if job.end_complaints is not None:
            continue
        rows: list[Any] = [(0, (), values) for values in job.wanted.elements()]
        assert job.complaints_of_rows(rows) == []
        if rows:
            assert job.complaints_of_rows(rows[1:])
            assert job.complaints_of_rows([*rows, rows[0]])
            assert job.complaints_of_rows([*rows[1:], (0, (), (("n", 0),))])


def test_the_twin_of_lookups_sees_a_result_that_is_missing_repeated_or_strange() -> None:
    records = [{"n": number, "at": number} for number in (3, 4, 5, 9)]
    for seed in range(40):
        looked_up = LookedUpColumns(Random(seed), is_timed=False)
        if not looked_up.is_of(keys=2, how="left"):
            continue
        rows = [(3, 9), (4, None), (5, None), (9, 3)]
        assert looked_up.complaints(records, rows) == []
        assert looked_up.complaints(records, rows[:-1])
        assert looked_up.complaints(records, [*rows, rows[-1]])
        for strange in ((9, 4), (9, 5), (9, 15), (7, 3)):
            assert looked_up.complaints(records, [*rows[:-1], strange])
        return
    raise AssertionError("no lookup of two keys was drawn")


@pytest.mark.parametrize("emit", EMISSIONS[:3])
def test_the_twin_of_totals_sees_a_result_that_is_missing_repeated_or_strange(emit: Emission) -> None:
    drawn = (TotalsOfColumns(Random(seed), JobGraph("columns")) for seed in range(99))
    totals = next(each for each in drawn if each.is_of(emit, 1))
    records = [{"n": number} for number in (3, 4, 5)]
    rows = [(0, 1, 3, 3, 3, "3"), (0, 2, 7, 3, 4, "4"), (0, 3, 12, 3, 5, "5")]
    rows = rows[-1:] if emit == at_end() else rows
    assert totals.complaints(records, rows) == []
    assert totals.complaints(records, rows[:-1])
    assert totals.complaints(records, [*rows, rows[-1]])
    assert totals.complaints(records, [*rows[:-1], (0, 3, 13, 3, 5, "5")])
    assert totals.complaints(records, [*rows[:-1], (0, 3, 12, 3, 5, "4")])
    assert totals.complaints(records, [*rows, (1, 1, 1, 1, 1, "1")])
    assert (totals.complaints(records, rows[1:]) == []) == (emit == changes())


def test_the_twin_of_chosen_records_sees_a_result_that_is_missing_repeated_or_strange() -> None:
    records = [{"n": number, "at": number} for number in (3, 4, 5, 9)]
    right: dict[str, list[tuple[Any, ...]]] = {
        "top": [(0, 1, 3, 3), (0, 1, 4, 4), (0, 2, 3, 3), (0, 1, 9, 9), (0, 2, 5, 5)],
        "list": [(0, None, 4, (4,)), (0, None, 4, (4, 3)), (0, None, 9, (9, 4)), (0, None, 9, (9, 5))],
        "first": [(0, None, 4, 4)],
        "last": [(0, None, 4, 4), (0, None, 9, 9)],
        "span": [(0, None, 4, 4), (0, None, 9, 9)],
        "span end": [(0, None, 5, 5), (0, None, 9, 9)],
    }
    for seed in range(200):
        chosen = ChosenColumns(Random(seed), has_times=True)
        if not chosen.has(keys=1, k=2):
            continue
        rows = right.pop(chosen.kind, None)
        if rows is None:
            continue
        assert chosen.complaints(records, rows) == []
        assert chosen.complaints(records, rows[:-1])
        assert chosen.complaints(records, [*rows, rows[-1]])
        assert chosen.complaints(records, [*rows, (0, 1, 7, (7,) if chosen.kind == "list" else 7)])
        if chosen.kind == "list":
            assert chosen.complaints(records, [*rows[:2], *rows[3:]])
    assert not right
