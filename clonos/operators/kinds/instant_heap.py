"""Heap of the spans or windows of keys by an instant. It is made anew of a table, and is no part of the state."""

from __future__ import annotations

from functools import partial
from heapq import heapify, heappop, heappush
from typing import Any

Planned = tuple[int, int, Any]
"""Instant, number and key of a span or window."""


class InstantHeap:
    """Spans or windows by an instant, and then by number."""

    def __init__(self, planned: list[Planned]) -> None:
        heapify(planned)
        self._heap = planned
        self._next_number = max((number for _, number, _ in planned), default=-1) + 1

    @property
    def earliest_ns(self) -> int | None:
        """Earliest instant."""
        return self._heap[0][0] if self._heap else None

    def open(self, instant_ns: int, key: Any) -> int:
        """Adds a span and returns its number, the next one."""
        number = self._next_number
        self._next_number += 1
        heappush(self._heap, (instant_ns, number, key))
        return number

    def plan(self, instant_ns: int, number: int, key: Any) -> None:
        """Adds a span or window that has a number."""
        heappush(self._heap, (instant_ns, number, key))

    def take(self, until_ns: int | None) -> Planned | None:
        """Removes the first one up to an instant, or of all, and returns it; None without one."""
        heap = self._heap
        return heappop(heap) if heap and (until_ns is None or heap[0][0] <= until_ns) else None

    def ended(self, until_ns: int | None) -> list[Planned]:
        """Removes those up to an instant, or all, and returns them in order."""
        return list(iter(partial(self.take, until_ns), None))

    def instants(self, until_ns: int | None) -> list[int]:
        """Returns the instants up to this one, or all, in order."""
        heap, found, places = self._heap, set[int](), [0]
        while places:  # below an instant that is too late are none that are not
            place = places.pop()
            if place < len(heap) and (until_ns is None or heap[place][0] <= until_ns):
                found.add(heap[place][0])
                places += (2 * place + 1, 2 * place + 2)
        return sorted(found)
