"""Aggregation in two steps: accumulators of parts of the records, then the accumulator of these."""

from __future__ import annotations

from typing import Any

from clonos.core.values.copying import copied
from clonos.operators.aggregates.aggregate import Aggregation, Insertion, UserFunction


class Wrapping(Aggregation[Any, Any]):
    """Base of both: the aggregation that is made in two steps. It has ``merge``."""

    insertion = Insertion.CALLS_USER

    def __init__(self, aggregation: Aggregation[Any, Any]) -> None:
        assert aggregation.can_merge, "parts of an aggregate without merge cannot be joined"
        self.aggregation = aggregation
        self.ignores_order = aggregation.ignores_order
        self.changes_terms = aggregation.changes_terms

    def create(self) -> Any:
        return self.aggregation.create()

    def merge(self, accumulator: Any, other: Any) -> Any:
        return self.aggregation.merge(accumulator, other)

    def __repr__(self) -> str:
        return repr(self.aggregation)


class Partial(Wrapping):
    """First step, whose result is the accumulator."""

    @property
    def functions(self) -> tuple[UserFunction, ...]:
        return self.aggregation.functions

    def term(self, value: Any) -> Any:
        return self.aggregation.term(value)

    def insert(self, accumulator: Any, term: Any) -> Any:
        return self.aggregation.insert(accumulator, term)

    def insert_or_keep(self, accumulator: Any, term: Any) -> Any:
        return self.aggregation.insert_or_keep(accumulator, term)

    def result(self, accumulator: Any) -> Any:
        return self.aggregation.merge(self.create(), accumulator)


class Merging(Wrapping):
    """Second step, whose records are accumulators of the first."""

    def insert(self, accumulator: Any, term: Any) -> Any:
        return self.aggregation.merge(accumulator, term)

    def insert_or_keep(self, accumulator: Any, term: Any) -> Any:
        return self.insert(copied(accumulator), term)

    def result(self, accumulator: Any) -> Any:
        return self.aggregation.result(accumulator)
