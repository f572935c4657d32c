"""Triggers: when a window emits other than at its end."""

from __future__ import annotations

import copy
from datetime import datetime
from functools import partial
from typing import Any, Final

from clonos.core.model.errors import JobError
from clonos.operators.aggregates.aggregate import UserFunction
from clonos.operators.event_time.timestamps import from_timestamp_ns, to_timestamp_ns
from clonos.operators.steps.frozen_class import frozen
from clonos.operators.windows.window_cells import CLOCK_TIMER, END, EVENT_TIMER, PENDING, START, STATE, Cell
from clonos.operators.windows.window_results import Window, window_of

METHODS: Final = {
    "on_record": ("value", "context"),
    "on_timer": ("context",),
    "on_event_timer": ("context",),
    "merged_state": ("first", "second"),
}
"""Arguments that the methods of a trigger are called with."""

CONTINUE: Final = False
EMIT: Final = True


class TriggerChanged(JobError):
    """A trigger sets one of its attributes."""

    step: str
    attribute: str

    def __str__(self) -> str:
        return (
            f"the trigger of {self.step} sets self.{self.attribute}: the value would be lost when its process dies, and"
            " one object serves all windows. Assign it to context.state."
        )


class TriggerContext:
    """View of one window of a key that a trigger gets. Do not keep it between calls."""

    __slots__ = ("_cell", "_now_ns", "watermark_ns", "time_ns", "has_set_timer")

    def __init__(self, cell: Cell, time_ns: int, now_ns: Any, watermark_ns: int | None) -> None:
        self._cell = cell
        self._now_ns = now_ns
        self.time_ns = time_ns
        """Timestamp of the record, or its time of arrival, in nanoseconds since the Unix epoch; or the timer's."""
        self.watermark_ns = watermark_ns
        """Watermark in nanoseconds since the Unix epoch; None before the first one and in processing time."""
        self.has_set_timer = False

    @property
    def window(self) -> Window:
        """The window: its start and its end."""
        return window_of(self._cell[START], self._cell[END])

    @property
    def count(self) -> int:
        """Number of records of the window since its last result."""
        return self._cell[PENDING]  # type: ignore[no-any-return]

    @property
    def timestamp(self) -> datetime:
        """Timestamp of the record, or its time of arrival on a stream without timestamps; or that of the timer."""
        return from_timestamp_ns(self.time_ns)

    @property
    def state(self) -> Any:
        """State of the trigger for this window: None at first, then what was assigned, a plain value."""
        return self._cell[STATE]

    @state.setter
    def state(self, value: Any) -> None:
        self._cell[STATE] = value

    @property
    def timer_ns(self) -> int | None:
        """Time of the timer by the clock, in nanoseconds since the Unix epoch; None without."""
        return self._cell[CLOCK_TIMER]  # type: ignore[no-any-return]

    @property
    def event_timer_ns(self) -> int | None:
        """Time of the timer in event time, in nanoseconds since the Unix epoch; None without."""
        return self._cell[EVENT_TIMER]  # type: ignore[no-any-return]

    def now_ns(self) -> int:
        """Returns the time of the task's clock in nanoseconds since the Unix epoch."""
        return self._now_ns()  # type: ignore[no-any-return]

    def set_timer(self, timestamp: datetime | float) -> None:
        """Sets the timer of this window by the clock, in place of an earlier one: ``on_timer`` is called then."""
        self.set_timer_ns(to_timestamp_ns(timestamp))

    def set_event_timer(self, timestamp: datetime | float) -> None:
        """Sets the timer of this window in event time, in place of an earlier one: ``on_event_timer`` is called."""
        self.set_event_timer_ns(to_timestamp_ns(timestamp))

    def set_timer_ns(self, instant_ns: int) -> None:
        """Sets the timer by the clock to nanoseconds since the Unix epoch."""
        self._cell[CLOCK_TIMER] = instant_ns
        self.has_set_timer = True

    def set_event_timer_ns(self, instant_ns: int) -> None:
        """Sets the timer in event time to nanoseconds since the Unix epoch."""
        self._cell[EVENT_TIMER] = instant_ns
        self.has_set_timer = True


class Trigger:
    """Base of triggers: it decides when a window emits a result. Each method returns True to emit.

    One object serves all windows of a task, and its attributes cannot be set: what it has to remember is
    ``context.state``.

    Example::

        class OnAlarm(Trigger):
            def on_record(self, value, context):
                return value["level"] == "alarm"
    """

    def on_record(self, value: Any, context: TriggerContext) -> bool:
        """Decides for each record, after it was added to the window."""
        return CONTINUE

    def on_timer(self, context: TriggerContext) -> bool:
        """Decides when the timer of ``context.set_timer`` is due."""
        return CONTINUE

    def on_event_timer(self, context: TriggerContext) -> bool:
        """Decides when the watermark has reached the timer of ``context.set_event_timer``."""
        return CONTINUE

    def merged_state(self, first: Any, second: Any) -> Any:
        """Returns the state of a session that two sessions with these states become."""
        return second if first is None else first


def functions_of(trigger: Trigger) -> tuple[UserFunction, ...]:
    """Returns the methods of a trigger that the user has written."""
    methods = [(getattr(trigger, name), arguments) for name, arguments in METHODS.items()]
    return tuple(UserFunction(method, arguments) for method, arguments in methods if method.__module__ != __name__)


def trigger_of_task(trigger: Trigger, step: str) -> Trigger:
    """Returns a copy of a trigger whose attributes cannot be set."""
    own = copy.deepcopy(trigger)
    object.__setattr__(own, "__class__", frozen(type(own), partial(TriggerChanged, step)))
    return own


class OnCount(Trigger):
    """Trigger that emits after a number of records since the last result."""

    def __init__(self, count: int) -> None:
        self._count = count

    def on_record(self, value: Any, context: TriggerContext) -> bool:
        return context.count >= self._count


class ByClock(Trigger):
    """Trigger that emits at multiples of an interval by the task's clock, if there are records since the last one.

    The state is the interval of the timer: a job may be resumed with another trigger.
    """

    def __init__(self, interval_ns: int) -> None:
        self._interval_ns = interval_ns

    def on_record(self, value: Any, context: TriggerContext) -> bool:
        if context.timer_ns is None or context.state != self._interval_ns:
            context.state = self._interval_ns
            context.set_timer_ns((context.now_ns() // self._interval_ns + 1) * self._interval_ns)
        return CONTINUE

    def on_timer(self, context: TriggerContext) -> bool:
        return context.count > 0


class ByEventTime(Trigger):
    """Trigger that emits at multiples of an interval of event time, if there are records since the last one.

    The state is that of ``ByClock``.
    """

    def __init__(self, interval_ns: int) -> None:
        self._interval_ns = interval_ns

    def on_record(self, value: Any, context: TriggerContext) -> bool:
        if context.event_timer_ns is None or context.state != self._interval_ns:
            after_ns = max(context.time_ns, context.watermark_ns or context.time_ns)
            context.state = self._interval_ns
            context.set_event_timer_ns((after_ns // self._interval_ns + 1) * self._interval_ns)
        return CONTINUE

    def on_event_timer(self, context: TriggerContext) -> bool:
        return context.count > 0
