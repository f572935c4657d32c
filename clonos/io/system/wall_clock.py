"""The real clock: wall clock, monotonic clock, and the slewed clock that live tasks read.

Whoever needs ``datetime`` or ``time`` for causal services takes it from here.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final

SLEW_DIVISOR: Final = 10
"""The slewed clock runs at most a tenth faster or slower than real time."""

Datetime = datetime
"""For the annotations of those who must not import ``datetime``."""

_UNIX_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

wall_ns: Final[Callable[[], int]] = time.time_ns
"""Wall clock, ns since the Unix epoch. It may be set back or forth."""

monotonic_ns: Final[Callable[[], int]] = time.monotonic_ns
"""ns since some instant; never runs backwards, never jumps."""

sleep_s: Final[Callable[[float], None]] = time.sleep


def utc_datetime(instant_ns: int) -> datetime:
    """The aware UTC datetime of an instant (ns since the Unix epoch); what is below a microsecond is cut off."""
    return _UNIX_EPOCH + timedelta(microseconds=instant_ns // 1_000)


def utc_now() -> datetime:
    """The wall clock as an aware UTC datetime."""
    return datetime.now(UTC)


class SlewedClock:
    """Live time: the last instant plus monotonic time, slewed towards the wall clock by at most a tenth.

    It never runs backwards and never stands still: when the wall clock is set back an hour it runs at nine tenths of
    real time until they meet, when it is set forth an hour at eleven tenths. It begins at the wall clock, but not
    before ``not_before_ns``, the last instant that an earlier life has logged. Any thread may read it.
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
        self._instant_ns = max(wall(), not_before_ns)  # the last reading; only ever grows

    def now_ns(self) -> int:
        """ns since the Unix epoch; at least the last reading."""
        with self._lock:
            seen_ns = self._monotonic()
            elapsed_ns = max(0, seen_ns - self._seen_ns)
            self._seen_ns = seen_ns
            unslewed_ns = self._instant_ns + elapsed_ns
            slew_ns_max = elapsed_ns // SLEW_DIVISOR
            self._instant_ns = unslewed_ns + max(-slew_ns_max, min(slew_ns_max, self._wall() - unslewed_ns))
            return self._instant_ns

    def advance_to(self, instant_ns: int) -> None:
        """Never gives less than this from now on: a task that goes live brings the last instant of its log."""
        with self._lock:
            self._instant_ns = max(self._instant_ns, instant_ns)
