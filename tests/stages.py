"""Stages of a test run, in their order, with the time that each may take.

A test belongs to the stage of its marker, and to `unit` without one. `make test` starts two runs of pytest side by
side, static and unit tests in one and simulated worlds in the other, and then a third one on real processes. All of it
may take 33 minutes on two cores, two of them for the setup.
"""

import time
from dataclasses import dataclass, field

import pytest


@dataclass(frozen=True, slots=True)
class Stage:
    """A kind of tests. `timeout_s` holds for one test that names no other."""

    name: str
    budget_s: int
    timeout_s: int


STAGES = (
    Stage("static", budget_s=90, timeout_s=200),
    Stage("unit", budget_s=780, timeout_s=90),
    Stage("worlds", budget_s=570, timeout_s=400),
    Stage("controls", budget_s=130, timeout_s=180),
    Stage("fuzz", budget_s=60, timeout_s=300),
    Stage("processes", budget_s=460, timeout_s=180),
    Stage("connectors", budget_s=340, timeout_s=180),
    Stage("spark", budget_s=200, timeout_s=200),
)
UNIT = STAGES[1]
RUNS = (STAGES[1:2], (STAGES[0], *STAGES[2:5]), STAGES[5:])
"""Stages of each run of pytest in `make test`. The second run is beside the first."""


def stage_of(item: pytest.Item) -> Stage:
    """The stage of a test; the last one where it bears several markers."""
    marked = [stage for stage in STAGES if item.get_closest_marker(stage.name)]
    return marked[-1] if marked else UNIT


@dataclass(slots=True)
class Budgets:
    """Seconds that each stage has taken so far. They are reported and refuse nothing: no result depends on the speed of
    the machine."""

    started_s: dict[str, float] = field(default_factory=dict)
    taken_s: dict[str, float] = field(default_factory=dict)

    def begin(self, stage: Stage) -> None:
        """Called before each test."""
        self.started_s.setdefault(stage.name, time.monotonic())

    def end(self, stage: Stage) -> None:
        """Called after each test."""
        self.taken_s[stage.name] = time.monotonic() - self.started_s[stage.name]

    def report(self) -> str:
        """Returns one line that people read."""
        budgets_s = {stage.name: stage.budget_s for stage in STAGES}
        return ", ".join(f"{name} {taken_s:.0f} of {budgets_s[name]} s" for name, taken_s in self.taken_s.items())
