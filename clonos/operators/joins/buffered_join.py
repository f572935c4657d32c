"""Joins by time: interval joins, joins within windows, and joins whose state is forgotten by the clock.

Each side buffers its records as long as a match may come. A record meets the buffer of the other side when it comes, so
pairs leave at once. A record without a match leaves, if the kind of join keeps it, when no match can come any more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from types import NoneType
from typing import Any, ClassVar, Final

from clonos.core.model.watermark import Activity, Watermark
from clonos.core.ports.recorder import Recorder
from clonos.core.values.copying import copied
from clonos.core.values.keys import state_keys
from clonos.operators.event_time.late_batch import LateBatch
from clonos.operators.joins.key_types import KeyTypes
from clonos.operators.joins.match_rules import How, MatchRule, passed_on
from clonos.operators.joins.side_buffer import Buffered, SideBuffer
from clonos.operators.operator import DueTimer, Scope, Times, TwoInputOperator, without

LEFT_NAME: Final = "left"
RIGHT_NAME: Final = "right"
UNMATCHED_NAME: Final = "unmatched"
NUMBERS_NAME: Final = "numbers"
"""Table with one entry, the number of the next record."""
WATERMARK_NAME: Final = "watermark"

Select = Callable[[Any, Any], Any]


class NullKey:
    """Stands for a key that matches nothing. No buffer and no table has it."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "NULL_KEY"


NULL_KEY: Final = NullKey()


