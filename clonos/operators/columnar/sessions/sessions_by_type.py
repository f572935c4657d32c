"""Session windows over keyed columns, by sessions in columns or by sessions of rows."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final

from clonos.core.model.watermark import END_OF_TIME_NS
from clonos.operators.aggregates.aggregate import Aggregation
from clonos.operators.columnar.windowed_by_type import WindowedByType
from clonos.operators.event_time.timestamps import LIMIT_NS
from clonos.operators.operator import Scope
from clonos.operators.windows.assigners import SessionAssigner
from clonos.operators.windows.key_windows import WINDOWS_NAME, KeyWindows
from clonos.operators.windows.window_cells import ACCUMULATOR, PENDING, new_cell
from clonos.operators.windows.window_rules import WindowRules

if TYPE_CHECKING:
    from clonos.operators.columnar.column_aggregates import ColumnAggregate
    from clonos.operators.columnar.sessions.column_sessions import ColumnSessions


LENGTH_NS_MAX: Final = END_OF_TIME_NS - LIMIT_NS
"""Gap and lateness together for which each session ends, and is forgotten, within 64 bits: a hundred days."""


class SessionsByType(WindowedByType):
    """Operator of session windows over keyed columns, with a fixed gap in event time."""

    has_logs: ClassVar[bool] = False

    def __init__(
        self,
        step: str,
        gap_ns: int,
        aggregation: Aggregation[Any, Any],
        keys: tuple[str, ...],
        reads: tuple[str, ...],
        rules: WindowRules,
    ) -> None:
        make_rows = partial(KeyWindows, step, SessionAssigner(gap_ns, None), aggregation, rules)
        super().__init__(step, aggregation, keys, reads, rules, make_rows)
        self._gap_ns = gap_ns

    def _schema_of(self, schema: Any) -> Any:
        if self._gap_ns + self._rules.lateness_ns > LENGTH_NS_MAX:
            return None
        return super()._schema_of(schema)

    def _new_windows(self, aggregates: list[ColumnAggregate], keys: list[Any]) -> ColumnSessions:
        from clonos.operators.columnar.sessions.column_sessions import ColumnSessions

        return ColumnSessions(self._step, self._gap_ns, aggregates, keys, self._rules)

    def _has_rows(self, scope: Scope) -> bool:
        return f"{self._step}/{WINDOWS_NAME}" in scope.state.restored(f"{self._step}/{WINDOWS_NAME}")

    def _hand_over(self, columns: ColumnSessions, rows: KeyWindows) -> None:
        for key, sessions in columns.hand_over().items():
            cells = []
            for start, end, number, is_pending, parts in sessions:
                cell = new_cell((start, end), number, None)
                cell[PENDING], cell[ACCUMULATOR] = int(is_pending), self._accumulator(parts)
                cells.append(cell)
            rows.fill(key, cells)
