"""Results of joins whose records are Python objects."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from clonos.core.values.copying import copied
from clonos.operators.kinds.object_side import MISSING, ObjectSide
from clonos.operators.operator import Times, TwoInputOperator, without

Select = Callable[[Any, Any], Any]


class ObjectResults:
    """Outlet of a join: for pairs, or what ``select`` makes of them, or left records."""

    def __init__(self, join: TwoInputOperator, select: Select | None) -> None:
        self._join, self._select = join, select

    def emit(self, lefts: ObjectSide, found: Sequence[Any], is_inner: bool) -> None:
        """See ``Sides``."""
        if is_inner and MISSING in found:
            places = [place for place, row in enumerate(found) if row is not MISSING]
            lefts, found = lefts.at(places), [found[place] for place in places]
        rows = self.copied_rows(lefts.rows) if lefts.is_retained else lefts.rows
        rights = self.copied_rows([None if row is MISSING else row for row in found])
        self.give(list(zip(rows, rights, strict=True)), lefts.times)

    @property
    def _shares_rows(self) -> bool:
        """Returns whether no user code gets the results, so that they may be records of the state."""
        return self._select is None and not self._join.out.changes_rows

    def copied_rows(self, rows: list[Any]) -> list[Any]:
        """Returns copies of records of the state where user code gets them."""
        return rows if self._shares_rows else list(map(copied, rows))

    def copied_pairs(self, pairs: list[Any]) -> list[Any]:
        """Returns pairs with copies of records of the state where user code gets them."""
        return pairs if self._shares_rows else [(copied(left), copied(right)) for left, right in pairs]

    def pass_on(self, rows: list[Any], times: Times) -> None:
        """Emits left records alone."""
        if rows:
            self._join.out.rows(rows, times)

    def give(self, pairs: list[Any], times: Times) -> None:
        """Emits pairs, or what ``select`` makes of them."""
        if (select := self._select) is not None and pairs:
            pairs, failed = self._join.guard.each(lambda pair: select(*pair), pairs)
            times = without(times, failed) if failed and times is not None else times
        if pairs:
            self._join.out.rows(pairs, times)