class BufferedJoin(TwoInputOperator):
    """Base of joins by time: buffers, matching and forgetting."""

    def __init__(self, step: str, rule: MatchRule, how: How, select: Select | None) -> None:
        self._step, self._rule, self._how, self._select = step, rule, how, select
        self._gives_pairs, self._keeps = how.gives_pairs, {is_left: how.keeps(is_left) for is_left in (True, False)}
        self._one_right_is_enough = rule.shared_ns > 0 and not how.gives_pairs

    def open(self, scope: Scope) -> None:
        state, step = scope.state, self._step
        self._recorder: Recorder = scope.context.recorder
        self._buffers = {
            is_left: SideBuffer(state.table(f"{step}/{name}"))
            for is_left, name in ((True, LEFT_NAME), (False, RIGHT_NAME))
        }
        self._unmatched = state.table(f"{step}/{UNMATCHED_NAME}")  # numbers of records that leave if nothing matches
        self._numbers = state.table(f"{step}/{NUMBERS_NAME}", is_small=True)
        self._next_number: int = self._numbers.entries.get(0, 0)
        self._key_types = KeyTypes(step, self._recorder)
        self._ends: list[int] = []  # a heap of the last timestamps that may match a record in a buffer
        self._ending: dict[int, list[tuple[bool, Any, Buffered]]] = {}  # the records of each, in the order of arrival
        stored = [(is_left, key, each) for is_left, buffer in self._buffers.items() for key, each in buffer.all()]
        for is_left, key, each in sorted(stored, key=lambda record: record[2].number):
            self._await_end(self._rule.partners(is_left, each.timestamp_ns)[1], is_left, key, each)
        self._pairs: list[tuple[Any, Any]] = []
        self._times: list[int] = []

    def prepare(self, checkpoint: int) -> None:
        if self._numbers.entries.get(0, 0) != self._next_number:
            self._numbers.set(0, self._next_number)

    # --- matching

    def _add(self, is_left: bool, stored: Any, key: Any, buffered: Buffered, reached_ns: int | None) -> None:
        """Matches a record with the buffer of the other side, and buffers it if a match may still come."""
        if stored is NULL_KEY:
            if self._keeps[is_left]:
                self._emit_alone(is_left, buffered)
            return
        first_ns, last_ns = self._rule.partners(is_left, buffered.timestamp_ns)
        found = self._buffers[not is_left].between(stored, first_ns, last_ns)
        if found:
            self._match(is_left, stored, buffered, found)
            if is_left and not self._gives_pairs:
                return  # one match decides
        if not is_left and self._one_right_is_enough and self._buffers[False].has_between(stored, first_ns, last_ns):
            return  # it matches what that one matches
        if reached_ns is None or last_ns >= reached_ns:
            self._buffers[is_left].add(stored, key, buffered)
            self._await_end(last_ns, is_left, stored, buffered)
            if not found and self._keeps[is_left] and self._gives_pairs:
                self._unmatched.set(buffered.number, None)
        elif not found and self._keeps[is_left]:
            self._emit_alone(is_left, buffered)

    def _await_end(self, last_ns: int, is_left: bool, stored: Any, buffered: Buffered) -> None:
        waiting = self._ending.get(last_ns)
        if waiting is None:
            waiting = self._ending[last_ns] = []
            heappush(self._ends, last_ns)
        waiting.append((is_left, stored, buffered))

    def _match(self, is_left: bool, stored: Any, buffered: Buffered, found: list[Buffered]) -> None:
        if self._gives_pairs:
            for other in found:
                left, right = (buffered, other) if is_left else (other, buffered)
                self._pairs.append((left.row, right.row))
                self._times.append(max(left.timestamp_ns, right.timestamp_ns))
            if self._keeps[not is_left]:
                for other in found:
                    self._unmatched.delete(other.number)
            return
        lefts = [buffered] if is_left else found
        if self._how is How.SEMI:
            for left in lefts:
                self._emit_alone(True, left)
        if not is_left:
            for left in lefts:
                self._buffers[True].remove(stored, left)

    def _emit_alone(self, is_left: bool, buffered: Buffered) -> None:
        self._pairs.append((buffered.row, None) if is_left else (None, buffered.row))
        self._times.append(buffered.timestamp_ns)

    def _forget(self, reached_ns: int | None) -> None:
        """Forgets the records that nothing from ``reached_ns`` on matches (None: all), and emits those without a match.

        They leave in the order of the last timestamp that could have matched, then of arrival.
        """
        ended: dict[tuple[bool, Any], int] = {}
        while self._ends and (reached_ns is None or self._ends[0] < reached_ns):
            for is_left, stored, buffered in self._ending.pop(heappop(self._ends)):
                if buffered.number not in self._buffers[is_left]:
                    continue  # a match has decided
                if self._keeps[is_left] and self._is_unmatched(buffered.number):
                    self._emit_alone(is_left, buffered)
                timestamp_ns, of = buffered.timestamp_ns, (is_left, stored)
                ended[of] = max(timestamp_ns, ended.get(of, timestamp_ns))
        for (is_left, key), timestamp_ns in ended.items():
            self._buffers[is_left].remove_before(key, timestamp_ns + 1)

    def _is_unmatched(self, number: int) -> bool:
        if not self._gives_pairs:
            return True
        is_unmatched = number in self._unmatched.entries
        self._unmatched.delete(number)
        return is_unmatched

    # --- output

    def _emit(self, has_times: bool) -> None:
        """Emits the results since the last call."""
        pairs, times, self._pairs, self._times = self._pairs, self._times, [], []
        if not pairs:
            return
        if not self._gives_pairs:
            self.out.rows([copied(left) for left, _ in pairs], times if has_times else None)
            return
        results: list[Any] = [(copied(left), copied(right)) for left, right in pairs]
        if (select := self._select) is not None:
            results, failed = self.guard.each(lambda pair: select(*pair), results)
            times = without(times, failed) if failed else times
        if results:
            self.out.rows(results, times if has_times else None)


