"""Stages of a test run, in their order, with the time that each may take.

A test belongs to the stage of its marker, and to `unit` without one. `make test` starts three runs of pytest, each with
a worker per core: essential tests, real processes, and then what is exhaustive, which has minutes and no number.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

import pytest


@dataclass(frozen=True, slots=True)
class Stage:
    """A kind of tests. `budget_s` is for all its tests together; `timeout_s` holds for one test that names no other."""

    name: str
    budget_s: int
    timeout_s: int


STAGES = (
    Stage("static", budget_s=160, timeout_s=200),
    Stage("unit", budget_s=560, timeout_s=90),
    Stage("worlds", budget_s=160, timeout_s=120),
    Stage("fuzz", budget_s=40, timeout_s=120),
    Stage("spark", budget_s=250, timeout_s=200),
    Stage("processes", budget_s=400, timeout_s=180),
    Stage("connectors", budget_s=330, timeout_s=180),
    Stage("controls", budget_s=120, timeout_s=180),
    Stage("exhaustive", budget_s=120, timeout_s=600),
)
UNIT = STAGES[1]
_STAGE = pytest.StashKey[Stage]()
RUNS = (STAGES[:4], STAGES[4:7], STAGES[7:])
"""Stages of each run of pytest in `make test`."""
SHARES: Final = {
    "controls": 0.5,
    "plain": 0.14,
    "graphs": 0.08,
    "joined": 0.06,
    "transformed": 0.04,
    "windows": 0.04,
    "timed": 0.03,
    "aggregates": 0.03,
    "columns": 0.03,
    "fuzz": 0.02,
    "pushed": 0.01,
    "mixed": 0.01,
    "rescaled": 0.01,
}
"""What each kind of exhaustive test gets of the minutes of a run."""
assert round(sum(SHARES.values()), 9) == 1


def group_of(nodeid: str) -> str:
    """Tests of one group run in one worker, because they share what is costly to make; most often those of a file."""
    path = nodeid.split("::")[0]
    folders = path.split("/")
    match folders[1:-1]:
        case ["spark"]:
            return "spark"  # one session
        case ["connectors", *systems]:
            return "/".join(folders[:3] if systems else folders[:2])  # one server of each kind
        case ["tidy"] if folders[-1] not in ("test_gates.py", "test_site.py", "test_user_types.py"):
            return "tidy"  # the parsed text of the project
        case ["worlds"]:
            return nodeid
    return nodeid if folders[-1] == "test_gates.py" else path


def stage_of(item: pytest.Item) -> Stage:
    """The stage of a test; the last one where it bears several markers."""
    if _STAGE not in item.stash:
        marks = {mark.name for mark in item.iter_markers()}
        item.stash[_STAGE] = next((stage for stage in reversed(STAGES) if stage.name in marks), UNIT)
    return item.stash[_STAGE]


@dataclass(slots=True, eq=False)
class Progress:
    """What the stages of a run took, and how far its exhaustive tests came.

    It refuses nothing: no result depends on the speed of the machine.
    """

    taken_s: dict[str, float] = field(default_factory=dict)
    done: Counter[str] = field(default_factory=Counter)
    wanted: Counter[str] = field(default_factory=Counter)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Counts one phase of one test: its time, and what it says of its progress."""
        name = dict(report.user_properties).get("stage", UNIT.name)
        assert isinstance(name, str)
        self.taken_s[name] = self.taken_s.get(name, 0.0) + report.duration
        if report.when == "teardown":
            for kind, counts in report.user_properties:
                if isinstance(counts, tuple | list):
                    self.done[kind] += counts[0]
                    self.wanted[kind] += counts[1]

    def lines(self) -> list[str]:
        """Returns lines that people read."""
        budgets_s = {stage.name: stage.budget_s for stage in STAGES}
        times = [f"{name} {taken_s:.0f} of {budgets_s[name]} s" for name, taken_s in self.taken_s.items()]
        counts = [
            f"{kind} {done} of {self.wanted[kind]}" if self.wanted[kind] else f"{kind} {done}"
            for kind, done in sorted(self.done.items())
        ]
        return [f"{title}: {', '.join(parts)}" for title, parts in (("stages", times), ("how far", counts)) if parts]
