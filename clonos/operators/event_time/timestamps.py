"""Times as users see them: aware datetimes in UTC with microseconds; internally nanoseconds since the Unix epoch."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, Final, NamedTuple

from clonos.core.model.errors import JobError
from clonos.operators.event_time.local_times import LocalTimeError, LocalTimes

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND: Final = timedelta(microseconds=1)
NANOSECONDS_PER_MICROSECOND: Final = 1_000
SECONDS_MIN: Final = 1e9
"""Number below which seconds are a length of time: as seconds since the epoch they would be before September 2001."""
SECONDS_MAX: Final = 2e11
"""Limit of seconds since the epoch, beyond which a datetime cannot go; NaN exceeds it too."""
SECONDS_PER_YEAR: Final = 31_556_952
LIMIT_NS: Final = 9_214_646_400 * 1_000_000_000
"""The begin of 2262: 64 bits have room for the end of a window of a hundred days after it."""
RANGE_TEXT: Final = "outside the years 1678 to 2261, which clonos can represent"


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


def result_time_ns(end_ns: int) -> int:
    """Returns the timestamp of the result of a window: the last instant before its end that a timestamp can be.

    A window that has a record of today may end later than a timestamp can be.
    """
    return min(end_ns, LIMIT_NS) - 1


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


class Unit(StrEnum):
    """Unit of timestamps that are numbers since the Unix epoch."""

    SECONDS = "s"
    MILLISECONDS = "ms"
    MICROSECONDS = "us"
    NANOSECONDS = "ns"


NANOSECONDS_PER: Final = {
    Unit.SECONDS: 1_000_000_000,
    Unit.MILLISECONDS: 1_000_000,
    Unit.MICROSECONDS: 1_000,
    Unit.NANOSECONDS: 1,
}

FIRST_PLAUSIBLE: Final = 1_000_000_000
LAST_PLAUSIBLE: Final = 4_102_444_800
"""Seconds since the epoch from September 2001 to 2100: if a number lies there in another unit only, that is meant."""


NUMBER: Final = re.compile(r"\s*[+-]?\d+(\.\d*)?\s*")


class TimestampError(ValueError):
    """The timestamp of a record is missing, is no point in time, or cannot be right.

    It is an error of the record, so ``errors`` of the job gets the record.
    """


def event_time_ns(given: object, unit: Unit, local: LocalTimes | None = None) -> int:
    """Converts the timestamp of a record to nanoseconds since the Unix epoch.

    ``given`` is an aware datetime, an ISO 8601 text with a UTC offset, or a number of units. With ``local`` a datetime
    or a text may also have no offset.

    Raises: TimestampError: it is none of these, or another unit is meant.
    """
    if type(given) is int or (isinstance(given, (int, float)) and not isinstance(given, bool)):
        return _from_number(given, unit)
    if isinstance(given, str):
        given = _from_text(given)
    if isinstance(given, datetime):
        if given != given:  # NaT of pandas
            raise TimestampError(f"the record has no timestamp: it is {given}")
        if given.tzinfo is None:
            given = _from_local(given, local)
        nanoseconds = (given - EPOCH) // MICROSECOND * NANOSECONDS_PER_MICROSECOND
        if not abs(nanoseconds) < LIMIT_NS:
            raise TimestampError(f"the timestamp {given.isoformat()} lies {RANGE_TEXT}")
        return nanoseconds
    if given is None:
        raise TimestampError("the record has no timestamp: it is None")
    raise TimestampError(
        f"the timestamp {given!r:.80} is a {type(given).__name__}: give an aware datetime, an ISO 8601 text with a UTC"
        " offset, or a number"
    )


def _from_local(given: datetime, local: LocalTimes | None) -> datetime:
    if local is None:
        raise TimestampError(
            f"the timestamp {given.isoformat()} has no time zone: for local times say which by"
            ' Timestamps(..., timezone="Europe/Berlin"), or give an aware datetime'
        )
    try:
        return local.instant(given)
    except LocalTimeError as error:
        raise TimestampError(f"the timestamp {given.isoformat()} {error}") from None
    except OverflowError:
        raise TimestampError(f"the timestamp {given.isoformat()} lies {RANGE_TEXT}") from None


def _from_text(given: str) -> datetime:
    try:
        return datetime.fromisoformat(given)
    except ValueError:
        advice = (
            "it is a number as text. Convert it, as in timestamps=lambda record: int(record['at'])"
            if NUMBER.fullmatch(given)
            else "read it by a function of the record, with datetime.strptime and a time zone"
        )
        raise TimestampError(f"the timestamp {given!r:.80} is not a text in ISO 8601: {advice}") from None


def _from_number(given: int | float, unit: Unit) -> int:
    if not abs(given) < LIMIT_NS:  # NaN too
        raise TimestampError(f"the timestamp {given!r} is not a point in time{_meant(given, unit)}")
    nanoseconds = given * NANOSECONDS_PER[unit]
    if isinstance(nanoseconds, float):
        # Floats of seconds are exact to microseconds only.
        nanoseconds = round(nanoseconds / NANOSECONDS_PER_MICROSECOND) * NANOSECONDS_PER_MICROSECOND
    seconds = nanoseconds // 1_000_000_000
    if not FIRST_PLAUSIBLE <= seconds < LAST_PLAUSIBLE and (meant := _meant(given, unit)):
        raise TimestampError(f"the timestamp {given!r} is the {_year(seconds)} in {unit.name.lower()}{meant}")
    if not abs(nanoseconds) < LIMIT_NS:
        raise TimestampError(f"the timestamp {given!r} is the {_year(seconds)} in {unit.name.lower()}, {RANGE_TEXT}")
    return nanoseconds


def _meant(given: int | float, unit: Unit) -> str:
    for other, factor in NANOSECONDS_PER.items():
        if other is not unit and FIRST_PLAUSIBLE <= given * factor / 1_000_000_000 < LAST_PLAUSIBLE:
            return f': give unit="{other}" if it is a number of {other.name.lower()}'
    return ""


def _year(seconds: float) -> str:
    return f"year {1970 + round(seconds / SECONDS_PER_YEAR)}"


class TimestampColumn(NamedTuple):
    """Column of a stream of columns that has the timestamps of its records."""

    name: str
    unit: Unit = Unit.SECONDS
    local: LocalTimes | None = None


class NoTimestampColumn(JobError):
    """A batch of columns does not have the column of its timestamps any more."""

    step: str
    column: str

    def __str__(self) -> str:
        return (
            f"the step {self.step} gets columns without {self.column!r}, which has the timestamps of the stream: keep"
            " that column in map_batches, or give new timestamps by with_timestamps."
        )


def append_times(
    rows: Iterator[Any],
    times: list[int],
    of: Callable[[Any], object],
    unit: Unit,
    limit_ns: int,
    convert: Callable[[object], int],
) -> None:
    """Appends the timestamp of each row in nanoseconds since the Unix epoch, plausible ones without a call.

    ``of`` returns a row's timestamp. ``convert`` checks and converts any value; plausible ints, floats and datetimes of
    at most ``limit_ns`` are converted here, with the same result.
    """
    factor, append = NANOSECONDS_PER[unit], times.append
    low_ns, high_ns = (
        FIRST_PLAUSIBLE * NANOSECONDS_PER[Unit.SECONDS],
        min(LAST_PLAUSIBLE * NANOSECONDS_PER[Unit.SECONDS] - 1, limit_ns),
    )
    low, high = low_ns // factor, high_ns // factor
    for row in rows:
        given: Any = of(row)
        cls = type(given)
        if cls is int:
            if low <= given <= high:
                append(given * factor)
                continue
        elif cls is datetime:
            if given.tzinfo is UTC:
                time_ns = (given - EPOCH) // MICROSECOND * NANOSECONDS_PER_MICROSECOND
                if low_ns <= time_ns <= high_ns:
                    append(time_ns)
                    continue
        elif cls is float and low <= given <= high:
            time_ns = round(given * factor / NANOSECONDS_PER_MICROSECOND) * NANOSECONDS_PER_MICROSECOND
            if low_ns <= time_ns <= high_ns:
                append(time_ns)
                continue
        append(convert(given))
