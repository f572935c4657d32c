"""Process functions: a user class that is called for each record and each timer, with state per key.

Each incarnation has its own instance. Its attributes may be set until ``open`` has returned, not later, because only
state declared by descriptors survives a failure. Without a key, state and timers belong to the task.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from types import FunctionType
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, overload

from clonos.core.model.errors import JobError
from clonos.core.model.missing_names import attribute_missing
from clonos.core.ports.operator_chain import FailedAt, StepFailed
from clonos.core.values.copying import IMMUTABLE, copied
from clonos.operators.operator import DueTimer, Operator, Scope
from clonos.operators.state.keyed_state import StateBackend
from clonos.operators.state.state_descriptors import Cell, ListState, MapState, State, Value, ValueState
from clonos.operators.state.timers import Timers
from clonos.operators.steps.past_timers import PastTimers
from clonos.operators.steps.results import emit_yielded, returns_nothing
from clonos.operators.timestamps import from_timestamp_ns, to_timestamp_ns
from clonos.operators.user_errors import RAISED

K = TypeVar("K")
U = TypeVar("U")
T = TypeVar("T")
MapKey = TypeVar("MapKey")
MapValue = TypeVar("MapValue")

TIMERS_NAME: Final = "timers"


DECLARE_STATE: Final = (
    "Declare the state in the class, such as seen = ValueState('seen'), and write context.state(self.seen).value."
)
SET_TIMER: Final = "Use set_timer(timestamp), and a method on_timer(self, timestamp, context)."
EMIT: Final = "Use emit(result), or yield it."
CONTEXT_HINTS: Final = {
    **dict.fromkeys(("get_state", "get_value_state", "get_list_state", "get_map_state"), DECLARE_STATE),
    **dict.fromkeys(("timer_service", "timer", "register_timer", "register_processing_time_timer"), SET_TIMER),
    "register_event_time_timer": SET_TIMER,
    **dict.fromkeys(("cancel_timer", "delete_processing_time_timer"), "Use delete_timer(timestamp)."),
    **dict.fromkeys(("collect", "output", "out", "forward", "send", "write"), EMIT),
    **dict.fromkeys(("current_key", "get_current_key"), "Use key, which is an attribute."),
    **dict.fromkeys(("now", "current_processing_time"), "Use clock.now() of clonos."),
    "emit": "It can be used in process() and on_timer(): open() runs before the first record.",
    "key": "There is no key yet: open() runs before the first record.",
}
"""Attributes of other systems, and those that do not exist before the first record."""


class Context(Generic[K, U]):
    """Access of a process function to the current key, its output, state and timers. Do not keep it between calls.

    ``key`` is the key of the record or timer, None on a stream without keys. ``emit(result)`` passes a result to the
    next step, as a copy if the function has state that may change in place. A method may also yield its results.
    """

    __slots__ = ("key", "emit", "_step", "_state", "_timers", "_past_timers", "_cells")

    key: K
    emit: Callable[[U], None]

    def __init__(self, step: str, state: StateBackend, timers: Timers, past_timers: PastTimers) -> None:
        self._step = step
        self._state = state
        self._timers = timers
        self._past_timers = past_timers
        self._cells: dict[str, tuple[State, Cell]] = {}

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
            StateNameTaken: another descriptor of the step has the same name and another type.
        """
        found = self._cells.get(descriptor.name)
        if found is None or found[0] is not descriptor:
            found = self._cell(descriptor)
        return found[1].current()

    def set_timer(self, timestamp: datetime | float) -> None:
        """Sets a timer for the current key: ``on_timer`` is called at that time, or at once if it has passed.

        ``timestamp`` is an aware datetime, or seconds since the Unix epoch, such as ``clock.time() + 5``. Setting the
        same timer twice has no effect. The first timer that ``process`` sets in the past is logged as a warning.

        Raises:
            InvalidTimestamp: ``timestamp`` is neither; a number below 1,000,000,000 is a length of time.
        """
        timestamp_ns = to_timestamp_ns(timestamp)
        self._past_timers.check(timestamp_ns)
        self._timers.set(timestamp_ns, self.key)

    def delete_timer(self, timestamp: datetime | float) -> None:
        """Deletes the timer of the current key for this time, if it is set.

        Raises:
            InvalidTimestamp: ``timestamp`` is neither an aware datetime nor seconds since the Unix epoch.
        """
        self._timers.delete(to_timestamp_ns(timestamp), self.key)

    if not TYPE_CHECKING:  # a type checker must go on to report a missing attribute

        def __getattr__(self, attribute):
            raise attribute_missing(type(self), attribute, CONTEXT_HINTS)

    def _cell(self, descriptor: State) -> tuple[State, Cell]:
        if descriptor.name == TIMERS_NAME or (
            descriptor.name in self._cells and type(self._cells[descriptor.name][0]) is not type(descriptor)
        ):
            raise StateNameTaken(self._step, descriptor.name)
        found = (descriptor, descriptor.cell(self._step, self._state, self))
        self._cells[descriptor.name] = found
        return found


