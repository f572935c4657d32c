"""Lengths of time as users write them."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Final

from clonos.core.model.bare_seconds import warn_of_seconds
from clonos.core.model.errors import JobError

NANOSECONDS_PER_MILLISECOND: Final = 1_000_000
NANOSECONDS: Final = {
    "ms": NANOSECONDS_PER_MILLISECOND,
    "s": 1_000_000_000,
    "min": 60_000_000_000,
    "h": 3_600_000_000_000,
    "d": 86_400_000_000_000,
}
NANOSECONDS_MAX: Final = 100 * 366 * NANOSECONDS["d"]

_DURATION = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*(ms|s|min|h|d)\s*")


Duration = str | float | timedelta
"""Length of time: a str such as "500ms", "5s", "2min", "1h" or "1d", a timedelta, or seconds."""


class InvalidDuration(JobError):
    """An argument is not a positive length of time in whole milliseconds, such as the size of a window."""

    given: str
    reason: str

    def __str__(self) -> str:
        return (
            f"{self.given} is not a length of time: {self.reason}."
            ' Write "500ms", "5s", "2min", "1h", a timedelta or seconds.'
        )


def duration_text(nanoseconds: int) -> str:
    """Formats a length of time in the largest unit of which it is a multiple."""
    unit = max((unit for unit, size in NANOSECONDS.items() if nanoseconds % size == 0), key=NANOSECONDS.__getitem__)
    return f"{nanoseconds // NANOSECONDS[unit]}{unit}"


def duration_ns(size: object) -> int:
    """Converts a str such as "500ms", "5s" or "2min", a timedelta or a number of seconds to nanoseconds.

    Raises: InvalidDuration: ``size`` is not such a length of time, or not from 1 ms to 100 years in whole milliseconds.
    """
    if isinstance(size, timedelta):
        nanoseconds = size // timedelta(microseconds=1) * 1_000
    elif isinstance(size, str):
        found = _DURATION.fullmatch(size)
        if found is None:
            raise InvalidDuration(repr(size), "it is not a number with a unit")
        wanted = float(found[1]) * NANOSECONDS[found[2]]
        nanoseconds = round(wanted) if wanted <= NANOSECONDS_MAX else NANOSECONDS_MAX + 1
    elif isinstance(size, bool) or not isinstance(size, (int, float)) or not abs(size) < 1e9:
        raise InvalidDuration(repr(size), "it is not a number of seconds")
    else:
        warn_of_seconds(size)
        nanoseconds = round(size * NANOSECONDS["s"])
    if nanoseconds > NANOSECONDS_MAX:
        raise InvalidDuration(repr(size), "it is longer than 100 years")
    if nanoseconds <= 0 or nanoseconds % NANOSECONDS_PER_MILLISECOND:
        raise InvalidDuration(repr(size), "it must be a whole number of milliseconds, at least one")
    return nanoseconds
