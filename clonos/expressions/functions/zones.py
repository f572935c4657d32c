"""Timestamps of a time zone and what its clocks show.

Arrow reads the tables of time zones without the rule for the years after them: Python decides what is later.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from zoneinfo import ZoneInfo

import numpy
import pyarrow
import pyarrow.compute as compute
from pyarrow import types

from clonos.expressions.functions.numpy_arrays import numbers_of, with_numbers

PER_SECOND: Final = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
TABLES_END_S: Final = 2_114_380_800 - 86_400
"""A day before 2037, so that it is before the end of the tables by each clock."""


def wall_times(column: Any) -> Any:
    """Returns what the clocks of the zone of timestamps show; a date or a time without a zone as it is."""
    if types.is_date32(column.type) or column.type.tz is None:
        return column
    found = compute.local_timestamp(column)
    return _decided(column, found, column.type.tz, _offset_at)


def instants(wall: Any, type_: Any) -> Any:
    """Returns the timestamps at which the clocks of a zone show times: the first one, where one is shown twice.

    Where clocks are set forward over a time, such as midnight, it is the first timestamp after that.
    """
    found = compute.assume_timezone(wall, type_.tz, ambiguous="earliest", nonexistent="latest")
    return _decided(wall, found, type_.tz, lambda local, zone: -_offset_by(local, zone))


def _offset_at(instant: datetime, zone: ZoneInfo) -> timedelta:
    return instant.replace(tzinfo=UTC).astimezone(zone).utcoffset() or timedelta()


def _offset_by(local: datetime, zone: ZoneInfo) -> timedelta:
    return local.replace(tzinfo=zone).utcoffset() or timedelta()


def _decided(given: Any, found: Any, zone: str, shift: Callable[[datetime, ZoneInfo], timedelta]) -> Any:
    """Returns ``found`` with the late times of ``given``, each shifted by as much as Python says."""
    if zone == "UTC" or zone[:1] in ("+", "-"):
        return found
    if isinstance(given, pyarrow.Scalar):
        given, found = (pyarrow.array([each.as_py()], each.type) for each in (given, found))
        return _decided(given, found, zone, shift)[0]
    per_second, numbers = PER_SECOND[given.type.unit], numbers_of(given)
    is_late = numbers >= TABLES_END_S * per_second
    if given.null_count:
        is_late &= given.is_valid().to_numpy(zero_copy_only=False)
    places = numpy.flatnonzero(is_late)
    if not len(places):
        return found
    results = numbers_of(found).copy()
    for place in places.tolist():
        try:
            at = datetime.fromtimestamp(int(numbers[place]) // per_second, UTC).replace(tzinfo=None)
            seconds = int(shift(at, ZoneInfo(zone)).total_seconds())
        except (OverflowError, ValueError):  # a year that Python does not have: as Arrow has it
            continue
        results[place] = numbers[place] + seconds * per_second
    return with_numbers(results, pyarrow.int64(), given).cast(found.type)