class Process(Operator):
    """Operator that runs a process function on (key, value) pairs, or on records without a key."""

    has_timers = True

    def __init__(self, step: str, function: Any, is_keyed: bool) -> None:
        """Creates the operator from a class, or from an instance, of which each incarnation gets a copy."""
        self._step = step
        self._function = function() if isinstance(function, type) else copy.deepcopy(function)
        self._class = type(self._function)
        self._is_keyed = is_keyed
        self._is_open = False

    def open(self, scope: Scope) -> None:
        self._timers = Timers(f"{self._step}/{TIMERS_NAME}", scope.state)
        self._past_timers = PastTimers(self._step, scope.context.recorder, self._current_record)
        self._context: Context[Any, Any] = Context(self._step, scope.state, self._timers, self._past_timers)
        self._returns_nothing = returns_nothing(self._function.process)
        self._is_open = True
        if hasattr(self._function, "open"):
            self._call(self._function.open, self._context)
        self._emits_copies = any(map(_is_mutable, _states_of(self._function)))
        object.__setattr__(self._function, "__class__", _frozen(self._class, self._step))

    def rows(self, rows: list[Any]) -> None:
        results: list[Any] = []
        self._context.emit = self._emit_to(results)
        pairs = self._pairs = rows if self._is_keyed else [(None, row) for row in rows]
        self.guard.run(lambda records: self._consume(records, results), pairs, pairs=pairs)
        if results:
            self.out.rows(results)

    def _emit_to(self, results: list[Any]) -> Callable[[Any], None]:
        """Returns the function that appends a result; a copy if the result may hold state that changes in place."""
        append = results.append
        return (lambda result: append(copied(result))) if self._emits_copies else append

    def _current_record(self) -> Any:
        records: Any = self._records
        return self._pairs[len(self._pairs) - records.__length_hint__() - 1][1]

    def _consume(self, records: Iterator[Any], results: list[Any]) -> None:
        self._records = records
        context, process = self._context, self._function.process
        if not self.guard.routes:
            if self._returns_nothing:
                for context.key, value in records:
                    process(value, context)
            for context.key, value in records:
                if (returned := process(value, context)) is not None:
                    emit_yielded("process", returned, context.emit)
            return
        for context.key, value in records:
            emitted = len(results)
            try:
                if (returned := process(value, context)) is not None:
                    emit_yielded("process", returned, context.emit)
            except RAISED:
                del results[emitted:]
                raise

    def next_timer_ns(self) -> int | None:
        return self._timers.next_ns()

    def due(self, until_ns: int | None) -> list[DueTimer]:
        return self._timers.due(until_ns)

    def fire(self, due: Sequence[DueTimer]) -> None:
        results: list[Any] = []
        self._context.emit = self._emit_to(results)
        self._past_timers.is_firing = True
        for timer in due:
            if not self._timers.take(timer):
                continue
            timestamp_ns, _, self._context.key = timer.token
            emitted = len(results)
            try:
                returned = self._function.on_timer(from_timestamp_ns(timestamp_ns), self._context)
                if returned is not None:
                    emit_yielded("on_timer", returned, self._context.emit)
            except RAISED as error:  # user code may raise anything
                del results[emitted:]
                self.guard.caught(error, None)
        self._past_timers.is_firing = False
        if results:
            self.out.rows(results)

    def close(self) -> None:
        if self._is_open and hasattr(self._function, "close"):
            object.__setattr__(self._function, "__class__", self._class)  # attributes may be set again
            self._call(self._function.close)

    def _call(self, function: Callable[..., None], *arguments: object) -> None:
        try:
            function(*arguments)
        except RAISED as error:
            raise StepFailed(FailedAt(self._step, None, "")) from error


class StateNameTaken(JobError):
    """Two descriptors of one process function have the same name."""

    step: str
    name: str

    def __str__(self) -> str:
        return (
            f"the step {self.step} declares the state {self.name!r} twice, with different types (or with the reserved"
            f" name {TIMERS_NAME!r}). Give each state its own name."
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


def _states_of(function: Any) -> Iterator[object]:
    """Yields the descriptors, and their classes, that a process function has as attributes or uses as globals."""
    yield from getattr(function, "__dict__", {}).values()
    for base in type(function).__mro__[:-1]:
        for member in vars(base).values():
            yield member
            if isinstance(member, FunctionType):
                for name in member.__code__.co_names:
                    yield member.__globals__.get(name)


def _is_mutable(state: object) -> bool:
    """Returns whether a descriptor may give values that change in place. A descriptor class stands for any of them."""
    if isinstance(state, ValueState):
        return state.default is None or type(state.default) not in IMMUTABLE
    return isinstance(state, State) or (isinstance(state, type) and issubclass(state, State))


def _frozen(original: type, step: str) -> type:
    """Creates a subclass whose instances raise AttributeSetLate when an attribute is set or deleted."""

    def set_attribute(self: Any, name: str, value: object) -> None:
        raise AttributeSetLate(step, name)

    def delete_attribute(self: Any, name: str) -> None:
        raise AttributeSetLate(step, name)

    body = {
        "__slots__": (),
        "__module__": original.__module__,
        "__qualname__": original.__qualname__,
        "__setattr__": set_attribute,
        "__delattr__": delete_attribute,
    }
    return type(original)(original.__name__, (original,), body)
