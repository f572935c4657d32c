"""Sides of a join whose records are Python objects. Their keys are compared as tables have them.

Nothing here loads numpy or pyarrow, which jobs of rows do not need.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from clonos.core.values.copying import copied
from clonos.kernels.record_batch import RecordBatch
from clonos.operators.event_time.late_batch import LateBatch
from clonos.operators.joins.key_types import KeyTypes
from clonos.operators.joins.match_rules import AsOfRules
from clonos.operators.kinds.object_side import MISSING, ObjectSide, object_side
from clonos.operators.kinds.object_versions import ObjectLatest, ObjectLefts, ObjectVersions
from clonos.operators.operator import InputSide, Scope, Times, TwoInputOperator, without

LEFT_NAME: Final = "left"
RIGHT_NAME: Final = "right"

Select = Callable[[Any, Any], Any]


class ObjectSides:
    """See ``Sides``."""

    def __init__(self, join: TwoInputOperator, step: str, select: Select | None, scope: Scope) -> None:
        self._join, self._step, self._select, self._state = join, step, select, scope.state
        self._key_types = KeyTypes(step, scope.context.recorder)

    def of_rows(self, is_left: bool, rows: list[Any], times: Times) -> ObjectSide:
        """See ``Sides``."""
        self._key_types.see(is_left, rows[0][0])
        return object_side(rows, times)

    def of_columns(self, is_left: bool, batch: RecordBatch, key: Any, side: InputSide) -> ObjectSide | None:
        """See ``Sides``."""
        rows, batch = side.pairs_of(batch, key)
        return self.of_rows(is_left, rows, side.times_of(batch)) if rows else None

    def add_late(self, late: LateBatch, batch: ObjectSide) -> None:
        """See ``Sides``."""
        for (_, row), timestamp_ns in zip(batch.rows, batch.instants, strict=True):
            late.add(row, timestamp_ns)

    def lefts(self) -> ObjectLefts:
        """See ``Sides``."""
        return ObjectLefts(self._state.table(f"{self._step}/{LEFT_NAME}"))

    def versions(self, rules: AsOfRules) -> ObjectVersions:
        """See ``Sides``."""
        return ObjectVersions(self._state.table(f"{self._step}/{RIGHT_NAME}"), rules)

    def latest(self) -> ObjectLatest:
        """See ``Sides``."""
        return ObjectLatest(self._state.table(f"{self._step}/{RIGHT_NAME}"))

    def emit(self, lefts: ObjectSide, found: Sequence[Any], is_inner: bool) -> None:
        """See ``Sides``."""
        rows, times = lefts.rows, lefts.times
        if is_inner and MISSING in found:
            places = [place for place, row in enumerate(found) if row is not MISSING]
            rows, found = [rows[place] for place in places], [found[place] for place in places]
            times = times and [times[place] for place in places]
        self.give(
            [(left, None if row is MISSING else copied(row)) for (_, left), row in zip(rows, found, strict=True)], times
        )

    def give(self, pairs: list[Any], times: Times) -> None:
        """Emits pairs, or what ``select`` makes of them."""
        if (select := self._select) is not None and pairs:
            pairs, failed = self._join.guard.each(lambda pair: select(*pair), pairs)
            times = without(times, failed) if failed and times is not None else times
        if pairs:
            self._join.out.rows(pairs, times)


class ObjectJoinKind:
    """Kind of Python objects. ``select`` makes the results of pairs."""

    def __init__(self, select: Select | None) -> None:
        self._select = select

    def sides(self, join: TwoInputOperator, step: str, scope: Scope) -> ObjectSides:
        """See ``JoinKind``."""
        return ObjectSides(join, step, self._select, scope)
