"""Sides of a join whose records are columns, with keys of types whose values are equal as those of rows are.

Results are those of objects, in the same order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import numpy

from clonos.kernels.record_batch import RecordBatch
from clonos.operators.columnar.joins.join_results import JoinResults, nulls
from clonos.operators.columnar.joins.side_rows import SideRows
from clonos.operators.columnar.joins.sides import key_columns, key_kinds, plain, widened
from clonos.operators.columnar.row_forms import rows_of
from clonos.operators.event_time.column_times import time_array
from clonos.operators.event_time.late_batch import LateBatch
from clonos.operators.event_time.timestamps import TimestampColumn
from clonos.operators.joins.match_rules import AsOfRules, Keys
from clonos.operators.kinds.column_side import ColumnSide
from clonos.operators.kinds.column_versions import ColumnLatest, ColumnLefts, ColumnVersions, Found
from clonos.operators.kinds.object_sides import LEFT_NAME, RIGHT_NAME, Select
from clonos.operators.operator import InputSide, Scope, Times, TwoInputOperator, without

NAMES: Final = (LEFT_NAME, RIGHT_NAME)


class JoinPlan(NamedTuple):
    """Facts of a join over columns that the plan knows. See ``JoinForm``."""

    keys: Keys
    schemas: tuple[Any, Any]
    select: Select | None
    pair_times: TimestampColumn | None
    may_lack: tuple[bool, bool] | None
    has_join_time: bool


class ColumnSides:
    """See ``Sides``."""

    def __init__(self, join: TwoInputOperator, step: str, plan: JoinPlan, scope: Scope) -> None:
        self._join, self._step, self._plan, self._state = join, step, plan, scope.state
        self._kinds = key_kinds(plan.schemas[0], plan.keys[0])
        self._results = JoinResults(plan.keys, plan.may_lack or (False, False), plan.has_join_time)

    def of_rows(self, is_left: bool, rows: list[Any], times: Times) -> ColumnSide:
        """See ``Sides``."""
        raise AssertionError("the plan says that records are columns")

    def of_columns(self, is_left: bool, batch: RecordBatch, key: Any, side: InputSide) -> ColumnSide:
        """See ``Sides``."""
        batch = plain(batch)
        return ColumnSide(batch, key_columns(batch, self._plan.keys[not is_left], self._kinds), side.time_array)

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
        return ColumnLefts(self._rows(True), self._keys(True))

    def versions(self, rules: AsOfRules) -> ColumnVersions:
        """See ``Sides``."""
        return ColumnVersions(self._rows(False), self._keys(False), self._kinds, rules)

    def latest(self) -> ColumnLatest:
        """See ``Sides``."""
        return ColumnLatest(self._state, self._step, self._kinds, self._plan.schemas[1].metadata)

    def _rows(self, is_left: bool) -> SideRows:
        store = self._state.row_store(f"{self._step}/{NAMES[not is_left]}-rows")
        return SideRows(store, self._plan.schemas[not is_left])

    def _keys(self, is_left: bool) -> Callable[[Any], list[Any]]:
        names, kinds = self._plan.keys[not is_left], self._kinds
        return lambda rows: key_columns(rows, names, kinds)

    def emit(self, lefts: ColumnSide, found: Found, is_inner: bool) -> None:
        """See ``Sides``."""
        numbers, take = found
        has: Any = numbers >= 0
        if is_inner:
            if not has.any():
                return
            lefts, numbers, has = lefts.where(has), numbers[has], None
        count = len(numbers)
        rights = nulls(self._plan.schemas[1], count) if has is not None and not has.any() else take(numbers)
        times = lefts.times if self._plan.has_join_time else numpy.broadcast_to(0, count)
        self.give(lefts.batch, rights, (None, has), times)

    def give(self, left: Any, right: Any, has: Sequence[Any], times: Any) -> None:
        """Emits pairs, or what ``select`` makes of them. See ``JoinResults.batches``."""
        for pairs in self._results.batches(left, right, has, times):
            if self._plan.select is None:
                self._join.out.columns(pairs)
            else:
                self._give_selected(self._plan.select, pairs)

    def _give_selected(self, select: Select, pairs: RecordBatch) -> None:
        rows, pairs = self._join.python_rows(pairs)
        if not rows:
            return
        column = self._plan.pair_times
        times = None if column is None else time_array(self._step, pairs, column).tolist()
        results, failed = self._join.guard.each(lambda pair: select(*pair), rows)
        if results:
            self._join.out.rows(results, without(times, failed) if times and failed else times)


class ColumnJoinKind:
    """Kind of columns of a plan."""

    def __init__(self, plan: JoinPlan) -> None:
        self.plan = plan

    def sides(self, join: TwoInputOperator, step: str, scope: Scope) -> ColumnSides:
        """See ``JoinKind``."""
        return ColumnSides(join, step, self.plan, scope)
