"""State descriptors of process functions: values, lists and maps, each per key.

A descriptor names state and holds none. ``context.state(descriptor)`` returns the state of the current key.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, Literal, Protocol, TypeVar, cast

from clonos.core.model.errors import JobError
from clonos.core.model.missing_names import attribute_missing
from clonos.core.model.wrong_calls import explains_calls
from clonos.core.values.copying import IMMUTABLE
from clonos.core.values.keys import state_key
from clonos.operators.event_time.durations import Duration, duration_ns
from clonos.operators.state.declared_state import StepState
from clonos.operators.state.expiry import ENDS, Expiry, HasTime
from clonos.operators.state.frozen_entries import ABSENT
from clonos.operators.state.keyed_state import Table
from clonos.operators.state.state_spec import ANY, StateScope, StateSpec, keyed
from clonos.operators.state.undo import Undo

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")


VALUE_HINTS: Final = {
    **dict.fromkeys(("update", "set", "put"), "Assign it: state.value = ..."),
    "get": "Read it: state.value.",
    **dict.fromkeys(("append", "add"), "Use a ListState, or change the value itself: state.value.append(...)."),
    **dict.fromkeys(("delete", "remove"), "Use clear()."),
}

DESCRIPTOR_HINTS: Final = dict.fromkeys(
    ("value", "get", "set", "put", "update", "append", "add", "extend", "clear", "items", "keys", "values"),
    "A descriptor holds no state: write context.state(descriptor) and use what it returns.",
)


OnRescale = Literal["refuse", "deal", "union"]
"""What becomes of state without a key when its step gets another number of tasks."""

StateTime = Literal["event", "processing"]
"""Time of a ttl: that of the timestamps of records and of the watermark, or that of the causal clock."""


VALUES: Final = keyed(ANY)
CONTAINERS: Final = replace(VALUES, deletes_empty=True)
"""Tables of a step, by the name of a descriptor."""

BROADCAST_VALUES, BROADCAST_CONTAINERS = (
    replace(each, name=f"broadcast/{ANY}", scope=StateScope.FIRST) for each in (VALUES, CONTAINERS)
)
"""Tables of broadcast state, by the name of a descriptor."""


class KeyHolder(HasTime, Protocol):
    """Object that knows the key and the time of the current record."""

    key: Any
    has_mutable_state: bool
    """Whether it has given user code, or got from it, state that may change in place."""
    has_times: bool
    """Whether its stream has timestamps."""


class Value(Generic[T]):
    """State of the current key as a single value, read and set by ``value``.

    A mutable value may be changed in place: once read it counts as changed.
    """

    __slots__ = ("_table", "_holder", "_default", "_default_is_mutable", "expiry")

    expiry: Expiry | None
    """Ends of the values, if they have a time to live."""

    def __init__(self, table: Table, holder: KeyHolder, default: T) -> None:
        self.expiry = None
        self._table = table
        self._holder = holder
        self._default = default
        self._default_is_mutable = type(default) not in IMMUTABLE

    @property
    def value(self) -> T:
        """Value of the current key, or the default."""
        key = state_key(self._holder.key)
        found = self._table.entries.get(key, ABSENT)
        if found is ABSENT:
            if not self._default_is_mutable:
                return self._default
            found = copy.deepcopy(self._default)  # a copy for this key, because it may be changed in place
            self._set(key, found)
        elif type(found) not in IMMUTABLE:
            self._table.changed[key] = None
            self._holder.has_mutable_state = True
            if self.expiry is not None:
                self.expiry.write(key)
        return cast(T, found)

    @value.setter
    def value(self, value: T) -> None:
        self._set(state_key(self._holder.key), value)

    def _set(self, key: Any, value: T) -> None:
        if type(value) not in IMMUTABLE:
            self._holder.has_mutable_state = True
        self._table.set(key, value)
        if self.expiry is not None:
            self.expiry.write(key)

    if not TYPE_CHECKING:  # a type checker must go on to report a missing attribute

        def __getattr__(self, attribute):
            raise attribute_missing(type(self), attribute, VALUE_HINTS)

    def clear(self) -> None:
        """Deletes the value of the current key, which then has the default again."""
        key = state_key(self._holder.key)
        self._table.delete(key)
        if self.expiry is not None:
            self.expiry.forget(key)


class UndoableValue(Value[T]):
    """Value whose changes can be undone."""

    __slots__ = ("_undo",)

    def __init__(self, table: Table, holder: KeyHolder, default: T, undo: Undo) -> None:
        super().__init__(table, holder, default)
        self._undo = undo

    @property
    def value(self) -> T:
        """Value of the current key, or the default."""
        key = state_key(self._holder.key)
        found = self._table.entries.get(key, ABSENT)
        if type(found) in IMMUTABLE:
            return cast(T, found)
        if found is not ABSENT or self._default_is_mutable:
            self._undo.keep(self._table, key, copies=True)
        return super().value

    @value.setter
    def value(self, value: T) -> None:
        key = state_key(self._holder.key)
        self._undo.keep(self._table, key, copies=False)
        self._set(key, value)

    def clear(self) -> None:
        """Deletes the value of the current key, which then has the default again."""
        self._undo.keep(self._table, state_key(self._holder.key), copies=False)
        super().clear()


NO_DEFAULT: Any = None


@explains_calls
class State:
    """Base of the descriptors.

    ``name`` is unique in its process function and must stay the same in later versions of the job. ``ttl`` is how long
    the state of a key lives after its last write; a list, dict or other mutable value counts as written when it is
    used. ``time`` is the time of the ttl: by default event time on a stream with timestamps, else processing time.
    """

    def __init__(self, name: str, *, ttl: Duration | None = None, time: StateTime | None = None) -> None:
        if not name or "/" in name:
            raise InvalidStateName(name)
        if time not in (None, "event", "processing") or (ttl is None and time is not None):
            raise InvalidStateTime(name, f"{time!r:.80}", ttl is not None)
        self.name = name
        self._ttl_ns = None if ttl is None else duration_ns(ttl)
        self._time = time

    @property
    def has_ttl(self) -> bool:
        """Whether the state has a time to live."""
        return self._ttl_ns is not None

    def is_like(self, other: State) -> bool:
        """Returns whether another descriptor of this name is of the same state."""
        return type(self) is type(other) and (self._ttl_ns, self._time) == (other._ttl_ns, other._time)

    def _expiry(self, table: Table, step: str, state: StepState, holder: KeyHolder) -> Expiry | None:
        """Returns the ends of the entries of a table, None without a time to live."""
        if self._ttl_ns is None:
            return None
        if self._time == "event" and not holder.has_times:
            raise NoEventTimeForState(step, self.name)
        is_event_time = holder.has_times and self._time != "processing"
        return Expiry(table, self.name, state, self._ttl_ns, is_event_time=is_event_time, time=holder)

    if not TYPE_CHECKING:  # a type checker must go on to report a missing attribute

        def __getattr__(self, attribute):
            raise attribute_missing(type(self), attribute, DESCRIPTOR_HINTS)

    def __setattr__(self, attribute: str, value: object) -> None:
        """Refuses the attribute ``value``, which no checkpoint would hold."""
        if attribute == "value":
            raise attribute_missing(type(self), attribute, DESCRIPTOR_HINTS)
        object.__setattr__(self, attribute, value)

    def specs_without_key(self) -> tuple[StateSpec, ...]:
        """Returns the declarations of this state in a step without a key; none if the width of the step cannot change
        with it."""
        return ()

    def table(self, state: StepState, is_broadcast: bool = False) -> Table:
        """Opens the table of this state."""
        raise NotImplementedError

    def cell(
        self, step: str, state: StepState, holder: KeyHolder, undo: Undo | None = None, *, is_broadcast: bool = False
    ) -> Cell:
        """Creates the access to this state for one incarnation. ``undo`` keeps what a record changes."""
        raise NotImplementedError


class Cell(Protocol):
    """Access to a descriptor's state in one incarnation."""

    expiry: Expiry | None

    def current(self) -> Any:
        """Returns the state of the current key."""


