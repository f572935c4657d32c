"""Timestamps of the rows of a batch, without a call per row for ints, floats and datetimes that are plausible."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

from clonos.operators.event_time.timestamps import (
    EPOCH,
    FIRST_PLAUSIBLE,
    LAST_PLAUSIBLE,
    MICROSECOND,
    NANOSECONDS_PER,
    NANOSECONDS_PER_MICROSECOND,
    Unit,
)

SECOND_NS = 1_000_000_000


def append_times(
    rows: Iterator[Any],
    times: list[int],
    of: Callable[[Any], object],
    unit: Unit,
    limit_ns: int,
    convert: Callable[[object], int],
) -> None:
    """Appends the timestamp of each row in nanoseconds since the Unix epoch.

    ``of`` returns a row's timestamp. ``convert`` checks and converts any value; plausible ints, floats and datetimes of
    at most ``limit_ns`` are converted here, with the same result.
    """
    factor, append = NANOSECONDS_PER[unit], times.append
    low_ns, high_ns = FIRST_PLAUSIBLE * SECOND_NS, min(LAST_PLAUSIBLE * SECOND_NS - 1, limit_ns)
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
