"""What a step costs: real time, without the time in which the thread was ready and had no processor.

A step that waits for the world is as dear as one that computes. But where other processes keep a thread from its core,
charging the step for it would make steps short, and their fixed cost large, just when the machine has least to spare.
"""

from __future__ import annotations

import os
import time

SCHEDULE = "/proc/thread-self/schedstat"
"""Linux: nanoseconds on a processor, nanoseconds waiting for one, times run."""

LINE_BYTES = 64


class CostClock:
    """Of the thread that makes it; read and closed by that one. Plain real time where the system tells no more."""

    def __init__(self, schedule: str = SCHEDULE) -> None:
        try:
            self._file = os.open(schedule, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            self._file = -1

    def now_ns(self) -> int:
        """Differences of it are costs."""
        if self._file < 0:
            return time.monotonic_ns()
        try:
            return time.monotonic_ns() - int(os.pread(self._file, LINE_BYTES, 0).split()[1])
        except (OSError, ValueError, IndexError):  # a system that has the file and keeps no such account
            self.close()
            return time.monotonic_ns()

    def close(self) -> None:
        """Releases the file."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
