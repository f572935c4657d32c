"""State descriptors of process functions: values, lists and maps, each per key.

A descriptor names state and holds none. ``context.state(descriptor)`` returns the state of the current key.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar, cast

from clonos.core.model.errors import JobError
from clonos.core.model.missing_names import attribute_missing
from clonos.core.values.copying import IMMUTABLE
from clonos.core.values.keys import state_key
from clonos.operators.state.frozen_entries import ABSENT
from clonos.operators.state.keyed_state import StateBackend, Table
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


class KeyHolder(Protocol):
    """Object that knows the key of the current record."""

    key: Any
    has_mutable_state: bool
    """Whether it has given user code, or got from it, state that may change in place."""


class Value(Generic[T]):
    """State of the current key as a single value, read and set by ``value``.

    A mutable value may be changed in place: once read it counts as changed.
    """

    __slots__ = ("_table", "_holder", "_default", "_default_is_mutable")

    def __init__(self, table: Table, holder: KeyHolder, default: T) -> None:
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
            self._table.set(key, found)
            self._holder.has_mutable_state = True
        elif type(found) not in IMMUTABLE:
            self._table.changed[key] = None
            self._holder.has_mutable_state = True
        return cast(T, found)

    @value.setter
    def value(self, value: T) -> None:
        self._set(state_key(self._holder.key), value)

    def _set(self, key: Any, value: T) -> None:
        if type(value) not in IMMUTABLE:
            self._holder.has_mutable_state = True
        self._table.set(key, value)

    if not TYPE_CHECKING:  # a type checker must go on to report a missing attribute

        def __getattr__(self, attribute):
            raise attribute_missing(type(self), attribute, VALUE_HINTS)

    def clear(self) -> None:
        """Deletes the value of the current key, which then has the default again."""
        self._table.delete(state_key(self._holder.key))


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


class State:
    """Base of the descriptors.

    ``name`` is unique in its process function and must stay the same in later versions of the job.
    """

    def __init__(self, name: str) -> None:
        if not name or "/" in name:
            raise InvalidStateName(name)
        self.name = name

    if not TYPE_CHECKING:  # a type checker must go on to report a missing attribute

        def __getattr__(self, attribute):
            raise attribute_missing(type(self), attribute, DESCRIPTOR_HINTS)

    def __setattr__(self, attribute: str, value: object) -> None:
        """Refuses the attribute ``value``, which no checkpoint would hold."""
        if attribute == "value":
            raise attribute_missing(type(self), attribute, DESCRIPTOR_HINTS)
        object.__setattr__(self, attribute, value)

    def cell(self, step: str, state: StateBackend, holder: KeyHolder, undo: Undo | None = None) -> Cell:
        """Creates the access to this state for one incarnation. ``undo`` keeps what a record changes."""
        raise NotImplementedError


class Cell(Protocol):
    """Access to a descriptor's state in one incarnation."""

    def current(self) -> Any:
        """Returns the state of the current key."""


class ValueState(State, Generic[T]):
    """Descriptor of a single value per key.

    Example::

        count = ValueState("count", default=0)
        context.state(count).value += 1
    """

    def __init__(self, name: str, default: T = NO_DEFAULT) -> None:
        """Creates the descriptor.

        ``default`` is the value of a key that has none; each key gets a copy of a mutable default.

        Raises:
            InvalidStateName: the name is empty or contains "/".
        """
        super().__init__(name)
        self.default = default

    def cell(self, step: str, state: StateBackend, holder: KeyHolder, undo: Undo | None = None) -> Cell:
        table = state.table(f"{step}/{self.name}")
        if undo is None:
            return _ValueCell(Value(table, holder, self.default))
        return _ValueCell(UndoableValue(table, holder, self.default, undo))


class ListState(State, Generic[T]):
    """Descriptor of a list per key.

    The list is stored as a whole whenever it was read since the last checkpoint, so keep it short.

    Example::

        pending = ListState[datetime]("pending")
        context.state(pending).append(clock.now())
    """

    def cell(self, step: str, state: StateBackend, holder: KeyHolder, undo: Undo | None = None) -> Cell:
        return _container_cell(f"{step}/{self.name}", state, holder, list, undo)


class MapState(State, Generic[K, V]):
    """Descriptor of a dict per key.

    The dict is stored as a whole whenever it was read since the last checkpoint, so keep it small.

    Example::

        prices = MapState[str, int]("prices")
        context.state(prices)["tea"] = 3
    """

    def cell(self, step: str, state: StateBackend, holder: KeyHolder, undo: Undo | None = None) -> Cell:
        return _container_cell(f"{step}/{self.name}", state, holder, dict, undo)


class _ValueCell:
    __slots__ = ("_handle",)

    def __init__(self, handle: Value[Any]) -> None:
        self._handle = handle

    def current(self) -> Value[Any]:
        return self._handle


class _ContainerCell:
    __slots__ = ("_table", "_holder", "_create")

    def __init__(self, table: Table, holder: KeyHolder, create: type) -> None:
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


def _container_cell(name: str, state: StateBackend, holder: KeyHolder, create: type, undo: Undo | None) -> Cell:
    table = state.table(name, deletes_empty=True)
    return (
        _ContainerCell(table, holder, create) if undo is None else _UndoableContainerCell(table, holder, create, undo)
    )


class InvalidStateName(JobError):
    """The name of a descriptor cannot be used."""

    name: str

    def __str__(self) -> str:
        return (
            f"{self.name!r} is not a valid name of state: give one without '/' that stays the same in later versions."
        )
