"""The k largest and the k smallest records. Of records with equal ranks, those that arrived first."""

from __future__ import annotations

from abc import abstractmethod
from bisect import bisect_left, bisect_right
from operator import itemgetter
from typing import Any, Final

from clonos.core.values.copying import copied
from clonos.core.values.ordering import ordered
from clonos.operators.aggregates.aggregate import Aggregation, UserFunction
from clonos.operators.aggregates.terms import Of, functions_of, term_of, text_of
from clonos.operators.aggregates.values import is_nan

RANKED_MAX: Final = 10_000
"""Largest k: the list of a key is copied for each record that enters it."""


class Ranking(Aggregation[Any, list[Any]]):
    """Base of both. The accumulator is a list of (rank, record), by ascending rank.

    A record whose rank is None or nan does not count. A list that changes is copied, which makes room for an error in
    the comparison of two ranks.
    """

    name = ""
    has_bounded_size = True

    def __init__(self, k: int, by: Of) -> None:
        self.k = k
        self.by = by
        self._rank = term_of(by)

    @property
    def functions(self) -> tuple[UserFunction, ...]:
        return functions_of(self.by)

    def create(self) -> Any:
        return []

    def term(self, value: Any) -> Any:
        rank = self._rank(value)
        return None if rank is None or is_nan(rank) else (ordered(rank), value)

    def insert(self, accumulator: Any, term: Any) -> Any:
        return accumulator if term is None else self._with(accumulator, term)

    @abstractmethod
    def _with(self, ranked: list[Any], term: Any) -> list[Any]:
        """Returns the list with a record, if that is among the k."""

    def __repr__(self) -> str:
        by = f", by={text_of(self.by)}" if self.by is not None else ""
        return f"{self.name}({self.k}{by})"


class TopKRecords(Ranking):
    """The k records with the largest ranks, the largest first."""

    name = "top_k"

    def merge(self, accumulator: Any, other: Any) -> Any:
        for term in reversed(other):
            accumulator = self._with(accumulator, term)
        return accumulator

    def result(self, accumulator: Any) -> list[Any]:
        return copied([record for _, record in reversed(accumulator)])  # type: ignore[no-any-return]

    def _with(self, ranked: list[Any], term: Any) -> list[Any]:
        place = bisect_left(ranked, term[0], key=itemgetter(0))  # after equal ranks, which arrived earlier
        is_full = len(ranked) >= self.k
        if is_full and place == 0:
            return ranked
        return [*ranked[is_full:place], term, *ranked[place:]]


class BottomK(Ranking):
    """The k records with the smallest ranks, the smallest first."""

    name = "bottom_k"

    def merge(self, accumulator: Any, other: Any) -> Any:
        for term in other:
            accumulator = self._with(accumulator, term)
        return accumulator

    def result(self, accumulator: Any) -> list[Any]:
        return copied([record for _, record in accumulator])  # type: ignore[no-any-return]

    def _with(self, ranked: list[Any], term: Any) -> list[Any]:
        place = bisect_right(ranked, term[0], key=itemgetter(0))
        if place >= self.k:
            return ranked
        return [*ranked[:place], term, *ranked[place : self.k - 1]]
