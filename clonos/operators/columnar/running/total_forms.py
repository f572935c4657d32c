"""Forms over columns of aggregates over the whole input, which emit after records, at a pace, or at its end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from clonos.operators.aggregates.aggregate import Named
from clonos.operators.columnar.column_form import ColumnForm, ColumnOperator
from clonos.operators.columnar.key_reasons import key_reason
from clonos.operators.columnar.support import columns_read

Pace = tuple[int | None, int | None]
"""Number of records and length of time in nanoseconds after which keys are emitted; one of them is None."""


@dataclass(frozen=True)
class RunningForm(ColumnForm):
    """Aggregates by key, or of all records without one, whose results are columns.

    ``emits``: the name of a member of ``Emits``. ``is_count``: the only aggregate is that of ``count()``. ``pace``:
    when it emits, in place of ``emits``.
    """

    aggregation: Named[Any]
    keys: tuple[str, ...]
    emits: str = "END"
    is_count: bool = False
    pace: Pace | None = None

    def row_reason(self, schema: Any) -> str:
        """See ``ColumnForm``."""
        from clonos.operators.columnar.aggregate_maker import aggregate_reason
        from clonos.operators.columnar.running.stored_keys import plain

        if reason := key_reason(self.keys, schema):
            return reason
        return aggregate_reason(self.aggregation, plain(schema, schema.names), has_tables=True)

    def stored(self, schema: Any) -> Any:
        """See ``ColumnForm``."""
        from clonos.operators.columnar.running.stored_keys import plain

        reads = columns_read(self.aggregation, has_members=True)
        assert reads is not None, "an aggregation with a form over columns reads columns"
        return plain(schema, tuple(dict.fromkeys((*self.keys, *reads))))

    def operator(self, step: str, schema: Any) -> ColumnOperator:
        """See ``ColumnForm``."""
        from clonos.operators.columnar.running.column_totals import ColumnTotals, Emits
        from clonos.operators.columnar.running.paced_totals import PacedTotals

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

    def operator(self, step: str, schema: Any) -> ColumnOperator:
        """See ``ColumnForm``."""
        from clonos.operators.columnar.running.column_totals import FinalTotals

        return FinalTotals(step, self._aggregates(schema), self.aggregation, self.is_part)
