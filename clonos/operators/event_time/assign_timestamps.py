"""Step that gives the records of a stream timestamps, and makes the watermarks of its task from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final

from clonos.core.model.watermark import Activity, Watermark
from clonos.core.ports.operator_chain import FailedAt, StepFailed
from clonos.kernels.record_batch import RecordBatch
from clonos.operators.columnar.row_forms import without_form
from clonos.operators.event_time.source_watermarks import SourceWatermarks
from clonos.operators.event_time.timestamp_assigner import TimestampAssigner, checked_watermark
from clonos.operators.facts import Facts, KnownInputs, calls_of, facts_of
from clonos.operators.operator import DueTimer, Operator, Scope, Times
from clonos.operators.state.keyed_state import Table
from clonos.operators.state.state_spec import StateScope, StateSpec, small

if TYPE_CHECKING:
    from clonos.operators.event_time.column_times import IntArray

WATERMARKS: Final = small("watermarks", StateScope.TIMES)
INPUT: Final = 0
"""Number of the only split of ``SourceWatermarks``: the input of the task."""


class AssignTimestamps(Operator):
    """Assignment of timestamps. The watermarks of its input end here; it makes those of the stream after it."""

    state = ()
    runs_user_code = True
    is_per_record = True
    passes_records = True
    keeps_times = False
    checks_idleness: ClassVar[bool] = True
    holds_watermarks: ClassVar[bool] = True

    _table: Table
    _watermarks: SourceWatermarks

    @classmethod
    def facts(cls, given: KnownInputs, assigner: TimestampAssigner) -> Facts:
        """Returns those of a step with an assigner. Columns stay columns if one of them has the timestamps."""
        emits_columns = isinstance(assigner.of, str) and given.has_columns
        return replace(
            facts_of(partial(cls, given.step, assigner, emits_columns), given),
            calls=calls_of(assigner),
            emits_columns=emits_columns,
            is_one_to_one=not emits_columns,
            has_times=True,
            timestamp_column=assigner.column if emits_columns else None,
            assigner=assigner,
        )

    def __init__(self, step: str, assigner: TimestampAssigner, takes_columns: bool) -> None:
        self._step, self._assigner = step, assigner.of_task(step)
        self.takes_columns = takes_columns
        self.changes_rows = callable(assigner.of)

    @property
    def state_specs(self) -> tuple[StateSpec, ...]:
        return (WATERMARKS,)

    def open(self, scope: Scope) -> None:
        self._recorder, self._has_input = scope.context.recorder, scope.context.has_input
        self._table = scope.state.table(WATERMARKS)
        self._watermarks = SourceWatermarks([INPUT], self._assigner.every_ns, self._assigner.idle_after_ns)
        state = self._table.entries.get(0)
        if state is not None:
            self._watermarks.restore(state)

    def prepare(self, checkpoint: int) -> None:
        self._table.set(0, self._watermarks.state())

    def rows(self, rows: list[Any], times: Times = None) -> None:
        rows, assigned = self._assigner.assign(rows, self.guard, self._recorder, "")
        if rows:
            self._pass(self._watermarks.begin(INPUT))
            self.out.rows(rows, assigned)
            self._reach(rows, assigned)

    def columns(self, batch: RecordBatch) -> None:
        if not self.takes_columns:
            rows, _ = self.python_rows(without_form(batch))
            if rows:
                self.rows(rows)
            return
        timed, assigned = self._assigner.assign_columns(batch, self.guard, self._recorder, "")
        if len(assigned):
            self._pass(self._watermarks.begin(INPUT))
            self.out.columns(timed)
            self._reach(timed, assigned)

    def _reach(self, records: Any, times: Sequence[int] | IntArray) -> None:
        try:
            before_ns = self._watermarks.reached_ns(INPUT)
            found = self._assigner.watermark(before_ns, records, times, self._recorder, "")
        except Exception as error:
            raise StepFailed(FailedAt(self._step, None, "")) from error
        self._pass(self._watermarks.reach(INPUT, checked_watermark(found, self._step, INPUT)))

    def on_watermark(self, watermark: Watermark) -> None:
        """Ends a watermark of the input. An input that is idle makes the stream idle, unless the step watches it."""
        if isinstance(watermark, Activity) and not self._assigner.idle_after_ns:
            self.pass_watermark(watermark)

    def _pass(self, watermarks: list[Watermark]) -> None:
        for watermark in watermarks:
            self.pass_watermark(watermark)

    # --- idleness

    @property
    def holds_checks(self) -> bool:
        if self._has_input():
            self._watermarks.hold_back()
        else:
            self._watermarks.found_empty(INPUT)
        return self._watermarks.holds_checks

    def next_timer_ns(self) -> int | None:
        return self._watermarks.next_check_ns()

    def due(self, until_ns: int | None) -> list[DueTimer]:
        """Returns the check for idleness. There is none at the end of the input."""
        return [] if until_ns is None else [DueTimer(until_ns, None)]

    def fire(self, due: Sequence[DueTimer]) -> None:
        for timer in due:
            self._pass(self._watermarks.check(timer.instant_ns))
