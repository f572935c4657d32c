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
    """Rows with the keys of the user, and these as tables have them.

    ``nulls`` has the places of the keys that match nothing. ``is_retained``: the state has had these very rows.
    """

    __slots__ = ("is_retained", "keys", "nulls", "rows", "stored", "times")

    def __init__(self, keys: list[Any], rows: list[Any], times: Times, *, is_retained: bool = False) -> None:
        """Creates it. Raises: KeyUnsupported: the type of a key cannot be one."""
        self.keys, self.rows, self.times, self.is_retained = keys, rows, times, is_retained
        self.stored = state_keys(keys)
        classes = {*map(type, keys)}
        may_be_null = NoneType in classes or tuple in classes
        self.nulls = [place for place, key in enumerate(keys) if _has_null(key)] if may_be_null else []

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
        if min(times, default=instant_ns) >= instant_ns:
            return []
        return [place for place, timestamp_ns in enumerate(times) if timestamp_ns < instant_ns]

    def keyed(self) -> ObjectSide:
        """See ``SideBatch``."""
        return self.split(self.nulls)[0] if self.nulls else self

    def gone(self, needed_ns: int | None) -> list[int]:
        """Returns the places of the records before an instant, and of those whose keys match nothing."""
        gone = [] if needed_ns is None else self.earlier(needed_ns)
        return sorted({*gone, *self.nulls}) if self.nulls else gone

    def parted(self, needed_ns: int | None) -> tuple[ObjectSide, ObjectSide | None]:
        """See ``SideBatch``."""
        gone = self.gone(needed_ns)
        return self.split(gone) if gone else (self, None)

    def by_the_clock(self, now_ns: int) -> ObjectSide:
        """See ``SideBatch``."""
        return ObjectSide(self.keys, self.rows, [now_ns] * len(self.keys))

    def split(self, places: Sequence[int]) -> tuple[ObjectSide, ObjectSide]:
        """See ``SideBatch``."""
        if len(places) in (0, len(self)):
            return (self.at(()), self) if places else (self, self.at(()))
        return self.at(without(range(len(self.keys)), places)), self.at(places)

    def at(self, places: Sequence[int]) -> ObjectSide:
        """Returns the records at some places."""
        keys, rows, times = self.keys, self.rows, self.times
        instants = None if times is None else [times[place] for place in places]
        return ObjectSide(
            [keys[place] for place in places], [rows[place] for place in places], instants, is_retained=self.is_retained
        )


def _has_null(key: Any) -> bool:
    return key is None or (type(key) is tuple and any(map(_has_null, key)))
