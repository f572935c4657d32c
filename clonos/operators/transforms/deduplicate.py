"""deduplicate and distinct: one record of each key, of all time or within a length of time, or the last one so far.

Records of a key belong to one span if they are less than ``within`` away from the record that opened it. A span is
forgotten by a timer at its end: in event time where the stream has timestamps, else in processing time. A late record
finds no span that has ended, and opens a new one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Final

from clonos.core.values import ValueBeyondLimit
from clonos.core.values.column_keys import python_keys
from clonos.core.values.column_rows import values_of_column
from clonos.core.values.key_encoding import KeyUnsupported
from clonos.core.values.keys import state_key, state_keys
from clonos.kernels.record_batch import RecordBatch
from clonos.operators.aggregates.aggregate import UserFunction
from clonos.operators.columnar.choosing.choice_forms import DeduplicateForm
from clonos.operators.columnar.row_forms import SPAN_TIME
from clonos.operators.event_time.timestamps import TimestampColumn, result_time_ns
from clonos.operators.facts import Facts, KnownInputs, facts_of, with_form
from clonos.operators.fields import Field, compared, compared_text, itself
from clonos.operators.operator import DueTimer, Operator, Scope, Times, without
from clonos.operators.state.timers import Timers

SEEN_NAME: Final = "seen"
TIMERS_NAME: Final = "timers"


class Deduplicate(Operator):
    """First record of each key: of the stream's key, and of ``by`` the record if that is given."""

    selects_rows = True
    passes_records = True

    @classmethod
    def facts(
        cls,
        given: KnownInputs,
        by: str | Callable[[Any], Any] | None,
        keep: str = "first",
        within_ns: int | None = None,
    ) -> Facts:
        """Returns those for the "first" or the "last" record of each key, of all time or of each span."""
        has_times, is_first = given.has_times, keep == "first"
        operator: Callable[..., Operator] = Deduplicate if is_first else LastOfBatch
        if within_ns is not None:
            retained = DeduplicateWithin if is_first else LastWithin
            operator = partial(retained, within_ns=within_ns, has_times=has_times)
        has_state = is_first or within_ns is not None or has_times
        within = ("within", str(within_ns) if has_state else "a batch")
        facts = replace(
            facts_of(partial(operator, given.step, by=None if by is None else compared(by)), given),
            calls=(UserFunction(by, None),) if callable(by) and by is not itself else (),
            runs_user_code=by is not None,
            state=(("keep", keep), within, ("event time", str(has_times)), compared_text(by)),
        )
        (keys,) = given.keys
        if not keys or not (by is None or isinstance(by, str)):
            return facts
        form = DeduplicateForm(keys, by, keep, within_ns, has_times)
        is_timed = form.keeps_records and has_times
        return replace(with_form(facts, form), timestamp_column=TimestampColumn(SPAN_TIME) if is_timed else None)

    def __init__(self, step: str, by: Callable[[Any], Any] | None = None) -> None:
        self._step = step
        self._by = by
        self.changes_rows = by is not None

    def open(self, scope: Scope) -> None:
        self._seen = scope.state.table(f"{self._step}/{SEEN_NAME}")

    def rows(self, rows: list[Any], times: Times = None) -> None:
        keys: list[Any] = [key for key, _ in rows]
        if self._by is not None:
            by = self._by
            found, failed = self.guard.each(lambda pair: by(pair[1]), rows, pairs=rows)
            if failed:
                rows, times, keys = without(rows, failed), times and without(times, failed), without(keys, failed)
            keys = list(zip(keys, found, strict=True))
        if rows:
            self._take(keys, self._stored(keys, rows), [record for _, record in rows], times)

    def keyed_columns(self, batch: RecordBatch, key: Any) -> None:
        if not isinstance(self._by, Field) or self._by.name not in batch.schema.names:
            super().keyed_columns(batch, key)
            return
        rows, batch = self.pairs_of(batch, key)  # which may have another form than the columns that ``by`` names
        if not rows:
            return
        keys = list(zip(python_keys(batch, key), values_of_column(batch.column(self._by.name)), strict=True))
        self._take(keys, self._stored(keys, rows), [record for _, record in rows], self.times_of(batch))

    def _take(self, keys: list[Any], stored: list[Any], records: list[Any], times: Times) -> None:
        """Takes records with their keys, as the user has them and as tables have them."""
        seen = self._seen
        retained = []
        for index, key in enumerate(stored):
            if key not in seen.entries:
                seen.set(key, True)
                retained.append(index)
        self._emit(retained, records, times)

    def _emit(self, retained: list[int], records: list[Any], times: Times) -> None:
        if retained:
            self.out.rows(
                [records[index] for index in retained], None if times is None else [times[i] for i in retained]
            )

    def _stored(self, keys: list[Any], rows: list[Any]) -> list[Any]:
        try:
            return state_keys(keys)
        except (KeyUnsupported, ValueBeyondLimit):
            for index, (key, (_, record)) in enumerate(zip(keys, rows, strict=True)):
                try:
                    state_key(key)
                except (KeyUnsupported, ValueBeyondLimit) as error:
                    self.guard.caught(error, record, index)
            raise


