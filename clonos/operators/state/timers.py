"""Processing-time timers of one step, per key: they are state, and fire in the order (time, registration)."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Any

from clonos.core.values.keys import key_of, state_key
from clonos.operators.operator import DueTimer
from clonos.operators.state.keyed_state import StateBackend


class Timers:
    """A timer is (instant, key); to set one that is set changes nothing."""

    __slots__ = ("_table", "_registered", "_heap", "_next_place")

    def __init__(self, name: str, state: StateBackend) -> None:
        self._table = state.table(name)
        # Entries stand in the order in which they were registered, restored ones too.
        self._registered: dict[Any, int] = {entry: place for place, entry in enumerate(self._table.entries)}
        self._heap: list[tuple[int, int, Any]] = []
        for entry, place in self._registered.items():
            instant_ns, key = _timer_of(entry)
            self._heap.append((instant_ns, place, key))
        heapify(self._heap)
        self._next_place = len(self._heap)

    def set(self, instant_ns: int, key: Any) -> None:
        """Registers a timer."""
        entry = state_key((instant_ns, key))
        if entry not in self._registered:
            self._registered[entry] = self._next_place
            self._table.set(entry, None)
            heappush(self._heap, (instant_ns, self._next_place, key))
            self._next_place += 1

    def delete(self, instant_ns: int, key: Any) -> None:
        """Takes a timer back, if it is set."""
        entry = state_key((instant_ns, key))
        if self._registered.pop(entry, None) is not None:
            self._table.delete(entry)

    def next_ns(self) -> int | None:
        """When the earliest one is due."""
        while self._heap and not self._is_registered(*self._heap[0]):
            heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def due(self, until_ns: int | None) -> list[DueTimer]:
        """Those due at an instant, all without one, in their order; each is to be taken next."""
        due: list[DueTimer] = []
        while self._heap and (until_ns is None or self._heap[0][0] <= until_ns):
            timer = heappop(self._heap)
            if self._is_registered(*timer):
                due.append(DueTimer(timer[0], timer))
        return due

    def take(self, due: DueTimer) -> bool:
        """Whether it is still registered, that is not deleted by one that fired before it. Then it is no more."""
        instant_ns, place, key = due.token
        if not self._is_registered(instant_ns, place, key):
            return False
        self.delete(instant_ns, key)
        return True

    def _is_registered(self, instant_ns: int, place: int, key: Any) -> bool:
        return self._registered.get(state_key((instant_ns, key))) == place


def _timer_of(entry: Any) -> tuple[int, Any]:
    timer = key_of(entry)
    assert isinstance(timer, tuple), "a table of timers holds (instant, key)"
    return timer
