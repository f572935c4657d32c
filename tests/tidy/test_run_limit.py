"""A slow machine ends a run of CI in time: what is left out, what stays, and what the summary says of both."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time

import pytest

from tests.run_limit import BEGAN_VARIABLE, EXHAUSTIVE_MINUTES_MIN, MINUTES_VARIABLE, RunLimit, Unbegun
from tests.tidy.source import ROOT

pytestmark = pytest.mark.static

LIMIT = RunLimit.of({MINUTES_VARIABLE: "75", BEGAN_VARIABLE: "1000"}, share=0.5)
SHARE_ENDS_S, ALL_ENDS_S = 1000 + 75 * 30, 1000 + 75 * 60


def test_a_run_by_hand_has_no_limit() -> None:
    limit = RunLimit.of({}, share=0.5)
    assert limit.refusal(1e12, is_slow=True) == ""
    assert limit.exhaustive_minutes(1e12, 3.5) == 3.5


def test_a_slow_test_does_not_begin_after_the_share_of_its_run_and_a_quick_one_does() -> None:
    assert LIMIT.refusal(SHARE_ENDS_S - 1, is_slow=True) == ""
    assert MINUTES_VARIABLE in LIMIT.refusal(SHARE_ENDS_S, is_slow=True)
    assert LIMIT.refusal(ALL_ENDS_S - 1, is_slow=False) == ""


def test_no_test_begins_after_the_minutes_of_all_runs() -> None:
    for is_slow in (True, False):
        assert "75 minutes" in LIMIT.refusal(ALL_ENDS_S, is_slow)


@pytest.mark.parametrize(
    ("left_s", "minutes"), [(600, 3.5), (120, 2.0), (1, EXHAUSTIVE_MINUTES_MIN), (-60, EXHAUSTIVE_MINUTES_MIN)]
)
def test_exhaustive_tests_shrink_to_the_minutes_that_are_left(left_s: int, minutes: float) -> None:
    assert LIMIT.exhaustive_minutes(ALL_ENDS_S - left_s, 3.5) == minutes


def test_a_summary_counts_each_test_that_did_not_begin_once() -> None:
    unbegun = Unbegun()
    for when in ("setup", "teardown"):
        unbegun.pytest_runtest_logreport(
            pytest.TestReport(
                "tests/a/test_b.py::c", ("a", 1, "a"), {}, "skipped", None, when, user_properties=[("unbegun", "late")]
            )
        )
    assert unbegun.lines() == ["NOT RUN: 1 tests, because late: tests/a 1"]
    assert Unbegun().lines() == []


@pytest.mark.parametrize(
    ("minutes", "summary"), [("1e-9", r"NOT RUN: 2 tests, .*: tests/unit/core/model 2\n"), ("1e9", "")]
)
def test_a_run_that_is_late_passes_and_names_what_it_left_out(minutes: str, summary: str) -> None:
    file = "tests/unit/core/model/test_machine.py"
    late = os.environ | {MINUTES_VARIABLE: minutes, BEGAN_VARIABLE: str(int(time.time()) - 1)}
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", file]
    done = subprocess.run(command, cwd=ROOT, env=late, stdout=subprocess.PIPE, text=True, check=True)
    assert bool(re.search(r"^NOT RUN: ", done.stdout, re.M)) == bool(summary)
    assert re.search(summary, done.stdout)


def test_the_runs_of_ci_have_growing_shares_of_its_minutes() -> None:
    recipe = (ROOT / "Makefile").read_text("utf-8").partition("\ntest:")[2].partition("\n\n")[0]
    shares = [float(share) for share in re.findall(r"--run-share (\S+)", recipe)]
    assert shares == sorted(shares)
    assert len(shares) == recipe.count("$(PYTEST)") - 1, "the last run has the rest"
    assert all(
        f"export {name}" in (ROOT / ".ci" / "run").read_text("utf-8") for name in (MINUTES_VARIABLE, BEGAN_VARIABLE)
    )