class LastOfBatch(Deduplicate):
    """Last record of each key so far, once a batch: by timestamp and then by arrival, without timestamps by arrival.

    The table has the latest instant of each key; it stays empty without timestamps.
    """

    def _take(self, keys: list[Any], stored: list[Any], records: list[Any], times: Times) -> None:
        seen, last = self._seen, dict[Any, int]()
        for index, key in enumerate(stored):
            if times is not None:
                latest_ns = seen.entries.get(key)
                if latest_ns is not None and times[index] < latest_ns:
                    continue
                seen.set(key, times[index])
            last[key] = index
        self._emit(sorted(last.values()), records, times)


class DeduplicateWithin(Deduplicate):
    """First record of each span of a key. The table has the instants that opened the spans of each key."""

    has_timers: ClassVar[bool] = True
    has_event_timers: ClassVar[bool] = True

    def __init__(self, step: str, by: Callable[[Any], Any] | None, within_ns: int, has_times: bool) -> None:
        super().__init__(step, by)
        self._within_ns = within_ns
        self._has_times = has_times

    def open(self, scope: Scope) -> None:
        super().open(scope)
        self._recorder = scope.context.recorder
        self._timers = Timers(f"{self._step}/{TIMERS_NAME}", scope.state)

    def _take(self, keys: list[Any], stored: list[Any], records: list[Any], times: Times) -> None:
        retained = []
        for index, (instant_ns, key) in enumerate(zip(self._instants(times, len(keys)), stored, strict=True)):
            opened: tuple[int, ...] = self._seen.entries.get(key, ())
            if not any(abs(instant_ns - opener_ns) < self._within_ns for opener_ns in opened):
                self._seen.set(key, (*opened, instant_ns))
                self._timers.set(instant_ns + self._within_ns, keys[index])
                retained.append(index)
        self._emit(retained, records, times)

    def _instants(self, times: Times, count: int) -> Sequence[int]:
        return [self._recorder.instant_ns(False)] * count if times is None else times

    def next_timer_ns(self) -> int | None:
        return None if self._has_times else self._timers.next_ns()

    def due(self, until_ns: int | None) -> list[DueTimer]:
        return [] if self._has_times else self._timers.due(until_ns)

    def fire(self, due: Sequence[DueTimer]) -> None:
        self._end([timer for timer in due if self._timers.take(timer)])

    def next_event_ns(self) -> int | None:
        return self._timers.next_ns() if self._has_times else None

    def due_events(self, until_ns: int | None) -> list[DueTimer]:
        return self._timers.due(until_ns) if self._has_times else []

    def fire_events(self, due: Sequence[DueTimer]) -> None:
        self.fire(due)

    def _end(self, ended: list[DueTimer]) -> None:
        """Forgets the spans that end at these timers."""
        for timer in ended:
            self._forget(timer)

    def _forget(self, timer: DueTimer) -> Any:
        """Forgets the span that ends at a timer; returns its entry."""
        end_ns, _, user_key = timer.token
        key = state_key(user_key)
        spans = self._seen.entries[key]
        place = next(i for i, span in enumerate(spans) if _opener_of(span) == end_ns - self._within_ns)
        left = (*spans[:place], *spans[place + 1 :])
        if left:
            self._seen.set(key, left)
        else:
            self._seen.delete(key)
        return spans[place]


class LastWithin(DeduplicateWithin):
    """Last record of each span of a key, by timestamp and then by arrival, when the span has ended.

    The table has (instant that opened it, latest instant, latest record) of each span. In event time a result has the
    end of its span less one nanosecond as its timestamp, so that it is not late.
    """

    def _take(self, keys: list[Any], stored: list[Any], records: list[Any], times: Times) -> None:
        for index, (instant_ns, key) in enumerate(zip(self._instants(times, len(keys)), stored, strict=True)):
            spans = self._seen.entries.get(key, ())
            for place, (opener_ns, latest_ns, _) in enumerate(spans):
                if abs(instant_ns - opener_ns) < self._within_ns:
                    if instant_ns >= latest_ns:
                        latest = (opener_ns, instant_ns, records[index])
                        self._seen.set(key, (*spans[:place], latest, *spans[place + 1 :]))
                    break
            else:
                self._seen.set(key, (*spans, (instant_ns, instant_ns, records[index])))
                self._timers.set(instant_ns + self._within_ns, keys[index])

    def _end(self, ended: list[DueTimer]) -> None:
        if ended:
            results = [self._forget(timer)[2] for timer in ended]
            times = [result_time_ns(timer.instant_ns) for timer in ended] if self._has_times else None
            self.out.rows(results, times)


def _opener_of(span: Any) -> int:
    """Returns the instant that opened a span: the span itself, or its first part."""
    opener_ns: int = span[0] if isinstance(span, tuple) else span
    return opener_ns
