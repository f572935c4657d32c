"""Python objects from columns: datetimes, and dicts of the values of rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy

from clonos.kernels import choice

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

FIRST_US: Final = -62_135_596_800_000_000
END_US: Final = 253_402_300_800_000_000
"""Microseconds since 1970 of the first datetime, and of the one after the last."""


def datetimes(us: NDArray[numpy.int64], zone: Any) -> list[Any]:
    """Returns the datetime with this time zone, None for none, of each number of microseconds since 1970 in local time.

    Raises: OverflowError, if one is not in the years 1 to 9999.
    """
    us = numpy.ascontiguousarray(us, numpy.int64)
    if choice.native is not None:
        found: list[Any] = choice.native.datetimes(us, zone)
        return found
    if len(us) and not (us.min() >= FIRST_US and us.max() < END_US):
        raise OverflowError("date value out of range")
    found = us.view("datetime64[us]").astype(object).tolist()
    return found if zone is None else [each.replace(tzinfo=zone) for each in found]


def dicts(names: Sequence[str], columns: Sequence[list[Any]], count: int) -> list[dict[str, Any]]:
    """Returns a dict of the values of each row by name; of columns of one name, the last counts.

    Raises: ValueError, if a column does not have one value for each of ``count`` rows.
    """
    if choice.native is not None:
        found: list[dict[str, Any]] = choice.native.dicts(tuple(names), tuple(columns), count)
        return found
    if len(names) != len(columns) or any(len(column) != count for column in columns):
        raise ValueError(f"{len(names)} names and columns of {[*map(len, columns)]} values are no {count} rows")
    return (
        [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
        if names
        else [{} for _ in range(count)]
    )
