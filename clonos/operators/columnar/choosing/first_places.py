"""Places of the first and last rows of each slot in a batch, without sorting."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy

from clonos.operators.state.column_slots import grown

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Marks:
    """Array by slot in which the rows of a batch leave their places; nothing in it outlives a call."""

    def __init__(self) -> None:
        self._place_of: NDArray[numpy.int64] = numpy.empty(0, numpy.int64)

    def first(self, slots: NDArray[Any], size: int) -> NDArray[numpy.bool_]:
        """Returns which rows are the first ones of their slots, all of which are less than ``size``."""
        places = numpy.arange(len(slots))
        place_of = self._sized(size)
        place_of[slots[::-1]] = places[::-1]  # of equal slots the last one assigned stays
        found: NDArray[numpy.bool_] = place_of[slots] == places
        return found

    def last(self, slots: NDArray[Any], size: int) -> NDArray[numpy.bool_]:
        """Returns which rows are the last ones of their slots, all of which are less than ``size``."""
        places = numpy.arange(len(slots))
        place_of = self._sized(size)
        place_of[slots] = places
        found: NDArray[numpy.bool_] = place_of[slots] == places
        return found

    def numbered(self, slots: NDArray[Any], size: int) -> tuple[NDArray[Any], NDArray[numpy.int64]]:
        """Returns the distinct slots in the order of their first rows, and the number of each row's slot among them."""
        distinct = slots[self.first(slots, size)]
        place_of = self._place_of
        place_of[distinct] = numpy.arange(len(distinct))
        return distinct, place_of[slots]

    def _sized(self, size: int) -> NDArray[numpy.int64]:
        if len(self._place_of) < size:
            self._place_of = grown(self._place_of, 0, size)
        return self._place_of
