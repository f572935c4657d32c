"""Stages of a test run, in their order, with the time that each may take.

A test belongs to the stage of its marker, and to `unit` without one. A whole run may take 29 minutes on two
cores: two of setup, and what the budgets are together. What a stage leaves over the next ones may use.
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
    Stage("static", budget_s=130, timeout_s=60),
    Stage("unit", budget_s=350, timeout_s=30),
    Stage("worlds", budget_s=450, timeout_s=180),
    Stage("controls", budget_s=170, timeout_s=60),
    Stage("fuzz", budget_s=80, timeout_s=180),
    Stage("processes", budget_s=310, timeout_s=120),
    Stage("spark", budget_s=130, timeout_s=120),
)
UNIT = STAGES[1]


def stage_of(item: pytest.Item) -> Stage:
    """The stage of a test; the last one where it bears several markers."""
    marked = [stage for stage in STAGES if item.get_closest_marker(stage.name)]
    return marked[-1] if marked else UNIT


@dataclass(slots=True)
class Budgets:
    """Seconds that each stage has taken so far. When `strict`, a test that begins beyond the budgets of its stage and
    of those before it fails instead."""

    strict: bool
    started_s: dict[str, float] = field(default_factory=dict)
    taken_s: dict[str, float] = field(default_factory=dict)

    def begin(self, stage: Stage) -> None:
        """Called before each test."""
        now_s = time.monotonic()
        self.started_s.setdefault(stage.name, now_s)
        taken_s = now_s - min(self.started_s.values())
        budget_s = sum(one.budget_s for one in STAGES if one.name in self.started_s)
        if self.strict and taken_s > budget_s:
            pytest.fail(
                f"the stages {', '.join(self.started_s)} have taken {taken_s:.0f} of their {budget_s} s, so this test"
                " was not begun: make their tests quicker, see those that took longest at the end of this report",
                pytrace=False,
            )

    def end(self, stage: Stage) -> None:
        """Called after each test."""
        self.taken_s[stage.name] = time.monotonic() - self.started_s[stage.name]

    def report(self) -> str:
        """Returns one line that people read."""
        budgets_s = {stage.name: stage.budget_s for stage in STAGES}
        return ", ".join(f"{name} {taken_s:.0f} of {budgets_s[name]} s" for name, taken_s in self.taken_s.items())
