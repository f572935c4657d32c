"""Minutes of a whole run of CI: a slow machine skips what does not fit into them, and the summary says so.

`.ci/run` says how many minutes its three runs of pytest have together, and when they began. Other runs have no limit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import pytest

MINUTES_VARIABLE: Final = "CLONOS_TEST_MINUTES"
BEGAN_VARIABLE: Final = "CLONOS_TEST_BEGAN_S"
"""Seconds since 1970, as `date +%s` prints them."""

EXHAUSTIVE_MINUTES_MIN: Final = 0.1
"""Minutes that exhaustive tests have although the run is late: at least one world of each kind."""


@dataclass(frozen=True, slots=True)
class RunLimit:
    """When a run of pytest begins no further test, in seconds since 1970; infinity without a limit.

    ``slow_end_s`` holds for tests that `make check` leaves out, ``end_s`` for all. ``minutes``: of all runs together.
    """

    minutes: float
    slow_end_s: float
    end_s: float

    @classmethod
    def of(cls, environment: Mapping[str, str], share: float) -> RunLimit:
        """Reads the limit. ``share``: part of the minutes after which this run begins no slow test."""
        minutes = float(environment.get(MINUTES_VARIABLE) or "inf")
        began_s = float(environment.get(BEGAN_VARIABLE) or "0")
        return cls(minutes, began_s + 60 * minutes * share, began_s + 60 * minutes)

    def refusal(self, now_s: float, is_slow: bool) -> str:
        """Returns why a test does not begin; an empty text if it does."""
        if now_s >= self.end_s:
            return f"the {self.minutes:g} minutes of the run ({MINUTES_VARIABLE}) have passed"
        if is_slow and now_s >= self.slow_end_s:
            return f"its share of the {self.minutes:g} minutes of the run ({MINUTES_VARIABLE}) has passed"
        return ""

    def exhaustive_minutes(self, now_s: float, wanted: float) -> float:
        """Returns the minutes that exhaustive tests get of those that they are to have."""
        return min(wanted, max(EXHAUSTIVE_MINUTES_MIN, (self.end_s - now_s) / 60))


@dataclass(slots=True, eq=False)
class Unbegun:
    """Counts the tests that a run did not begin for want of time."""

    folders: Counter[str] = field(default_factory=Counter)
    reasons: dict[str, None] = field(default_factory=dict)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Counts one test that was skipped."""
        reason = dict(report.user_properties).get("unbegun")
        if report.when == "setup" and isinstance(reason, str):
            self.folders[report.nodeid.split("::")[0].rpartition("/")[0]] += 1
            self.reasons[reason] = None

    def lines(self) -> list[str]:
        """Returns lines that people read; none where all tests began."""
        if not self.folders:
            return []
        counts = ", ".join(f"{folder} {count}" for folder, count in sorted(self.folders.items()))
        return [f"NOT RUN: {self.folders.total()} tests, because {'; '.join(self.reasons)}: {counts}"]
