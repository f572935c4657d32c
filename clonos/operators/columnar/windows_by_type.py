"""Tumbling and sliding windows over keyed columns, by panes of columns or by panes of rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from clonos.core.values.keys import state_keys
from clonos.operators.aggregates.aggregate import Aggregation
from clonos.operators.columnar.by_type import ByType
from clonos.operators.operator import Operator, Scope
from clonos.operators.windows.grid import Spans
from clonos.operators.windows.pane_windows import PaneWindows
from clonos.operators.windows.paned import PANE_NAME
from clonos.operators.windows.window_aggregates import window_aggregate
from clonos.operators.windows.window_rules import WindowRules

if TYPE_CHECKING:
    from clonos.operators.columnar.column_aggregates import ColumnAggregate
    from clonos.operators.columnar.column_windows import Accumulators, ColumnWindows


class WindowsByType(ByType):
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
        super().__init__(step, aggregation, keys, reads, rules)
        self._spans = spans

    def _new_rows(self) -> Operator:
        return PaneWindows(self._step, self._spans, window_aggregate(self._aggregation), self._rules)

    def _new_columns(self, aggregates: list[ColumnAggregate], keys: list[Any]) -> ColumnWindows:
        from clonos.operators.columnar.column_windows import ColumnWindows

        return ColumnWindows(self._step, self._spans, aggregates, keys, self._rules)

    def _has_rows(self, scope: Scope) -> bool:
        return bool(scope.state.restored(f"{self._step}/{PANE_NAME}/"))

    def _hand_over(self, columns: ColumnWindows | None, rows: PaneWindows) -> None:
        if columns is None:
            return
        panes, late = columns.hand_over()
        for pane, accumulators in panes.items():
            rows.fill(pane, self._entries(accumulators))
        for end, accumulators in late.items():
            rows.fill_late(end, self._entries(accumulators))

    def _entries(self, accumulators: Accumulators) -> dict[Any, Any]:
        values = [None if parts is None else self._accumulator(parts) for parts in accumulators.values()]
        return dict(zip(state_keys(list(accumulators)), values, strict=True))
