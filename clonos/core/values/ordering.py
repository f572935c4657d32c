"""The order of values: that of Python, but for local times, which are compared as instants.

Python compares two datetimes of one zone by their wall clocks, although an hour is there twice when clocks go back.
"""

from __future__ import annotations

from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from math import copysign
from typing import Any, Final

_WITHOUT_TIES: Final = frozenset({int, str, bytes})
"""Types of which equal values are one value."""

_COMPARED_BY_PYTHON: Final = frozenset({int, float, str, bytes, bool, date, timedelta, Decimal})


def ordered(value: Any) -> Any:
    """Returns what Python orders as the value is to be: a local time with a fixed offset, everything else as it is."""
    kind = type(value)
    if kind in _COMPARED_BY_PYTHON:
        return value
    if isinstance(value, datetime):
        offset = None if type(value.tzinfo) is timezone else value.utcoffset()
        return value if offset is None else value.replace(tzinfo=timezone(offset), fold=0)
    if isinstance(value, tuple):  # a named one too
        return tuple([ordered(each) for each in value])
    return [ordered(each) for each in value] if kind is list else value


def all_ordered(values: list[Any]) -> list[Any]:
    """Returns ``ordered`` of each value, or the list itself if they are all as Python orders them."""
    return values if _COMPARED_BY_PYTHON.issuperset(map(type, values)) else list(map(ordered, values))


def is_smaller(value: Any, other: Any) -> bool:
    """Returns whether a value is the smaller one of two, neither of which is nan.

    Of equal values the same one is the smaller in whichever order they are given: -0.0 is smaller than 0.0.

    Raises: TypeError: they cannot be compared.
    """
    kind = type(value)
    # What is asked for most is told without further calls.
    if kind is type(other) and (kind in _WITHOUT_TIES or (kind is float and (value or other))):
        return bool(value < other)
    left, right = ordered(value), ordered(other)
    if left < right:
        return True
    return bool(left == right) and _tie(value) < _tie(other)


def _tie(value: Any) -> tuple[Any, ...]:
    """Returns what tells equal values apart."""
    kind = type(value)
    if kind is float:
        return "", copysign(1.0, value)
    if kind is Decimal:
        sign, digits, exponent = value.as_tuple()
        return kind.__name__, -sign, -len(digits), exponent
    if isinstance(value, datetime) and value.tzinfo is not None:
        return kind.__name__, value.utcoffset(), str(value.tzinfo)
    if kind is tuple or kind is list:
        return kind.__name__, tuple(map(_tie, value))
    return (kind.__name__,)
