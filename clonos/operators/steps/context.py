"""Context of a process function: key, output, time, state and timers."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, overload

from clonos.core.model.errors import JobError
from clonos.core.model.missing_names import attribute_missing
from clonos.core.model.watermark import INSTANT_NS_MIN
from clonos.core.ports.recorder import Recorder
from clonos.core.values.copying import copied
from clonos.operators.event_time.timestamps import from_timestamp_ns, to_timestamp_ns
from clonos.operators.state.declared_state import StateUndeclared, StepState
from clonos.operators.state.expiry import Expiry
from clonos.operators.state.state_descriptors import Cell, ListState, MapState, State, Value, ValueState
from clonos.operators.state.timers import Timers, timer_spec
from clonos.operators.state.undo import Undo
from clonos.operators.steps.past_timers import PastTimers
from clonos.operators.tags import Tag

K = TypeVar("K")
U = TypeVar("U")
T = TypeVar("T")
MapKey = TypeVar("MapKey")
MapValue = TypeVar("MapValue")

TIMERS: Final = timer_spec("/timers")
EVENT_TIMERS: Final = timer_spec("/event timers")


DECLARE_STATE: Final = (
    "Declare the state in the class, such as seen = ValueState('seen'), and write context.state(self.seen).value."
)
DECLARE_ALL: Final = (
    "Declare it as an attribute of the class with on_rescale, as the other state of this step without a key is."
)
SET_TIMER: Final = "Use set_timer(timestamp), and a method on_timer(self, timestamp, context)."
GIVE_TAG: Final = 'Give a tag: Tag("late"), which stream.side_output(Tag("late")) reads.'
EMIT: Final = "Use emit(result), or yield it."
CONTEXT_HINTS: Final = {
    **dict.fromkeys(("get_state", "get_value_state", "get_list_state", "get_map_state"), DECLARE_STATE),
    **dict.fromkeys(("timer_service", "timer", "register_timer", "register_processing_time_timer"), SET_TIMER),
    "register_event_time_timer": "Use set_event_timer(timestamp), and on_event_timer(self, timestamp, context).",
    **dict.fromkeys(("cancel_timer", "delete_processing_time_timer"), "Use delete_timer(timestamp)."),
    **dict.fromkeys(("collect", "out", "forward", "send", "write"), EMIT),
    **dict.fromkeys(("current_key", "get_current_key"), "Use key, which is an attribute."),
    **dict.fromkeys(("now", "current_processing_time"), "Use clock.now() of clonos."),
    "emit": "It can be used in process() and on_timer(): open() runs before the first record.",
    "key": "There is no key yet: open() runs before the first record.",
}
"""Attributes of other systems, and those that do not exist before the first record."""


class Context(Generic[K, U]):
    """Access of a process function to the current key, its output, state and timers. Do not keep it between calls.

    ``key`` is the key of the record or timer, None on a stream without keys. ``emit(result)`` passes a result to the
    next step, as a copy once the function has used state that may change in place. A method may also yield its results.
    On a stream with timestamps a result has the timestamp of the record, or the time of the event-time timer.
    """

    __slots__ = (
        *("key", "emit", "timestamp_ns", "watermark_ns", "_step", "_state", "_timers", "_event_timers", "_cells"),
        *("_expiries", "_past_timers", "_recorder", "has_times", "_fires_events", "_undo", "tagged"),
        "has_mutable_state",
    )

    key: K
    emit: Callable[[U], None]
    timestamp_ns: int | None
    """Timestamp in nanoseconds since the Unix epoch: see ``timestamp``."""
    tagged: list[tuple[str, Any, int | None]]
    """Records for side outputs since the last call: tag, record, timestamp in nanoseconds."""
    watermark_ns: int | None
    """Watermark in nanoseconds since the Unix epoch: see ``watermark``."""
    has_mutable_state: bool
    """Whether user code has used state that may change in place. What it emits is copied from then on."""

    def __init__(
        self,
        step: str,
        state: StepState,
        timers: Timers,
        event_timers: Timers,
        past_timers: PastTimers,
        recorder: Recorder,
        *,
        has_times: bool,
        fires_events: bool,
        undo: Undo | None,
    ) -> None:
        self._step = step
        self._state = state
        self._timers = timers
        self._event_timers = event_timers
        self._past_timers = past_timers
        self._recorder = recorder
        self.has_times, self._fires_events, self._undo = has_times, fires_events, undo
        self._cells: dict[str, tuple[State, Cell]] = {}
        self._expiries: list[Expiry] = []
        self.tagged = []
        self.has_mutable_state = False
        self.timestamp_ns = self.watermark_ns = None

    @property
    def timestamp(self) -> datetime | None:
        """Timestamp of the record, or time of the timer, as an aware datetime in UTC.

        None on a stream without timestamps.
        """
        return None if self.timestamp_ns is None else from_timestamp_ns(self.timestamp_ns)

    @property
    def watermark(self) -> datetime | None:
        """How far event time has come: records with an earlier timestamp are late. None before the first watermark."""
        return None if self.watermark_ns is None else from_timestamp_ns(self.watermark_ns)

    @overload
    def state(self, descriptor: ValueState[T]) -> Value[T]: ...

    @overload
    def state(self, descriptor: ListState[T]) -> list[T]: ...

    @overload
    def state(self, descriptor: MapState[MapKey, MapValue]) -> dict[MapKey, MapValue]: ...

    def state(self, descriptor: Any) -> Any:
        """Returns the state of the current key: a ``Value`` for a ``ValueState``, else the list or dict itself.

        Changes of the list or dict are stored.

        Raises:
            StateNameTaken: another descriptor of the step has the same name and another type, default or ttl.
            InvalidArgument: ``descriptor`` is none.
        """
        try:
            found = self._cells.get(descriptor.name)
        except AttributeError:
            raise InvalidArgument(self._step, f"state({descriptor!r:.80})", DECLARE_STATE) from None
        if found is None or found[0] is not descriptor:
            try:
                found = self._cell(descriptor)
            except StateUndeclared:
                raise InvalidArgument(self._step, f"state({descriptor!r:.80})", DECLARE_ALL) from None
        return found[1].current()

    def now_ns(self, is_event_time: bool) -> int:
        """Returns the time for the ttl of state, in nanoseconds since the Unix epoch.

        In event time that is the timestamp of the record, or the watermark if it is later or in a timer.
        """
        if not is_event_time:
            return self._recorder.instant_ns(False)
        reached_ns = INSTANT_NS_MIN if self.watermark_ns is None else self.watermark_ns
        if self.timestamp_ns is None or self._past_timers.is_firing:
            return reached_ns
        return max(self.timestamp_ns, reached_ns)

    def end_step(self) -> None:
        """Deletes state whose ttl has passed by the clock."""
        for expiry in self._expiries:
            expiry.end_step()

    def pass_watermark(self, watermark_ns: int) -> None:
        """Takes a watermark, and deletes state whose ttl has passed in event time."""
        self.watermark_ns = watermark_ns
        for expiry in self._expiries:
            if expiry.is_event_time:
                expiry.sweep(watermark_ns)

    def output(self, tag: Tag[T], record: T) -> None:
        """Passes a record to a side output, which ``stream.side_output(tag)`` reads. Nothing reads it otherwise.

        Raises:
            InvalidArgument: ``tag`` is none.
        """
        if not isinstance(tag, Tag):
            raise InvalidArgument(self._step, f"output({tag!r:.80})", GIVE_TAG)
        self.tagged.append((tag.name, copied(record), self.timestamp_ns))

    def set_timer(self, timestamp: datetime | float) -> None:
        """Sets a timer for the current key: ``on_timer`` is called at that time, or at once if it has passed.

        ``timestamp`` is an aware datetime, or seconds since the Unix epoch, such as ``clock.time() + 5``. Setting the
        same timer twice has no effect. The first timer that ``process`` sets in the past is logged as a warning.

        Raises:
            InvalidTimestamp: ``timestamp`` is neither; a number below 1,000,000,000 is a length of time.
        """
        timestamp_ns = to_timestamp_ns(timestamp)
        self._past_timers.check(timestamp_ns)
        self._change_timer(self._timers.set, timestamp_ns)

    def delete_timer(self, timestamp: datetime | float) -> None:
        """Deletes the timer of the current key for this time, if it is set.

        Raises:
            InvalidTimestamp: ``timestamp`` is neither an aware datetime nor seconds since the Unix epoch.
        """
        self._change_timer(self._timers.delete, to_timestamp_ns(timestamp))

    def set_event_timer(self, timestamp: datetime | float) -> None:
        """Sets an event-time timer for the current key: ``on_event_timer`` is called when the watermark reaches it.

        ``timestamp`` is an aware datetime, or seconds since the Unix epoch. Setting the same timer twice has no effect.
        A timer at or before the present watermark fires with the next watermark.

        Raises:
            NoEventTime: the stream has no timestamps, or the function has no ``on_event_timer``.
            InvalidTimestamp: ``timestamp`` is neither an aware datetime nor seconds since the Unix epoch.
        """
        if not self.has_times:
            raise NoEventTime(self._step, "its stream has no timestamps", GIVE_TIMESTAMPS)
        if not self._fires_events:
            raise NoEventTime(
                self._step,
                "its function has no method for it",
                "Add on_event_timer(self, timestamp, context) to the function.",
            )
        self._change_timer(self._event_timers.set, to_timestamp_ns(timestamp))

    def delete_event_timer(self, timestamp: datetime | float) -> None:
        """Deletes the event-time timer of the current key for this time, if it is set.

        Raises:
            InvalidTimestamp: ``timestamp`` is neither an aware datetime nor seconds since the Unix epoch.
        """
        self._change_timer(self._event_timers.delete, to_timestamp_ns(timestamp))

    if not TYPE_CHECKING:  # a type checker must go on to report a missing attribute

        def __getattr__(self, attribute):
            raise attribute_missing(type(self), attribute, CONTEXT_HINTS)

    def _change_timer(self, change: Callable[[int, Any], None], timestamp_ns: int) -> None:
        if self._undo is None:
            change(timestamp_ns, self.key)
        else:
            self._undo.change_timer(change, timestamp_ns, self.key)

    def _cell(self, descriptor: State) -> tuple[State, Cell]:
        known = self._cells.get(descriptor.name)
        if known is not None and not descriptor.is_like(known[0]):
            raise StateNameTaken(self._step, descriptor.name)
        cell = descriptor.cell(self._step, self._state, self, self._undo) if known is None else known[1]
        found = (descriptor, cell)
        self._cells[descriptor.name] = found
        self._expiries = [cell.expiry for _, cell in self._cells.values() if cell.expiry is not None]
        return found


class InvalidArgument(JobError):
    """A process function calls its context with something else than a descriptor or a tag."""

    step: str
    call: str
    advice: str

    def __str__(self) -> str:
        return f"the step {self.step} calls context.{self.call}. {self.advice}"


class StateNameTaken(JobError):
    """Two descriptors of one process function have the same name."""

    step: str
    name: str

    def __str__(self) -> str:
        return (
            f"the step {self.step} declares the state {self.name!r} twice, with different types, defaults or ttl. Give"
            " each state its own name."
        )


class NoEventTime(JobError):
    """A process function sets an event-time timer that cannot fire."""

    step: str
    problem: str
    advice: str

    def __str__(self) -> str:
        return f"the step {self.step} sets an event-time timer, but {self.problem}. {self.advice}"


GIVE_TIMESTAMPS: Final = "Give the records timestamps: job.source(..., timestamps=...) or stream.with_timestamps(...)."
