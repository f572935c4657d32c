"""Copies of values whose holder may change them in place, as user functions do with dicts and lists.

A copy costs a type lookup for immutable values and a call into C for flat dicts and lists. Values of other types are
copied by ``copy.deepcopy``, or shared if that fails (a connection, a lock).
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from itertools import chain
from types import NoneType
from typing import Any, Final
from uuid import UUID

from clonos.core.values.type_registry import hashable_records

IMMUTABLE: Final = frozenset({NoneType, bool, int, float, str, bytes, datetime, date, time, timedelta, Decimal, UUID})
"""Types whose values cannot be changed in place. A tuple is not among them, because it may hold a list."""


def immutability_check() -> Callable[[Any], object]:
    """Returns a function that raises TypeError for a value that may change in place, and for some that cannot.

    Lists, dicts and sets have no hash, and neither has a tuple that holds one. Asking for the hash takes a tenth of the
    time of looking at each type.
    """
    return _check_types if hashable_records else hash


def _check_types(value: Any) -> None:
    cls = type(value)
    if cls not in IMMUTABLE and not (cls is tuple and IMMUTABLE.issuperset(map(type, value))):
        raise TypeError(f"a {cls.__name__} may change in place")


def is_immutable(value: Any) -> bool:
    """Returns whether nothing of a value can change in place; False also for some values of which nothing can."""
    try:
        immutability_check()(value)
    except TypeError:
        return False
    return True


def copied(value: Any) -> Any:
    """Returns the value itself if it is immutable, else a copy that shares no mutable part with it."""
    if type(value) in IMMUTABLE:
        return value
    try:
        return _copied(value)
    except Exception:  # noqa: BLE001  __deepcopy__ or __reduce__ of user classes may raise anything
        return value


def copied_rows(rows: list[Any]) -> list[Any]:
    """Returns the rows with a copy of each mutable one, or the list itself if all are immutable."""
    return rows if _are_immutable(rows) else list(map(copied, rows))


def _are_immutable(values: list[Any]) -> bool:
    """Returns whether values are immutable, or tuples of immutable ones, such as NamedTuples."""
    types = set(map(type, values))
    return types <= IMMUTABLE or (
        all(issubclass(each, tuple) for each in types) and IMMUTABLE.issuperset(map(type, chain.from_iterable(values)))
    )


def apart(rows: list[Any]) -> list[Any]:
    """Returns the rows with a copy in place of each repeated mutable row, or the list itself if no row is repeated."""
    if IMMUTABLE.issuperset(map(type, rows)) or len(set(map(id, rows))) == len(rows):
        return rows
    found, seen = [], set[int]()
    for row in rows:
        found.append(copied(row) if id(row) in seen else row)
        seen.add(id(row))
    return found


def _copied(value: Any) -> Any:
    cls = type(value)
    if cls in IMMUTABLE:
        return value
    copying = _COPYINGS.get(cls)
    if copying is not None:
        return copying(value)
    if isinstance(value, tuple) and IMMUTABLE.issuperset(map(type, value)):  # a NamedTuple
        return value
    return copy.deepcopy(value)


def _copied_list(value: list[Any]) -> list[Any]:
    return value.copy() if _are_immutable(value) else list(map(_copied, value))


def _copied_tuple(value: tuple[Any, ...]) -> tuple[Any, ...]:
    if IMMUTABLE.issuperset(map(type, value)):
        return value
    return tuple(map(_copied, value))


def _copied_dict(value: dict[Any, Any]) -> dict[Any, Any]:
    if IMMUTABLE.issuperset(map(type, value.values())):
        return value.copy()
    return dict(zip(value, map(_copied, value.values()), strict=True))


_COPYINGS: Final[dict[type, Callable[[Any], Any]]] = {
    list: _copied_list,
    tuple: _copied_tuple,
    dict: _copied_dict,
    set: set.copy,  # its items are hashable, so they do not change
    frozenset: frozenset.copy,
}
