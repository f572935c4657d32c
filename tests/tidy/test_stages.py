"""Each stage of a test run keeps to its budget."""

import re
import time

import pytest

from tests.stages import STAGES, UNIT, Budgets
from tests.tidy.source import ROOT


def test_all_stages_together_take_twenty_seven_minutes_at_most_so_that_a_run_ends_within_thirty_five() -> None:
    assert sum(stage.budget_s for stage in STAGES) <= 27 * 60


def test_the_documents_state_the_budget_of_each_stage() -> None:
    section = (ROOT / "docs" / "index.md").read_text("utf-8").partition("## How it is tested")[2]
    documented = re.findall(r"^\| (\w+) \| .* \| (\d+) s \|$", section, re.MULTILINE)
    assert [(name.lower(), int(budget_s)) for name, budget_s in documented] == [
        (one.name, one.budget_s) for one in STAGES
    ]


def test_a_test_beyond_the_budget_of_its_stage_fails_before_it_starts() -> None:
    budgets = Budgets(strict=True, started_s={UNIT.name: time.monotonic() - UNIT.budget_s - 1})
    with pytest.raises(
        pytest.fail.Exception, match=f"the stages unit have taken {UNIT.budget_s + 1} of their {UNIT.budget_s} s"
    ):
        budgets.begin(UNIT)


def test_a_stage_may_use_the_unused_budget_of_earlier_stages_and_no_more() -> None:
    static, together_s = STAGES[0], STAGES[0].budget_s + UNIT.budget_s
    budgets = Budgets(strict=True, started_s={static.name: time.monotonic() - together_s + 20})
    budgets.begin(UNIT)
    budgets.started_s[static.name] -= 21
    with pytest.raises(
        pytest.fail.Exception, match=f"static, unit have taken {together_s + 1} of their {together_s} s"
    ):
        budgets.begin(UNIT)


def test_a_manual_run_has_no_budgets() -> None:
    budgets = Budgets(strict=False, started_s={UNIT.name: time.monotonic() - UNIT.budget_s - 1})
    budgets.begin(UNIT)
    budgets.end(UNIT)
    assert budgets.report() == f"unit {UNIT.budget_s + 1} of {UNIT.budget_s} s"
