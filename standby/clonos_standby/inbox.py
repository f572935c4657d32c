"""Inbox of an I/O thread: a bounded queue of calls from the other threads of its process."""

from __future__ import annotations

from collections.abc import Callable
from queue import Empty, SimpleQueue
from threading import Event
from typing import Any

WAITING_MAX = 512
"""Maximum number of queued calls before a thread that adds more is blocked. Bounds the memory of a busy slot."""

DRAIN_MAX = 256
"""Calls made before the I/O thread serves its sockets."""

SPACE_CHECK_S = 1.0
"""Seconds after which a blocked thread checks the queue again."""


class Inbox:
    """Queue of calls that any thread fills and one thread drains. ``wake`` wakes the draining thread."""

    __slots__ = ("_calls", "_has_space", "_wake", "is_closed")

    def __init__(self, wake: Callable[[], None]) -> None:
        self._calls: SimpleQueue[tuple[Callable[..., None], tuple[Any, ...]]] = SimpleQueue()
        self._has_space = Event()
        self._wake = wake
        self.is_closed = False

    def put(self, call: Callable[..., None], *arguments: Any) -> None:
        """Queues a call. After ``close`` the call is dropped."""
        if not self.is_closed:
            self._calls.put((call, arguments))
            self._wake()

    def wait_for_space(self) -> None:
        """Blocks the calling thread while more than ``WAITING_MAX`` calls are queued and the inbox is open."""
        while self._calls.qsize() > WAITING_MAX and not self.is_closed:
            self._has_space.clear()
            if self._calls.qsize() > WAITING_MAX:
                self._has_space.wait(SPACE_CHECK_S)

    def drain(self) -> bool:
        """Makes up to ``DRAIN_MAX`` queued calls; returns whether more are queued."""
        for _ in range(DRAIN_MAX):
            try:
                call, arguments = self._calls.get_nowait()
            except Empty:
                break
            call(*arguments)
        if not self._has_space.is_set():
            self._has_space.set()
        return not self._calls.empty()

    def close(self) -> None:
        """Closes the inbox and releases the threads that are blocked in ``wait_for_space``."""
        self.is_closed = True
        self._has_space.set()
