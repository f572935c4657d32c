"""deduplicate and distinct: one record of each key, of all time or within a length of time, or the last one so far.

Records of a key belong to one span if they are less than ``within`` away from the record that opened it. A span ends
``within`` later: in event time where the stream has timestamps, else in processing time. A late record finds no span
that has ended, and opens a new one.

The operators serve records of any kind, rows and columns: see ``clonos.operators.kinds``.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

from clonos.core.model.watermark import Activity, Watermark
from clonos.kernels.record_batch import RecordBatch
from clonos.operators.aggregates.aggregate import UserFunction
from clonos.operators.columnar.choosing.choice_forms import ChoiceRules, DeduplicateForm
from clonos.operators.columnar.choosing.choice_forms import Keep as Keep
from clonos.operators.columnar.row_forms import SPAN_TIME
from clonos.operators.event_time.timestamps import TimestampColumn
from clonos.operators.facts import Facts, KnownInputs, facts_of, with_form
from clonos.operators.fields import compared, compared_text, itself
from clonos.operators.kinds.kind import BatchT, Kind
from clonos.operators.kinds.kind_step import KindStep
from clonos.operators.kinds.object_kind import ObjectKind
from clonos.operators.operator import DueTimer, Scope
from clonos.operators.state.state_spec import StateSpec


class Deduplicate(KindStep[BatchT]):
    """Base of operators that pass on some of the records of each key."""

    selects_rows = True
    passes_records = True
    _kind: Kind[BatchT]

    @classmethod
    def facts(
        cls,
        given: KnownInputs,
        by: str | Callable[[Any], Any] | None,
        keep: Keep = "first",
        within_ns: int | None = None,
    ) -> Facts:
        """Returns those for the "first" or the "last" record of each key, of all time or of each span."""
        rules = ChoiceRules(keep, within_ns, given.has_times)
        if within_ns is None:
            chooser: type[Deduplicate[Any]] = FirstOfKey if keep == "first" else LastOfKey
        else:
            chooser = FirstOfSpan if keep == "first" else LastOfSpan
        within = ("within", str(within_ns) if rules.has_state else "a batch")
        kind = ObjectKind(None if by is None else compared(by))
        facts = replace(
            facts_of(partial(chooser, given.step, kind, rules), given),
            calls=(UserFunction(by, None),) if callable(by) and by is not itself else (),
            runs_user_code=by is not None,
            state=(("keep", keep), within, ("event time", str(given.has_times)), compared_text(by)),
        )
        (keys,) = given.keys
        if not keys or not (by is None or isinstance(by, str)):
            return facts
        form = DeduplicateForm(keys, by, rules, chooser)
        is_timed = rules.keeps_records and given.has_times
        return replace(with_form(facts, form), timestamp_column=TimestampColumn(SPAN_TIME) if is_timed else None)

    def __init__(self, step: str, kind: Kind[BatchT], rules: ChoiceRules) -> None:
        self._step, self._kind = step, kind
        self._within_ns, self._has_times = rules.within_ns or 0, rules.has_times
        self.takes_columns, self.changes_rows = kind.takes_columns, kind.changes_rows

    def keyed_columns(self, batch: RecordBatch, key: Any) -> None:
        self._take_columns(batch, key)  # of rows too, whose values may be in a column


class FirstOfKey(Deduplicate[BatchT]):
    """First record of each key of all time."""

    @property
    def state_specs(self) -> tuple[StateSpec, ...]:
        return self._kind.key_specs

    def open(self, scope: Scope) -> None:
        self._firsts = self._kind.firsts(scope.state)

    def _take(self, batch: BatchT) -> None:
        batch.emit(self.out, self._firsts.choose(batch))


class LastOfKey(Deduplicate[BatchT]):
    """Last record of each key so far, once a batch: by timestamp and then by arrival, without timestamps by arrival."""

    @property
    def state_specs(self) -> tuple[StateSpec, ...]:
        return self._kind.key_specs if self._has_times else ()

    def open(self, scope: Scope) -> None:
        self._lasts = self._kind.lasts(scope.state, self._has_times)

    def _take(self, batch: BatchT) -> None:
        batch.emit(self.out, self._lasts.choose(batch))


class OfSpan(Deduplicate[BatchT]):
    """Base of operators that pass on one record of each span of a key."""

    has_timers: ClassVar[bool] = True

    def open(self, scope: Scope) -> None:
        self._recorder = scope.context.recorder
        self._open_spans(scope)

    def next_timer_ns(self) -> int | None:
        return None if self._has_times else self._next_end_ns()

    def fire(self, due: Sequence[DueTimer]) -> None:
        for timer in due:
            self._end(timer.token)

    def _instants(self, batch: BatchT) -> Any:
        """Returns the instants of records, by the clock without timestamps."""
        return batch.times if self._has_times else batch.at(self._recorder.instant_ns(False))

    def _next_end_ns(self) -> int | None:
        earliest_ns = self._earliest_ns
        return None if earliest_ns is None else earliest_ns + self._within_ns

    def _next_due(self, until_ns: int | None) -> list[DueTimer]:
        """Returns one timer for all spans that have ended at an instant."""
        next_ns = self._next_end_ns()
        return [] if next_ns is None or (until_ns is not None and until_ns < next_ns) else [DueTimer(next_ns, until_ns)]

    def _opened_max_ns(self, until_ns: int | None) -> int | None:
        """Returns the last instant at which a span opened that has ended at ``until_ns``."""
        return None if until_ns is None else until_ns - self._within_ns

    @property
    @abstractmethod
    def _earliest_ns(self) -> int | None:
        """Instant that opened the earliest span."""

    @abstractmethod
    def _open_spans(self, scope: Scope) -> None:
        """Opens the state."""

    @abstractmethod
    def _end(self, until_ns: int | None) -> None:
        """Ends the spans that have ended at an instant, or all."""


class FirstOfSpan(OfSpan[BatchT]):
    """First record of each span of a key."""

    @property
    def state_specs(self) -> tuple[StateSpec, ...]:
        return self._kind.span_specs

    def _open_spans(self, scope: Scope) -> None:
        self._spans = self._kind.spans(scope.state, self._within_ns)

    def _take(self, batch: BatchT) -> None:
        batch.emit(self.out, self._spans.choose(batch, self._instants(batch)))

    @property
    def _earliest_ns(self) -> int | None:
        return self._spans.earliest_ns

    def on_watermark(self, watermark: Watermark) -> None:
        if self._has_times and not isinstance(watermark, Activity):
            self._end(watermark)
        self.out.on_watermark(watermark)

    def due(self, until_ns: int | None) -> list[DueTimer]:
        return [] if self._has_times else self._next_due(until_ns)

    def _end(self, until_ns: int | None) -> None:
        self._spans.end(self._opened_max_ns(until_ns))


class LastOfSpan(OfSpan[BatchT]):
    """Last record of each span of a key, by timestamp and then by arrival, when the span has ended.

    In event time a result has the end of its span less one nanosecond as its timestamp, so that it is not late.
    """

    has_event_timers: ClassVar[bool] = True

    @property
    def state_specs(self) -> tuple[StateSpec, ...]:
        return self._kind.last_span_specs

    def _open_spans(self, scope: Scope) -> None:
        self._spans = self._kind.last_spans(scope.state, self._within_ns, self._has_times)

    def _take(self, batch: BatchT) -> None:
        self._spans.take(batch, self._instants(batch))

    @property
    def _earliest_ns(self) -> int | None:
        return self._spans.earliest_ns

    @property
    def fires_in_spans(self) -> bool:
        return True

    def due(self, until_ns: int | None) -> list[DueTimer]:
        if self._has_times:
            return []
        ends = [opener_ns + self._within_ns for opener_ns in self._spans.openers(self._opened_max_ns(until_ns))]
        return [DueTimer(end_ns, end_ns) for end_ns in ends]

    def next_event_ns(self) -> int | None:
        return self._next_end_ns() if self._has_times else None

    def due_events(self, until_ns: int | None) -> list[DueTimer]:
        return self._next_due(until_ns) if self._has_times else []

    def fire_events(self, due: Sequence[DueTimer]) -> None:
        self.fire(due)

    def _end(self, until_ns: int | None) -> None:
        self._spans.end(self._opened_max_ns(until_ns), self.out)
