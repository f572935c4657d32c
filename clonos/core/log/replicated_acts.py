"""Acts of a task that wait until the keepers have its log up to a place, while the task goes on (protocol 7)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable


class ReplicatedActs:
    """Acts in the order of their places. ``add`` and ``reach`` may run in two threads."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[int, Callable[[], None]]] = deque()

    def add(self, log_end_bytes: int, act: Callable[[], None]) -> None:
        """Adds an act, whose place is not before that of the last one."""
        self._waiting.append((log_end_bytes, act))

    def reach(self, log_end_bytes: int) -> None:
        """Performs the acts up to a place, which the keepers have."""
        while self._waiting and self._waiting[0][0] <= log_end_bytes:
            self._waiting.popleft()[1]()
