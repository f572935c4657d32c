"""How much a task may still produce before a channel that it feeds is full, as its thread sees it.

The slot says what there is room for behind all that it has handled; the task counts down what it has handed over since.
So a task does not run ahead of its slot, and a step is no longer than what its receivers work off soon.
"""

from __future__ import annotations

from collections.abc import Callable

UNLIMITED = 1 << 60


class OutputBudget:
    """Two threads use it: each number is written by one of them, and none is ever taken back."""

    __slots__ = ("_allowed_bytes", "_handed_bytes", "_is_awaited", "_wake")

    def __init__(self, wake: Callable[[], None]) -> None:
        """``wake``: the task waits for room, and there is some."""
        self._allowed_bytes = UNLIMITED  # may have been handed over in all
        self._handed_bytes = 0
        self._is_awaited = False
        self._wake = wake

    # --- the task's side

    def spend(self, cost_bytes: int) -> None:
        """The task has handed over a step."""
        self._handed_bytes += cost_bytes

    def left_bytes(self) -> int:
        """Room for the next step; none at 0 or below, and then ``wake`` is called when there is some."""
        left = self._allowed_bytes - self._handed_bytes
        if left > 0:
            return left
        self._is_awaited = True  # before the second look, so that no change is missed
        return self._allowed_bytes - self._handed_bytes

    # --- the slot's side

    def allow(self, budget_bytes: int, handled_bytes: int) -> None:
        """There is so much room behind the first ``handled_bytes`` that were handed over."""
        self._allowed_bytes = handled_bytes + budget_bytes
        if self._is_awaited and self._allowed_bytes > self._handed_bytes:
            self._is_awaited = False
            self._wake()
