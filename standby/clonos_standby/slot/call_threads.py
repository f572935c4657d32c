"""Threads in which a task's asynchronous calls wait for the world; begun as they are needed, none for most tasks.

Nobody can end a call from outside: one that hangs keeps its thread, which ends with the process.
"""

from __future__ import annotations

from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread

THREADS_MAX = 256
"""Of one task, whatever capacities its steps have."""


class CallThreads:
    """Used by the task's thread alone."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._idle: SimpleQueue[None] = SimpleQueue()  # a token for each thread that waits for a call
        self._threads: list[Thread] = []

    def run(self, call: Callable[[], None]) -> None:
        """In one of the threads, soon; ``call`` does not raise."""
        if self._idle.empty() and len(self._threads) < THREADS_MAX:
            name = f"call {self._name} {len(self._threads)}"
            self._threads.append(Thread(target=self._serve, name=name, daemon=True))
            self._threads[-1].start()
        elif not self._idle.empty():
            self._idle.get()
        self._calls.put(call)

    def close(self) -> None:
        """No call is begun any more."""
        for _ in self._threads:
            self._calls.put(None)

    def _serve(self) -> None:
        while (call := self._calls.get()) is not None:
            call()
            self._idle.put(None)