@explains_calls
class ValueState(State, Generic[T]):
    """Descriptor of a single value per key.

    Example::

        count = ValueState("count", default=0)
        context.state(count).value += 1
    """

    def __init__(
        self,
        name: str,
        default: T = NO_DEFAULT,
        *,
        ttl: Duration | None = None,
        time: StateTime | None = None,
    ) -> None:
        """Creates the descriptor.

        ``default`` is the value of a key that has none; each key gets a copy of a mutable default. ``ttl`` and
        ``time``: see ``State``.

        Raises:
            InvalidDefault: the default is a type.
            InvalidStateName: the name is empty or contains "/".
            InvalidDuration: ``ttl`` is not a length of time.
            InvalidStateTime: ``time`` is neither "event" nor "processing", or is given without ``ttl``.
        """
        if isinstance(default, type):
            raise InvalidDefault(name, default.__name__)
        super().__init__(name, ttl=ttl, time=time)
        self.default = default

    def is_like(self, other: State) -> bool:
        return super().is_like(other) and repr(self.default) == repr(cast(ValueState[T], other).default)

    def table(self, state: StepState, is_broadcast: bool = False) -> Table:
        return state.table(BROADCAST_VALUES if is_broadcast else VALUES, self.name)

    def cell(
        self, step: str, state: StepState, holder: KeyHolder, undo: Undo | None = None, *, is_broadcast: bool = False
    ) -> Cell:
        table = self.table(state, is_broadcast)
        value = Value(table, holder, self.default) if undo is None else UndoableValue(table, holder, self.default, undo)
        cell = _ValueCell(value)
        expiry = self._expiry(table, step, state, holder)
        if expiry is None:
            return cell
        value.expiry = expiry.with_undo(undo)
        return _ExpiringCell(cell, expiry, holder, is_written=False)


