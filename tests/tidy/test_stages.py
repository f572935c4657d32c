"""Stages of a test run, how far their tests come, and where both are documented."""

import re

import hypothesis
import pytest
from hypothesis import strategies

from tests.properties import FIRST_EXAMPLES, run_in_portions
from tests.speed import SLOWNESS, scaled
from tests.stages import RUNS, STAGES, UNIT, Progress
from tests.tidy.source import ROOT

WORKERS = 2


def test_all_stages_together_take_eighteen_minutes_at_most_so_that_a_run_ends_within_twenty() -> None:
    assert {stage for run in RUNS for stage in run} == set(STAGES)
    assert sum(stage.budget_s for stage in STAGES) <= WORKERS * 18 * 60


def test_the_documents_state_the_budget_of_each_stage() -> None:
    section = (ROOT / "docs" / "index.md").read_text("utf-8").partition("## How it is tested")[2]
    documented = re.findall(r"^\| (\w+) \| .* \| (\d+) s \|$", section, re.MULTILINE)
    assert [(name.lower(), int(budget_s)) for name, budget_s in documented] == [
        (one.name, one.budget_s) for one in STAGES
    ]


def _report(seconds: float, **properties: tuple[int, int]) -> pytest.TestReport:
    return pytest.TestReport(
        "a", ("a", 1, "a"), {}, "passed", None, "teardown", duration=seconds, user_properties=list(properties.items())
    )


def test_a_run_reports_the_time_of_each_stage_and_how_far_its_tests_came() -> None:
    progress = Progress()
    progress.pytest_runtest_logreport(_report(1.0, examples=(8, 30)))
    progress.pytest_runtest_logreport(_report(2.0, examples=(30, 30), worlds=(7, 0)))
    assert progress.lines() == [f"stages: unit 3 of {UNIT.budget_s} s", "how far: examples 38 of 60, worlds 7"]


@pytest.mark.parametrize(("seconds", "done"), [(0.0, FIRST_EXAMPLES), (1e9, 40)])
def test_a_property_runs_its_first_examples_and_more_while_its_seconds_last(
    request: pytest.FixtureRequest, seconds: float, done: int
) -> None:
    drawn: list[int] = []

    @hypothesis.settings(max_examples=40, database=None)
    @hypothesis.given(strategies.integers())
    def draws(number: int) -> None:
        drawn.append(number)

    item = pytest.Function.from_parent(request.node.parent, name="draws", callobj=draws)
    assert run_in_portions(item, draws, seconds) == (done, 40)
    assert len(drawn) == done


def test_a_property_that_is_wrong_fails_in_a_later_portion_too(request: pytest.FixtureRequest) -> None:
    @hypothesis.settings(max_examples=400, database=None, phases=[hypothesis.Phase.generate])
    @hypothesis.given(strategies.integers(0, 50))
    def fails(number: int) -> None:
        assert number != 33

    item = pytest.Function.from_parent(request.node.parent, name="fails", callobj=fails)
    with pytest.raises(AssertionError):
        run_in_portions(item, fails, 1e9)


def test_time_limits_follow_the_speed_of_the_machine() -> None:
    assert SLOWNESS >= 1
    assert scaled(10.0) == 10.0 * SLOWNESS
