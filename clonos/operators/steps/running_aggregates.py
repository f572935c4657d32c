"""Aggregates that run over the whole input, with results after each record, batch or interval, or at its end.

The operators serve records of any kind, rows and columns: see ``clonos.operators.kinds.total_kind``.
"""

from __future__ import annotations

from typing import Any, Final

from clonos.operators.aggregates.aggregate import Aggregation
from clonos.operators.kinds.kind import BatchT
from clonos.operators.kinds.kind_step import KindStep
from clonos.operators.kinds.total_kind import TotalKind
from clonos.operators.operator import Scope
from clonos.operators.state.interval_timer import LeavesAtIntervals
from clonos.operators.state.state_spec import NO_KEY, StateScope, StateSpec, small

EMITTED: Final = small("emitted", StateScope.MAX).fixed(NO_KEY)
"""Table with at most one entry, which is there once the total is emitted."""


class InputTotals(KindStep[BatchT]):
    """Base of aggregates over all records, or over those of each key."""

    runs_user_code = True
    gives_one_at_most = True
    may_be_in_place = True
    keeps_times = False
    is_paced = False
    _kind: TotalKind[BatchT]

    def __init__(self, step: str, kind: TotalKind[BatchT]) -> None:
        self._step, self._kind = step, kind
        self.takes_columns = kind.takes_columns

    @property
    def state_specs(self) -> tuple[StateSpec, ...]:
        return (*super().state_specs, *self._kind.state_specs(self.is_paced))

    def open(self, scope: Scope) -> None:
        self._totals = self._kind.totals(self, scope.state, self.is_paced)


class RunningTotals(InputTotals[BatchT]):
    """Emits the results so far after each record."""

    keeps_times = True

    def _take(self, batch: BatchT) -> None:
        self._totals.pass_each(batch)


class ChangedTotals(InputTotals[BatchT]):
    """Emits the results of each key that a batch has changed, by first arrival in it.

    ``has_before``: with the results that these replace, None for each of a new key.
    """

    def __init__(self, step: str, kind: TotalKind[BatchT], *, has_before: bool) -> None:
        super().__init__(step, kind)
        self._has_before = has_before

    def _take(self, batch: BatchT) -> None:
        self._totals.pass_changes(batch, self._has_before)


class PacedTotals(LeavesAtIntervals, InputTotals[BatchT]):
    """Emits results after a number of records of a key, or for all changed keys at multiples of an interval.

    What has changed since it was last emitted leaves in the order of its first change, at the end of the input too.
    """

    is_paced = True

    def __init__(self, step: str, kind: TotalKind[BatchT], *, count: int | None, interval_ns: int | None) -> None:
        super().__init__(step, kind)
        self._count, self._interval_ns = count, interval_ns

    def open(self, scope: Scope) -> None:
        super().open(scope)
        self.open_timer(self._interval_ns, scope)

    def _take(self, batch: BatchT) -> None:
        if self._count is not None:
            self._totals.pass_every(batch, self._count)
        elif self._totals.add_waiting(batch):
            self._timer.start()

    def end_of_time(self) -> None:
        self._timer.stop()
        self._totals.pass_waiting()


class FinalTotals(InputTotals[BatchT]):
    """Emits the results of each key at the end of the input, by first arrival."""

    def _take(self, batch: BatchT) -> None:
        self._totals.add(batch)

    def end_of_time(self) -> None:
        self._totals.pass_all()  # and forgets them: a task that is restored after this must not emit them again


class FinalTotal(FinalTotals[BatchT]):
    """Emits one result at the end of the input, that of no records if there were none."""

    def __init__(self, step: str, kind: TotalKind[BatchT], *, aggregation: Aggregation[Any, Any]) -> None:
        super().__init__(step, kind)
        self._aggregation = aggregation

    @property
    def state_specs(self) -> tuple[StateSpec, ...]:
        return (*super().state_specs, EMITTED)

    def open(self, scope: Scope) -> None:
        super().open(scope)
        self._emitted = scope.state.table(EMITTED)

    def end_of_time(self) -> None:
        if self._totals.is_empty and not self._emitted.entries:
            results, _ = self.guard.each(self._aggregation.result, [self._aggregation.create()])
            if results:
                self.out.rows(results)
        self._emitted.set(0, True)
        super().end_of_time()
