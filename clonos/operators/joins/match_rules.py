"""Rules of joins: which timestamps of the other side match one of this side.

All bounds are in nanoseconds and inclusive. A rule is symmetric: a record of the left side matches one of the right
side exactly when that one matches it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from clonos.core.model.watermark import INSTANT_NS_MIN

Keys = tuple[tuple[str, ...], tuple[str, ...]]
"""Key columns of the left and of the right side."""


class How(StrEnum):
    """Kind of a join: which records it emits."""

    INNER = "inner"
    LEFT = "left"
    RIGHT = "right"
    FULL = "full"
    SEMI = "semi"
    ANTI = "anti"

    @property
    def gives_pairs(self) -> bool:
        """Returns whether its results are pairs; otherwise they are records of the left side."""
        return self not in (How.SEMI, How.ANTI)

    def keeps(self, is_left: bool) -> bool:
        """Returns whether it emits the records of a side that have no match."""
        return self in ((How.LEFT, How.FULL, How.ANTI) if is_left else (How.RIGHT, How.FULL))

    def may_wait(self, is_left: bool) -> bool:
        """Returns whether it may emit a record of a side later, with its own timestamp."""
        return self.keeps(is_left) or (is_left and self is How.SEMI)


class Direction(StrEnum):
    """Side of a left record on which its version lies, in an as-of join."""

    BACKWARD = "backward"
    FORWARD = "forward"
    NEAREST = "nearest"


@dataclass(frozen=True, slots=True)
class AsOfRules:
    """Which version a left record meets. ``tolerance_ns`` is given unless the direction is backward."""

    direction: Direction
    tolerance_ns: int | None
    is_inner: bool

    @property
    def wait_ns(self) -> int:
        """Returns how much later than a left record its version may be."""
        return 0 if self.direction is Direction.BACKWARD else self.tolerance_ns or 0

    @property
    def tolerated_ns(self) -> int | None:
        """Returns how much later than its version a left record may be; None without a limit."""
        return 0 if self.direction is Direction.FORWARD else self.tolerance_ns


class MatchRule(Protocol):
    """Rule by which timestamps match."""

    def partners(self, is_left: bool, timestamp_ns: int) -> tuple[int, int]:
        """Returns the first and the last timestamp of the other side that match one of this side."""

    def partners_of(self, is_left: bool, times: Sequence[int]) -> list[tuple[int, int]]:
        """Returns the partners of several timestamps."""

    def needed_from(self, is_left: bool, reached_ns: int) -> int:
        """Returns the earliest timestamp of this side that matches one of the other side from an instant on."""

    def on_time_from(self, watermark_ns: int) -> int:
        """Returns the earliest timestamp whose partners were all needed when the watermark came that far."""

    def earliest(self, watermark_ns: int, how: How) -> int:
        """Returns the earliest timestamp that a result may still have when the watermark has come that far."""

    @property
    def shared_ns(self) -> int:
        """Returns how long the stretches are in which all timestamps match the same ones; 0 if there are none."""

    @property
    def span_ns(self) -> int:
        """Returns how long a record's partners may be apart."""


def passed_on(rule: MatchRule, how: How, watermark_ns: int, before_ns: int | None) -> int | None:
    """Returns the watermark of the results when that of the records has risen from ``before_ns``; None if it stays."""
    passed_ns = rule.earliest(watermark_ns, how)
    if passed_ns < INSTANT_NS_MIN or (before_ns is not None and passed_ns <= rule.earliest(before_ns, how)):
        return None
    return passed_ns


@dataclass(frozen=True, slots=True)
class Between:
    """Match if the right timestamp less the left one is from ``lower_ns`` to ``upper_ns``."""

    lower_ns: int
    upper_ns: int

    def partners(self, is_left: bool, timestamp_ns: int) -> tuple[int, int]:
        if is_left:
            return timestamp_ns + self.lower_ns, timestamp_ns + self.upper_ns
        return timestamp_ns - self.upper_ns, timestamp_ns - self.lower_ns

    def partners_of(self, is_left: bool, times: Sequence[int]) -> list[tuple[int, int]]:
        first_ns, last_ns = self.partners(is_left, 0)
        return [(timestamp_ns + first_ns, timestamp_ns + last_ns) for timestamp_ns in times]

    def needed_from(self, is_left: bool, reached_ns: int) -> int:
        return reached_ns - self.upper_ns if is_left else reached_ns + self.lower_ns

    def on_time_from(self, watermark_ns: int) -> int:
        return watermark_ns

    def earliest(self, watermark_ns: int, how: How) -> int:
        """A pair bears the time of a record that is on time; a waiting record is as old as its last partner allows."""
        left_ns = self.upper_ns if how.may_wait(True) else 0
        right_ns = -self.lower_ns if how.may_wait(False) else 0
        return watermark_ns - max(0, left_ns, right_ns)

    @property
    def shared_ns(self) -> int:
        return 0

    @property
    def span_ns(self) -> int:
        return self.upper_ns - self.lower_ns


@dataclass(frozen=True, slots=True)
class SameWindow:
    """Match if both timestamps are in the same tumbling window."""

    size_ns: int
    offset_ns: int = 0

    def partners(self, is_left: bool, timestamp_ns: int) -> tuple[int, int]:
        start_ns = self._start(timestamp_ns)
        return start_ns, start_ns + self.size_ns - 1

    def partners_of(self, is_left: bool, times: Sequence[int]) -> list[tuple[int, int]]:
        if not times or (pair := self.partners(is_left, min(times))) == self.partners(is_left, max(times)):
            return [pair] * len(times) if times else []
        size_ns, offset_ns = self.size_ns, self.offset_ns
        starts = [timestamp_ns - (timestamp_ns - offset_ns) % size_ns for timestamp_ns in times]
        return [(start_ns, start_ns + size_ns - 1) for start_ns in starts]

    def needed_from(self, is_left: bool, reached_ns: int) -> int:
        return self._start(reached_ns)

    def on_time_from(self, watermark_ns: int) -> int:
        return self._start(watermark_ns)

    def earliest(self, watermark_ns: int, how: How) -> int:
        """A record that is behind the watermark is on time while its window is open."""
        return self._start(watermark_ns)

    @property
    def shared_ns(self) -> int:
        return self.size_ns

    @property
    def span_ns(self) -> int:
        return self.size_ns - 1

    def _start(self, timestamp_ns: int) -> int:
        return timestamp_ns - (timestamp_ns - self.offset_ns) % self.size_ns
