"""Running top k of each key: the new list whenever a record changes it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from clonos.core.values.copying import copied
from clonos.core.values.keys import state_keys
from clonos.operators.operator import Times
from clonos.operators.steps.keyed import KeyedFunction


class TopK(KeyedFunction[Callable[[Any], Any]]):
    """The ``k`` records of each key with the highest rank, highest first; of equal ranks the earlier record.

    The state of a key is (ranks, records), two tuples that are never changed in place.
    """

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
        rank_of, table, times = self._function, self._table, self._times
        for key, (user_key, record) in records:
            timestamp_ns = None if times is None else next(times)
            rank = rank_of(record)
            if rank is None or rank != rank:  # no rank, as in ``agg.top_k``
                continue
            ranks, retained = table.entries.get(key, ((), ()))
            place = len(ranks)
            while place and ranks[place - 1] < rank:
                place -= 1
            if place >= self._k:
                continue
            retained = (*retained[:place], record, *retained[place : self._k - 1])
            table.set(key, ((*ranks[:place], rank, *ranks[place : self._k - 1]), retained))
            results.append((user_key, copied(list(retained))))
            if timestamp_ns is not None:
                self._times_of_results.append(timestamp_ns)
