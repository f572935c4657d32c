"""As-of join: each left record with the version of its key that was valid at its time.

A left record waits until the watermark shows that all versions it may meet have come. A version of a key is forgotten
when no left record can meet it any more; without a tolerance, the last one of each key stays.

A version behind the watermark is late, unless the join looks backward and a left record that is still to come may meet
it: no later version of its key is before the watermark.

A lookup takes the version that came last.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from heapq import heapify, heappop, heappush
from typing import Any, ClassVar, Final

from clonos.core.model.watermark import INSTANT_NS_MIN, Activity, Watermark
from clonos.core.ports.recorder import Recorder
from clonos.core.values.copying import copied
from clonos.operators.event_time.late_batch import LateBatch
from clonos.operators.event_time.timestamps import from_timestamp_ns
from clonos.operators.joins.buffered_join import LEFT_NAME, NUMBERS_NAME, RIGHT_NAME, WATERMARK_NAME, Select
from clonos.operators.joins.join_keys import NULL_KEY, join_keys
from clonos.operators.joins.key_types import KeyTypes
from clonos.operators.joins.side_buffer import Buffered, SideBuffer
from clonos.operators.operator import Scope, Times, TwoInputOperator, without
from clonos.operators.warn_once import WarnOnce

TABLE_NAME: Final = "table"

Waiting = tuple[int, int, Any, Buffered]
"""Left record that waits: timestamp, number, state key, record."""


class Direction(StrEnum):
    """Side of a left record on which its version lies."""

    BACKWARD = "backward"
    FORWARD = "forward"
    NEAREST = "nearest"


class AsOfJoin(TwoInputOperator):
    """As-of join of two streams with timestamps. ``tolerance_ns`` is given unless the direction is backward."""

    holds_watermarks: ClassVar[bool] = True

    def __init__(
        self,
        step: str,
        direction: Direction,
        tolerance_ns: int | None,
        is_inner: bool,
        select: Select | None,
        late: str | None,
    ) -> None:
        self._step, self._direction, self._tolerance_ns = step, direction, tolerance_ns
        self._is_inner, self._select, self._late_tag = is_inner, select, late
        self._wait_ns = 0 if direction is Direction.BACKWARD else tolerance_ns or 0

    def open(self, scope: Scope) -> None:
        state, step = scope.state, self._step
        recorder: Recorder = scope.context.recorder
        self._reached = state.table(f"{step}/{WATERMARK_NAME}", is_small=True)
        self._numbers = state.table(f"{step}/{NUMBERS_NAME}", is_small=True)
        self._next_number: int = self._numbers.entries.get(0, 0)
        self._lefts = state.table(f"{step}/{LEFT_NAME}")  # number -> (key of the user, timestamp in ns, record)
        lefts = self._lefts.contents()
        stored_keys = join_keys([(key, row) for key, _, row in lefts.values()])
        self._waiting: list[Waiting] = [
            (timestamp_ns, number, stored, Buffered(timestamp_ns, number, row))
            for stored, (number, (_, timestamp_ns, row)) in zip(stored_keys, lefts.items(), strict=True)
        ]
        heapify(self._waiting)
        self._versions = SideBuffer(state.table(f"{step}/{RIGHT_NAME}"))
        self._checks: list[tuple[int, int, Any]] = []  # time at which some version of a key may be forgotten
        for stored, version in self._versions.all():
            self._plan_checks(stored, version)
        self._key_types = KeyTypes(step, recorder)
        self._late = LateBatch(step, self._late_tag, self, scope)
        self._missed = WarnOnce(step, recorder)

    def prepare(self, checkpoint: int) -> None:
        if self._numbers.entries.get(0, 0) != self._next_number:
            self._numbers.set(0, self._next_number)

    def first(self, rows: list[Any], times: Times = None) -> None:
        for stored, key, buffered in self._on_time(True, rows, times):
            if stored is NULL_KEY and self._is_inner:
                continue
            self._lefts.set(buffered.number, (key, buffered.timestamp_ns, buffered.row))
            heappush(self._waiting, (buffered.timestamp_ns, buffered.number, stored, buffered))

    def second(self, rows: list[Any], times: Times = None) -> None:
        for stored, key, version in self._on_time(False, rows, times):
            if stored is NULL_KEY:
                continue
            self._versions.add(stored, key, version)
            self._plan_checks(stored, version)

    def _on_time(self, is_left: bool, rows: list[Any], times: Times) -> Iterator[tuple[Any, Any, Buffered]]:
        """Yields the records that are not late, with their state keys and keys; emits the others."""
        assert times is not None, "an as-of join reads streams with timestamps"
        self._key_types.see(is_left, rows[0][0])
        reached_ns: int | None = self._reached.entries.get(0)
        for stored, (key, row), timestamp_ns in zip(join_keys(rows), rows, times, strict=True):
            if (
                reached_ns is None
                or timestamp_ns >= reached_ns
                or self._counts(is_left, stored, timestamp_ns, reached_ns)
            ):
                yield stored, key, Buffered(timestamp_ns, self._next_number, row)
                self._next_number += 1
            else:
                self._late.add(row, timestamp_ns)
        self._late.emit(reached_ns)

    def _counts(self, is_left: bool, stored: Any, timestamp_ns: int, reached_ns: int) -> bool:
        """Returns whether a record behind the watermark is a version that a left record may still meet."""
        if is_left or stored is NULL_KEY or self._direction is not Direction.BACKWARD:
            return False
        if self._tolerance_ns is not None and timestamp_ns < reached_ns - self._tolerance_ns:
            return False
        last = self._versions.last_at(stored, reached_ns)
        if last is not None and last.timestamp_ns > timestamp_ns:
            return False
        self._missed.warn(lambda: missed_text(self._step, timestamp_ns, reached_ns))
        return True

    # --- time

    def on_watermark(self, watermark: Watermark) -> None:
        if not isinstance(watermark, Activity):
            self._reached.set(0, watermark)
            watermark -= self._wait_ns
            if watermark < INSTANT_NS_MIN:
                return
            self._emit_before(watermark)
            self._forget(watermark)
        self.pass_watermark(watermark)

    def end_of_time(self) -> None:
        self._emit_before(None)

    def _emit_before(self, timestamp_ns: int | None) -> None:
        """Emits the left records that are earlier (None: all), by timestamp and arrival."""
        pairs: list[Any] = []
        times: list[int] = []
        while self._waiting and (timestamp_ns is None or self._waiting[0][0] < timestamp_ns):
            at_ns, number, stored, left = heappop(self._waiting)
            self._lefts.delete(number)
            version = self._version_of(stored, at_ns)
            if version is not None or not self._is_inner:
                pairs.append((copied(left.row), None if version is None else copied(version.row)))
                times.append(at_ns)
        if (select := self._select) is not None and pairs:
            pairs, failed = self.guard.each(lambda pair: select(*pair), pairs)
            times = without(times, failed) if failed else times
        if pairs:
            self.out.rows(pairs, times)

    def _version_of(self, stored: Any, at_ns: int) -> Buffered | None:
        before = after = None
        if self._direction is not Direction.FORWARD:
            before = self._versions.last_at(stored, at_ns)
        if self._direction is not Direction.BACKWARD:
            after = self._versions.first_at(stored, at_ns)
        found = [each for each in (before, after) if each is not None]
        nearest = min(found, key=lambda version: abs(version.timestamp_ns - at_ns), default=None)
        if nearest is None or self._tolerance_ns is None:
            return nearest
        return nearest if abs(nearest.timestamp_ns - at_ns) <= self._tolerance_ns else None

    # --- forgetting

    def _plan_checks(self, stored: Any, version: Buffered) -> None:
        """Plans to look at a key when this version may replace an earlier one, and when it has become too old."""
        if self._direction is Direction.BACKWARD:
            heappush(self._checks, (version.timestamp_ns, version.number, stored))
        if self._tolerance_ns is not None:
            heappush(self._checks, (version.timestamp_ns + self._tolerated_ns() + 1, version.number, stored))

    def _tolerated_ns(self) -> int:
        return 0 if self._direction is Direction.FORWARD else self._tolerance_ns or 0

    def _forget(self, earliest_ns: int) -> None:
        """Forgets the versions that no left record from ``earliest_ns`` on meets."""
        due: dict[Any, None] = {}
        while self._checks and self._checks[0][0] <= earliest_ns:
            due[heappop(self._checks)[2]] = None
        for stored in due:
            if self._direction is Direction.BACKWARD:
                self._versions.remove_replaced(stored, earliest_ns)
            if self._tolerance_ns is not None:
                self._versions.remove_before(stored, earliest_ns - self._tolerated_ns())


class Lookup(TwoInputOperator):
    """Join with the row of the key that came last. The order in which records of both inputs come decides."""

    state = ()

    def __init__(self, step: str, is_inner: bool, select: Select | None, has_times: bool) -> None:
        self._step, self._is_inner, self._select, self._has_times = step, is_inner, select, has_times

    def open(self, scope: Scope) -> None:
        self._table = scope.state.table(f"{self._step}/{TABLE_NAME}")
        self._key_types = KeyTypes(self._step, scope.context.recorder)

    def second(self, rows: list[Any], times: Times = None) -> None:
        self._key_types.see(False, rows[0][0])
        for stored, (_, row) in zip(join_keys(rows), rows, strict=True):
            if stored is not NULL_KEY:
                self._table.set(stored, row)

    def first(self, rows: list[Any], times: Times = None) -> None:
        self._key_types.see(True, rows[0][0])
        entries = self._table.entries
        pairs: list[Any] = []
        found_times: list[int] | None = [] if self._has_times else None
        for index, (stored, (_, row)) in enumerate(zip(join_keys(rows), rows, strict=True)):
            found = entries.get(stored)
            if found is None and self._is_inner:
                continue
            pairs.append((row, copied(found)))
            if found_times is not None and times is not None:
                found_times.append(times[index])
        if (select := self._select) is not None and pairs:
            pairs, failed = self.guard.each(lambda pair: select(*pair), pairs)
            found_times = without(found_times, failed) if failed and found_times is not None else found_times
        if pairs:
            self.out.rows(pairs, found_times)


def missed_text(step: str, timestamp_ns: int, reached_ns: int) -> str:
    """Returns the warning of a version that came behind the watermark."""
    return (
        f"the step {step} took a version of {from_timestamp_ns(timestamp_ns).isoformat()} when the watermark was at"
        f" {from_timestamp_ns(reached_ns).isoformat()}: left records between them, if any, have been joined without"
        " it. Raise out_of_order in the Timestamps of the right stream."
    )
