"""Results of joins whose records are columns, and the buffered rows that they are made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

import numpy

from clonos.kernels.record_batch import RecordBatch
from clonos.operators.columnar.joins.join_results import JoinResults, nulls
from clonos.operators.columnar.joins.side_rows import SideRows
from clonos.operators.columnar.joins.sides import key_columns, key_kinds
from clonos.operators.event_time.column_times import time_array
from clonos.operators.event_time.timestamps import TimestampColumn
from clonos.operators.joins.match_rules import Keys
from clonos.operators.kinds.column_side import ColumnSide
from clonos.operators.kinds.column_versions import Found
from clonos.operators.kinds.object_results import Select
from clonos.operators.operator import Scope, TwoInputOperator, without
from clonos.operators.state.state_spec import StateKind, StateScope, StateSpec

ROWS: Final = tuple(StateSpec(name, StateKind.ROWS, StateScope.KEYED) for name in ("left-rows", "right-rows"))
"""Row stores of both sides."""


class JoinPlan(NamedTuple):
    """Facts of a join over columns that the plan knows. See ``JoinForm``."""

    keys: Keys
    schemas: tuple[Any, Any]
    select: Select | None
    pair_times: TimestampColumn | None
    may_lack: tuple[bool, bool] | None
    has_join_time: bool

    def rows_spec(self, is_left: bool) -> StateSpec:
        """Returns the declaration of the buffered records of a side."""
        return replace(ROWS[not is_left], key_columns=tuple(self.keys[not is_left]))


class ColumnResults:
    """Outlet of a join: for pairs, or what ``select`` makes of them, or left records."""

    def __init__(self, join: TwoInputOperator, step: str, plan: JoinPlan, scope: Scope) -> None:
        self._join, self._step, self._plan, self._state = join, step, plan, scope.state
        self.kinds = key_kinds(plan.schemas[0], plan.keys[0])
        self._results = JoinResults(plan.keys, plan.may_lack or (False, False), plan.has_join_time)

    def rows(self, is_left: bool) -> SideRows:
        """Returns the buffered records of a side."""
        return SideRows(self._state.row_store(self._plan.rows_spec(is_left)), self._plan.schemas[not is_left])

    def keys_of(self, is_left: bool, rows: Any) -> list[Any]:
        """Returns the key columns of rows of a side."""
        return key_columns(rows, self._plan.keys[not is_left], self.kinds)

    def nulls(self, is_left: bool, count: int) -> Any:
        """Returns rows of nulls of a side."""
        return nulls(self._plan.schemas[not is_left], count)

    def emit(self, lefts: ColumnSide, found: Found, is_inner: bool) -> None:
        """See ``Sides``."""
        numbers, take = found
        has: Any = numbers >= 0
        if is_inner:
            if not has.any():
                return
            lefts, numbers, has = lefts.where(has), numbers[has], None
        count = len(numbers)
        rights = self.nulls(False, count) if has is not None and not has.any() else take(numbers)
        times = lefts.times if self._plan.has_join_time else numpy.broadcast_to(0, count)
        self.give(lefts.batch, rights, (None, has), times)

    def pass_on(self, lefts: Any) -> None:
        """Emits left records alone."""
        if lefts.num_rows:
            self._join.out.columns(lefts)

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
