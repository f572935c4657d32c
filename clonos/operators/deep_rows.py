"""Rows that are nested too deep to leave their task: each is an error of its own.

A function of the user may make such a row. Only jobs with an error output look for them, before the rows are encoded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import is_dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from itertools import chain
from typing import Any, Final
from uuid import UUID

import msgspec

from clonos.core.values import ValueBeyondLimit, encode_rows
from clonos.core.values.value_limits import VALUE_DEPTH_MAX

FLAT: Final = frozenset(
    (type(None), bool, int, float, str, bytes, datetime, date, time, timedelta, Decimal, UUID, range)
)
"""Types without values within."""


def too_deep(rows: list[Any]) -> Iterator[tuple[int, ValueBeyondLimit]]:
    """Yields the index of each row that is nested too deep, and the error that its encoding raises."""
    values: Iterable[Any] = rows
    for _ in range(VALUE_DEPTH_MAX):
        if FLAT.issuperset(map(type, values)):
            return
        # By their identity, because values may be shared, or contain themselves.
        containers = {id(value): value for value in values if type(value) not in FLAT}
        values = list(chain.from_iterable(map(_within, containers.values())))
    for index, row in enumerate(rows):
        try:
            encode_rows([row])
        except ValueBeyondLimit as error:
            yield index, error


def _within(value: Any) -> Iterable[Any]:
    """Returns the values within a value."""
    if isinstance(value, dict):
        return value.values()
    if isinstance(value, list | tuple | set | frozenset):
        return value
    if isinstance(value, msgspec.Struct):
        return msgspec.structs.astuple(value)
    if is_dataclass(value) and not isinstance(value, type):
        return [getattr(value, name, None) for name in value.__dataclass_fields__]
    return ()
