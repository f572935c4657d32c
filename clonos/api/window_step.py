"""Settings of a windowed step: what the user gave to ``window``, checked against the stream."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from clonos.api.emission import check_emission
from clonos.api.graph_errors import InvalidJob
from clonos.api.steps import GraphBuilder
from clonos.api.windows import (
    Aligned,
    CountSliding,
    CountTumbling,
    Global,
    PerRecord,
    Range,
    Session,
    WindowKind,
    checked_count,
)
from clonos.core.model.wrong_calls import explains_calls
from clonos.operators.aggregates.aggregate import Aggregation, Named, UserFunction
from clonos.operators.aggregates.counting import Count
from clonos.operators.aggregates.numeric import Sum
from clonos.operators.aggregates.partial import MergingParts
from clonos.operators.columnar.row_forms import END, START, TIME
from clonos.operators.columnar.support import columns_read, name_reason, parts_of, reads_records, reason_for_rows
from clonos.operators.columnar.window_forms import SessionsForm, SpansForm, WindowedForm
from clonos.operators.emission_times import Emission
from clonos.operators.event_time.durations import Duration, duration_ns
from clonos.operators.event_time.timestamps import TimestampColumn
from clonos.operators.facts import Facts, KnownInputs, facts_of, with_form
from clonos.operators.kinds.object_panes import ObjectPanesKind
from clonos.operators.kinds.object_windows import ObjectWindowsKind
from clonos.operators.kinds.partial_rows import PartialRows
from clonos.operators.operator import Operator
from clonos.operators.steps.context import GIVE_TIMESTAMPS
from clonos.operators.tags import Tag
from clonos.operators.windows.assigners import AlignedAssigner, Assigner, GlobalAssigner, SessionAssigner
from clonos.operators.windows.evictors import Evictor, LastValues, NewestValues
from clonos.operators.windows.gathered import GatheredValues
from clonos.operators.windows.key_windows import KeyWindows
from clonos.operators.windows.pane_windows import PaneWindows
from clonos.operators.windows.record_windows import RecordWindows
from clonos.operators.windows.triggers import ByClock, ByEventTime, OnCount, Trigger, functions_of
from clonos.operators.windows.window_aggregates import window_aggregate
from clonos.operators.windows.window_results import WindowResult
from clonos.operators.windows.window_rules import WindowRules

AnyTrigger = Trigger | Emission
"""Trigger, or ``each(n)``, ``every("5s")`` or ``at_end()``."""


APPLIED: Final = ("key", "window", "values")
"""Arguments that a function of ``apply`` is called with."""

RESULT_TIME: Final = TimestampColumn(TIME)

ENDING: Final = (Aligned, Session)
"""Kinds of windows that end at a time."""

OVERLAP_MAX: Final = 1_000
"""Windows that a record may be in if each of them is on its own, for a trigger or an evictor."""


@dataclass(frozen=True, slots=True)
class WindowSettings:
    """Kind of the windows of a step, their rules, and what makes them emit other than at their end."""

    kind: WindowKind
    rules: WindowRules
    trigger: Trigger | None
    evictor: Evictor | None

    @property
    def _ignores_order(self) -> bool:
        """Whether results do not depend on the order of records, if those of the aggregate do not."""
        if isinstance(self.kind, Session) and self.kind.max_length_ns is not None:
            return False  # which session a record is in depends on those before it
        return isinstance(self.kind, ENDING) and self.trigger is None and self.evictor is None

    @property
    def _functions(self) -> tuple[UserFunction, ...]:
        """The functions of the user that assign and emit windows: those of a gap and a trigger."""
        gap = getattr(self.kind, "gap", None)
        gaps = (UserFunction(gap, ("record",)),) if callable(gap) else ()
        return (*gaps, *(() if self.trigger is None else functions_of(self.trigger)))

    def _state(self, aggregation: Aggregation[Any, Any]) -> list[tuple[str, str]]:
        """Returns the properties on which the state depends; a resume compares those that both jobs have."""
        text = [("window", str(self.kind))]
        if isinstance(self.kind, ENDING):
            text.append(("time", "event" if self.rules.is_event_time else "processing"))
        if self._is_aligned:
            text.append(("windows", "in panes" if self._has_panes else "of each key, for a trigger or an evictor"))
        if self.rules.lateness_ns or (self.trigger is not None and isinstance(self.kind, (Global, *ENDING))):
            whole = self.rules.accumulates
            text.append(("content of further results", "all records" if whole else "the records since the last one"))
        text.append(("accumulators", self._accumulators(aggregation)))
        if isinstance(aggregation, Named):
            text.append(("aggregates", repr(aggregation)))
        elif isinstance(aggregation, Sum) and isinstance(aggregation.of, str):
            text.append(("field", repr(aggregation.of)))
        return text

    def _accumulators(self, aggregation: Aggregation[Any, Any]) -> str:
        if self.evictor is not None or isinstance(self.kind, PerRecord):
            return "values with times"
        return "of the aggregate" if self._formed(aggregation) is aggregation else "values"

    @property
    def _is_aligned(self) -> bool:
        return isinstance(self.kind, Aligned)

    @property
    def _has_panes(self) -> bool:
        return self._is_aligned and self.trigger is None and self.evictor is None

    def _formed(self, aggregation: Aggregation[Any, Any]) -> Aggregation[Any, Any]:
        """Returns the aggregation, or a gathering of all values for it if it cannot merge accumulators."""
        if self.evictor is not None:
            return GatheredValues(aggregation, is_timed=True)
        shares_panes = self.trigger is None and isinstance(self.kind, Aligned) and self.kind.shares_panes
        merges = shares_panes or isinstance(self.kind, Session)
        if not aggregation.can_merge and (merges or (self._has_panes and self.rules.lateness_ns)):
            return GatheredValues(aggregation)
        return aggregation

    def checked_parallelism(self, step: str, parallelism: int | None) -> int | None:
        """Returns the parallelism of the step: 1 without keys.

        Raises: InvalidJob: a stream without keys is to have several tasks.
        """
        if self.rules.is_keyed:
            return parallelism
        if parallelism not in (None, 1):
            problem = f"has the parallelism {parallelism!r}, but windows without a key have one task"
            raise InvalidJob(step, problem, "Leave parallelism= out, or call key_by before window.")
        return 1

    @property
    def reason_not_split(self) -> str:
        """Why the records of a key cannot be aggregated in parts, as the end of a sentence; "" if they can."""
        if not self.rules.is_keyed:
            return "the windows have no key"
        if not self._is_aligned:
            return f"which records are in a window of {self.kind} is known in the task of their key alone"
        return "" if self._has_panes else "a trigger or an evictor looks at each record"

    def facts(
        self, given: KnownInputs, what: str, aggregation: Aggregation[Any, Any], apply: Any, is_split: bool = False
    ) -> Facts:
        """Returns the facts of windows of an aggregation.

        ``what``: its method. ``apply``: see ``WindowedStream``. ``is_split``: tasks in front of the exchange by key
        aggregate their own records first.
        """
        own = aggregation.functions if apply is None else (UserFunction(apply, APPLIED),)
        calls, rules = (*own, *self._functions), self.rules
        facts = replace(
            facts_of(self._operator(given.step, MergingParts(aggregation) if is_split else aggregation, apply), given),
            splits=self._splits(given.step, aggregation) if is_split else None,
            calls=calls,
            runs_user_code=what != "count" or bool(self._functions),
            state=tuple(self._state(aggregation)),
            key_field=WindowResult._fields[0] if rules.is_keyed and apply is None else None,
            ignores_order=aggregation.ignores_order and self._ignores_order,
            has_times=rules.has_times,
            emits_at_end=isinstance(self.kind, Global) and self.trigger is None,
            follows_clock=isinstance(self.kind, ENDING) and self.kind.time is None and not rules.is_event_time,
            names_columns=not calls,
            side_tags=() if rules.late_tag is None else (rules.late_tag,),
        )
        return facts if apply else self._over_columns(facts, given, aggregation)

    def _splits(self, step: str, aggregation: Aggregation[Any, Any]) -> Callable[[], Operator]:
        assert isinstance(self.kind, Aligned), self.kind
        return partial(PartialRows, step, self.kind.spans(), aggregation, self.rules.is_event_time)

    def _over_columns(self, facts: Facts, given: KnownInputs, aggregation: Aggregation[Any, Any]) -> Facts:
        """Adds the form over columns, or the reason for which there is none."""
        (keys,), rules, reads = given.keys, self.rules, self._columns_read(aggregation)
        is_columnar = bool(keys) or (not rules.is_keyed and given.has_columns)
        if not is_columnar or reads is None or _name_reason(keys, aggregation):
            counts_alone = rules.is_keyed and self._counts_alone(aggregation)
            return replace(facts, row_reason=self._row_reason(aggregation, keys), reads=() if counts_alone else None)
        has_all = rules.late_tag is not None or reads_records(aggregation)
        return replace(
            with_form(facts, self._form(aggregation, keys, is_split=facts.splits is not None)),
            timestamp_column=RESULT_TIME if rules.has_times else None,
            reads=None if has_all else reads if keys else reads or None,
        )

    def _columns_read(self, aggregation: Aggregation[Any, Any]) -> tuple[str, ...] | None:
        """Returns the columns that an aggregation of windows over columns reads; None if it is made of rows."""
        if self.trigger is not None or self.evictor is not None:
            return None
        if isinstance(self.kind, Session):
            has_gap = not callable(self.kind.gap) and self.kind.max_length_ns is None
            return columns_read(aggregation) if has_gap and self.rules.is_event_time else None
        return columns_read(aggregation, has_logs=True) if self._is_aligned else None

    def _row_reason(self, aggregation: Aggregation[Any, Any], keys: Sequence[str]) -> str:
        """Returns why windows over columns work on rows."""
        if reason := reason_for_rows(aggregation, has_logs=self._is_aligned) or _name_reason(keys, aggregation):
            return reason
        if self.trigger is not None:
            return "windows with a trigger work on rows"
        if self.evictor is not None:
            return "windows with an evictor work on rows"
        if not isinstance(self.kind, Session):
            return f"windows of the kind {type(self.kind).__name__} work on rows"
        if callable(self.kind.gap):
            return "sessions whose gap is a function work on rows"
        if self.kind.max_length_ns is not None:
            return "sessions with max_length= work on rows"
        return "sessions by the clock work on rows"

    def _counts_alone(self, aggregation: Aggregation[Any, Any]) -> bool:
        """Returns whether the windows only count records, and neither they nor anybody else reads these."""
        if self.trigger is not None or self.evictor is not None or self.rules.late_tag is not None:
            return False
        return type(aggregation) is Count and not (aggregation.functions or self._functions)

    def _form(self, aggregation: Aggregation[Any, Any], keys: tuple[str, ...], *, is_split: bool) -> WindowedForm:
        """Returns the form over columns for an aggregation of which ``_columns_read`` gives columns."""
        if isinstance(self.kind, Session):
            return SessionsForm(aggregation, keys, self.rules, duration_ns(self.kind.gap))
        assert isinstance(self.kind, Aligned), self.kind
        return SpansForm(aggregation, keys, self.rules, self.kind.spans(), is_split)

    def _operator(self, step: str, aggregation: Aggregation[Any, Any], apply: Any) -> Callable[[], Operator]:
        """Returns what makes the operator over rows."""
        kind, rules, formed = self.kind, self.rules, self._formed(aggregation)
        if isinstance(kind, Aligned) and self._has_panes:
            panes = ObjectPanesKind(rules.is_keyed, window_aggregate(formed), apply)
            return partial(PaneWindows, step, panes, kind.spans(), rules)
        if isinstance(kind, PerRecord):
            return partial(RecordWindows, step, kind.bound(), aggregation, rules, apply)
        objects = ObjectWindowsKind(rules.is_keyed, _assigner_of(kind), formed, apply, self.trigger, self.evictor)
        return partial(KeyWindows, step, objects, rules)


def _name_reason(keys: Sequence[str], aggregation: Aggregation[Any, Any]) -> str:
    return name_reason((*keys, START, END, TIME, *parts_of(aggregation)))


def window_settings(
    stream: GraphBuilder,
    kind: Any,
    *,
    is_keyed: bool,
    lateness: Duration | None,
    late: Tag[Any] | None,
    trigger: AnyTrigger | None,
    early: AnyTrigger | None,
    accumulate: bool,
    evictor: Evictor | None,
) -> WindowSettings:
    """Returns the settings for windows of a stream.

    Raises: InvalidJob: an argument cannot be used on this stream. InvalidDuration: ``lateness`` is no length of time.
    """
    if not isinstance(kind, WindowKind):
        raise InvalidJob("window", f"gets {kind!r:.100}", 'Give it a kind of window, such as Tumbling("5s").')
    follows_clock = isinstance(kind, ENDING) and kind.time == "processing"
    graph, inputs = stream._graph, stream._inputs
    has_times = graph.have_times(inputs) if follows_clock else graph.have_same_times("window", inputs)
    is_event_time = _is_event_time(kind, has_times)
    if isinstance(kind, PerRecord) and (lateness or trigger or early or evictor or not accumulate):
        problem = f"gets lateness=, trigger=, early=, evictor= or accumulate= for {kind}"
        raise InvalidJob("window", problem, "Leave them out: each record has one result. late= is possible.")
    _check_lateness(kind, is_event_time, lateness, late)
    _check_triggers(kind, trigger, early)
    if isinstance(kind, CountSliding):
        _check_count_sliding(kind, accumulate, evictor)
    if evictor is not None and not isinstance(evictor, Evictor):
        raise InvalidJob("window", f"gets evictor={evictor!r:.80}", "Give last_values(n) or newest_values(age).")
    if isinstance(kind, Aligned):
        _check_overlap(kind, "an evictor" if evictor is not None else "a trigger", bool(trigger or early or evictor))
    own = early if trigger is None else trigger
    chosen = None if own is None else _trigger_of(own, has_times)
    emits_at_end = trigger is None
    if isinstance(kind, CountTumbling):
        chosen, accumulate, emits_at_end = OnCount(kind.count), False, False
    elif isinstance(kind, CountSliding):
        chosen, evictor, emits_at_end = OnCount(kind.every), LastValues(kind.count), False
    rules = WindowRules(
        is_keyed=is_keyed,
        is_event_time=is_event_time,
        lateness_ns=0 if lateness is None else duration_ns(lateness),
        late_tag=None if late is None else late.name,
        accumulates=accumulate,
        emits_at_end=emits_at_end,
        has_times=is_event_time if isinstance(kind, ENDING) else has_times,
    )
    return WindowSettings(kind, rules, chosen, evictor)


def _is_event_time(kind: WindowKind, has_times: bool) -> bool:
    time = kind.time if isinstance(kind, ENDING) else None if isinstance(kind, PerRecord) else "none"
    if (time == "event" or isinstance(kind, Range)) and not has_times:
        raise InvalidJob("window", "has windows in event time on a stream without timestamps", GIVE_TIMESTAMPS)
    return has_times and time in (None, "event")


def _check_lateness(kind: WindowKind, is_event_time: bool, lateness: Duration | None, late: Any) -> None:
    if late is not None and not isinstance(late, Tag):
        raise InvalidJob("window", f"gets late={late!r:.80}", 'Give it a tag: late=Tag("late").')
    if is_event_time or (lateness is None and late is None):
        return
    ends = isinstance(kind, ENDING)
    problem = "has late records in processing time" if ends else f"has late records in {kind}"
    because = "by the clock of the task no record is late" if ends else "these windows do not end at a time"
    raise InvalidJob("window", problem, f"Leave late= and lateness= out: {because}.")


def _check_triggers(kind: WindowKind, trigger: Any, early: Any) -> None:
    if trigger is not None and early is not None:
        raise InvalidJob("window", "gets trigger= and early=", "A trigger decides alone: leave early= out.")
    if trigger is not None and isinstance(kind, CountTumbling | CountSliding):
        raise InvalidJob("window", f"gets a trigger for {kind}", "Use Global() with trigger=.")
    if early is not None and not isinstance(kind, ENDING):
        raise InvalidJob("window", f"gets early= for {kind}, which has no end in time", "Use Global() with trigger=.")


def _check_overlap(kind: Aligned, what: str, has_windows_apart: bool) -> None:
    if has_windows_apart and kind.overlap > OVERLAP_MAX:
        problem = f"gets {what} for {kind}, in which a record is in {kind.overlap} windows"
        advice = "Let every= be at least a thousandth of the size, or leave"
        raise InvalidJob("window", problem, f"{advice} the {what.split()[1]} out: the windows share panes then.")


def _check_count_sliding(kind: CountSliding, accumulate: bool, evictor: Any) -> None:
    if not accumulate:
        advice = f"use CountTumbling({kind.count}) or Global() for those since the last result."
        problem = f"gets accumulate=False for {kind}"
        raise InvalidJob("window", problem, f"Each of its results has the last records of the key: {advice}")
    if evictor is not None:
        advice = f"use Global() with trigger=each({kind.every}) and evictor=."
        raise InvalidJob("window", f"gets evictor= for {kind}", f"It keeps the last records of the key: {advice}")


def _trigger_of(given: Any, has_times: bool) -> Trigger:
    if isinstance(given, Emission):
        check_emission("window", given, "trigger")
        if given.count is not None:
            return OnCount(given.count)
        return Trigger() if given.interval_ns is None else ByClock(given.interval_ns)
    if not isinstance(given, Trigger):
        advice = 'Give each(n), every("5s"), every_event_time("5s"), at_end(), or an object of a Trigger class.'
        raise InvalidJob("window", f"gets the trigger {given!r:.80}", advice)
    if isinstance(given, ByEventTime) and not has_times:
        raise InvalidJob("window", "gets a trigger in event time on a stream without timestamps", GIVE_TIMESTAMPS)
    return given


@explains_calls
def every_event_time(interval: Duration) -> Trigger:
    """Returns a trigger that emits at every multiple of a length of event time, if there are further records.

    Raises:
        InvalidDuration: ``interval`` is not a length of time.
    """
    return ByEventTime(duration_ns(interval))


@explains_calls
def last_values(count: int) -> Evictor:
    """Returns an evictor that leaves the last ``count`` values of a window, by arrival, when it emits.

    Raises:
        InvalidJob: ``count`` is not an int of at least 1.
    """
    return LastValues(checked_count("last_values", count))


@explains_calls
def newest_values(age: Duration) -> Evictor:
    """Returns an evictor that leaves the values whose time is less than ``age`` behind the latest one of the window.

    Raises:
        InvalidDuration: ``age`` is not a length of time.
    """
    return NewestValues(duration_ns(age))


def _assigner_of(kind: WindowKind) -> Assigner:
    if isinstance(kind, Aligned):
        return AlignedAssigner(kind.spans())
    return SessionAssigner(kind.gap_ns, kind.max_length_ns) if isinstance(kind, Session) else GlobalAssigner()
