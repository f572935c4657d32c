"""Forms over columns of aggregates over the whole input, which emit after records, at a pace, or at its end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from clonos.operators.aggregates.aggregate import Named
from clonos.operators.columnar.column_form import ColumnForm, ColumnOperator, Schemas
from clonos.operators.columnar.key_reasons import key_reason
from clonos.operators.columnar.support import columns_read
from clonos.operators.steps.running_aggregates import name_before

Pace = tuple[int | None, int | None]
"""Number of records and length of time in nanoseconds after which keys are emitted; one of them is None."""


@dataclass(frozen=True)
class RunningForm(ColumnForm):
    """Aggregates by key, or of all records without one, whose results are columns.

    ``emits``: the name of a member of ``Emits``. ``is_count``: the only aggregate is that of ``count()``. ``pace``:
    when it emits, in place of ``emits``. ``time``: the column of the timestamps, if records have them.
    """

    aggregation: Named[Any]
    keys: tuple[str, ...]
    emits: str = "END"
    is_count: bool = False
    pace: Pace | None = None
    time: str | None = None

    @property
    def names(self) -> list[str]:
        """Returns the columns of the results."""
        aggregates = tuple(self.aggregation.aggregations)
        before = tuple(map(name_before, aggregates)) if self.emits == "REPLACEMENTS" else ()
        has_time = self.emits == "EACH" and self.time is not None and self.time not in self.keys
        return [*self.keys, *aggregates, *before, *([self.time] if has_time and self.time is not None else [])]

    def row_reason(self, schemas: Schemas) -> str:
        """See ``ColumnForm``."""
        (schema,) = schemas
        from clonos.operators.columnar.aggregate_maker import aggregate_reason
        from clonos.operators.columnar.running.stored_keys import plain

        if reason := key_reason(self.keys, schema):
            return reason
        return aggregate_reason(self.aggregation, plain(schema, schema.names), has_tables=True)

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

        has_before = self.emits == "REPLACEMENTS"
        return schema_of_totals(
            self.aggregation, self.keys, self.names, *schemas, has_before=has_before, is_count=self.is_count
        )

    def operator(self, step: str, schemas: Schemas) -> ColumnOperator:
        """See ``ColumnForm``."""
        (schema,) = schemas
        from clonos.operators.columnar.running.paced_totals import PacedTotals
        from clonos.operators.kinds.column_totals import ColumnTotals, Emits

        aggregates, fields = self._aggregates(schema), [schema.field(name) for name in self.keys]
        if self.pace is not None:
            return PacedTotals(step, aggregates, fields, *self.pace)
        return ColumnTotals(step, aggregates, fields, Emits[self.emits], self.is_count)

    def _aggregates(self, schema: Any) -> list[Any]:
        from clonos.operators.columnar.aggregate_maker import column_aggregates

        aggregates = column_aggregates(self.aggregation, schema, has_tables=True)
        assert aggregates is not None, "these columns have no reason to be rows"
        return aggregates


@dataclass(frozen=True)
class FinalForm(RunningForm):
    """Aggregates of all records that emit a row at the end; ``is_part``: accumulators, to be merged elsewhere."""

    is_part: bool = False

    @property
    def emits_columns(self) -> bool:
        """See ``ColumnForm``."""
        return False

    def operator(self, step: str, schemas: Schemas) -> ColumnOperator:
        """See ``ColumnForm``."""
        (schema,) = schemas
        from clonos.operators.kinds.column_totals import FinalTotals

        return FinalTotals(step, self._aggregates(schema), self.aggregation, self.is_part)
