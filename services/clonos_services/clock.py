"""The time, as user code may take it: recorded once, the same in every replay.

The names and units are those of the module ``time``, and ``now`` for an aware datetime. In a job:

- Time never runs backwards, also across the death of a process. It is the wall clock, but when that is set back or
  forth, the job's time only runs a tenth slower or faster until they meet.
- It stands still within a step (some milliseconds of work), so that all records of it share one entry of the log.
  ``exact=True`` looks at the clock each time, at one entry of the log each. With the option ``clock_tick_ms`` it stands
  still for a whole tick, whatever the number of steps (the design is in ``clonos.core.ports.recorder``).

Outside a job this is the real clock.
"""

from __future__ import annotations

from typing import Final

from clonos.core.ports.recorder import check_outside, current
from clonos.io.system import wall_clock
from clonos.io.system.wall_clock import Datetime, utc_datetime

NANOSECONDS_PER_SECOND: Final = 1_000_000_000

_latest: tuple[int, Datetime] = (0, utc_datetime(0))  # one instant is read often: its datetime is made once


def now(*, exact: bool = False) -> Datetime:
    """The time as an aware UTC datetime, to the microsecond."""
    global _latest
    recorder = current()
    if recorder is None:
        check_outside("clock.now()")
        return wall_clock.utc_now()
    instant_ns = recorder.instant_ns(exact)
    latest = _latest
    if latest[0] != instant_ns:
        _latest = latest = (instant_ns, utc_datetime(instant_ns))
    return latest[1]


def time(*, exact: bool = False) -> float:
    """Seconds since the Unix epoch."""
    return time_ns(exact=exact) / NANOSECONDS_PER_SECOND


def time_ns(*, exact: bool = False) -> int:
    """Nanoseconds since the Unix epoch."""
    recorder = current()
    if recorder is None:
        check_outside("clock.time()")
        return wall_clock.wall_ns()
    return recorder.instant_ns(exact)


def monotonic(*, exact: bool = False) -> float:
    """Seconds since some instant. To measure how long something takes within a step, say ``exact=True``."""
    return monotonic_ns(exact=exact) / NANOSECONDS_PER_SECOND


def monotonic_ns(*, exact: bool = False) -> int:
    """Nanoseconds since some instant. In a job it is ``time_ns``, which never runs backwards there."""
    recorder = current()
    if recorder is None:
        check_outside("clock.monotonic()")
        return wall_clock.monotonic_ns()
    return recorder.instant_ns(exact)
