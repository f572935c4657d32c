"""Guarantee of a connector: found by comparing the rows in the external system with those that belong there."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from clonos.core.model.errors import JobError

EXAMPLES_MAX: Final = 3
ALARM: Final = re.compile(r"output (\d+) to (\d+) of (\S+) had left before the rollback")
"""Alarm about rows that an immediate sink cannot withdraw."""

OPEN_ALARM: Final = re.compile(r"output from (\d+) on of (\S+) may have left before the rollback")
"""The same where the external system does not say which rows it has."""

Pair = tuple[int, Any]
"""Number of a row, and what it contains."""


class Guarantee(StrEnum):
    """Guarantee for each row of a connector."""

    EXACTLY_ONCE = "exactly-once"
    AT_LEAST_ONCE = "at-least-once"
    AT_MOST_ONCE = "at-most-once"
    NONE = "no guarantee"


@dataclass(frozen=True, slots=True)
class Evidence:
    """Result of one trial, counted in rows.

    ``rows``: expected ones. ``injected``: faults. ``lost``: found nowhere. ``twice``: found again, with the same
    content. ``changed``: found with other content; ``replaced`` of them are in place of the right row.
    ``announced``: rows that alarms number as possibly repeated. ``complaints``: breaches of the contract that
    simulated worlds have shown, and the error that ended the job, if there was one.
    """

    rows: int
    injected: int = 0
    lost: int = 0
    twice: int = 0
    changed: int = 0
    replaced: int = 0
    announced: int = 0
    complaints: tuple[str, ...] = ()
    examples: tuple[str, ...] = ()
    failure: str = ""

    @property
    def guarantee(self) -> Guarantee:
        """Returns what holds for each row. A connector that breaks its contract is not exactly-once."""
        if self.failure:
            return Guarantee.NONE
        is_complete = not self.lost and not self.replaced
        is_single = not self.twice and not self.changed
        if is_complete:
            return Guarantee.EXACTLY_ONCE if is_single and not self.complaints else Guarantee.AT_LEAST_ONCE
        return Guarantee.AT_MOST_ONCE if is_single else Guarantee.NONE

    def __str__(self) -> str:
        counted = f"{self.rows} rows, {self.injected} faults: {self.lost} lost, {self.twice} twice"
        counted += f", {self.changed} changed"
        counted += f", {self.announced} announced by alarms" if self.announced else ""
        lines = [f"{self.guarantee} ({counted})", *self.examples, *self.complaints[:EXAMPLES_MAX]]
        return "\n    ".join([*lines, *([f"the job has failed: {self.failure}"] if self.failure else [])])

    def __add__(self, other: Evidence) -> Evidence:
        """Adds the evidence of another run of the same trial."""
        return Evidence(
            self.rows + other.rows,
            self.injected + other.injected,
            self.lost + other.lost,
            self.twice + other.twice,
            self.changed + other.changed,
            self.replaced + other.replaced,
            self.announced + other.announced,
            tuple(dict.fromkeys(self.complaints + other.complaints)),
            (self.examples + other.examples)[:EXAMPLES_MAX],
            self.failure or other.failure,
        )


class Guarantees(Mapping[str, Evidence]):
    """Evidence by the name of its trial. ``str`` lists all trials, one below the other."""

    def __init__(self, connector: str, trials: Mapping[str, Evidence]) -> None:
        self.connector = connector
        self._trials = dict(trials)

    @property
    def weakest(self) -> Guarantee:
        """Returns what holds in all trials together."""
        found = {evidence.guarantee for evidence in self.values()} - {Guarantee.EXACTLY_ONCE}
        if len(found) > 1:
            return Guarantee.NONE
        return found.pop() if found else Guarantee.EXACTLY_ONCE

    def __getitem__(self, trial: str) -> Evidence:
        return self._trials[trial]

    def __iter__(self) -> Iterator[str]:
        return iter(self._trials)

    def __len__(self) -> int:
        return len(self._trials)

    def __str__(self) -> str:
        return "\n".join([self.connector, *(f"  {name}: {evidence}" for name, evidence in self.items())])

    def __repr__(self) -> str:
        return f"<Guarantees of {self}>"


def judged(expected: Mapping[int, Any], found: Iterable[Pair], **more: Any) -> Evidence:
    """Compares the rows that were found with the expected ones, by their numbers."""
    seen: dict[int, list[Any]] = {}
    for number, content in found:
        seen.setdefault(number, []).append(content)
    lost = [number for number in expected if number not in seen]
    twice: Counter[int] = Counter()
    changed: Counter[int] = Counter()
    replaced = []
    for number, contents in seen.items():
        right = sum(number in expected and content == expected[number] for content in contents)
        twice[number] = max(0, right - 1)
        changed[number] = len(contents) - right
        if not right and number in expected:
            replaced.append(number)
    groups: tuple[tuple[str, Sequence[int]], ...] = (
        ("lost", lost),
        ("twice", [number for number, count in twice.items() if count]),
        ("changed", [number for number, count in changed.items() if count]),
    )
    examples = tuple(f"{word}: rows {_shown(numbers)}" for word, numbers in groups if numbers)
    return Evidence(
        rows=len(expected),
        lost=len(lost),
        twice=twice.total(),
        changed=changed.total(),
        replaced=len(replaced),
        examples=examples,
        **more,
    )


def pair_of(row: Any) -> Pair:
    """Returns number and content of a row that a test's reader has found: (n, draw), or something with these keys.

    Raises: JobError: the row is neither.
    """
    if isinstance(row, Mapping) and "n" in row and "draw" in row:
        return int(row["n"]), row["draw"]
    if isinstance(row, (tuple, list)) and len(row) == 2:
        return int(row[0]), row[1]
    raise JobError(
        f"the reader of the external system returned {row!r:.200}: let it return pairs (n, draw), or dicts with the"
        " keys n and draw."
    )


def announced_by(alarms: Sequence[str], rows: int) -> int:
    """Returns the number of rows that alarms number as possibly repeated, of ``rows`` that there are."""
    places = {found.groups() for text in alarms if (found := ALARM.match(text))}
    begins = {found.groups() for text in alarms if (found := OPEN_ALARM.match(text))}
    return sum(int(last) - int(first) + 1 for first, last, _ in places) + sum(rows - int(first) for first, _ in begins)


def _shown(numbers: Sequence[int]) -> str:
    shown = ", ".join(map(str, sorted(numbers)[:EXAMPLES_MAX]))
    return shown if len(numbers) <= EXAMPLES_MAX else f"{shown} and {len(numbers) - EXAMPLES_MAX} more"
