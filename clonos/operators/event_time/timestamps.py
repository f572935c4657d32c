"""Times as users see them: aware datetimes in UTC with microseconds; internally nanoseconds since the Unix epoch."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from clonos.core.model.errors import JobError

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND: Final = timedelta(microseconds=1)
NANOSECONDS_PER_MICROSECOND: Final = 1_000
SECONDS_MIN: Final = 1e9
"""Number below which seconds are a length of time: as seconds since the epoch they would be before September 2001."""
SECONDS_MAX: Final = 2e11
"""Limit of seconds since the epoch, beyond which a datetime cannot go; NaN exceeds it too."""


class InvalidTimestamp(JobError):
    """A value that is not a point in time was given for one."""

    given: str

    def __str__(self) -> str:
        return (
            f"{self.given} is not a point in time: give an aware datetime, such as clock.now() + timedelta(seconds=5),"
            " or seconds since the Unix epoch, such as clock.time() + 5."
        )


def from_timestamp_ns(timestamp_ns: int) -> datetime:
    """Converts nanoseconds since the Unix epoch to a datetime in UTC."""
    return EPOCH + timedelta(microseconds=timestamp_ns // NANOSECONDS_PER_MICROSECOND)


def to_timestamp_ns(timestamp: datetime | float) -> int:
    """Converts an aware datetime, or at least 1,000,000,000 seconds since the Unix epoch, to nanoseconds since then.

    Raises: InvalidTimestamp: it is neither.
    """
    if isinstance(timestamp, datetime):
        if timestamp.tzinfo is None:
            raise InvalidTimestamp(f"{timestamp!r}, which has no time zone,")
        return (timestamp - EPOCH) // MICROSECOND * NANOSECONDS_PER_MICROSECOND
    if type(timestamp) in (int, float) and SECONDS_MIN <= timestamp < SECONDS_MAX:
        return round(timestamp * 1_000_000) * NANOSECONDS_PER_MICROSECOND
    raise InvalidTimestamp(repr(timestamp)[:100])
