"""Sides of a join whose records are columns, with keys of types whose values are equal as those of rows are.

Results are those of objects, in the same order.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from clonos.kernels.record_batch import RecordBatch
from clonos.operators.columnar.joins.sides import plain, widened
from clonos.operators.columnar.row_forms import rows_of
from clonos.operators.event_time.late_batch import LateBatch
from clonos.operators.joins.match_rules import AsOfRules, How, MatchRule
from clonos.operators.kinds.column_buffers import ALONE, ARRIVAL, ColumnBuffers
from clonos.operators.kinds.column_results import ROWS, ColumnResults, JoinPlan
from clonos.operators.kinds.column_side import ColumnSide
from clonos.operators.kinds.column_versions import LATEST, LATEST_ROWS, ColumnLatest, ColumnLefts, ColumnVersions
from clonos.operators.operator import InputSide, Scope, Times, TwoInputOperator
from clonos.operators.state.state_spec import KEY_COLUMN, Numbers, StateKind, StateScope, StateSpec

UNMATCHED: Final = tuple(
    StateSpec(
        name,
        StateKind.COLUMNS,
        StateScope.REFERRING,
        owner=rows.name,
        numbers=(Numbers(rows.name, KEY_COLUMN), Numbers(ARRIVAL, ARRIVAL)),
    )
    for name, rows in zip(("left-unmatched", "right-unmatched"), ROWS, strict=True)
)
"""Tables of the buffered records of both sides that nothing has matched, by their numbers."""


class ColumnSides(ColumnResults):
    """See ``Sides``."""

    def __init__(self, join: TwoInputOperator, step: str, plan: JoinPlan, scope: Scope) -> None:
        super().__init__(join, step, plan, scope)

    def of_rows(self, is_left: bool, rows: list[Any], times: Times) -> ColumnSide:
        """See ``Sides``."""
        raise AssertionError("the plan says that records are columns")

    def of_columns(self, is_left: bool, batch: RecordBatch, key: Any, side: InputSide) -> ColumnSide:
        """See ``Sides``."""
        return ColumnSide(plain(batch), partial(self.keys_of, is_left), side.time_array)

    def add_late(self, late: LateBatch, batch: ColumnSide) -> None:
        """See ``Sides``. Records of both sides have the columns of both if they go to a sink of columns."""
        if not len(batch):
            return
        wide = widened(batch.batch, self._plan.schemas) if late.keeps_types else None
        if wide is not None:
            late.add_columns(wide, batch.times)
            return
        for row, timestamp_ns in zip(rows_of(batch.batch), batch.times.tolist(), strict=True):
            late.add(row, timestamp_ns)

    def lefts(self) -> ColumnLefts:
        """See ``Sides``."""
        return ColumnLefts(self.rows(True), partial(self.keys_of, True))

    def versions(self, rules: AsOfRules) -> ColumnVersions:
        """See ``Sides``."""
        return ColumnVersions(self.rows(False), partial(self.keys_of, False), self.kinds, rules)

    def latest(self) -> ColumnLatest:
        """See ``Sides``."""
        return ColumnLatest(self._state, self.kinds, self._plan.schemas[1].metadata)

    def buffers(self, rule: MatchRule, how: How, has_times: bool) -> ColumnBuffers:
        """See ``Sides``."""
        alone = [
            self._state.column_table(spec, ALONE) if how.keeps(is_left) else None
            for is_left, spec in zip((True, False), UNMATCHED, strict=True)
        ]
        return ColumnBuffers(self, alone, rule, how, has_times)


class ColumnJoinKind:
    """Kind of columns of a plan."""

    def __init__(self, plan: JoinPlan) -> None:
        self._plan = plan

    @property
    def as_of_specs(self) -> tuple[StateSpec, ...]:
        """See ``JoinKind``."""
        return self._plan.rows_spec(True), self._plan.rows_spec(False)

    @property
    def latest_specs(self) -> tuple[StateSpec, ...]:
        """See ``JoinKind``."""
        return LATEST, LATEST_ROWS

    def buffer_specs(self, how: How) -> tuple[StateSpec, ...]:
        """See ``JoinKind``."""
        unmatched = [spec for is_left, spec in zip((True, False), UNMATCHED, strict=True) if how.keeps(is_left)]
        return (*self.as_of_specs, *unmatched)

    def sides(self, join: TwoInputOperator, step: str, scope: Scope) -> ColumnSides:
        """See ``JoinKind``."""
        return ColumnSides(join, step, self._plan, scope)
