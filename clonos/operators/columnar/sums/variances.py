"""Variances and standard deviations over columns, from the sums of numbers and of their squares.

Those of ints are exact until the result is rounded, as over rows. Sums of floats are pairs of floats.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar, Final

import numpy
import pyarrow

from clonos.kernels.words import squares_of, words_of
from clonos.operators.aggregates.exact_numbers import variance_of
from clonos.operators.aggregates.numeric import Stddev, Variance
from clonos.operators.columnar.column_aggregates import CountColumn, OfColumn, Slots, State
from clonos.operators.columnar.sums.float_sums import FloatSum
from clonos.operators.columnar.sums.word_sums import WordSum

SPLITTER: Final = float((1 << 27) + 1)
"""Factor that divides a float into two of 26 bits (Dekker 1971)."""

EXACT_MIN: Final = 2.0**-400
"""Numbers below have squares of which bits may be lost."""


class VarianceColumn(OfColumn):
    """Base of both: null of too few numbers."""

    part: ClassVar[type[Any]]
    """Makes the sum of the numbers, and that of their squares."""

    def __init__(self, aggregation: Variance, name: str, of: str, type_: Any) -> None:
        super().__init__(name, of, type_)
        self._aggregation, self._is_root = aggregation, isinstance(aggregation, Stddev)
        self._count = CountColumn(name, None)
        self._sum, self._squares = (type(self).part(f"{name}.{field}", of, type_) for field in ("sum", "squares"))
        self._all = (self._count, self._sum, self._squares)

    @abstractmethod
    def _totals(self, part: Any, state: State, slots: Slots) -> list[Any]:
        """Returns exact sums of a part."""

    def dtypes(self) -> dict[str, Any]:
        return {name: dtype for each in self._all for name, dtype in each.dtypes().items()}

    def merge(self, state: State, slots: Slots, other: State) -> None:
        for each in self._all:
            each.merge(state, slots, other)

    def results(self, state: State, slots: Slots) -> Any:
        return pyarrow.array(map(self._result, self.accumulators(state, slots)), pyarrow.float64())

    def _result(self, accumulator: Any) -> Any:
        return self._aggregation.result(accumulator)

    def accumulators(self, state: State, slots: Slots) -> list[Any]:
        counts = self._count.results(state, slots).to_pylist()
        totals = (self._totals(each, state, slots) for each in (self._sum, self._squares))
        return list(zip(*totals, counts, strict=True))


class IntVariance(VarianceColumn):
    """Variance of ints."""

    part = WordSum

    def _add(self, state: State, slots: Slots, numbers: Any) -> None:
        self._count.add(state, slots, None)
        self._sum.add_words(state, slots, words_of(numbers))
        self._squares.add_words(state, slots, squares_of(numbers))

    def _totals(self, part: Any, state: State, slots: Slots) -> list[Any]:
        return part.totals(state, slots)  # type: ignore[no-any-return]


class FloatVariance(VarianceColumn):
    """Variance of floats. It does not fit where squares are beyond all floats, those of numbers from 1e154 on."""

    part = FloatSum

    def _add(self, state: State, slots: Slots, numbers: Any) -> None:
        self._count.add(state, slots, None)
        self._sum.add_numbers(state, slots, numbers)
        with numpy.errstate(over="ignore"):
            squares = numbers * numbers
        self._squares.add_numbers(state, slots, squares)
        is_exact = numpy.isfinite(squares) & (numpy.abs(numbers) >= EXACT_MIN)
        if is_exact.any():
            self._squares.add_numbers(state, slots[is_exact], _rest_of_square(numbers[is_exact], squares[is_exact]))

    def misfits(self, state: State, slots: Slots) -> Any | None:
        return self._squares.is_infinite(state, slots) & ~self._sum.is_infinite(state, slots)

    def _totals(self, part: Any, state: State, slots: Slots) -> list[Any]:
        return part.accumulators(state, slots)  # type: ignore[no-any-return]

    def _result(self, accumulator: Any) -> Any:
        total, squares, count = accumulator
        if count > 1 and not isinstance(total, float) and not isinstance(squares, float):
            variance = variance_of(total, squares, count, 0)
            if variance < 0:  # all numbers are equal, but for the bits that the sum of squares lacks
                return 0.0
        return super()._result(accumulator)


def _rest_of_square(numbers: Any, squares: Any) -> Any:
    """Returns what is missing from the rounded squares of floats."""
    part = SPLITTER * numbers
    high = part - (part - numbers)
    low = numbers - high
    return ((high * high - squares) + 2 * high * low) + low * low