class _Containers(State):
    """Base of the descriptors of containers.

    ``on_rescale``: what becomes of state without a key when its step gets another number of tasks. That is refused, or
    the items of all tasks are dealt to the new ones in turn ("deal"), or each new task has all of them ("union").
    """

    _create: ClassVar[type]

    def __init__(
        self,
        name: str,
        *,
        ttl: Duration | None = None,
        time: StateTime | None = None,
        on_rescale: OnRescale = "refuse",
    ) -> None:
        super().__init__(name, ttl=ttl, time=time)
        if on_rescale not in ("refuse", "deal", "union"):
            raise InvalidOnRescale(name, f"{on_rescale!r:.80}")
        self._on_rescale = on_rescale

    def specs_without_key(self) -> tuple[StateSpec, ...]:
        if self._on_rescale == "refuse":
            return ()
        items = replace(CONTAINERS.named(self.name), scope=StateScope(self._on_rescale))
        return (items, replace(ENDS.named(self.name), scope=StateScope.MAX)) if self.has_ttl else (items,)

    def table(self, state: StepState, is_broadcast: bool = False) -> Table:
        return state.table(BROADCAST_CONTAINERS if is_broadcast else CONTAINERS, self.name)

    def cell(
        self, step: str, state: StepState, holder: KeyHolder, undo: Undo | None = None, *, is_broadcast: bool = False
    ) -> Cell:
        table, create = self.table(state, is_broadcast), self._create
        cell = (
            _ContainerCell(table, holder, create)
            if undo is None
            else _UndoableContainerCell(table, holder, create, undo)
        )
        expiry = self._expiry(table, step, state, holder)
        return cell if expiry is None else _ExpiringCell(cell, expiry.with_undo(undo), holder, is_written=True)


