"""Threads for the asynchronous calls of a task, started on demand; most tasks have none.

A call cannot be interrupted: a call that hangs keeps its thread until the process ends.
"""

from __future__ import annotations

from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread

from clonos.io.process.exit_guard import guard_thread
from clonos_standby.slot.log_forwarding import THREAD_OF_CALL

THREADS_MAX = 256
"""Threads of one task, whatever capacities its steps have."""


class CallThreads:
    """Thread pool of one task, used only by the task's thread."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._idle: SimpleQueue[None] = SimpleQueue()  # one token per thread that waits for a call
        self._threads: list[Thread] = []

    def run(self, call: Callable[[], None]) -> None:
        """Runs ``call`` in one of the threads; ``call`` must not raise."""
        if self._idle.empty() and len(self._threads) < THREADS_MAX:
            name = f"{THREAD_OF_CALL}{self._name} {len(self._threads)}"
            self._threads.append(Thread(target=self._serve, name=name, daemon=True))
            self._threads[-1].start()
        elif not self._idle.empty():
            self._idle.get()
        self._calls.put(call)

    def close(self) -> None:
        """Ends the threads after their current calls."""
        for _ in self._threads:
            self._calls.put(None)

    def _serve(self) -> None:
        guard_thread()
        while (call := self._calls.get()) is not None:
            call()
            self._idle.put(None)
