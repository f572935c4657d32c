"""deduplicate and distinct of keyed columns, with state in columns where keys in columns are equal as in rows."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from clonos.operators.columnar.by_type import ByType, ColumnOperator
from clonos.operators.fields import Field
from clonos.operators.operator import Operator
from clonos.operators.transforms.deduplicate import Deduplicate, DeduplicateWithin, LastOfBatch


class DeduplicateByType(ByType):
    """First record of each key of all time or of each span of it, or the last one so far."""

    def __init__(
        self, step: str, keys: tuple[str, ...], by: str | None, keep: str, within_ns: int | None, has_times: bool
    ) -> None:
        """Creates the operator; ``keys`` are the columns of the stream's key, to which ``by`` adds another."""
        field = None if by is None else Field(by)
        make: Callable[[], Operator] = partial(Deduplicate if keep == "first" else LastOfBatch, step, by=field)
        if within_ns is not None:
            make = partial(DeduplicateWithin, step, by=field, within_ns=within_ns, has_times=has_times)
        super().__init__(step, keys, make)
        self._names = (*keys, *(() if by is None or by in keys else (by,)))
        self._by, self._keep, self._within_ns, self._has_times = by, keep, within_ns, has_times

    def _schema_of(self, schema: Any) -> Any:
        from clonos.operators.columnar.running.stored_keys import are_keys, plain

        return plain(schema, self._names) if are_keys(schema, self._names) else None

    def _new_columns(self, schema: Any) -> ColumnOperator:
        from clonos.operators.columnar.choosing.column_deduplicate import FirstOfKey, FirstOfSpan, LastOfKey

        arguments = self._step, schema, self._keys, self._by
        if self._within_ns is not None:
            return FirstOfSpan(*arguments, self._has_times, self._within_ns)
        return FirstOfKey(*arguments) if self._keep == "first" else LastOfKey(*arguments, self._has_times)

    def _hand_over(self, columns: Any, rows: Any) -> None:
        columns.hand_over(rows)
