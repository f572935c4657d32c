"""Joins by time over columns: by the timestamps of the records, and by the times at which they come."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy
import pyarrow

from clonos.core.model.watermark import Activity, Watermark
from clonos.kernels.record_batch import RecordBatch
from clonos.operators.columnar.joins.buffered_columns import BufferedColumns
from clonos.operators.event_time.late_batch import LateBatch
from clonos.operators.joins.buffered_join import WATERMARK_NAME
from clonos.operators.joins.match_rules import How, Keys, MatchRule, passed_on
from clonos.operators.operator import DueTimer, InputSide, Scope


class EventColumns(BufferedColumns):
    """Join by the timestamps of the records."""

    holds_watermarks: ClassVar[bool] = True

    def __init__(
        self, step: str, keys: Keys, schemas: tuple[Any, Any], rule: MatchRule, how: How, late: str | None
    ) -> None:
        super().__init__(step, keys, schemas, rule, how, how.gives_pairs)
        self._late_tag = late

    def open(self, scope: Scope) -> None:
        super().open(scope)
        self._reached = scope.state.table(f"{self._step}/{WATERMARK_NAME}", is_small=True)
        self._late = LateBatch(self._step, self._late_tag, self, scope)

    def take(self, is_left: bool, batch: RecordBatch, side: InputSide) -> None:
        times = side.time_array(batch)
        assert times is not None, "a join by time reads streams with timestamps"
        reached_ns: int | None = self._reached.entries.get(0)
        if reached_ns is not None and (is_late := self._is_late(is_left, times, reached_ns)).any():
            self._add_late(self._late, batch.filter(pyarrow.array(is_late)), times[is_late])
            batch, times = batch.filter(pyarrow.array(~is_late)), times[~is_late]
        if len(times):
            self._add(is_left, batch, times, reached_ns)
        self._late.emit(reached_ns)

    def _is_late(self, is_left: bool, times: Any, reached_ns: int) -> Any:
        """Returns which records are late: their earliest partners may be forgotten."""
        return self._partners(not is_left, self._partners(is_left, times)[0])[1] < reached_ns

    def on_watermark(self, watermark: Watermark) -> None:
        if not isinstance(watermark, Activity):
            before_ns = self._reached.entries.get(0)
            self._reached.set(0, watermark)
            self._forget(watermark)
            self.drop_before(watermark, at_once=False)
            passed_ns = passed_on(self._rule, self._how, watermark, before_ns)
            if passed_ns is None:
                return
            watermark = passed_ns
        self.pass_watermark(watermark)

    def end_of_time(self) -> None:
        self._forget(None)
        self.drop_before(None, at_once=True)


class ClockColumns(BufferedColumns):
    """Join by the times at which the records come, which are recorded. It forgets a record by the clock."""

    has_timers: ClassVar[bool] = True

    def __init__(self, step: str, keys: Keys, schemas: tuple[Any, Any], rule: MatchRule, how: How) -> None:
        super().__init__(step, keys, schemas, rule, how, False)

    def take(self, is_left: bool, batch: RecordBatch, side: InputSide) -> None:
        now_ns = self._recorder.instant_ns(False)
        self._add(is_left, batch, numpy.full(batch.num_rows, now_ns), None)

    def next_timer_ns(self) -> int | None:
        found = []
        for place, side in enumerate(self._sides):
            if (earliest_ns := side.runs.earliest_ns) is not None:
                found.append(self._rule.partners(place == 0, earliest_ns)[1] + 1)
        return min(found, default=None)

    def due(self, until_ns: int | None) -> list[DueTimer]:
        next_ns = self.next_timer_ns()
        return [] if next_ns is None or (until_ns is not None and until_ns < next_ns) else [DueTimer(next_ns, until_ns)]

    def fire(self, due: Sequence[DueTimer]) -> None:
        for timer in due:
            self._forget(timer.token)
            self.drop_before(timer.token, at_once=True)
