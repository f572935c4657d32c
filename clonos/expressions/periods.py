"""Lengths of time of ``dt.truncate``, in the spelling of Polars or of this library: "15m", "15min", "1h30m", "1mo"."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any, Final, NamedTuple

from clonos.expressions.expression_errors import ExpressionMisused

PART: Final = re.compile(r"(\d+)(ns|us|ms|min|mo|s|m|h|d|w|q|y)")

NANOSECONDS: Final = {
    "ns": 1,
    "us": 1_000,
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60_000_000_000,
    "min": 60_000_000_000,
    "h": 3_600_000_000_000,
    "d": 86_400_000_000_000,
    "w": 604_800_000_000_000,
}

MONTHS: Final = {"mo": 1, "q": 3, "y": 12}


class Period(NamedTuple):
    """Length of time: either months or nanoseconds. ``is_weeks``: intervals begin on Mondays."""

    months: int
    nanoseconds: int
    is_weeks: bool


def parsed_period(text: str) -> Period | None:
    """Returns the length of time that a text names, None if it names none."""
    parts = PART.findall(text)
    if not parts or "".join(count + unit for count, unit in parts) != text:
        return None
    months = sum(int(count) * MONTHS[unit] for count, unit in parts if unit in MONTHS)
    nanoseconds = sum(int(count) * NANOSECONDS[unit] for count, unit in parts if unit in NANOSECONDS)
    if (months > 0) == (nanoseconds > 0):
        return None
    return Period(months, nanoseconds, all(unit == "w" for _, unit in parts))


def checked_period(where: str, given: Any) -> str:
    """Returns a length of time as a text.

    Raises: ExpressionMisused: it is none.
    """
    if isinstance(given, timedelta):
        given = f"{given // timedelta(microseconds=1)}us"
    if not isinstance(given, str) or parsed_period(given) is None:
        raise ExpressionMisused(
            f"{where}({given!r:.80})",
            "gets no length of time",
            'Give "15m", "1h", "1d", "1w", "1mo" or "1y", or several of the same kind: "1h30m".',
        )
    return given
