"""Budgets of the stages of a test run, and where they are documented."""

import re
import time

from tests.stages import RUNS, STAGES, UNIT, Budgets
from tests.tidy.source import ROOT


def test_all_stages_together_take_thirty_one_minutes_at_most_so_that_a_run_ends_within_thirty_five() -> None:
    first_s, beside_s, last_s = (sum(stage.budget_s for stage in stages) for stages in RUNS)
    assert max(first_s, beside_s) + last_s <= 31 * 60


def test_the_documents_state_the_budget_of_each_stage() -> None:
    section = (ROOT / "docs" / "index.md").read_text("utf-8").partition("## How it is tested")[2]
    documented = re.findall(r"^\| (\w+) \| .* \| (\d+) s \|$", section, re.MULTILINE)
    assert [(name.lower(), int(budget_s)) for name, budget_s in documented] == [
        (one.name, one.budget_s) for one in STAGES
    ]


def test_a_run_reports_the_time_of_each_stage_beside_its_budget() -> None:
    budgets = Budgets()
    budgets.begin(UNIT)
    budgets.started_s[UNIT.name] = time.monotonic() - UNIT.budget_s - 1
    budgets.begin(UNIT)
    budgets.end(UNIT)
    assert budgets.report() == f"unit {UNIT.budget_s + 1} of {UNIT.budget_s} s"
