"""Exact sums of integers over columns that need more than 64 bits: 128-bit integers in two columns of state.

A third column counts what is beyond these: the sum of a slot is that of both words + ``carry`` * 2**128.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

import numpy

from clonos.kernels.words import WORD, WORDS, integers_of, sums_of_words
from clonos.operators.columnar.column_aggregates import OfColumn, Slots, State, largest_of

DIGITS: Final = 38
"""Digits of integers that surely fit both words."""

HIGH_MAX: Final = (1 << WORD - 1) - 1
LOW_MASK: Final = (1 << WORD) - 1


class WordSum(OfColumn):
    """Sum of integers, given as words; 0 without a number."""

    fields: ClassVar[tuple[str, ...]] = ("low", "high", "carry")

    def dtypes(self) -> dict[str, Any]:
        return {self._names[0]: numpy.uint64, self._names[1]: numpy.int64, self._names[2]: numpy.int32}

    def add_words(self, state: State, slots: Slots, words: Any) -> None:
        """Adds an integer for each slot; a slot may be there several times."""
        growth = (largest_of(words["high"]) + 1) * len(slots)
        if growth + largest_of(state[self._names[1]][slots]) > HIGH_MAX:
            self._add_integers(state, slots, integers_of(words))
            return
        distinct, sums = sums_of_words(slots, words)
        lows, highs = state[self._names[0]], state[self._names[1]]
        totals = lows[distinct] + sums["low"]
        lows[distinct] = totals
        highs[distinct] += sums["high"] + (totals < sums["low"])

    def _add_integers(self, state: State, slots: Slots, numbers: list[int]) -> None:
        distinct = numpy.unique(slots)
        totals = dict(zip(distinct.tolist(), self.totals(state, distinct), strict=True))
        for slot, number in zip(slots.tolist(), numbers, strict=True):
            totals[slot] += number
        parts = [(total & LOW_MASK, _signed(total >> WORD)) for total in totals.values()]
        carries = [
            (total - (high << WORD)) >> 2 * WORD for total, (_, high) in zip(totals.values(), parts, strict=True)
        ]
        for name, column in zip(self._names, (*zip(*parts, strict=True), carries), strict=True):
            state[name][distinct] = numpy.array(column, state[name].dtype)

    def _add(self, state: State, slots: Slots, numbers: Any) -> None:
        self.add_words(state, slots, numbers)

    def merge(self, state: State, slots: Slots, other: State) -> None:
        words = self.words_at(other, numpy.arange(len(slots)))
        self.add_words(state, slots, words)
        state[self._names[2]][slots] += other[self._names[2]]

    def words_at(self, state: State, slots: Slots) -> Any:
        """Returns the sums of slots, without what they carry, as an array of ``WORDS``."""
        words = numpy.empty(len(slots), WORDS)
        words["low"], words["high"] = state[self._names[0]][slots], state[self._names[1]][slots]
        return words

    def totals(self, state: State, slots: Slots) -> list[int]:
        """Returns the sums of slots."""
        carries = state[self._names[2]][slots].tolist()
        words = integers_of(self.words_at(state, slots))
        return [word + (carry << 2 * WORD) for word, carry in zip(words, carries, strict=True)]

    def results(self, state: State, slots: Slots) -> Any:
        raise AssertionError("a sum of words has no type of its own")


def _signed(number: int) -> int:
    """Returns the number of 64 bits that an integer ends with."""
    low = number & LOW_MASK
    return low - (1 << WORD) if low > HIGH_MAX else low
