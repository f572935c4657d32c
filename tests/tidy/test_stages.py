"""The stages of a test run keep to the time that they may take."""

import time

import pytest

from tests.stages import STAGES, UNIT, Budgets


def test_all_stages_together_take_fourteen_minutes_so_that_setup_has_two() -> None:
    assert sum(stage.budget_s for stage in STAGES) == 14 * 60


def test_a_test_beyond_the_budget_of_its_stage_fails_without_being_begun() -> None:
    budgets = Budgets(strict=True, started_s={UNIT.name: time.monotonic() - UNIT.budget_s - 1})
    with pytest.raises(pytest.fail.Exception, match="the stage unit has taken 111 of its 110 s"):
        budgets.begin(UNIT)


def test_a_run_by_hand_has_no_budgets() -> None:
    budgets = Budgets(strict=False, started_s={UNIT.name: time.monotonic() - UNIT.budget_s - 1})
    budgets.begin(UNIT)
    budgets.end(UNIT)
    assert budgets.report() == "unit 111 of 110 s"
