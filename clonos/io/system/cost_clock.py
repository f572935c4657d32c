"""Clock for the cost of a step: real time, without the time in which the thread was ready but had no processor.

A step that waits for I/O costs as much as a step that computes. Time without a processor does not count, because it
would shorten the steps, and so raise their fixed cost per record, just when the machine is overloaded.
"""

from __future__ import annotations

import os
import time

SCHEDULE = "/proc/thread-self/schedstat"
"""File of Linux with nanoseconds on a processor, nanoseconds waiting for one, and time slices."""

LINE_BYTES = 64


class CostClock:
    """Cost clock of the thread that creates it; only that thread reads and closes it. Plain real time on other
    systems."""

    def __init__(self, schedule: str = SCHEDULE) -> None:
        try:
            self._file = os.open(schedule, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            self._file = -1

    def now_ns(self) -> int:
        """Returns the clock in nanoseconds; only differences are meaningful."""
        if self._file < 0:
            return time.monotonic_ns()
        try:
            return time.monotonic_ns() - int(os.pread(self._file, LINE_BYTES, 0).split()[1])
        except (OSError, ValueError, IndexError):  # a system that has the file without these fields
            self.close()
            return time.monotonic_ns()

    def close(self) -> None:
        """Closes the file."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
