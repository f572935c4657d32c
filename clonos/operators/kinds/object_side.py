"""Batch of one side of a join whose records are Python objects."""

from __future__ import annotations

from collections.abc import Sequence
from types import NoneType
from typing import Any, Final

from clonos.core.values.keys import state_keys
from clonos.operators.operator import Times, without


class NoRow:
    """Stands for a row that there is not."""

    __slots__ = ()


MISSING: Final = NoRow()


class ObjectSide:
    """Rows (key, record) with their state keys. ``nulls`` has the places of the keys that match nothing."""

    __slots__ = ("keys", "nulls", "rows", "times")

    def __init__(self, keys: list[Any], rows: list[Any], times: Times, nulls: Sequence[int] = ()) -> None:
        self.keys, self.rows, self.times, self.nulls = keys, rows, times, nulls

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def instants(self) -> Sequence[int]:
        """Timestamps of the records."""
        assert self.times is not None, "a join by time reads streams with timestamps"
        return self.times

    def earlier(self, instant_ns: int) -> list[int]:
        """See ``SideBatch``."""
        times = self.instants
        if min(times) >= instant_ns:
            return []
        return [place for place, timestamp_ns in enumerate(times) if timestamp_ns < instant_ns]

    def keyed(self) -> ObjectSide:
        """See ``SideBatch``."""
        return self.split(self.nulls)[0] if self.nulls else self

    def split(self, places: Sequence[int]) -> tuple[ObjectSide, ObjectSide]:
        """See ``SideBatch``."""
        those, nulls = set(places), set(self.nulls)
        rest = without(range(len(self.keys)), those)
        return self._at(rest, nulls), self._at(places, nulls)

    def _at(self, places: Sequence[int], nulls: set[int]) -> ObjectSide:
        return ObjectSide(
            [self.keys[place] for place in places],
            [self.rows[place] for place in places],
            None if self.times is None else [self.times[place] for place in places],
            [at for at, place in enumerate(places) if place in nulls] if nulls else (),
        )


def object_side(rows: list[Any], times: Times) -> ObjectSide:
    """Returns a batch of rows.

    Raises: KeyUnsupported: the type of a key cannot be one.
    """
    keys = [key for key, _ in rows]
    classes = {*map(type, keys)}
    nulls = NoneType in classes or tuple in classes
    return ObjectSide(
        state_keys(keys), rows, times, [at for at, key in enumerate(keys) if _has_null(key)] if nulls else ()
    )


def _has_null(key: Any) -> bool:
    return key is None or (type(key) is tuple and any(map(_has_null, key)))
