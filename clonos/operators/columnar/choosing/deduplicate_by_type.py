"""deduplicate and distinct of keyed columns, with state in columns where keys in columns are equal as in rows."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from clonos.operators.columnar.by_type import ByType, ColumnOperator
from clonos.operators.columnar.row_forms import FORM_KEY, SPAN_TIME
from clonos.operators.fields import Field
from clonos.operators.operator import Operator
from clonos.operators.transforms.deduplicate import Deduplicate, DeduplicateWithin, LastOfBatch, LastWithin


class DeduplicateByType(ByType):
    """First record of each key of all time or of each span of it, or the last one, so far or of each span."""

    def __init__(
        self, step: str, keys: tuple[str, ...], by: str | None, keep: str, within_ns: int | None, has_times: bool
    ) -> None:
        """Creates the operator; ``keys`` are the columns of the stream's key, to which ``by`` adds another."""
        field = None if by is None else Field(by)
        make: Callable[[], Operator] = partial(Deduplicate if keep == "first" else LastOfBatch, step, by=field)
        if within_ns is not None:
            retained = DeduplicateWithin if keep == "first" else LastWithin
            make = partial(retained, step, by=field, within_ns=within_ns, has_times=has_times)
        super().__init__(step, keys, make)
        self._names = (*keys, *(() if by is None or by in keys else (by,)))
        self._by, self._keep, self._within_ns, self._has_times = by, keep, within_ns, has_times
        self._keeps_records = keep == "last" and within_ns is not None

    def _schema_of(self, schema: Any) -> Any:
        from clonos.operators.columnar.running.stored_keys import are_keys, plain

        if not are_keys(schema, self._names):
            return None
        if not self._keeps_records:
            return plain(schema, self._names)
        if len({*schema.names}) < len(schema.names) or (self._has_times and SPAN_TIME in schema.names):
            return None
        form = (schema.metadata or {}).get(FORM_KEY)
        return plain(schema, schema.names).with_metadata(None if form is None else {FORM_KEY: form})

    def _has_known_types(self, schema: Any) -> bool:
        found = self._schema_of(schema)
        return found is not None and bool(found.equals(self._schema, check_metadata=True))

    def _new_columns(self, schema: Any) -> ColumnOperator:
        from clonos.operators.columnar.choosing.column_deduplicate import FirstOfKey, FirstOfSpan, LastOfKey

        arguments = self._step, schema, self._keys, self._by
        if self._within_ns is not None and self._keeps_records:
            from clonos.operators.columnar.choosing.last_of_span import LastOfSpan

            return LastOfSpan(self._step, schema, self._names, self._keys, self._by, self._has_times, self._within_ns)
        if self._within_ns is not None:
            return FirstOfSpan(*arguments, self._has_times, self._within_ns)
        return FirstOfKey(*arguments) if self._keep == "first" else LastOfKey(*arguments, self._has_times)

    def _hand_over(self, columns: Any, rows: Any) -> None:
        columns.hand_over(rows)
