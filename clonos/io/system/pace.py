"""Pace of calls: each has a turn, and waits for it."""

from __future__ import annotations

from threading import Lock


class Pace:
    """Turns of calls that several threads make."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._next_ns = 0

    def take(self, now_ns: int, interval_ns: int) -> int:
        """Takes the next turn, after which there is none for ``interval_ns``; returns how long it is until then in
        nanoseconds."""
        with self._lock:
            turn_ns = max(now_ns, self._next_ns)
            self._next_ns = turn_ns + interval_ns
        return turn_ns - now_ns

    def put_off(self, now_ns: int, by_ns: int) -> None:
        """Puts off the next turn, from now or from when it is later."""
        self.take(now_ns, by_ns)
