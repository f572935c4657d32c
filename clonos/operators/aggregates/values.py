"""Aggregates that keep values as they are: smallest, largest, first, last, all.

A value None does not count. The accumulator None means no value.
"""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from typing import Any, Final

from clonos.core.values.copying import copied
from clonos.core.values.numpy_scalars import python_scalar
from clonos.core.values.ordering import is_smaller
from clonos.operators.aggregates.aggregate import Aggregation, Insertion, UserFunction
from clonos.operators.aggregates.terms import Of, functions_of, term_of, text_of

_NEVER_NAN: Final = frozenset({int, str, bytes, bool, date, datetime, tuple})
"""Types that are asked for most, to be told at once."""


class OfValues(Aggregation[Any, Any]):
    """Base of aggregates of a term of each record."""

    name = ""
    has_bounded_size = True

    def __init__(self, of: Of) -> None:
        self._read = term_of(of)
        self.of = of

    @property
    def functions(self) -> tuple[UserFunction, ...]:
        return functions_of(self.of)

    def create(self) -> Any:
        return None

    def term(self, value: Any) -> Any:
        return self._read(value)

    def merge(self, accumulator: Any, other: Any) -> Any:
        return self.insert(accumulator, other)

    def result(self, accumulator: Any) -> Any:
        return copied(accumulator)

    def __repr__(self) -> str:
        return f"{self.name}({text_of(self.of)})"


class Min(OfValues):
    """Smallest value. A nan is the result only if there is nothing else."""

    name = "min_"
    ignores_order = True

    def insert(self, accumulator: Any, term: Any) -> Any:
        if term is None or accumulator is None:
            return accumulator if term is None else term
        if is_nan(accumulator) or is_nan(term):
            return term if is_nan(accumulator) else accumulator
        return term if is_smaller(term, accumulator) else accumulator


class Max(OfValues):
    """Largest value. A nan is the result only if there is nothing else."""

    name = "max_"
    ignores_order = True

    def insert(self, accumulator: Any, term: Any) -> Any:
        if term is None or accumulator is None:
            return accumulator if term is None else term
        if is_nan(accumulator) or is_nan(term):
            return term if is_nan(accumulator) else accumulator
        return term if is_smaller(accumulator, term) else accumulator


class First(OfValues):
    """First value by arrival."""

    name = "first"

    def insert(self, accumulator: Any, term: Any) -> Any:
        return term if accumulator is None else accumulator


class Last(OfValues):
    """Last value by arrival."""

    name = "last"

    def insert(self, accumulator: Any, term: Any) -> Any:
        return accumulator if term is None else term


class Collect(OfValues):
    """List of all values, by arrival."""

    name = "collect"
    insertion = Insertion.IN_PLACE
    has_bounded_size = False

    def create(self) -> Any:
        return []

    def insert(self, accumulator: Any, term: Any) -> Any:
        if term is not None:
            accumulator.append(term)
        return accumulator

    def merge(self, accumulator: Any, other: Any) -> Any:
        accumulator.extend(other)
        return accumulator


def is_nan(value: Any) -> bool:
    """Returns whether a value is the nan of a float, a Decimal or a numpy scalar."""
    if type(value) in _NEVER_NAN:
        return False
    if isinstance(value, Decimal):
        return value.is_nan()
    scalar = value if type(value) is float else python_scalar(value)
    return isinstance(scalar, float) and scalar != scalar
