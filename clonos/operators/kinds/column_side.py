"""Batch of one side of a join whose records are columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy
import pyarrow

from clonos.operators.columnar.joins.sides import slots_of


class ColumnSide:
    """Records with their key columns. ``times`` has their timestamps, or reads them of the batch."""

    __slots__ = ("_times", "batch", "keys")

    def __init__(self, batch: Any, keys: list[Any], times: Any) -> None:
        self.batch, self.keys, self._times = batch, keys, times

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

    def earlier(self, instant_ns: int) -> list[int]:
        """See ``SideBatch``."""
        places: list[int] = numpy.flatnonzero(self.times < instant_ns).tolist()
        return places

    def keyed(self) -> ColumnSide:
        """See ``SideBatch``."""
        if not any(column.null_count for column in self.keys):
            return self
        is_known = numpy.ones(len(self), numpy.bool_)
        for column in self.keys:
            is_known &= column.is_valid().to_numpy(zero_copy_only=False)
        return self.where(is_known)

    def split(self, places: Sequence[int]) -> tuple[ColumnSide, ColumnSide]:
        """See ``SideBatch``."""
        is_there = numpy.zeros(len(self), numpy.bool_)
        is_there[places] = True
        return self.where(~is_there), self.where(is_there)

    def where(self, is_wanted: Any) -> ColumnSide:
        """Returns the records where a mask is set."""
        if is_wanted.all():
            return self
        mask = pyarrow.array(is_wanted)
        times = self._times if callable(self._times) else self._times[is_wanted]
        return ColumnSide(self.batch.filter(mask), [column.filter(mask) for column in self.keys], times)

    def slots(self, find: Callable[[list[Any]], Any]) -> Any:
        """Returns the slots of the keys. See ``slots_of``."""
        return slots_of(find, self.keys)
