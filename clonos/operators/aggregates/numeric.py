"""Sums, means and variances: exact until the result is read, so that neither order nor merges change it."""

from __future__ import annotations

from decimal import Decimal
from math import sqrt
from typing import Any, Final

from clonos.operators.aggregates.aggregate import Aggregation, UserFunction
from clonos.operators.aggregates.exact_numbers import (
    QUOTIENT,
    exact,
    mean_of,
    plus,
    rounded,
    square,
    variance_of,
)
from clonos.operators.aggregates.terms import Of, functions_of, term_of, text_of

NOTHING: Final = (0, 0, 0)


class Numeric(Aggregation[Any, Any]):
    """Base of the aggregates of numbers. A term is an exact number; None does not count."""

    ignores_order = True
    has_bounded_size = True

    def __init__(self, of: Of) -> None:
        self._read = term_of(of)
        self.of = of

    @property
    def functions(self) -> tuple[UserFunction, ...]:
        return functions_of(self.of)

    def term(self, value: Any) -> Any:
        number = self._read(value)
        return number if number is None or type(number) is int else exact(number)


class Sum(Numeric):
    """Sum; 0 without a number. The accumulator is an exact number."""

    def create(self) -> Any:
        return 0

    def insert(self, accumulator: Any, term: Any) -> Any:
        if term is None:
            return accumulator
        if type(term) is int and type(accumulator) is int:
            return accumulator + term
        return plus(accumulator, term)

    def merge(self, accumulator: Any, other: Any) -> Any:
        return plus(accumulator, other)

    def result(self, accumulator: Any) -> Any:
        return rounded(accumulator)

    def __repr__(self) -> str:
        return f"sum_({text_of(self.of)})"


class Mean(Numeric):
    """Arithmetic mean; None without a number. The accumulator is (sum, count)."""

    def create(self) -> Any:
        return 0, 0

    def insert(self, accumulator: Any, term: Any) -> Any:
        return accumulator if term is None else (plus(accumulator[0], term), accumulator[1] + 1)

    def merge(self, accumulator: Any, other: Any) -> Any:
        return plus(accumulator[0], other[0]), accumulator[1] + other[1]

    def result(self, accumulator: Any) -> Any:
        total, count = accumulator
        return mean_of(total, count) if count else None

    def __repr__(self) -> str:
        return f"mean({text_of(self.of)})"


class Variance(Numeric):
    """Variance; None of fewer numbers than ``ddof`` + 1. The accumulator is (sum, sum of squares, count)."""

    name = "variance"

    def __init__(self, of: Of, ddof: int) -> None:
        super().__init__(of)
        self._ddof = ddof

    def create(self) -> Any:
        return NOTHING

    def insert(self, accumulator: Any, term: Any) -> Any:
        if term is None:
            return accumulator
        total, squares, count = accumulator
        return plus(total, term), plus(squares, square(term)), count + 1

    def merge(self, accumulator: Any, other: Any) -> Any:
        total, squares, count = accumulator
        return plus(total, other[0]), plus(squares, other[1]), count + other[2]

    def result(self, accumulator: Any) -> Any:
        total, squares, count = accumulator
        return variance_of(total, squares, count, self._ddof) if count > self._ddof else None

    def __repr__(self) -> str:
        return f"{self.name}({text_of(self.of)}, ddof={self._ddof})"


class Stddev(Variance):
    """Standard deviation: the square root of the variance."""

    name = "stddev"

    def result(self, accumulator: Any) -> Any:
        variance = super().result(accumulator)
        if variance is None:
            return None
        return variance.sqrt(QUOTIENT) if isinstance(variance, Decimal) else sqrt(variance)
