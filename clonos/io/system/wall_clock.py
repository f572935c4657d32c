"""Clocks of the machine: wall clock, monotonic clock, the slewed clock that live tasks read, and the clock of
costs.

Code that needs ``datetime`` or ``time`` for causal services imports them from here.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from datetime import UTC as UTC
from datetime import datetime, timedelta
from typing import Final

SLEW_DIVISOR: Final = 10
"""The slewed clock runs at most 1/10 faster or slower than real time."""

Datetime = datetime
"""Class for annotations in modules that must not import ``datetime``."""

Timedelta = timedelta
"""See ``Datetime``."""

_UNIX_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

wall_ns: Final[Callable[[], int]] = time.time_ns
"""Wall clock in nanoseconds since the Unix epoch. It may be set back or forward."""

monotonic_ns: Final[Callable[[], int]] = time.monotonic_ns
"""Nanoseconds since an arbitrary instant; never runs backwards, never jumps."""

sleep_s: Final[Callable[[float], None]] = time.sleep


local_time: Final[Callable[[float], time.struct_time]] = time.localtime
"""Fields of an instant (seconds since the Unix epoch) in the time zone of the machine."""


def utc_datetime(instant_ns: int) -> datetime:
    """Returns the aware UTC datetime of an instant (nanoseconds since the Unix epoch), truncated to microseconds."""
    return _UNIX_EPOCH + timedelta(microseconds=instant_ns // 1_000)


def time_text(instant_ns: int) -> str:
    """Returns an instant (nanoseconds since the Unix epoch) as ISO 8601 in UTC with milliseconds."""
    at = utc_datetime(instant_ns)
    return at.strftime("%Y-%m-%dT%H:%M:%S.") + f"{at.microsecond // 1000:03}Z"


def utc_now() -> datetime:
    """Returns the wall clock as an aware UTC datetime."""
    return datetime.now(UTC)


class SlewedClock:
    """Clock of live tasks: monotonic time, slewed towards the wall clock by at most 1/10. Any thread may read it.

    It never runs backwards and never stands still: after the wall clock was set back or forward it runs 1/10 slower or
    faster until they agree. It starts at the wall clock, but not before ``not_before_ns``, the last instant that an
    earlier incarnation logged.
    """

    __slots__ = ("_instant_ns", "_lock", "_monotonic", "_seen_ns", "_wall")

    def __init__(
        self,
        monotonic: Callable[[], int] = monotonic_ns,
        wall: Callable[[], int] = wall_ns,
        not_before_ns: int = 0,
    ) -> None:
        self._monotonic = monotonic
        self._wall = wall
        self._lock = threading.Lock()
        self._seen_ns = monotonic()  # monotonic time of the last reading
        self._instant_ns = max(wall(), not_before_ns)  # the last reading. Invariant: never decreases

    def now_ns(self) -> int:
        """Returns nanoseconds since the Unix epoch, at least the last reading."""
        with self._lock:
            seen_ns = self._monotonic()
            elapsed_ns = max(0, seen_ns - self._seen_ns)
            self._seen_ns = seen_ns
            unslewed_ns = self._instant_ns + elapsed_ns
            slew_ns_max = elapsed_ns // SLEW_DIVISOR
            self._instant_ns = unslewed_ns + max(-slew_ns_max, min(slew_ns_max, self._wall() - unslewed_ns))
            return self._instant_ns

    def advance_to(self, instant_ns: int) -> None:
        """Raises the clock to ``instant_ns`` if it is behind, because a task that goes live continues from its log's
        last instant."""
        with self._lock:
            self._instant_ns = max(self._instant_ns, instant_ns)


SCHEDULE = "/proc/thread-self/schedstat"
"""File of Linux with nanoseconds on a processor, nanoseconds waiting for one, and time slices."""

LINE_BYTES = 64


class CostClock:
    """Clock for the cost of a step: real time, without the time in which the thread was ready but had no processor.

    A step that waits for I/O costs as much as a step that computes. Time without a processor does not count, because
    it would shorten the steps, and so raise their fixed cost per record, just when the machine is overloaded.

    It is that of the thread that creates it; only that thread reads and closes it. Plain real time on other systems.
    """

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
