"""Lookup: each record with the latest row of its key in a table that is a stream itself."""

from __future__ import annotations

from typing import Any, Final

from clonos.core.values.copying import copied
from clonos.operators.joins.buffered_join import Select
from clonos.operators.joins.join_keys import NULL_KEY, join_keys
from clonos.operators.joins.key_types import KeyTypes
from clonos.operators.operator import Scope, Times, TwoInputOperator, without

TABLE_NAME: Final = "table"


class Lookup(TwoInputOperator):
    """Join with the row of the key that came last. The order in which records of both inputs come decides."""

    def __init__(self, step: str, is_inner: bool, select: Select | None, has_times: bool) -> None:
        self._step, self._is_inner, self._select, self._has_times = step, is_inner, select, has_times

    def open(self, scope: Scope) -> None:
        self._table = scope.state.table(f"{self._step}/{TABLE_NAME}")
        self._key_types = KeyTypes(self._step, scope.context.recorder)

    def second(self, rows: list[Any], times: Times = None) -> None:
        self._key_types.see(False, rows[0][0])
        for stored, (_, row) in zip(join_keys(rows), rows, strict=True):
            if stored is not NULL_KEY:
                self._table.set(stored, row)

    def first(self, rows: list[Any], times: Times = None) -> None:
        self._key_types.see(True, rows[0][0])
        entries = self._table.entries
        pairs: list[Any] = []
        found_times: list[int] | None = [] if self._has_times else None
        for index, (stored, (_, row)) in enumerate(zip(join_keys(rows), rows, strict=True)):
            found = entries.get(stored)
            if found is None and self._is_inner:
                continue
            pairs.append((row, copied(found)))
            if found_times is not None and times is not None:
                found_times.append(times[index])
        if (select := self._select) is not None and pairs:
            pairs, failed = self.guard.each(lambda pair: select(*pair), pairs)
            found_times = without(found_times, failed) if failed and found_times is not None else found_times
        if pairs:
            self.out.rows(pairs, found_times)
