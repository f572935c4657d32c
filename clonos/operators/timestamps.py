"""Instants as users see them: aware datetimes in UTC, to the microsecond; nanoseconds since the Unix epoch inside."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from clonos.core.model.errors import JobError

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND: Final = timedelta(microseconds=1)
NANOSECONDS_PER_MICROSECOND: Final = 1_000
SECONDS_MAX: Final = 2e11
"""Beyond what a datetime can name; NaN is beyond it too."""


class BadInstant(JobError):
    """Something that names no instant was given for one."""

    given: str

    def __str__(self) -> str:
        return (
            f"{self.given} is no instant: give an aware datetime, such as clock.now() + timedelta(seconds=5),"
            " or seconds since the Unix epoch, such as clock.time() + 5."
        )


def from_instant(instant_ns: int) -> datetime:
    """The datetime of an instant."""
    return EPOCH + timedelta(microseconds=instant_ns // NANOSECONDS_PER_MICROSECOND)


def to_instant(instant: datetime | float) -> int:
    """Nanoseconds of an aware datetime, or of seconds since the Unix epoch. BadInstant."""
    if isinstance(instant, datetime):
        if instant.tzinfo is None:
            raise BadInstant(f"{instant!r}, which has no time zone,")
        return (instant - EPOCH) // MICROSECOND * NANOSECONDS_PER_MICROSECOND
    if type(instant) in (int, float) and abs(instant) < SECONDS_MAX:
        return round(instant * 1_000_000) * NANOSECONDS_PER_MICROSECOND
    raise BadInstant(repr(instant)[:100])
