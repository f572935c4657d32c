"""As-of join over columns: each left record with the version of its key that was valid at its time.

Results are those of ``AsOfJoin``, in the same order. State: the left records that wait, and the versions, as rows. An
index finds the versions of all left records that leave at once. Versions that no left record can meet any more are
forgotten when their number has doubled.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, ClassVar

import numpy
import pyarrow

from clonos.core.model.watermark import INSTANT_NS_MIN, Activity, Watermark
from clonos.core.ports.recorder import Recorder
from clonos.kernels.packed_keys import KeyIndex
from clonos.kernels.record_batch import RecordBatch
from clonos.kernels.timed_runs import Run
from clonos.operators.columnar.joins.buffered_columns import NAMES, ROWS_SUFFIX
from clonos.operators.columnar.joins.column_join import ColumnJoin
from clonos.operators.columnar.joins.join_results import MISSING, JoinResults, nulls
from clonos.operators.columnar.joins.side_rows import SideRows
from clonos.operators.columnar.joins.sides import NO_SLOT, key_columns, slots_of
from clonos.operators.columnar.joins.sorted_runs import SortedRuns
from clonos.operators.event_time.column_times import distances
from clonos.operators.event_time.late_batch import LateBatch
from clonos.operators.joins.as_of import Direction, missed_text
from clonos.operators.joins.buffered_join import NUMBERS_NAME, WATERMARK_NAME
from clonos.operators.joins.match_rules import Keys
from clonos.operators.operator import InputSide, Scope
from clonos.operators.warn_once import WarnOnce


class ColumnAsOf(ColumnJoin):
    """As-of join of two streams with timestamps. ``tolerance_ns`` is given unless the direction is backward."""

    holds_watermarks: ClassVar[bool] = True

    versions_min: ClassVar[int] = 1 << 10
    """Number of versions up to which none is forgotten."""

    def __init__(
        self,
        step: str,
        keys: Keys,
        schemas: tuple[Any, Any],
        direction: Direction,
        tolerance_ns: int | None,
        is_inner: bool,
        late: str | None,
    ) -> None:
        super().__init__(step, keys, schemas)
        self._direction, self._tolerance_ns, self._is_inner, self._late_tag = direction, tolerance_ns, is_inner, late
        self._wait_ns = 0 if direction is Direction.BACKWARD else tolerance_ns or 0
        self._results = JoinResults(keys, (False, not is_inner), has_time=False)

    def open(self, scope: Scope) -> None:
        state, step = scope.state, self._step
        recorder: Recorder = scope.context.recorder
        self._reached = state.table(f"{step}/{WATERMARK_NAME}", is_small=True)
        self._numbers = state.table(f"{step}/{NUMBERS_NAME}", is_small=True)
        self._next_number: int = self._numbers.entries.get(0, 0)
        self._sides = [
            SideRows(state.row_store(f"{step}/{name}{ROWS_SUFFIX}"), schema)
            for name, schema in zip(NAMES, self.schemas, strict=True)
        ]
        self._lefts, self._versions = self._sides
        self._waiting = [(each.times, each.numbers) for each in self._lefts.stored()]
        """Timestamps and numbers of the left records."""
        self._versions_max = self.versions_min
        self._late = LateBatch(step, self._late_tag, self, scope)
        self._missed = WarnOnce(step, recorder)
        self._make_index()

    def prepare(self, checkpoint: int) -> None:
        if self._numbers.entries.get(0, 0) != self._next_number:
            self._numbers.set(0, self._next_number)

    def _make_index(self) -> None:
        self._index = KeyIndex(self.kinds)  # of the versions
        self._versions.clear()
        for each in self._versions.stored():
            slots = self._index.add(key_columns(each.rows, self.keys_of[1], self.kinds))
            self._versions.runs.add(slots.astype(numpy.int64), each.times, each.numbers)

    # --- records

    def take(self, is_left: bool, batch: RecordBatch, side: InputSide) -> None:
        times = side.time_array(batch)
        assert times is not None, "an as-of join reads streams with timestamps"
        reached_ns: int | None = self._reached.entries.get(0)
        slots = None if is_left else slots_of(self._index.add, self._key_columns(False, batch))
        if reached_ns is not None and (is_late := times < reached_ns).any():
            if slots is not None and self._direction is Direction.BACKWARD:
                is_late &= ~self._counting(slots, times, reached_ns)
            if is_late.any():
                self._add_late(self._late, batch.filter(pyarrow.array(is_late)), times[is_late])
            batch, times = batch.filter(pyarrow.array(~is_late)), times[~is_late]
            slots = None if slots is None else slots[~is_late]
        batch, times, slots = self._matchable(batch, times, slots)
        if len(times):
            arrivals = numpy.arange(self._next_number, self._next_number + len(times))
            self._next_number += len(times)
            numbers = self._sides[not is_left].add(slots, batch, times, arrivals)
            if is_left:
                self._waiting.append((times, numbers))
        self._late.emit(reached_ns)

    def _matchable(self, batch: RecordBatch, times: Any, slots: Any) -> tuple[Any, Any, Any]:
        """Returns the records that may give a result: no version whose key is null does. ``slots``: of versions."""
        if slots is not None:
            has_key = slots != NO_SLOT
        elif self._is_inner:
            has_key = slots_of(lambda columns: numpy.zeros(len(columns[0])), self._key_columns(True, batch)) != NO_SLOT
        else:
            return batch, times, slots
        if has_key.all():
            return batch, times, slots
        return batch.filter(pyarrow.array(has_key)), times[has_key], None if slots is None else slots[has_key]

    def _counting(self, slots: Any, times: Any, reached_ns: int) -> Any:
        """Returns which versions behind the watermark a left record may still meet: there is no later one before it."""
        counts = numpy.zeros(len(times), numpy.bool_)
        numbers, before = self._versions.runs.last_at(slots, numpy.full(len(slots), reached_ns))
        last: dict[int, int] = {}
        for place in numpy.flatnonzero((times <= reached_ns) & (slots != NO_SLOT)).tolist():
            slot, timestamp_ns = int(slots[place]), int(times[place])
            latest = last.get(slot, int(before[place]) if numbers[place] >= 0 else timestamp_ns)
            last[slot] = max(latest, timestamp_ns)
            is_near = self._tolerance_ns is None or timestamp_ns >= reached_ns - self._tolerance_ns
            if timestamp_ns < reached_ns and timestamp_ns >= latest and is_near:
                counts[place] = True
                self._missed.warn(partial(missed_text, self._step, timestamp_ns, reached_ns))
        return counts

    # --- time

    def on_watermark(self, watermark: Watermark) -> None:
        if not isinstance(watermark, Activity):
            self._reached.set(0, watermark)
            watermark -= self._wait_ns
            if watermark < INSTANT_NS_MIN:
                return
            self._emit_before(watermark)
            self.forget_before(watermark)
        self.pass_watermark(watermark)

    def end_of_time(self) -> None:
        self._emit_before(None)

    def _emit_before(self, timestamp_ns: int | None) -> None:
        """Emits the left records that are earlier (None: all), by timestamp and arrival."""
        due: list[tuple[Any, Any]] = []
        waiting: list[tuple[Any, Any]] = []
        rest: list[tuple[Any, Any]] = []
        for times, numbers in self._waiting:
            is_due = numpy.ones(len(times), numpy.bool_) if timestamp_ns is None else times < timestamp_ns
            if not is_due.any():
                waiting.append((times, numbers))
                continue
            due.append((times[is_due], numbers[is_due]))
            if not is_due.all():
                rest.append((times[~is_due], numbers[~is_due]))
        if not due:
            return
        if rest:
            waiting.append(_concatenated(rest))
        self._waiting = waiting
        times, numbers = _concatenated(due)
        order = numpy.lexsort((numbers, times))
        times, numbers = times[order], numbers[order]
        for first in range(0, len(times), SortedRuns.pairs_max):
            part = slice(first, first + SortedRuns.pairs_max)
            self._emit(times[part], numbers[part])
        self._lefts.discard(numbers)

    def _emit(self, times: Any, numbers: Any) -> None:
        lefts = self._lefts.take(numbers)
        slots = slots_of(self._index.find, key_columns(lefts, self.keys_of[0], self.kinds))
        versions = self._versions_of(slots, times)
        has: Any = versions >= 0
        if self._is_inner:
            if not has.any():
                return
            lefts, versions, times, has = lefts.filter(pyarrow.array(has)), versions[has], times[has], None
        if has is not None and not has.any():
            rights = nulls(self.schemas[1], len(versions))
        else:
            rights = self._versions.take(versions)
        for batch in self._results.batches(lefts, rights, (None, has), times):
            self._give(batch)

    def _versions_of(self, slots: Any, times: Any) -> Any:
        """Returns the number of the version of each left record, ``MISSING`` without one."""
        found: list[tuple[Any, Any]] = []
        if self._direction is not Direction.FORWARD:
            found.append(self._versions.runs.last_at(slots, times))
        if self._direction is not Direction.BACKWARD:
            found.append(self._versions.runs.first_at(slots, times))
        numbers, at = found[0]
        if len(found) > 1:
            after, after_at = found[1]
            is_after = (after >= 0) & ((numbers < 0) | (distances(after_at, times) < distances(times, at)))
            numbers, at = numpy.where(is_after, after, numbers), numpy.where(is_after, after_at, at)
        if self._tolerance_ns is not None:
            numbers = numpy.where(distances(at, times) <= self._tolerance_ns, numbers, MISSING)
        return numbers

    # --- forgetting

    def forget_before(self, earliest_ns: int) -> None:
        """Forgets the versions that no left record from ``earliest_ns`` on meets, if there are many."""
        if len(self._versions) <= self._versions_max:
            return

        def is_over(run: Run) -> Any:
            over = numpy.zeros(len(run.times), numpy.bool_)
            if self._direction is Direction.BACKWARD:
                slots = run.slots
                over[:-1] = (slots[1:] == slots[:-1]) & (run.times[1:] <= earliest_ns)
            if self._tolerance_ns is not None:
                tolerated_ns = 0 if self._direction is Direction.FORWARD else self._tolerance_ns
                over |= run.times < earliest_ns - tolerated_ns
            return over

        self._versions.runs.merge()
        self._versions.forget(is_over)
        self._versions_max = max(self.versions_min, 2 * len(self._versions))
        if len(self._index) > self._versions_max:
            self._make_index()


def _concatenated(parts: Sequence[tuple[Any, Any]]) -> tuple[Any, Any]:
    times, numbers = (numpy.concatenate([part[place] for part in parts]) for place in (0, 1))
    return times, numbers
