"""Timers of a step, per key, in processing time or in event time; part of the state, fired by (time, registration)."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Any, Final

from clonos.core.values.keys import key_of, state_key
from clonos.operators.operator import DueTimer
from clonos.operators.state.declared_state import StepState
from clonos.operators.state.state_spec import StateSpec, keyed

SPARE_MAX: Final = 64
"""Deleted timers that the heap may have besides as many as are registered."""


def timer_spec(name: str) -> StateSpec:
    """Returns the declaration of a table of timers."""
    return keyed(name, key_place=(0, 1))


class Timers:
    """Timers of one step. A timer is (time, key); setting it twice has no effect.

    The heap has deleted timers too, until they come to its top or are half of it.
    """

    __slots__ = ("_table", "_registered", "_heap", "_next_number")

    def __init__(self, spec: StateSpec, state: StepState) -> None:
        self._table = state.table(spec)
        # The table has the timers in order of registration, also after a restore.
        self._registered: dict[Any, int] = {entry: number for number, entry in enumerate(self._table.entries)}
        self._rebuild()
        self._next_number = len(self._heap)

    def __len__(self) -> int:
        """Returns how many timers it holds in memory: those that are set, and some deleted ones."""
        return len(self._heap)

    def set(self, instant_ns: int, key: Any) -> None:
        """Sets a timer."""
        entry = state_key((instant_ns, key))
        if entry not in self._registered:
            self._registered[entry] = self._next_number
            self._table.set(entry, None)
            heappush(self._heap, (instant_ns, self._next_number, _timer_of(entry)[1]))  # the key as a restore has it
            self._next_number += 1

    def delete(self, instant_ns: int, key: Any) -> None:
        """Deletes a timer, if it is set."""
        entry = state_key((instant_ns, key))
        if self._registered.pop(entry, None) is not None:
            self._table.delete(entry)
            if len(self._heap) > 2 * len(self._registered) + SPARE_MAX:
                self._rebuild()

    def _rebuild(self) -> None:
        self._heap: list[tuple[int, int, Any]] = []
        for entry, number in self._registered.items():
            instant_ns, key = _timer_of(entry)
            self._heap.append((instant_ns, number, key))
        heapify(self._heap)

    def next_ns(self) -> int | None:
        """Returns the time of the earliest timer, None without timers."""
        while self._heap and not self._is_registered(*self._heap[0]):
            heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def due(self, until_ns: int | None) -> list[DueTimer]:
        """Returns the timers due at ``until_ns`` (None: all) in order; the caller then takes each."""
        due: list[DueTimer] = []
        while self._heap and (until_ns is None or self._heap[0][0] <= until_ns):
            timer = heappop(self._heap)
            if self._is_registered(*timer):
                due.append(DueTimer(timer[0], timer))
        return due

    def take(self, due: DueTimer) -> bool:
        """Removes a timer that is about to fire. Returns False if an earlier timer has deleted it."""
        instant_ns, number, key = due.token
        if not self._is_registered(instant_ns, number, key):
            return False
        self.delete(instant_ns, key)
        return True

    def _is_registered(self, instant_ns: int, number: int, key: Any) -> bool:
        return self._registered.get(state_key((instant_ns, key))) == number


def _timer_of(entry: Any) -> tuple[int, Any]:
    timer = key_of(entry)
    assert isinstance(timer, tuple), "a table of timers holds (instant, key)"
    return timer
