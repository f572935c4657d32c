"""Running top k of each key: the new list whenever a record changes it, or the ranks that a batch has changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

from clonos.core.values.copying import copied
from clonos.core.values.keys import state_keys
from clonos.core.values.ordering import ordered
from clonos.operators.aggregates.aggregate import UserFunction
from clonos.operators.columnar.choosing.choice_forms import TopKForm
from clonos.operators.columnar.row_forms import RECORDS
from clonos.operators.columnar.support import name_reason
from clonos.operators.facts import Facts, KnownInputs, facts_of, with_form
from clonos.operators.fields import compared, compared_text, itself
from clonos.operators.operator import Times
from clonos.operators.steps.keyed import KeyedFunction


class TopK(KeyedFunction[Callable[[Any], Any]]):
    """The ``k`` records of each key with the highest rank, highest first; of equal ranks the earlier record.

    The state of a key is (ranks, records), two tuples that are never changed in place.
    """

    key_field: ClassVar[str | None] = ""

    @classmethod
    def facts(cls, given: KnownInputs, by: str | Callable[[Any], Any] | None, k: int, rank: str | None) -> Facts:
        """Returns those for records that ``by`` compares, None for the records themselves.

        ``rank``: the field of the results that gets the rank; None for lists.
        """
        operator = TopK if rank is None else partial(ChangedRanks, rank=rank)
        facts = replace(
            facts_of(partial(operator, given.step, function=compared(itself if by is None else by), k=k), given),
            calls=(UserFunction(by, None),) if callable(by) else (),
            names_columns=isinstance(by, str),
            state=(("k", str(k)), compared_text(by), *(() if rank is None else (("results", "changed ranks"),))),
        )
        (keys,) = given.keys
        if not keys or not isinstance(by, str):
            return facts
        time = given.timestamp_column if rank is None else None
        form = TopKForm(keys, by, k, rank, None if time is None else time.name)
        if rank is None:  # files of columns refuse the tuples in the plan
            reasons = (form.row_reason((schema,)) for schema in given.schemas())
            if reason := next(filter(None, reasons), name_reason((*form.names, RECORDS))):
                return replace(facts, row_reason=reason)
        return with_form(facts, form)

    def __init__(self, step: str, function: Callable[[Any], Any], k: int) -> None:
        super().__init__(step, function)
        self._k = k

    def rows(self, rows: list[Any], times: Times = None) -> None:
        results: list[Any] = []
        self._times: Iterator[int] | None = None if times is None else iter(times)
        self._times_of_results: list[int] = []
        stored = state_keys([key for key, _ in rows])
        self.guard.run(
            lambda records: self._consume(records, results), list(zip(stored, rows, strict=True)), pairs=rows
        )
        if results:
            self.out.rows(results, None if times is None else self._times_of_results)

    def _consume(self, records: Iterator[Any], results: list[Any]) -> None:
        times, entries = self._times, self._table.entries
        for key, (user_key, record) in records:
            timestamp_ns = None if times is None else next(times)
            if self._insert(key, record) is None:
                continue
            results.append((user_key, copied(list(entries[key][1]))))
            if timestamp_ns is not None:
                self._times_of_results.append(timestamp_ns)

    def _insert(self, key: Any, record: Any) -> int | None:
        """Inserts a record and returns its place; None if it is not among the highest."""
        rank = self._function(record)
        if rank is None or rank != rank:  # no rank, as in ``agg.top_k``
            return None
        rank = ordered(rank)
        ranks, retained = self._table.entries.get(key, ((), ()))
        place = len(ranks)
        while place and ranks[place - 1] < rank:
            place -= 1
        if place >= self._k:
            return None
        retained = (*retained[:place], record, *retained[place : self._k - 1])
        self._table.set(key, ((*ranks[:place], rank, *ranks[place : self._k - 1]), retained))
        return place


class ChangedRanks(TopK):
    """The same as records with their rank in a field: the ranks that a batch has changed, once, from the first one on.

    Keys come in the order of their first change, and the ranks of a key ascend.
    """

    key_field = None
    keeps_times = False

    def __init__(self, step: str, function: Callable[[Any], Any], k: int, rank: str) -> None:
        super().__init__(step, function, k)
        self._rank = rank

    def rows(self, rows: list[Any], times: Times = None) -> None:
        stored = state_keys([key for key, _ in rows])
        changed: dict[Any, int] = {}  # the first place that has changed, by the key as tables have it
        self.guard.run(lambda records: self._note(records, changed), list(zip(stored, rows, strict=True)), pairs=rows)
        entries, name = self._table.entries, self._rank
        results = [
            copied({**record, name: rank})
            for key, first in changed.items()
            for rank, record in enumerate(entries[key][1][first:], first + 1)
        ]
        if results:
            self.out.rows(results)

    def _note(self, records: Iterator[Any], changed: dict[Any, int]) -> None:
        for key, (_, record) in records:
            if type(record) is not dict:
                kind = type(record).__qualname__
                raise TypeError(f"top_k with rank={self._rank!r} adds a field to dicts, and gets a record of {kind}")
            place = self._insert(key, record)
            if place is not None:
                changed[key] = min(place, changed.get(key, place))
