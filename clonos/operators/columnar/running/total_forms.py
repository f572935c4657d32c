"""Forms over columns of aggregates over the whole input, which emit after records, at a pace, or at its end."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from clonos.operators.aggregates.aggregate import Named
from clonos.operators.columnar.column_form import ColumnForm, Schemas
from clonos.operators.columnar.key_reasons import key_reason
from clonos.operators.columnar.partial_aggregates import PartialAggregates
from clonos.operators.columnar.support import columns_read
from clonos.operators.emission_times import Emission
from clonos.operators.kinds.total_kind import name_before
from clonos.operators.operator import Operator


@dataclass(frozen=True)
class RunningForm(ColumnForm):
    """Aggregates by key, or of all records without one.

    ``chooser`` creates the operator of a kind of records. ``is_count``: the only aggregate is that of ``count()``.
    ``is_part``: accumulators leave, to be merged elsewhere. ``is_split``: partial aggregates come over its exchange.
    ``time``: the column of the timestamps, if there is one.
    """

    aggregation: Named[Any]
    keys: tuple[str, ...]
    emit: Emission
    chooser: Callable[[str, Any], Operator]
    is_count: bool = False
    is_part: bool = False
    time: str | None = None
    is_split: bool = False

    @property
    def emits_columns(self) -> bool:
        """See ``ColumnForm``."""
        return not self._is_row

    @property
    def gives_keys(self) -> bool:
        """See ``ColumnForm``."""
        return self.is_count

    @property
    def is_written(self) -> bool:
        """See ``ColumnForm``."""
        return self.is_count

    @property
    def _is_row(self) -> bool:
        """Whether there is one result, which is a row."""
        return self.emit.is_final and not self.keys

    @property
    def names(self) -> list[str]:
        """Returns the columns of the results."""
        aggregates = tuple(self.aggregation.aggregations)
        before = tuple(map(name_before, aggregates)) if self.emit.has_before else ()
        has_time = self.emit.count == 1 and self.time is not None and self.time not in self.keys
        return [*self.keys, *aggregates, *before, *([self.time] if has_time and self.time is not None else [])]

    def row_reason(self, schemas: Schemas) -> str:
        """See ``ColumnForm``."""
        (schema,) = schemas
        from clonos.operators.columnar.aggregate_maker import aggregate_reason, split_reason
        from clonos.operators.columnar.running.stored_keys import plain

        if reason := key_reason(self.keys, schema):
            return reason
        columns = plain(schema, schema.names)
        if reason := aggregate_reason(self.aggregation, columns, has_tables=True):
            return reason
        return split_reason(self.aggregation, columns) if self.is_split else ""

    def before_exchange(self, step: str) -> Callable[[], Operator] | None:
        """See ``ColumnForm``."""
        reads = columns_read(self.aggregation)
        if not self.is_split or reads is None:
            return None
        return partial(PartialAggregates, step, None, self.aggregation, self.keys, reads, False)

    def stored(self, schemas: Schemas) -> Schemas:
        """See ``ColumnForm``."""
        (schema,) = schemas
        from clonos.operators.columnar.running.stored_keys import plain

        reads = columns_read(self.aggregation, has_members=True)
        assert reads is not None, "an aggregation with a form over columns reads columns"
        return (plain(schema, tuple(dict.fromkeys((*self.keys, *reads)))),)

    def results(self, schemas: Schemas) -> Any:
        """See ``ColumnForm``."""
        from clonos.operators.columnar.result_schemas import schema_of_totals

        has_before = self.emit.has_before
        return schema_of_totals(
            self.aggregation, self.keys, self.names, *schemas, has_before=has_before, is_count=self.is_count
        )

    def operator(self, step: str, schemas: Schemas) -> Operator:
        """See ``ColumnForm``."""
        (schema,) = schemas
        from clonos.operators.columnar.aggregate_maker import column_aggregates
        from clonos.operators.kinds.column_totals import ColumnTotalKind

        aggregates = column_aggregates(self.aggregation, schema, has_tables=True)
        assert aggregates is not None, "these columns have no reason to be rows"
        fields, row_of = [schema.field(name) for name in self.keys], self._row_of if self._is_row else None
        return self.chooser(step, ColumnTotalKind(aggregates, fields, is_count=self.is_count, row_of=row_of))

    def _row_of(self, parts: Mapping[str, Any]) -> Any:
        accumulator = self.aggregation.joined(parts)
        return accumulator if self.is_part else self.aggregation.result(accumulator)
