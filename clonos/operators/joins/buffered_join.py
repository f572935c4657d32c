"""Joins by time: interval joins, joins within windows, and joins whose state is forgotten by the clock.

Each side buffers its records as long as a match may come. A record meets the buffer of the other side when it comes, so
pairs leave at once. A record without a match leaves, if the kind of join keeps it, when no match can come any more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from clonos.core.model.watermark import Activity, Watermark
from clonos.operators.event_time.late_batch import LateBatch
from clonos.operators.joins.join import WATERMARK, Join
from clonos.operators.joins.match_rules import How, MatchRule, passed_on
from clonos.operators.kinds.join_kind import BatchT, JoinKind
from clonos.operators.operator import DueTimer, Scope
from clonos.operators.state.state_spec import StateSpec


class BufferedJoin(Join[BatchT]):
    """Base of joins by time: matching and forgetting."""

    has_times: ClassVar[bool]
    """Whether results have timestamps."""

    def __init__(self, step: str, kind: JoinKind[BatchT], rule: MatchRule, how: How) -> None:
        super().__init__(step, kind)
        self._rule, self._how = rule, how

    @property
    def state_specs(self) -> tuple[StateSpec, ...]:
        return self._kind.buffer_specs(self._how)

    def open(self, scope: Scope) -> None:
        super().open(scope)
        self._buffers = self._sides.buffers(self._rule, self._how, self.has_times)

    def _match(self, is_left: bool, batch: BatchT, reached_ns: int | None) -> None:
        """Matches records with the buffer of the other side, and buffers those that may still match."""
        needed_ns = None if reached_ns is None else self._rule.needed_from(is_left, reached_ns)
        if self._how.gives_pairs:
            self._buffers.pair(is_left, batch, needed_ns)
        elif is_left:
            self._take_left(batch, needed_ns)
        else:
            if self._rule.shared_ns:
                batch = self._buffers.first_of_windows(batch)
            self._buffers.decide(batch, self._how is How.SEMI)
            self._buffers.add(False, batch.parted(needed_ns)[0])

    def _take_left(self, batch: BatchT, needed_ns: int | None) -> None:
        """Takes left records of a join whose results are left records: one match decides."""
        matched, others = self._buffers.parted(batch)
        if self._how is How.SEMI:
            self._buffers.pass_on(matched)
        staying, gone = others.parted(needed_ns)
        if gone is not None and self._how is How.ANTI:
            self._buffers.pass_on(gone)
        self._buffers.add(True, staying)

    def _forget(self, reached_ns: int | None) -> None:
        """Forgets the records that nothing from an instant on matches (None: all)."""
        if reached_ns is None:
            self._buffers.forget(None, None)
        else:
            needed_from = self._rule.needed_from
            self._buffers.forget((needed_from(True, reached_ns), needed_from(False, reached_ns)), reached_ns)


class EventJoin(BufferedJoin[BatchT]):
    """Join by the timestamps of the records."""

    has_times = True
    holds_watermarks: ClassVar[bool] = True

    def __init__(self, step: str, kind: JoinKind[BatchT], rule: MatchRule, how: How, late: str | None) -> None:
        super().__init__(step, kind, rule, how)
        self._late_tag = late

    @property
    def state_specs(self) -> tuple[StateSpec, ...]:
        return (*super().state_specs, WATERMARK)

    def open(self, scope: Scope) -> None:
        super().open(scope)
        self._reached = scope.state.table(WATERMARK)
        self._late = LateBatch(self._step, self._late_tag, self, scope)

    def _take(self, is_left: bool, batch: BatchT) -> None:
        reached_ns: int | None = self._reached.entries.get(0)
        # The partners of a record before that may be forgotten.
        if reached_ns is not None and (late := batch.earlier(self._rule.on_time_from(reached_ns))):
            batch, those = batch.split(late)
            self._sides.add_late(self._late, those)
        if len(batch):
            self._match(is_left, batch, reached_ns)
        self._late.emit(reached_ns)

    def on_watermark(self, watermark: Watermark) -> None:
        if not isinstance(watermark, Activity):
            before_ns = self._reached.entries.get(0)
            self._reached.set(0, watermark)
            self._forget(watermark)
            passed_ns = passed_on(self._rule, self._how, watermark, before_ns)
            if passed_ns is None:
                return
            watermark = passed_ns
        self.pass_watermark(watermark)

    def end_of_time(self) -> None:
        self._forget(None)


class ClockJoin(BufferedJoin[BatchT]):
    """Join by the times at which the records come, which are recorded. It forgets a record by the clock."""

    has_times = False
    has_timers: ClassVar[bool] = True

    def open(self, scope: Scope) -> None:
        super().open(scope)
        self._recorder = scope.context.recorder

    def _take(self, is_left: bool, batch: BatchT) -> None:
        self._match(is_left, batch.by_the_clock(self._recorder.instant_ns(False)), None)

    def next_timer_ns(self) -> int | None:
        end_ns = self._buffers.first_end_ns
        return None if end_ns is None else end_ns + 1

    def due(self, until_ns: int | None) -> list[DueTimer]:
        next_ns = self.next_timer_ns()
        return [] if next_ns is None or (until_ns is not None and until_ns < next_ns) else [DueTimer(next_ns, until_ns)]

    def fire(self, due: Sequence[DueTimer]) -> None:
        for timer in due:
            self._forget(timer.token)
