"""Inbox of an I/O thread: what the other threads of its process have for it, as calls, in order."""

from __future__ import annotations

from collections.abc import Callable
from queue import Empty, SimpleQueue
from threading import Event
from typing import Any

WAITING_MAX = 512
"""Calls that may wait before those who add more are held up; keeps the memory of a busy slot bounded."""

DRAIN_MAX = 256
"""Calls made before the sockets get their turn."""

PATIENCE_S = 1.0


class Inbox:
    """Filled by any thread, drained by one. ``wake`` ends the nap of the one that drains."""

    __slots__ = ("_calls", "_has_budget", "_wake", "is_closed")

    def __init__(self, wake: Callable[[], None]) -> None:
        self._calls: SimpleQueue[tuple[Callable[..., None], tuple[Any, ...]]] = SimpleQueue()
        self._has_budget = Event()
        self._wake = wake
        self.is_closed = False

    def put(self, call: Callable[..., None], *arguments: Any) -> None:
        """Queues a call; what comes after the end is forgotten."""
        if not self.is_closed:
            self._calls.put((call, arguments))
            self._wake()

    def wait_for_budget(self) -> None:
        """Holds up a thread that makes calls faster than they are taken."""
        while self._calls.qsize() > WAITING_MAX and not self.is_closed:
            self._has_budget.clear()
            if self._calls.qsize() > WAITING_MAX:
                self._has_budget.wait(PATIENCE_S)

    def drain(self) -> bool:
        """Makes the calls that wait. True: there are more."""
        for _ in range(DRAIN_MAX):
            try:
                call, arguments = self._calls.get_nowait()
            except Empty:
                break
            call(*arguments)
        if not self._has_budget.is_set():
            self._has_budget.set()
        return not self._calls.empty()

    def close(self) -> None:
        """Nothing is taken any more; who waits for room goes on."""
        self.is_closed = True
        self._has_budget.set()