@explains_calls
class ListState(_Containers, Generic[T]):
    """Descriptor of a list per key.

    The list is stored as a whole whenever it was read since the last checkpoint, so keep it short.

    Example::

        pending = ListState[datetime]("pending")
        context.state(pending).append(clock.now())
    """

    _create = list


@explains_calls
class MapState(_Containers, Generic[K, V]):
    """Descriptor of a dict per key.

    The dict is stored as a whole whenever it was read since the last checkpoint, so keep it small.

    Example::

        prices = MapState[str, int]("prices")
        context.state(prices)["tea"] = 3
    """

    _create = dict


class _ValueCell:
    __slots__ = ("_handle", "expiry")

    def __init__(self, handle: Value[Any]) -> None:
        self._handle = handle
        self.expiry: Expiry | None = None

    def current(self) -> Value[Any]:
        return self._handle


class _ContainerCell:
    __slots__ = ("_table", "_holder", "_create", "expiry")

    def __init__(self, table: Table, holder: KeyHolder, create: type) -> None:
        self.expiry: Expiry | None = None
        self._table = table
        self._holder = holder
        self._create = create

    def current(self) -> Any:
        key = state_key(self._holder.key)
        container = self._table.entries.get(key)
        if container is None:
            container = self._table.entries[key] = self._create()
        self._table.changed[key] = None
        self._holder.has_mutable_state = True
        return container


class _UndoableContainerCell(_ContainerCell):
    __slots__ = ("_undo",)

    def __init__(self, table: Table, holder: KeyHolder, create: type, undo: Undo) -> None:
        super().__init__(table, holder, create)
        self._undo = undo

    def current(self) -> Any:
        self._undo.keep(self._table, state_key(self._holder.key), copies=True)
        return super().current()


class _ExpiringCell:
    """Cell of state with a time to live. ``is_written``: each use counts as a write."""

    __slots__ = ("_cell", "_holder", "_is_written", "expiry")

    def __init__(self, cell: Cell, expiry: Expiry, holder: KeyHolder, *, is_written: bool) -> None:
        self._cell, self._holder, self._is_written = cell, holder, is_written
        self.expiry: Expiry | None = expiry

    def current(self) -> Any:
        assert self.expiry is not None, "its state has a time to live"
        key = state_key(self._holder.key)
        self.expiry.look(key)
        if self._is_written:
            self.expiry.write(key)
        return self._cell.current()


class InvalidStateName(JobError):
    """The name of a descriptor cannot be used."""

    name: str

    def __str__(self) -> str:
        return (
            f"{self.name!r} is not a valid name of state: give one without '/' that stays the same in later versions."
        )


class InvalidDefault(JobError):
    """The default of a state is a type, and not a value of it."""

    name: str
    given: str

    def __str__(self) -> str:
        return (
            f"the state {self.name!r} has the type {self.given} as its default. Give the value that a key begins with:"
            f" default={self.given}()."
        )


class InvalidStateTime(JobError):
    """The time of a descriptor's ttl cannot be used."""

    name: str
    given: str
    has_ttl: bool

    def __str__(self) -> str:
        if self.has_ttl:
            return f'the state {self.name!r} has time={self.given}. Give "event" or "processing".'
        return f"the state {self.name!r} has time={self.given} and no ttl, of which it is the time. Give ttl= too."


class InvalidOnRescale(JobError):
    """A descriptor says in no known way what becomes of its state."""

    name: str
    given: str

    def __str__(self) -> str:
        return f'the state {self.name!r} has on_rescale={self.given}. Give "refuse", "deal" or "union".'


class NoEventTimeForState(JobError):
    """State of a stream without timestamps has a ttl in event time."""

    step: str
    name: str

    def __str__(self) -> str:
        return (
            f"the step {self.step} gives the state {self.name!r} a ttl in event time, but its stream has no timestamps."
            ' Give the records timestamps, or the state time="processing".'
        )
