"""Clock for user code: read once, recorded, and equal in every replay.

The names and units are those of the module ``time``, plus ``now`` for an aware datetime::

    stamped = words.map(lambda word: (word, clock.time()))

In a job:

- Time never runs backwards, not even across the failure of a process. It follows the wall clock; when that is set back
  or forward, the job's time runs at most a tenth slower or faster until both agree.
- Time stands still within a step (some milliseconds of work), so that all records of the step share one log entry.
  ``exact=True`` reads the clock at each call, for one log entry each. With the option ``clock_tick`` time stands
  still for a whole tick, however many steps it has (the design is in ``clonos.core.ports.recorder``).

Outside a job this is the system's clock.
"""

from __future__ import annotations

from typing import Final

from clonos.core.ports.recorder import check_confined, current
from clonos.io.system import wall_clock
from clonos.io.system.wall_clock import Datetime, utc_datetime

NANOSECONDS_PER_SECOND: Final = 1_000_000_000

_latest: tuple[int, Datetime] = (0, utc_datetime(0))  # cache, because many records read the same instant


def now(*, exact: bool = False) -> Datetime:
    """Returns the time as an aware UTC datetime, in microseconds.

    ``exact``: read the clock at this call instead of once per step.
    """
    global _latest
    recorder = current()
    if recorder is None:
        check_confined("clock.now()")
        return wall_clock.utc_now()
    instant_ns = recorder.instant_ns(exact)
    latest = _latest
    if latest[0] != instant_ns:
        _latest = latest = (instant_ns, utc_datetime(instant_ns))
    return latest[1]


def time(*, exact: bool = False) -> float:
    """Returns the seconds since the Unix epoch. ``exact``: as in ``now``."""
    return time_ns(exact=exact) / NANOSECONDS_PER_SECOND


def time_ns(*, exact: bool = False) -> int:
    """Returns the nanoseconds since the Unix epoch. ``exact``: as in ``now``."""
    recorder = current()
    if recorder is None:
        check_confined("clock.time()")
        return wall_clock.wall_ns()
    return recorder.instant_ns(exact)


def monotonic(*, exact: bool = False) -> float:
    """Returns the seconds since an arbitrary instant. To measure a duration within a step, set ``exact=True``."""
    return monotonic_ns(exact=exact) / NANOSECONDS_PER_SECOND


def monotonic_ns(*, exact: bool = False) -> int:
    """Returns the nanoseconds since an arbitrary instant. In a job it equals ``time_ns``, which never runs backwards
    there."""
    recorder = current()
    if recorder is None:
        check_confined("clock.monotonic()")
        return wall_clock.monotonic_ns()
    return recorder.instant_ns(exact)
