"""Top k of keyed columns, with state in columns if ranks are numbers, dates or instants, and in rows otherwise."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from clonos.operators.columnar.by_type import ByType, ColumnOperator
from clonos.operators.fields import Field
from clonos.operators.transforms.top_k import ChangedRanks, TopK

K_MAX: Final = 1 << 10
"""Largest k for which the state is in columns: a key has room for k records."""


class TopKByType(ByType):
    """Ranks that a batch has changed, as records with their rank in a column; without a rank, the list of each key."""

    def __init__(self, step: str, keys: tuple[str, ...], by: str, k: int, rank: str | None = None) -> None:
        make: Any = TopK if rank is None else partial(ChangedRanks, rank=rank)
        super().__init__(step, keys, partial(make, step, function=Field(by), k=k))
        self._by, self._k, self._rank = by, k, rank

    def _schema_of(self, schema: Any) -> Any:
        from clonos.operators.columnar.choosing.cells import rank_storage
        from clonos.operators.columnar.running.stored_keys import are_keys, plain, plain_type

        is_known = self._k <= K_MAX and are_keys(schema, self._keys) and schema.names.count(self._by) == 1
        if not is_known or len({*schema.names}) < len(schema.names):
            return None
        if rank_storage(plain_type(schema.field(self._by).type)) is None:
            return None
        return plain(schema, schema.names)

    def _new_columns(self, schema: Any) -> ColumnOperator:
        from clonos.operators.columnar.choosing.column_lists import ColumnLists
        from clonos.operators.columnar.choosing.column_top_k import ColumnTopK

        if self._rank is None:
            return ColumnLists(self._step, schema, self._keys, self._by, self._k)
        return ColumnTopK(self._step, schema, self._keys, self._by, self._k, self._rank)

    def _hand_over(self, columns: Any, rows: Any) -> None:
        columns.hand_over(rows)