class EventJoin(BufferedJoin):
    """Join by the timestamps of the records."""

    holds_watermarks: ClassVar[bool] = True

    def __init__(self, step: str, rule: MatchRule, how: How, select: Select | None, late: str | None) -> None:
        super().__init__(step, rule, how, select)
        self._late_tag = late

    def open(self, scope: Scope) -> None:
        super().open(scope)
        self._reached = scope.state.table(f"{self._step}/{WATERMARK_NAME}", is_small=True)
        self._late = LateBatch(self._step, self._late_tag, self, scope)

    def first(self, rows: list[Any], times: Times = None) -> None:
        self._take(True, rows, times)

    def second(self, rows: list[Any], times: Times = None) -> None:
        self._take(False, rows, times)

    def _take(self, is_left: bool, rows: list[Any], times: Times) -> None:
        assert times is not None, "a join by time reads streams with timestamps"
        self._key_types.see(is_left, rows[0][0])
        reached_ns: int | None = self._reached.entries.get(0)
        for stored, (key, row), timestamp_ns in zip(join_keys(rows), rows, times, strict=True):
            if (
                reached_ns is not None
                and timestamp_ns < reached_ns
                and self._is_late(is_left, timestamp_ns, reached_ns)
            ):
                self._late.add(row, timestamp_ns)
                continue
            self._add(is_left, stored, key, Buffered(timestamp_ns, self._next_number, row), reached_ns)
            self._next_number += 1
        self._emit(True)
        self._late.emit(reached_ns)

    def _is_late(self, is_left: bool, timestamp_ns: int, reached_ns: int) -> bool:
        """Returns whether a record before the watermark is late: its earliest partner may be forgotten."""
        first_ns, _ = self._rule.partners(is_left, timestamp_ns)
        return self._rule.partners(not is_left, first_ns)[1] < reached_ns

    def on_watermark(self, watermark: Watermark) -> None:
        if not isinstance(watermark, Activity):
            before_ns = self._reached.entries.get(0)
            self._reached.set(0, watermark)
            self._forget(watermark)
            self._emit(True)
            passed_ns = passed_on(self._rule, self._how, watermark, before_ns)
            if passed_ns is None:
                return
            watermark = passed_ns
        self.pass_watermark(watermark)

    def end_of_time(self) -> None:
        self._forget(None)
        self._emit(True)


class ClockJoin(BufferedJoin):
    """Join by the times at which the records come, which are recorded. It forgets a record by the clock."""

    has_timers: ClassVar[bool] = True

    def first(self, rows: list[Any], times: Times = None) -> None:
        self._take(True, rows)

    def second(self, rows: list[Any], times: Times = None) -> None:
        self._take(False, rows)

    def _take(self, is_left: bool, rows: list[Any]) -> None:
        self._key_types.see(is_left, rows[0][0])
        now_ns = self._recorder.instant_ns(False)
        for stored, (key, row) in zip(join_keys(rows), rows, strict=True):
            self._add(is_left, stored, key, Buffered(now_ns, self._next_number, row), None)
            self._next_number += 1
        self._emit(False)

    def next_timer_ns(self) -> int | None:
        return self._ends[0] + 1 if self._ends else None

    def due(self, until_ns: int | None) -> list[DueTimer]:
        next_ns = self.next_timer_ns()
        return [] if next_ns is None or (until_ns is not None and until_ns < next_ns) else [DueTimer(next_ns, until_ns)]

    def fire(self, due: Sequence[DueTimer]) -> None:
        for timer in due:
            self._forget(timer.token)
            self._emit(False)


def join_keys(rows: list[Any]) -> list[Any]:
    """Returns the state key of each row (key, value), ``NULL_KEY`` in place of those that match nothing.

    Raises: KeyUnsupported: the type of a key cannot be one.
    """
    keys = [key for key, _ in rows]
    stored = state_keys(keys)
    classes = {*map(type, keys)}
    if NoneType not in classes and tuple not in classes:
        return stored
    return [NULL_KEY if _has_null(key) else each for key, each in zip(keys, stored, strict=True)]


def _has_null(key: Any) -> bool:
    return key is None or (type(key) is tuple and any(map(_has_null, key)))
