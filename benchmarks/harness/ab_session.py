"""Session of A/B measurements (A B A B ...): ratios with median and spread, and figures.

Machines are shared and noisy: the result is the ratio of each pair, whose runs follow each other directly.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

PAIRS: Final = 5
PAIRS_QUICK: Final = 2
RESULTS: Final = Path(__file__).parents[1] / "results"


@dataclass(frozen=True, slots=True)
class Comparison:
    """Comparison of two sides. ``name``: "this/that". ``goal``: as text, if there is one."""

    name: str
    ratio_median: float
    ratio_min: float
    ratio_max: float
    pairs: int
    goal: str = ""


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured number. ``goal``: as text, if there is one."""

    name: str
    value: float
    unit: str
    goal: str = ""


@dataclass
class Session:
    """One call of ``python -m benchmarks``: its options and results."""

    against: Sequence[str]
    pairs: int = PAIRS
    is_quick: bool = False
    comparisons: list[Comparison] = field(default_factory=list)
    figures: list[Figure] = field(default_factory=list)
    not_run: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)
    kills: int = 0
    cases: Sequence[str] = ()
    queries: Sequence[str] = ()
    events: int = 0
    rows: bool = False
    experiments: bool = False
    stages: str = "3,50,shuffled"
    results: Path = RESULTS
    file: Path | None = None  # always has the results so far, even if this process is killed

    def progress(self, text: str) -> None:
        """Prints the current activity."""
        print(f"{time.strftime('%H:%M:%S')}   {text}", file=sys.stderr, flush=True)

    def figure(self, name: str, value: float, unit: str, goal: str = "") -> None:
        """Records and prints a number."""
        self.figures.append(Figure(name, value, unit, goal))
        self._keep()
        print(f"{name:<44} {_digits(value):>12} {unit:<14}{_beside(goal)}", flush=True)

    def leave_out(self, name: str, reason: str) -> None:
        """Records and prints a benchmark that could not run."""
        self.not_run[name] = reason
        self._keep()
        print(f"{name:<44} not run: {reason}", flush=True)

    def fail(self, name: str, error: Exception) -> None:
        """Records and prints a failure; it is printed again at the end, with an exit code."""
        self.failed[name] = f"{type(error).__name__}: {error}"
        self._keep()
        print(f"{name:<44} failed: {self.failed[name]}", flush=True)

    def note(self, name: str, text: str) -> None:
        """Records and prints what a reader of the figures has to know, if there is anything."""
        if text:
            self.notes[name] = text
            self._keep()
            print(f"{name:<44} {text}", flush=True)

    def compared(self, name: str, of_one: Sequence[float], of_other: Sequence[float], goal: str = "") -> Comparison:
        """Records and prints the ratios of pairs."""
        ratios = [one / other for one, other in zip(of_one, of_other, strict=True)]
        found = Comparison(name, statistics.median(ratios), min(ratios), max(ratios), len(ratios), goal)
        self.comparisons.append(found)
        self._keep()
        pairs = "1 pair" if found.pairs == 1 else f"{found.pairs} pairs"
        formatted = f"{found.ratio_median:.3f}  ({found.ratio_min:.3f} .. {found.ratio_max:.3f}, {pairs})"
        print(f"{name:<44} {formatted:<44}{_beside(goal)}", flush=True)
        return found

    def _keep(self) -> None:
        if self.file is not None:
            partial = self.file.with_name(f"{self.file.name}.new")
            self.write(partial)
            partial.replace(self.file)

    def write(self, file: Path) -> None:
        """Writes all results as data, with the goals of comparisons in a separate table by name."""
        data = {
            "comparisons": [
                {name: value for name, value in asdict(one).items() if name != "goal"} for one in self.comparisons
            ],
            "goals": {one.name: one.goal for one in self.comparisons if one.goal},
            "figures": [asdict(one) for one in self.figures],
            "notes": self.notes,
            "not_run": self.not_run,
            "failed": self.failed,
        }
        file.write_text(json.dumps(data, indent=2) + "\n", "utf-8")

    def add(self, file: Path) -> None:
        """Adds the results that another session has written."""
        data = json.loads(file.read_text("utf-8"))
        self.comparisons += [Comparison(**one, goal=data["goals"].get(one["name"], "")) for one in data["comparisons"]]
        self.figures += [Figure(**one) for one in data["figures"]]
        self.notes |= data["notes"]
        self.not_run |= data["not_run"]
        self.failed |= data["failed"]


def _beside(goal: str) -> str:
    return f"goal {goal}" if goal else ""


def _digits(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1_000 else f"{value:.4g}"
