"""Agenda of tumbling and sliding windows: when each of them emits, and when each pane is forgotten."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Container
from heapq import heappop, heappush
from typing import Final

from clonos.operators.operator import DueTimer
from clonos.operators.windows.grid import Spans

EMITS: Final = 0
FORGETS: Final = 1
"""What happens at an instant: a window emits, or a pane is forgotten; in this order."""


class PaneAgenda:
    """Agenda of a step. The token of a timer is (EMITS, end of the window) or (FORGETS, pane)."""

    __slots__ = ("_spans", "_lateness_ns", "_panes", "_heap", "_planned")

    def __init__(self, spans: Spans, lateness_ns: int, panes: Container[int]) -> None:
        """Creates it. ``panes`` has the panes that hold records."""
        self._spans, self._lateness_ns, self._panes = spans, lateness_ns, panes
        self._heap: list[tuple[int, int, int]] = []  # (instant, EMITS or FORGETS, end or pane)
        self._planned: set[tuple[int, int]] = set()  # those of the heap: (EMITS or FORGETS, end or pane)

    def next_ns(self) -> int | None:
        """Returns the instant of the next event, None without events."""
        return self._heap[0][0] if self._heap else None

    def due(self, until_ns: int | None, further: Container[int] = ()) -> list[DueTimer]:
        """Takes the events up to ``until_ns`` (None: all), in their order. A window plans the next one when it emits.

        ``further``: ends of windows that have emitted before.
        """
        found: list[DueTimer] = []
        while self._heap and (until_ns is None or self._heap[0][0] <= until_ns):
            instant_ns, kind, number = heappop(self._heap)
            found.append(DueTimer(instant_ns, (kind, number)))
            if kind == EMITS and number not in further:
                self._plan_next(number + self._spans.slide)
        return found

    def fired(self, timer: DueTimer) -> tuple[int, int]:
        """Returns the token of an event that happens now, so that it may be planned again."""
        token: tuple[int, int] = timer.token
        self._planned.discard(token)
        return token

    def add_pane(self, pane: int, reached_ns: int | None) -> None:
        """Plans the events of a new pane: the first of its windows that has not ended, and its end."""
        spans = self._spans
        ends = spans.ends_of(pane)
        ended = 0 if reached_ns is None else bisect_right(ends, reached_ns, key=spans.end_ns)
        for end in ends[ended : ended + 1]:
            self.add_window(end)
        self._add(spans.end_ns(spans.last_end_of(pane)) + self._lateness_ns, FORGETS, pane)

    def add_window(self, end: int) -> None:
        """Plans that a window emits at its end, or at the next watermark if it has ended."""
        self._add(self._spans.end_ns(end), EMITS, end)

    def _plan_next(self, end: int) -> None:
        """Plans a window, unless nothing is in it."""
        if any(pane in self._panes for pane in reversed(self._spans.panes_of(end))):
            self.add_window(end)

    def _add(self, instant_ns: int, kind: int, number: int) -> None:
        if (kind, number) not in self._planned:
            self._planned.add((kind, number))
            heappush(self._heap, (instant_ns, kind, number))
