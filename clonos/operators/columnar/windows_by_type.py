"""Tumbling and sliding windows over keyed columns, by panes of columns or by panes of rows."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from clonos.core.values.keys import state_keys
from clonos.kernels.record_batch import RecordBatch
from clonos.operators.aggregates.aggregate import Aggregation
from clonos.operators.columnar.partial_form import accumulators_of, runs_of, schema_bytes_of, states_of
from clonos.operators.columnar.windowed_by_type import WindowedByType
from clonos.operators.operator import Scope
from clonos.operators.windows.grid import Spans
from clonos.operators.windows.pane_windows import PaneWindows
from clonos.operators.windows.paned import PANE_NAME
from clonos.operators.windows.window_aggregates import window_aggregate
from clonos.operators.windows.window_rules import WindowRules

if TYPE_CHECKING:
    from clonos.operators.columnar.column_aggregates import ColumnAggregate
    from clonos.operators.columnar.column_windows import Accumulators, ColumnWindows


class WindowsByType(WindowedByType):
    """Operator of tumbling and sliding windows over keyed columns."""

    def __init__(
        self,
        step: str,
        spans: Spans,
        aggregation: Aggregation[Any, Any],
        keys: tuple[str, ...],
        reads: tuple[str, ...],
        rules: WindowRules,
    ) -> None:
        make_rows = partial(PaneWindows, step, spans, window_aggregate(aggregation), rules)
        super().__init__(step, aggregation, keys, reads, rules, make_rows)
        self._spans = spans

    def _new_windows(self, aggregates: list[ColumnAggregate], keys: list[Any]) -> ColumnWindows:
        from clonos.operators.columnar.column_windows import ColumnWindows

        return ColumnWindows(self._step, self._spans, aggregates, keys, self._rules)

    def keyed_columns(self, batch: RecordBatch, key: Any) -> None:
        records = schema_bytes_of(batch)
        if records is None:
            super().keyed_columns(batch, key)
        else:
            self._add_partials(batch, records)

    def _add_partials(self, batch: RecordBatch, records: bytes) -> None:
        """Adds partial aggregates; ``records`` is the schema of the records that they are of."""
        import pyarrow

        schema = pyarrow.ipc.read_schema(pyarrow.py_buffer(records))
        if self._operator is None:
            self._choose(schema)
        columns: Any = self._in_columns
        if columns is not None and self._has_known_types(schema):
            columns.add_partials(batch)
        else:
            self._add_partials_to(self._in_rows or self._take_over(), batch, schema)

    def _add_partials_to(self, rows: Any, batch: RecordBatch, schema: Any) -> None:
        from clonos.core.values.column_keys import values_of
        from clonos.operators.columnar.aggregate_maker import column_aggregates

        aggregates = column_aggregates(self._aggregation, schema)
        assert aggregates is not None, "there are partial aggregates of these types"
        for pane, part in runs_of(batch):
            keys = state_keys(values_of([part.column(name) for name in self._keys]))
            parts = accumulators_of(aggregates, states_of(part), part.num_rows)
            rows.merge(pane, list(zip(keys, map(self._accumulator, parts), strict=True)))

    def _has_rows(self, scope: Scope) -> bool:
        return bool(scope.state.restored(f"{self._step}/{PANE_NAME}/"))

    def _hand_over(self, columns: ColumnWindows, rows: PaneWindows) -> None:
        panes, late = columns.hand_over()
        for pane, accumulators in panes.items():
            rows.fill(pane, self._entries(accumulators))
        for end, accumulators in late.items():
            rows.fill_late(end, self._entries(accumulators))

    def _entries(self, accumulators: Accumulators) -> dict[Any, Any]:
        values = [None if parts is None else self._accumulator(parts) for parts in accumulators.values()]
        return dict(zip(state_keys(list(accumulators)), values, strict=True))
