"""Process functions: a user class that is called for each record and each timer, with state per key.

Each incarnation has its own instance. Its attributes may be set until ``open`` has returned, not later, because only
state declared by descriptors survives a failure. Without a key, state and timers belong to the task.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, NamedTuple

from clonos.core.model.errors import JobError
from clonos.core.model.watermark import Activity, Watermark
from clonos.core.ports.operator_chain import FailedAt, StepFailed
from clonos.core.values.copying import copied
from clonos.operators.event_time.marks import ResultMarks
from clonos.operators.event_time.timestamps import from_timestamp_ns
from clonos.operators.facts import Facts, KnownInputs, facts_of
from clonos.operators.operator import DueTimer, Operator, Scope, Times
from clonos.operators.state.expiry import ENDS
from clonos.operators.state.state_descriptors import CONTAINERS, VALUES, State
from clonos.operators.state.state_spec import StateScope, StateSpec, small
from clonos.operators.state.timers import Timers
from clonos.operators.state.undo import Undo
from clonos.operators.steps.context import EVENT_TIMERS, TIMERS, Context
from clonos.operators.steps.frozen_class import frozen
from clonos.operators.steps.function_results import emit_yielded, returns_nothing
from clonos.operators.steps.past_timers import PastTimers
from clonos.operators.user_errors import RAISED

WATERMARK: Final = small("/watermark", StateScope.EQUAL)
"""Table with one entry, the watermark of the step."""


WITHOUT_KEY: Final = (
    *(replace(spec, scope=StateScope.UNION) for spec in (TIMERS, EVENT_TIMERS)),
    replace(WATERMARK, scope=StateScope.MIN),
)
"""State of a step without a key whose descriptors all say what becomes of theirs: each task has the timers of all."""

OF_TASK: Final = (
    "its state has no key and belongs to a task; use key_by in front of it, or make all of its state attributes of the"
    " class, lists and dicts with on_rescale"
)
"""Reason why the width of other steps without a key cannot change."""


class Method(NamedTuple):
    """Method of a process function that takes records."""

    name: str
    call: Callable[[Any, Any], Any]
    returns_nothing: bool


def method_of(function: Any, name: str) -> Method:
    """Returns a method of a process function."""
    call = getattr(function, name)
    return Method(name, call, returns_nothing(call))


def descriptors_of(function: Any) -> dict[str, State]:
    """Returns the descriptors that a process function has as attributes, by name."""
    cls = function if isinstance(function, type) else type(function)
    attributes = [vars(base) for base in cls.__mro__] + ([] if cls is function else [getattr(function, "__dict__", {})])
    return {state.name: state for each in attributes for state in each.values() if isinstance(state, State)}


def states_of(function: Any) -> tuple[tuple[str, str], ...]:
    """Returns kind and type of the default of each state that a process function declares as an attribute."""
    found = descriptors_of(function)
    kinds = [(f'state "{name}"', type(state).__name__) for name, state in sorted(found.items())]
    defaults = [(name, getattr(state, "default", None)) for name, state in sorted(found.items())]
    return (*kinds, *((f'type of state "{name}"', type(each).__name__) for name, each in defaults if each is not None))


class Process(Operator):
    """Operator that runs a process function on (key, value) pairs, or on records without a key."""

    runs_user_code = True
    side_tags = None
    has_timers = True
    has_event_timers = True

    @classmethod
    def facts(cls, given: KnownInputs, function: Any, has_times: bool, **arguments: bool) -> Facts:
        """Returns those for the arguments of the operator."""
        make = partial(cls, given.step, function, has_times=has_times, **arguments)
        return replace(facts_of(make, given, function), state=states_of(function), has_times=has_times)

    def __init__(self, step: str, function: Any, is_keyed: bool, has_times: bool = False) -> None:
        """Creates the operator from a class, or from an instance, of which each incarnation gets a copy."""
        self._step = step
        self._function = function() if isinstance(function, type) else copy.deepcopy(function)
        self._class = type(self._function)
        self._is_keyed = is_keyed
        self._has_times = has_times
        self._is_open = False

    @property
    def state_specs(self) -> tuple[StateSpec, ...]:
        specs = VALUES, CONTAINERS, ENDS, TIMERS, EVENT_TIMERS, WATERMARK
        if self._is_keyed:
            return specs
        found = [state.specs_without_key() for state in descriptors_of(self._function).values()]
        if not found or not all(found):
            return tuple(spec.fixed(OF_TASK) for spec in specs)
        return (*(spec for each in found for spec in each), *WITHOUT_KEY)

    def open(self, scope: Scope) -> None:
        self._timers = Timers(TIMERS, scope.state)
        self._event_timers = Timers(EVENT_TIMERS, scope.state)
        self._reached = scope.state.table(WATERMARK)
        self._past_timers = PastTimers(self._step, scope.context.recorder, self._current_record)
        self._undo = Undo() if self.guard.routes else None
        self._context: Context[Any, Any] = self._new_context(
            self._step,
            scope.state,
            self._timers,
            self._event_timers,
            self._past_timers,
            scope.context.recorder,
            has_times=self._has_times,
            fires_events=hasattr(self._function, "on_event_timer"),
            undo=self._undo,
        )
        self._context.watermark_ns = self._reached.entries.get(0)
        self._is_open = True
        if hasattr(self._function, "open"):
            self._call(self._function.open, self._context)
        self._bind()
        object.__setattr__(self._function, "__class__", frozen(self._class, partial(AttributeSetLate, self._step)))

    def _new_context(self, *arguments: Any, **rest: Any) -> Context[Any, Any]:
        return Context(*arguments, **rest)

    def _bind(self) -> None:
        """Finds the methods that take records, after ``open`` of the user."""
        self._method = method_of(self._function, "process")

    def rows(self, rows: list[Any], times: Times = None) -> None:
        self._process(self._method, rows if self._is_keyed else [(None, row) for row in rows], times)

    def _process(self, method: Method, pairs: list[Any], times: Times) -> None:
        """Calls a method for each (key, value), and passes on what it emits."""
        results: list[Any] = []
        self._context.emit = self._emit_to(results)
        self._pairs = pairs
        if times is None:
            self.guard.run(lambda records: self._consume(method, records, results), pairs, pairs=pairs)
        else:
            left, marks = iter(times), ResultMarks(results)

            def consume(records: Iterator[Any]) -> None:
                self._records = records
                self._consume_timed(method, marks.note(records), left, results)

            self.guard.run(consume, pairs, pairs=pairs)
            times = marks.spread(times)
            self._context.timestamp_ns = None
        self._context.end_step()
        if results:
            self.out.rows(results, times)
        if self._context.tagged:
            self._pass_tagged()

    def _pass_tagged(self) -> None:
        """Passes the records for side outputs on, by tag in the order of their first records."""
        tagged, self._context.tagged = self._context.tagged, []
        for tag in dict.fromkeys(tag for tag, _, _ in tagged):
            if tag in self.side_outputs:
                rows = [row for each, row, _ in tagged if each == tag]
                times = [time for each, _, time in tagged if each == tag]
                self.side_outputs[tag].rows(rows, times if self._has_times else None)  # type: ignore[arg-type]

    def _emit_to(self, results: list[Any]) -> Callable[[Any], None]:
        """Returns the function that appends a result; a copy if the result may hold state that changes in place."""
        append, context = results.append, self._context

        def emit(result: Any) -> None:
            append(copied(result) if context.has_mutable_state else result)

        return emit

    def _current_record(self) -> Any:
        records: Any = self._records
        return self._pairs[len(self._pairs) - records.__length_hint__() - 1][1]

    def _consume(self, method: Method, records: Iterator[Any], results: list[Any]) -> None:
        self._records = records
        context, process, undo = self._context, method.call, self._undo
        if undo is None:
            if method.returns_nothing:
                for context.key, value in records:
                    process(value, context)
            for context.key, value in records:
                if (returned := process(value, context)) is not None:
                    emit_yielded(method.name, returned, context.emit)
            return
        for context.key, value in records:
            emitted, tagged = len(results), len(context.tagged)
            try:
                if (returned := process(value, context)) is not None:
                    emit_yielded(method.name, returned, context.emit)
            except RAISED:
                del results[emitted:], context.tagged[tagged:]
                undo.roll_back()
                raise
            undo.commit()

    def _consume_timed(self, method: Method, records: Iterator[Any], times: Iterator[int], results: list[Any]) -> None:
        context, process, undo = self._context, method.call, self._undo
        for context.key, value in records:
            context.timestamp_ns = next(times)
            emitted, tagged = len(results), len(context.tagged)
            try:
                if (returned := process(value, context)) is not None:
                    emit_yielded(method.name, returned, context.emit)
            except RAISED:
                del results[emitted:], context.tagged[tagged:]
                if undo is not None:
                    undo.roll_back()
                raise
            if undo is not None:
                undo.commit()

    def next_timer_ns(self) -> int | None:
        return self._timers.next_ns()

    def due(self, until_ns: int | None) -> list[DueTimer]:
        return self._timers.due(until_ns)

    def fire(self, due: Sequence[DueTimer]) -> None:
        timers = filter(self._timers.take, due)
        self._fire("on_timer", timers)

    def next_event_ns(self) -> int | None:
        return self._event_timers.next_ns()

    def due_events(self, until_ns: int | None) -> list[DueTimer]:
        return self._event_timers.due(until_ns)

    def fire_events(self, due: Sequence[DueTimer]) -> None:
        """See ``Operator.fire_events``. User code sees a watermark that has reached the timer, as the next one has."""
        before_ns = self._context.watermark_ns
        self._fire("on_event_timer", self._reaching(filter(self._event_timers.take, due)))
        self._context.watermark_ns = before_ns

    def _reaching(self, timers: Iterator[DueTimer]) -> Iterator[DueTimer]:
        for timer in timers:
            reached_ns = self._context.watermark_ns
            self._context.watermark_ns = timer.instant_ns if reached_ns is None else max(reached_ns, timer.instant_ns)
            yield timer

    def on_watermark(self, watermark: Watermark) -> None:
        if not isinstance(watermark, Activity):
            self._context.pass_watermark(watermark)
            self._reached.set(0, watermark)
        self.out.on_watermark(watermark)

    def _fire(self, method: str, timers: Iterator[DueTimer]) -> None:
        """Calls the method for each timer. Their results have the times of the timers."""
        results: list[Any] = []
        times: list[int] = []
        context, undo = self._context, self._undo
        context.emit = self._emit_to(results)
        self._past_timers.is_firing = True
        for timer in timers:
            timestamp_ns, _, context.key = timer.token
            context.timestamp_ns = timestamp_ns if self._has_times else None
            emitted, tagged = len(results), len(context.tagged)
            try:
                returned = self._timer_method(method)(from_timestamp_ns(timestamp_ns), context)
                if returned is not None:
                    emit_yielded(method, returned, context.emit)
            except RAISED as error:  # user code may raise anything
                del results[emitted:], context.tagged[tagged:]
                if undo is not None:
                    undo.roll_back()
                self.guard.caught(error, None)
            else:
                if undo is not None:
                    undo.commit()
            times += [timestamp_ns] * (len(results) - emitted)
        context.end_step()
        context.timestamp_ns, self._past_timers.is_firing = None, False
        if results:
            self.out.rows(results, times if self._has_times else None)
        if context.tagged:
            self._pass_tagged()

    def _timer_method(self, name: str) -> Callable[..., Any]:
        """Returns the method for a kind of timers.

        Raises: TimerMethodMissing: the function has none; the job had one before it was resumed.
        """
        if (found := getattr(self._function, name, None)) is None:
            raise TimerMethodMissing(self._step, name)
        return found  # type: ignore[no-any-return]

    def close(self) -> None:
        if self._is_open and hasattr(self._function, "close"):
            object.__setattr__(self._function, "__class__", self._class)  # attributes may be set again
            self._call(self._function.close)

    def _call(self, function: Callable[..., None], *arguments: object) -> None:
        try:
            function(*arguments)
        except RAISED as error:
            raise StepFailed(FailedAt(self._step, None, "")) from error


class TimerMethodMissing(JobError):
    """A process function of a resumed job lacks the method for timers that are set."""

    step: str
    method: str

    def __str__(self) -> str:
        return (
            f"the step {self.step} has timers from before the resume, and its function has no"
            f" {self.method}(timestamp, context) any more. Add the method; it may do nothing."
        )


class AttributeSetLate(JobError):
    """A process function sets one of its attributes after ``open``."""

    step: str
    attribute: str

    def __str__(self) -> str:
        return (
            f"the process function of {self.step} sets self.{self.attribute} after open(): the value would be lost when"
            " its process dies. Declare it as state and use context.state(...), or set it in open()."
        )
