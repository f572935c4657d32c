"""Output budget: how much a task may still produce before a channel is full, as its thread sees it (protocol 4).

The slot sets the budget after all that it has handled; the task counts down what it has handed over since. So a task
does not run ahead of its slot, and a step is no longer than what its receivers work off soon.
"""

from __future__ import annotations

from collections.abc import Callable

UNLIMITED = 1 << 60


class OutputBudget:
    """Budget that two threads share: each number is written by one of them, and none is ever taken back."""

    __slots__ = ("_allowed_bytes", "_handed_bytes", "_is_awaited", "_wake")

    def __init__(self, wake: Callable[[], None]) -> None:
        """``wake`` is called when the task waits for its budget to grow, and it has grown."""
        self._allowed_bytes = UNLIMITED  # may have been handed over in all
        self._handed_bytes = 0
        self._is_awaited = False
        self._wake = wake

    # --- the task's side

    def spend(self, cost_bytes: int) -> None:
        """Counts a step that the task has handed over."""
        self._handed_bytes += cost_bytes

    def left_bytes(self) -> int:
        """Returns the budget for the next step in bytes; at 0 or below, ``wake`` is called when it has grown."""
        left = self._allowed_bytes - self._handed_bytes
        if left > 0:
            return left
        self._is_awaited = True  # before the second look, so that no change is missed
        return self._allowed_bytes - self._handed_bytes

    # --- the slot's side

    def allow(self, budget_bytes: int, handled_bytes: int) -> None:
        """Sets the budget after the first ``handled_bytes`` that were handed over."""
        self._allowed_bytes = handled_bytes + budget_bytes
        if self._is_awaited and self._allowed_bytes > self._handed_bytes:
            self._is_awaited = False
            self._wake()
