"""Aggregation in two steps: accumulators of parts of the records, then the accumulator of these."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from clonos.core.values import register
from clonos.core.values.copying import copied
from clonos.operators.aggregates.aggregate import Aggregation, Insertion, Named, UserFunction
from clonos.operators.aggregates.values import Collect


@register
class PartialAggregate(NamedTuple):
    """Accumulator of some records of a key, which takes their place on the way to the task of the key."""

    accumulator: Any


NOT_SPLIT: Final = (Collect,)
"""Aggregates of which a part is as large as its records."""


def split_reason(aggregation: Aggregation[Any, Any]) -> str:
    """Returns why the records of a key cannot be aggregated in parts, as the end of a sentence; "" if they can."""
    for each in aggregation.aggregations.values() if isinstance(aggregation, Named) else (aggregation,):
        if not each.can_merge:
            return "accumulators without merge= cannot be joined"
        if isinstance(each, NOT_SPLIT):
            return f"{each!r} keeps all records, so that its parts are as large as they"
    return ""


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


class MergingParts(Merging):
    """Second step that gets records, too: a ``PartialAggregate`` is merged, and any other record is added as it is."""

    @property
    def functions(self) -> tuple[UserFunction, ...]:
        return self.aggregation.functions

    def term(self, value: Any) -> Any:
        return value if type(value) is PartialAggregate else (self.aggregation.term(value),)

    def insert(self, accumulator: Any, term: Any) -> Any:
        if type(term) is PartialAggregate:
            return self.aggregation.merge(accumulator, term.accumulator)
        return self.aggregation.insert(accumulator, term[0])

    def insert_or_keep(self, accumulator: Any, term: Any) -> Any:
        if type(term) is PartialAggregate:
            return self.aggregation.merge(copied(accumulator), term.accumulator)
        return self.aggregation.insert_or_keep(accumulator, term[0])
