"""Aggregates of the user's functions: an accumulator of their own, and a reduction."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from clonos.core.values.copying import copied
from clonos.operators.aggregates.aggregate import Aggregation, Insertion, UserFunction

READERS: Final = (len, sum, min, max, sorted, any, all, tuple, list, set, frozenset, dict, bool, str, repr)
"""Functions that leave their argument as it is, so that they get the accumulator itself."""


class Custom(Aggregation[Any, Any]):
    """Accumulator of the user: ``create()``, ``add(accumulator, value)``, ``merge(accumulator, other)``, ``result``.

    ``add`` and ``merge`` return the new accumulator, or None if they have changed the given one in place
    (``list.append``).
    """

    insertion = Insertion.CALLS_USER

    def __init__(
        self,
        create: Callable[[], Any],
        add: Callable[[Any, Any], Any],
        merge: Callable[[Any, Any], Any] | None,
        result: Callable[[Any], Any] | None,
    ) -> None:
        self._create, self._add, self._merge, self._result = create, add, merge, result
        self._only_reads = any(result is each for each in READERS)
        self.can_merge = merge is not None
        self.changes_terms = True
        if add is list.append:
            self.insertion = Insertion.IN_PLACE
            self.changes_terms = merge not in (None, list.extend)

    @property
    def functions(self) -> tuple[UserFunction, ...]:
        merge = UserFunction(self._merge, ("accumulator", "other"))
        result = UserFunction(self._result, ("accumulator",))
        return (
            UserFunction(self._create, ()),
            UserFunction(self._add, ("accumulator", "value")),
            *(each for each in (merge, result) if each.function is not None),
        )

    def create(self) -> Any:
        return self._create()

    def insert(self, accumulator: Any, term: Any) -> Any:
        replaced = self._add(accumulator, term)
        return accumulator if replaced is None else replaced

    def insert_or_keep(self, accumulator: Any, term: Any) -> Any:
        never_raises = self.insertion is Insertion.IN_PLACE
        return self.insert(accumulator if never_raises else copied(accumulator), term)

    def merge(self, accumulator: Any, other: Any) -> Any:
        assert self._merge is not None, "an aggregate without merge is refused where merge is needed"
        replaced = self._merge(accumulator, copied(other))  # the user's merge may keep parts of it
        return accumulator if replaced is None else replaced

    def result(self, accumulator: Any) -> Any:
        if self._result is None:
            return copied(accumulator)
        if self._only_reads:
            return copied(self._result(accumulator))
        return self._result(copied(accumulator))  # it may change what it gets in place, or return a part of it

    def __repr__(self) -> str:
        return "aggregate(functions)"


class Reduction(Aggregation[Any, Any]):
    """Reduction by an associative ``function(so far, value)``. The accumulator is a list of at most one value."""

    insertion = Insertion.CALLS_USER
    has_bounded_size = True
    changes_terms = True

    def __init__(self, function: Callable[[Any, Any], Any]) -> None:
        self._function = function

    @property
    def functions(self) -> tuple[UserFunction, ...]:
        return (UserFunction(self._function, ("so_far", "value")),)

    def create(self) -> Any:
        return []

    def insert(self, accumulator: Any, term: Any) -> Any:
        return [self._function(accumulator[0], term)] if accumulator else [term]

    def insert_or_keep(self, accumulator: Any, term: Any) -> Any:
        return self.insert(copied(accumulator), term)

    def merge(self, accumulator: Any, other: Any) -> Any:
        return self.insert(accumulator, copied(other[0])) if other else accumulator

    def result(self, accumulator: Any) -> Any:
        return copied(accumulator[0])

    def __repr__(self) -> str:
        return "reduce(a function)"
