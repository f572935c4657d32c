"""Exact sums of integers over columns that need more than 64 bits: 128-bit integers in two columns of state."""

from __future__ import annotations

from typing import Any, ClassVar, Final

import numpy

from clonos.kernels import grouped
from clonos.operators.columnar.column_aggregates import OfColumn, Slots, State

DIGITS: Final = 38
"""Digits of integers that surely fit."""

WORDS: Final = numpy.dtype([("low", "<u8"), ("high", "<i8")])
HALF: Final = 32
HALF_MASK: Final = (1 << HALF) - 1
WORD: Final = 64


class WordSum(OfColumn):
    """Sum of integers, given as words; 0 without a number."""

    fields: ClassVar[tuple[str, ...]] = ("low", "high")
    limit: ClassVar[int] = 10**DIGITS - 1

    def dtypes(self) -> dict[str, Any]:
        return {self._names[0]: numpy.uint64, self._names[1]: numpy.int64}

    def growth(self, cells: Any) -> int:
        return largest_of(self._numbers(cells.drop_null())["high"]) * len(cells)

    def largest(self, state: State, count: int) -> int:
        return largest_of(state[self._names[1]][:count])

    def add_words(self, state: State, slots: Slots, words: Any) -> None:
        """Adds an integer for each slot; a slot may be there several times."""
        distinct, of_rows = grouped.distinct_slots(slots)
        count, low = len(distinct), words["low"]
        first, second, high = numpy.zeros((3, count), numpy.int64)  # halves of 32 bits have room for 2**31 rows
        numpy.add.at(first, of_rows, (low & HALF_MASK).astype(numpy.int64))
        numpy.add.at(second, of_rows, (low >> HALF).astype(numpy.int64))
        numpy.add.at(high, of_rows, words["high"])
        second += first >> HALF
        low = (first & HALF_MASK).astype(numpy.uint64) | (second.astype(numpy.uint64) << numpy.uint64(HALF))
        self._add_distinct(state, distinct, low, high + (second >> HALF))

    def _add(self, state: State, slots: Slots, numbers: Any) -> None:
        self.add_words(state, slots, numbers)

    def _add_distinct(self, state: State, slots: Slots, low: Any, high: Any) -> None:
        lows, highs = state[self._names[0]], state[self._names[1]]
        totals = lows[slots] + low
        lows[slots] = totals
        highs[slots] += high + (totals < low)

    def merge(self, state: State, slots: Slots, other: State) -> None:
        self._add_distinct(state, slots, other[self._names[0]], other[self._names[1]])

    def words_at(self, state: State, slots: Slots) -> Any:
        """Returns the sums of slots as an array of ``WORDS``."""
        words = numpy.empty(len(slots), WORDS)
        words["low"], words["high"] = state[self._names[0]][slots], state[self._names[1]][slots]
        return words

    def totals(self, state: State, slots: Slots) -> list[int]:
        """Returns the sums of slots."""
        words = self.words_at(state, slots)
        return [(high << WORD) + low for low, high in zip(words["low"].tolist(), words["high"].tolist(), strict=True)]

    def results(self, state: State, slots: Slots) -> Any:
        raise AssertionError("a sum of words has no type of its own")


def words_of(numbers: Any) -> Any:
    """Returns the words of int64 numbers."""
    words = numpy.empty(len(numbers), WORDS)
    words["low"], words["high"] = numbers.view(numpy.uint64), numbers >> (WORD - 1)
    return words


def squares_of(numbers: Any) -> Any:
    """Returns the words of the squares of int64 numbers."""
    size = numpy.where(numbers < 0, -numbers, numbers).view(numpy.uint64)
    half = numpy.uint64(HALF)
    low, high = size & numpy.uint64(HALF_MASK), size >> half
    mixed = 2 * (low * high)
    words = numpy.empty(len(numbers), WORDS)
    words["low"] = low * low + (mixed << half)
    words["high"] = high * high + (mixed >> half) + (words["low"] < low * low)
    return words


def largest_of(high: Any) -> int:
    """Returns a bound of integers, of whose absolute values these are the high halves."""
    return max(abs(int(high.min())), abs(int(high.max()))) + 1 << WORD if len(high) else 0
