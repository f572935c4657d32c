"""Integers of 128 bits, as words: for sums that need more than 64 bits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy

from clonos.kernels import grouped

if TYPE_CHECKING:
    from numpy.typing import NDArray

WORDS: Final = numpy.dtype([("low", "<u8"), ("high", "<i8")])
WORD: Final = 64
HALF: Final = 32
HALF_MASK: Final = (1 << HALF) - 1


def words_of(numbers: NDArray[numpy.int64]) -> NDArray[Any]:
    """Returns the words of int64 numbers."""
    words = numpy.empty(len(numbers), WORDS)
    words["low"], words["high"] = numbers.view(numpy.uint64), numbers >> (WORD - 1)
    return words


def squares_of(numbers: NDArray[numpy.int64]) -> NDArray[Any]:
    """Returns the words of the squares of int64 numbers."""
    size = numpy.where(numbers < 0, -numbers, numbers).view(numpy.uint64)
    half = numpy.uint64(HALF)
    low, high = size & numpy.uint64(HALF_MASK), size >> half
    mixed = 2 * (low * high)
    words = numpy.empty(len(numbers), WORDS)
    words["low"] = low * low + (mixed << half)
    words["high"] = high * high + (mixed >> half) + (words["low"] < low * low)
    return words


def sums_of_words(slots: NDArray[Any], words: NDArray[Any]) -> tuple[NDArray[numpy.int64], NDArray[Any]]:
    """Returns the distinct slots in the order of first occurrence, and the sum of the words of each.

    The caller sees to it that each sum has 128 bits.
    """
    distinct, of_rows = grouped.distinct_slots(slots)
    low = words["low"]
    first, second, high = numpy.zeros((3, len(distinct)), numpy.int64)  # halves of 32 bits have room for 2**31 rows
    numpy.add.at(first, of_rows, (low & HALF_MASK).astype(numpy.int64))
    numpy.add.at(second, of_rows, (low >> HALF).astype(numpy.int64))
    numpy.add.at(high, of_rows, words["high"])
    second += first >> HALF
    sums = numpy.empty(len(distinct), WORDS)
    sums["low"] = (first & HALF_MASK).astype(numpy.uint64) | (second.astype(numpy.uint64) << numpy.uint64(HALF))
    sums["high"] = high + (second >> HALF)
    return distinct, sums


def integers_of(words: NDArray[Any]) -> list[int]:
    """Returns words as integers of Python."""
    return [(high << WORD) + low for low, high in zip(words["low"].tolist(), words["high"].tolist(), strict=True)]
