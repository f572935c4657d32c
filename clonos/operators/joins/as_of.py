"""As-of join: each left record with the version of its key that was valid at its time.

A left record waits until the watermark shows that all versions it may meet have come. A version of a key is forgotten
when no left record can meet it any more; without a tolerance, the last one of each key stays.

A version behind the watermark is late, unless the join looks backward and a left record that is still to come may meet
it: no later version of its key is before the watermark.
"""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar

from clonos.core.model.watermark import INSTANT_NS_MIN, Activity, Watermark
from clonos.operators.event_time.late_batch import LateBatch
from clonos.operators.event_time.timestamps import from_timestamp_ns
from clonos.operators.joins.join import WATERMARK, Join
from clonos.operators.joins.match_rules import AsOfRules, Direction
from clonos.operators.kinds.join_kind import BatchT, JoinKind
from clonos.operators.operator import Scope
from clonos.operators.state.state_spec import StateSpec
from clonos.operators.warn_once import WarnOnce


class AsOfJoin(Join[BatchT]):
    """As-of join of two streams with timestamps."""

    holds_watermarks: ClassVar[bool] = True

    def __init__(self, step: str, kind: JoinKind[BatchT], rules: AsOfRules, late: str | None) -> None:
        super().__init__(step, kind)
        self._rules, self._late_tag = rules, late

    @property
    def state_specs(self) -> tuple[StateSpec, ...]:
        return (*self._kind.as_of_specs, WATERMARK)

    def open(self, scope: Scope) -> None:
        super().open(scope)
        self._reached = scope.state.table(WATERMARK)
        self._lefts, self._versions = self._sides.lefts(), self._sides.versions(self._rules)
        self._late = LateBatch(self._step, self._late_tag, self, scope)
        self._missed = WarnOnce(self._step, scope.context.recorder)

    def _take(self, is_left: bool, batch: BatchT) -> None:
        reached_ns: int | None = self._reached.entries.get(0)
        if reached_ns is not None and (late := batch.earlier(reached_ns)):
            if not is_left and self._rules.direction is Direction.BACKWARD:
                late = self._without_met(batch, late, reached_ns)
            if late:
                batch, those = batch.split(late)
                self._sides.add_late(self._late, those)
        if not is_left:
            self._versions.add(batch.keyed())
        else:
            self._lefts.add(batch.keyed() if self._rules.is_inner else batch)
        self._late.emit(reached_ns)

    def _without_met(self, batch: BatchT, late: list[int], reached_ns: int) -> list[int]:
        """Returns the places of versions behind the watermark that no left record to come may meet."""
        met, latest, tolerance_ns = set[int](), dict[Any, int](), self._rules.tolerance_ns
        for place, key, timestamp_ns, last_ns in self._versions.last_before(batch, reached_ns):
            last_ns = latest.get(key, last_ns)
            latest[key] = max(last_ns, timestamp_ns)
            is_near = tolerance_ns is None or timestamp_ns >= reached_ns - tolerance_ns
            if last_ns <= timestamp_ns < reached_ns and is_near:
                met.add(place)
                self._missed.warn(partial(_missed_text, self._step, timestamp_ns, reached_ns))
        return [place for place in late if place not in met]

    def on_watermark(self, watermark: Watermark) -> None:
        if not isinstance(watermark, Activity):
            self._reached.set(0, watermark)
            watermark -= self._rules.wait_ns
            if watermark < INSTANT_NS_MIN:
                return
            self._emit_before(watermark)
            self._versions.forget(watermark)
        self.pass_watermark(watermark)

    def end_of_time(self) -> None:
        self._emit_before(None)

    def _emit_before(self, timestamp_ns: int | None) -> None:
        """Emits the left records that are earlier (None: all), by timestamp and arrival."""
        for lefts in self._lefts.take(timestamp_ns):
            self._sides.emit(lefts, self._versions.find(lefts), self._rules.is_inner)


def _missed_text(step: str, timestamp_ns: int, reached_ns: int) -> str:
    """Returns the warning of a version that came behind the watermark."""
    return (
        f"the step {step} took a version of {from_timestamp_ns(timestamp_ns).isoformat()} when the watermark was at"
        f" {from_timestamp_ns(reached_ns).isoformat()}: left records between them, if any, have been joined without"
        " it. Raise out_of_order in the Timestamps of the right stream."
    )
