"""The highest records of each key as Python objects: a table with the ranks and the records of each key, ascending."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from clonos.core.values.copying import copied, copied_rows
from clonos.core.values.ordering import all_ordered
from clonos.operators.kinds.object_batch import ObjectBatch, found_of_each
from clonos.operators.operator import Operator, without
from clonos.operators.state.keyed_state import Table
from clonos.operators.user_errors import RAISED


class ObjectHighest:
    """The highest records of each key."""

    def __init__(self, table: Table, by: Callable[[Any], Any], k: int) -> None:
        self._table, self._by, self._k = table, by, k

    def pass_lists(self, operator: Operator, batch: ObjectBatch) -> None:
        """See ``Highest``."""
        rows, times = batch.rows, batch.times
        results, instants = list[Any](), list[int]()
        for place, _, _, records in self._inserted(operator, batch, range(len(rows))):
            results.append((rows[place][0], copied_rows(records[::-1])))
            if times is not None:
                instants.append(times[place])
        if results:
            operator.out.rows(results, None if times is None else instants)

    def pass_ranks(self, operator: Operator, batch: ObjectBatch, name: str) -> None:
        """See ``Highest``."""
        places, changed = _places_of_dicts(operator, batch, name), dict[Any, int]()
        for _, key, above, _ in self._inserted(operator, batch, places):
            changed[key] = min(above, changed.get(key, above))
        entries = self._table.entries
        results = [
            copied({**record, name: rank})
            for key, first in changed.items()
            for rank, record in enumerate(entries[key][1][::-1][first:], first + 1)
        ]
        if results:
            operator.out.rows(results)

    def _inserted(
        self, operator: Operator, batch: ObjectBatch, places: Sequence[int]
    ) -> Iterator[tuple[int, Any, int, list[Any]]]:
        """Inserts the records at these places.

        Yields the place of each that is among the highest of its key, the key, how many are above it, and the records
        of the key from now on, ascending.
        """
        table, k = self._table, self._k
        entries, changed = table.entries, table.changed
        for place, rank in self._ranks(operator, batch, places):
            key = batch.keys[place]
            ranks, records = held = entries.get(key) or (list[Any](), list[Any]())
            try:
                if rank is None or rank != rank:  # no rank, as in ``agg.top_k``
                    continue
                below = bisect_left(ranks, rank)  # of equal ranks the earlier one is above
            except RAISED as error:
                operator.guard.caught(error, batch.rows[place][1], place)
                continue
            above = len(ranks) - below
            if above == k:
                continue
            ranks.insert(below, rank)
            records.insert(below, batch.rows[place][1])
            if len(ranks) > k:
                del ranks[0], records[0]
            entries[key] = held
            changed[key] = None
            yield place, key, above, records

    def _ranks(self, operator: Operator, batch: ObjectBatch, places: Sequence[int]) -> Iterator[tuple[int, Any]]:
        """Returns the places of records, and what ``by`` returns of them, but for those that fail."""
        ranks, failed = found_of_each(self._by, [batch.rows[place][1] for place in places], operator.guard)
        return zip(without(places, failed) if failed else places, all_ordered(ranks), strict=True)


def _places_of_dicts(operator: Operator, batch: ObjectBatch, name: str) -> Sequence[int]:
    """Returns the places of the records that can have a rank in a field."""
    places = [place for place, (_, record) in enumerate(batch.rows) if type(record) is dict]
    if len(places) < len(batch.rows):
        for place, (_, record) in enumerate(batch.rows):
            if type(record) is not dict:
                kind = type(record).__qualname__
                problem = f"top_k with rank={name!r} adds a field to dicts, and gets a record of {kind}"
                operator.guard.caught(TypeError(problem), record, place)
    return places
