"""Counts of records: all of them, or those that fulfil a condition."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from clonos.operators.aggregates.aggregate import Aggregation, UserFunction
from clonos.operators.aggregates.terms import functions_of


class Count(Aggregation[Any, int]):
    """Number of records, or of those that fulfil a condition. The accumulator is the number."""

    ignores_order = True
    has_bounded_size = True

    def __init__(self, condition: Callable[[Any], object] | None = None) -> None:
        self._condition = condition

    @property
    def functions(self) -> tuple[UserFunction, ...]:
        return functions_of(self._condition)

    def create(self) -> Any:
        return 0

    def term(self, value: Any) -> Any:
        return True if self._condition is None else bool(self._condition(value))

    def insert(self, accumulator: Any, term: Any) -> Any:
        return accumulator + 1 if term else accumulator

    def merge(self, accumulator: Any, other: Any) -> Any:
        return accumulator + other

    def result(self, accumulator: Any) -> int:
        return accumulator  # type: ignore[no-any-return]

    def __repr__(self) -> str:
        return "count()" if self._condition is None else "count_if(a function)"
