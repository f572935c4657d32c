"""Exact sums of decimals over columns: 128-bit integers in two columns of state."""

from __future__ import annotations

from typing import Any, ClassVar, Final

import numpy
import pyarrow

from clonos.kernels import grouped
from clonos.kernels.arrays import fixed_values
from clonos.operators.columnar.column_aggregates import OfColumn, Slots, State

DIGITS: Final = 38
"""Digits of the decimals of 128 bits."""

WORDS: Final = numpy.dtype([("low", "<u8"), ("high", "<i8")])
HALF: Final = 32
HALF_MASK: Final = (1 << HALF) - 1
WORD: Final = 64


class DecimalSum(OfColumn):
    """Sum of decimals of one scale; 0 without a number."""

    fields: ClassVar[tuple[str, ...]] = ("low", "high")
    limit: ClassVar[int] = 10**DIGITS - 1

    def __init__(self, name: str, of: str, type_: Any) -> None:
        super().__init__(name, of, pyarrow.decimal128(DIGITS, type_.scale))

    def dtypes(self) -> dict[str, Any]:
        return {self._names[0]: numpy.uint64, self._names[1]: numpy.int64}

    def growth(self, cells: Any) -> int:
        return _largest(self._numbers(cells.drop_null())["high"]) * len(cells)

    def largest(self, state: State, count: int) -> int:
        return _largest(state[self._names[1]][:count])

    def _add(self, state: State, slots: Slots, numbers: Any) -> None:
        distinct, of_rows = grouped.distinct_slots(slots)
        count, low = len(distinct), numbers["low"]
        first = numpy.bincount(of_rows, low & HALF_MASK, count).astype(numpy.int64)  # floats represent it exactly
        second = numpy.bincount(of_rows, low >> HALF, count).astype(numpy.int64) + (first >> HALF)
        high = numpy.zeros(count, numpy.int64)
        numpy.add.at(high, of_rows, numbers["high"])
        low = (first & HALF_MASK).astype(numpy.uint64) | (second.astype(numpy.uint64) << numpy.uint64(HALF))
        self._add_words(state, distinct, low, high + (second >> HALF))

    def _add_words(self, state: State, slots: Slots, low: Any, high: Any) -> None:
        """Adds an integer to each slot; no slot is there twice."""
        lows, highs = state[self._names[0]], state[self._names[1]]
        totals = lows[slots] + low
        lows[slots] = totals
        highs[slots] += high + (totals < low)

    def merge(self, state: State, slots: Slots, other: State) -> None:
        self._add_words(state, slots, other[self._names[0]], other[self._names[1]])

    def results(self, state: State, slots: Slots) -> Any:
        words = numpy.empty(len(slots), WORDS)
        words["low"], words["high"] = state[self._names[0]][slots], state[self._names[1]][slots]
        return pyarrow.Array.from_buffers(self.type, len(slots), [None, pyarrow.py_buffer(words.view(numpy.uint8))])

    def _numbers(self, cells: Any) -> Any:
        """Returns the integers that decimals without nulls consist of."""
        if not pyarrow.types.is_decimal128(cells.type):
            cells = cells.cast(self.type)
        return fixed_values(cells, WORDS)


def _largest(high: Any) -> int:
    """Returns a bound of integers, of whose absolute values these are the high halves."""
    return max(abs(int(high.min())), abs(int(high.max()))) + 1 << WORD if len(high) else 0
