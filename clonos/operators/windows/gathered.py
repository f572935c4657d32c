"""Gathering of the values of a window, for functions that need all of them."""

from __future__ import annotations

from typing import Any

from clonos.core.values.copying import copied
from clonos.operators.aggregates.aggregate import Aggregation, Insertion
from clonos.operators.user_errors import RAISED

Failure = tuple[BaseException, Any]
"""Exception of the user's code, and the record or the accumulator for which it was raised."""


class GatheredValues(Aggregation[Any, Any]):
    """List of all values, which ``aggregation`` aggregates when the window emits, if given.

    They are in order of arrival within a pane or a session; those of earlier panes and sessions come first.
    """

    insertion = Insertion.IN_PLACE

    def __init__(self, aggregation: Aggregation[Any, Any] | None = None, *, is_timed: bool = False) -> None:
        """Creates it. ``is_timed``: it gathers (time in nanoseconds, value), and the result is that of the values."""
        self._aggregation = aggregation
        self._is_timed = is_timed

    def create(self) -> Any:
        return []

    def insert(self, accumulator: Any, term: Any) -> Any:
        accumulator.append(term)
        return accumulator

    def add(self, accumulator: Any, value: Any) -> Any:
        accumulator.append(value)
        return accumulator

    def merge(self, accumulator: Any, other: Any) -> Any:
        accumulator.extend(other)
        return accumulator

    def values_of(self, accumulator: Any) -> list[Any]:
        """Returns the values without their times. They are those of the accumulator, no copies."""
        return [value for _, value in accumulator] if self._is_timed else accumulator

    def result(self, accumulator: Any) -> Any:
        values = copied(self.values_of(accumulator))
        if self._aggregation is None:
            return values
        found = self._aggregation.create()
        for value in values:
            found = self._aggregation.add(found, value)
        return self._aggregation.result(found)

    def without_failed(self, accumulator: Any) -> tuple[Any, list[Failure]]:
        """Returns the accumulator without values that the aggregation cannot add, and these."""
        failures: list[Failure] = []
        left: list[Any] = []
        if self._aggregation is None:
            return accumulator, failures
        try:
            found = self._aggregation.create()
        except RAISED:  # no value is to blame
            return accumulator, failures
        for item, value in zip(accumulator, self.values_of(accumulator), strict=True):
            try:
                found = self._aggregation.add_or_keep(found, copied(value))
            except RAISED as error:
                failures.append((error, copied(value)))
            else:
                left.append(item)
        return left, failures

    def __repr__(self) -> str:
        return "apply(a function)" if self._aggregation is None else repr(self._aggregation)
