"""Assigners: the windows of a record, for windows whose state is per key."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

from clonos.operators.windows.grid import Spans

Span = tuple[int, int]
"""Start and end of a window in nanoseconds since the Unix epoch."""


class Assigner(ABC):
    """Base of all assigners."""

    ends: ClassVar[bool] = True
    """Whether windows end at an instant. Others have the times of their earliest and latest record."""

    joins: ClassVar[bool] = True
    """Whether windows of a key may join. Others are told apart by their starts and ends."""

    @abstractmethod
    def spans_of(self, value: Any, time_ns: int) -> list[Span]:
        """Returns the windows of a record, by their end."""

    def joined(self, first: Span, second: Span) -> Span | None:
        """Returns the window that two windows of a key become, None if they stay two. A window joins itself."""
        return first if first == second else None


class AlignedAssigner(Assigner):
    """Tumbling, sliding and cumulative windows."""

    joins: ClassVar[bool] = False

    def __init__(self, spans: Spans) -> None:
        self._spans = spans

    def spans_of(self, value: Any, time_ns: int) -> list[Span]:
        spans = self._spans
        return [(spans.start_ns(end), spans.end_ns(end)) for end in spans.ends_of(spans.grid.index_of(time_ns))]


class SessionAssigner(Assigner):
    """Sessions: records of a key that are less than a gap apart. ``gap_ns`` is a length or a function of the record."""

    def __init__(self, gap_ns: int | Callable[[Any], int], length_max_ns: int | None) -> None:
        self._gap_ns = gap_ns
        self.length_max_ns = length_max_ns

    def gap_of(self, value: Any) -> int:
        """Returns the gap after a record."""
        gap_ns = self._gap_ns(value) if callable(self._gap_ns) else self._gap_ns
        return gap_ns if self.length_max_ns is None else min(gap_ns, self.length_max_ns)

    def spans_of(self, value: Any, time_ns: int) -> list[Span]:
        return [(time_ns, time_ns + self.gap_of(value))]

    def joined(self, first: Span, second: Span) -> Span | None:
        if first[0] >= second[1] or second[0] >= first[1]:
            return None
        span = min(first[0], second[0]), max(first[1], second[1])
        return span if self.length_max_ns is None or span[1] - span[0] <= self.length_max_ns else None


class GlobalAssigner(Assigner):
    """One window per key, which ends with the input."""

    ends: ClassVar[bool] = False

    def spans_of(self, value: Any, time_ns: int) -> list[Span]:
        return [(time_ns, time_ns)]

    def joined(self, first: Span, second: Span) -> Span | None:
        return min(first[0], second[0]), max(first[1], second[1])
