"""Batch of one side of a join whose records are columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy
import pyarrow

from clonos.operators.columnar.joins.sides import slots_of

KeysOf = Callable[[Any], list[Any]]
"""Returns the key columns of rows."""


class ColumnSide:
    """Records of a side. ``times`` has their timestamps, or reads them of the batch."""

    __slots__ = ("_keys", "_keys_of", "_slots", "_times", "batch")

    def __init__(self, batch: Any, keys_of: KeysOf, times: Any, slots: Any = None) -> None:
        self.batch, self._keys_of, self._times, self._slots = batch, keys_of, times, slots
        self._keys: list[Any] | None = None

    def __len__(self) -> int:
        count: int = self.batch.num_rows
        return count

    @property
    def times(self) -> Any:
        """Timestamps of the records."""
        if callable(self._times):
            self._times = self._times(self.batch)
            assert self._times is not None, "a join by time reads streams with timestamps"
        return self._times

    @property
    def keys(self) -> list[Any]:
        """Key columns."""
        if self._keys is None:
            self._keys = self._keys_of(self.batch)
        return self._keys

    def slots(self, find: Callable[[list[Any]], Any]) -> Any:
        """Returns the slots of the keys, which ``find`` gives once. See ``slots_of``."""
        if self._slots is None:
            self._slots = slots_of(find, self.keys)
        return self._slots

    def earlier(self, instant_ns: int) -> list[int]:
        """See ``SideBatch``."""
        places: list[int] = numpy.flatnonzero(self.times < instant_ns).tolist()
        return places

    def stays(self, needed_ns: int | None) -> Any:
        """Returns which records have keys and are not before an instant."""
        stays = self._has_key()
        return stays if needed_ns is None else stays & (self.times >= needed_ns)

    def parted(self, needed_ns: int | None) -> tuple[ColumnSide, ColumnSide | None]:
        """See ``SideBatch``."""
        stays = self.stays(needed_ns)
        return (self, None) if stays.all() else (self.where(stays), self.where(~stays))

    def by_the_clock(self, now_ns: int) -> ColumnSide:
        """See ``SideBatch``."""
        return ColumnSide(self.batch, self._keys_of, numpy.full(len(self), now_ns))

    def keyed(self) -> ColumnSide:
        """See ``SideBatch``."""
        return self.where(self._has_key())

    def _has_key(self) -> Any:
        has_key = numpy.ones(len(self), numpy.bool_)
        for column in self.keys:
            if column.null_count:
                has_key &= column.is_valid().to_numpy(zero_copy_only=False)
        return has_key

    def split(self, places: Sequence[int]) -> tuple[ColumnSide, ColumnSide]:
        """See ``SideBatch``."""
        is_there = numpy.zeros(len(self), numpy.bool_)
        is_there[places] = True
        return self.where(~is_there), self.where(is_there)

    def where(self, is_wanted: Any) -> ColumnSide:
        """Returns the records where a mask is set."""
        if is_wanted.all():
            return self
        times = self._times if callable(self._times) else self._times[is_wanted]
        slots = None if self._slots is None else self._slots[is_wanted]
        return ColumnSide(self.batch.filter(pyarrow.array(is_wanted)), self._keys_of, times, slots)
