"""Aggregation: the contract of all aggregates, and the combination of several by name.

An aggregation has no state. Its accumulators are plain values that state can store: None, numbers, str, bytes, tuples,
lists and dicts. They depend on the records and their order only, never on where batches are cut.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from enum import IntEnum
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

from clonos.core.values.copying import copied

T_contra = TypeVar("T_contra", contravariant=True)
R_co = TypeVar("R_co", covariant=True)


class UserFunction(NamedTuple):
    """Function of the user, and the names of the arguments that it is called with; None if they are not checked."""

    function: Any
    arguments: tuple[str, ...] | None


class Insertion(IntEnum):
    """How ``insert`` treats its accumulator.

    ``Named`` inserts in this order, so that a record for which one aggregation raises is in none of them.
    """

    REPLACES = 0  # returns a new accumulator and leaves the old one as it is; may raise
    CALLS_USER = 1  # calls a function of the user, which may change the accumulator in place
    IN_PLACE = 2  # changes the accumulator in place, and never raises


Insert = Callable[[Any, Any], Any]
"""Function (accumulator, term) that returns the accumulator with the term."""


class Aggregation(ABC, Generic[T_contra, R_co]):
    """Aggregate of records in four functions: create, add, merge and result of an accumulator.

    ``add`` is ``term``, which calls the user's function of the record, and ``insert``. ``add_or_keep`` takes its place
    where records that raise go to an error output: a record for which it raises is not in the accumulator.
    """

    insertion: Insertion = Insertion.REPLACES

    changes_terms: bool = False
    """Whether functions of the user may change in place what ``insert`` got and the accumulator keeps. A term that
    several accumulators get is copied for each then."""

    ignores_order: bool = False
    """Whether the result is the same in whatever order records arrive."""

    can_merge: bool = True
    """Whether it has ``merge``: only an aggregate of the user may lack it."""

    has_bounded_size: bool = False
    """Whether an accumulator of many records is not much larger than that of a few."""

    @property
    def functions(self) -> tuple[UserFunction, ...]:
        """The functions of the user that it calls, for the checks of a job."""
        return ()

    @abstractmethod
    def create(self) -> Any:
        """Returns the accumulator of no records, which shares no mutable part with another one."""

    def term(self, value: T_contra) -> Any:
        """Returns what ``insert`` takes of a record; None if the record does not count."""
        return value

    @abstractmethod
    def insert(self, accumulator: Any, term: Any) -> Any:
        """Returns the accumulator with a term, which may be the given one changed in place."""

    def add(self, accumulator: Any, value: T_contra) -> Any:
        """Returns the accumulator with a record, which may be the given one changed in place."""
        return self.insert(accumulator, self.term(value))

    def insert_or_keep(self, accumulator: Any, term: Any) -> Any:
        """Does what ``insert`` does, and leaves the given accumulator as it is if a function of the user raises."""
        return self.insert(accumulator, term)

    def add_or_keep(self, accumulator: Any, value: T_contra) -> Any:
        """Does what ``add`` does, and leaves the given accumulator as it is if a function of the user raises."""
        return self.insert_or_keep(accumulator, self.term(value))

    @abstractmethod
    def merge(self, accumulator: Any, other: Any) -> Any:
        """Returns the accumulator with the records of ``other``, whose pane or session begins after its own.

        It may be the given one changed in place. Neither this call nor a later change of the result changes ``other``.
        """

    @abstractmethod
    def result(self, accumulator: Any) -> R_co:
        """Returns the result, which shares no mutable part with the accumulator: records may be added afterwards. A
        function of the user may change what it is given, so it is given a copy."""

    @abstractmethod
    def __repr__(self) -> str:
        """Returns the call that creates it, such as "sum_('price')": the plan and stored checkpoints have this text."""


class Named(Aggregation[T_contra, dict[str, Any]]):
    """Several aggregations in one pass. The result is a dict by name, the accumulator a list."""

    insertion = Insertion.CALLS_USER

    def __init__(self, aggregations: Mapping[str, Aggregation[T_contra, Any]]) -> None:
        # Accumulators are in the order of insertion, results in the order in which the user named them.
        ordered = sorted(aggregations.items(), key=lambda item: item[1].insertion)
        place_of = {name: place for place, (name, _) in enumerate(ordered)}
        self._aggregations = tuple(each for _, each in ordered)
        self._terms = tuple(each.term for each in self._aggregations)
        self._inserts = tuple(
            (place, self._shared(each, each.insert), each.term) for place, each in enumerate(self._aggregations)
        )
        self._safe_inserts = tuple(
            (place, self._shared(each, each.insert_or_keep)) for place, each in enumerate(self._aggregations)
        )
        self._results = tuple((name, place_of[name], each.result) for name, each in aggregations.items())
        self.ignores_order = all(each.ignores_order for each in self._aggregations)
        self.can_merge = all(each.can_merge for each in self._aggregations)
        self.has_bounded_size = all(each.has_bounded_size for each in self._aggregations)
        self.changes_terms = len(ordered) == 1 and ordered[0][1].changes_terms

    @staticmethod
    def _shared(aggregation: Aggregation[T_contra, Any], insert: Insert) -> Insert:
        """Returns ``insert`` for a term that other aggregations get, too."""
        return partial(_insert_copy, insert) if aggregation.changes_terms else insert

    @property
    def aggregations(self) -> dict[str, Aggregation[T_contra, Any]]:
        """The aggregations by name, in the order of the result."""
        return {name: self._aggregations[place] for name, place, _ in self._results}

    def joined(self, accumulators: Mapping[str, Any]) -> list[Any]:
        """Returns the accumulator that has these accumulators of the aggregations."""
        names = {place: name for name, place, _ in self._results}
        return [accumulators[names[place]] for place in range(len(names))]

    @property
    def functions(self) -> tuple[UserFunction, ...]:
        return tuple(function for each in self.aggregations.values() for function in each.functions)

    def create(self) -> Any:
        return [each.create() for each in self._aggregations]

    def term(self, value: T_contra) -> Any:
        return [term(value) for term in self._terms]

    def insert(self, accumulator: Any, term: Any) -> Any:
        return [insert(accumulator[place], term[place]) for place, insert, _ in self._inserts]

    def insert_or_keep(self, accumulator: Any, term: Any) -> Any:
        return [insert(accumulator[place], term[place]) for place, insert in self._safe_inserts]

    def add(self, accumulator: Any, value: T_contra) -> Any:  # without a list of terms
        return [insert(accumulator[place], term_of(value)) for place, insert, term_of in self._inserts]

    def merge(self, accumulator: Any, other: Any) -> Any:
        parts = zip(self._aggregations, accumulator, other, strict=True)
        return [each.merge(part, others) for each, part, others in parts]

    def result(self, accumulator: Any) -> dict[str, Any]:
        return {name: result(accumulator[place]) for name, place, result in self._results}

    def __repr__(self) -> str:
        return ", ".join(f"{name}={each!r}" for name, each in self.aggregations.items())


def _insert_copy(insert: Insert, accumulator: Any, term: Any) -> Any:
    return insert(accumulator, copied(term))
