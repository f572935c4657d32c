"""What a process function declares of its state: values, lists and maps, each kept per key.

A descriptor names a kind of state; it holds none. ``context.state(descriptor)`` gives what the current key has.
"""

from __future__ import annotations

import copy
from typing import Any, Final, Generic, Protocol, TypeVar, cast

from clonos.core.model.errors import JobError
from clonos.core.values.keys import state_key
from clonos.operators.state.frozen_entries import IMMUTABLE
from clonos.operators.state.keyed_state import StateBackend, Table

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")


class HasKey(Protocol):
    """Who knows the key of the record that is being processed."""

    key: Any


class Value(Generic[T]):
    """The value that the current key has. A mutable one that was read counts as changed."""

    __slots__ = ("_table", "_holder", "_default", "_default_is_mutable")

    def __init__(self, table: Table, holder: HasKey, default: T) -> None:
        self._table = table
        self._holder = holder
        self._default = default
        self._default_is_mutable = type(default) not in IMMUTABLE

    @property
    def value(self) -> T:
        """The key's value, or the default."""
        key = state_key(self._holder.key)
        found = self._table.entries.get(key, _MISSING)
        if found is _MISSING:
            if not self._default_is_mutable:
                return self._default
            found = copy.deepcopy(self._default)  # the key's own, since it may be changed
            self._table.set(key, found)
        elif type(found) not in IMMUTABLE:
            self._table.changed[key] = None
        return cast(T, found)

    @value.setter
    def value(self, value: T) -> None:
        self._table.set(state_key(self._holder.key), value)

    def clear(self) -> None:
        """Forgets the key's value: it is the default again."""
        self._table.delete(state_key(self._holder.key))


class _Missing:
    pass


_MISSING: Final = _Missing()


NO_DEFAULT: Any = None


class State:
    """Base of the descriptors. ``name`` is unique in its process function, and stable between versions of the job."""

    def __init__(self, name: str) -> None:
        if not name or "/" in name:
            raise BadStateName(name)
        self.name = name

    def cell(self, step: str, state: StateBackend, holder: HasKey) -> Cell:
        """What gives the current key's state; made once for an incarnation."""
        raise NotImplementedError


class Cell(Protocol):
    """What a descriptor stands for in one incarnation."""

    def current(self) -> Any:
        """The handle or container of the current key."""


class ValueState(State, Generic[T]):
    """One value per key: ``context.state(count).value += 1``."""

    def __init__(self, name: str, default: T = NO_DEFAULT) -> None:
        """``default``: what a key has that has none; a mutable one is copied for each key."""
        super().__init__(name)
        self.default = default

    def cell(self, step: str, state: StateBackend, holder: HasKey) -> Cell:
        return _ValueCell(Value(state.table(f"{step}/{self.name}"), holder, self.default))


class ListState(State, Generic[T]):
    """A list per key, stored as a whole when it was asked for: for few items a key."""

    def cell(self, step: str, state: StateBackend, holder: HasKey) -> Cell:
        return _ContainerCell(state.table(f"{step}/{self.name}", prunes_empty=True), holder, list)


class MapState(State, Generic[K, V]):
    """A dict per key, stored as a whole when it was asked for: for few entries a key."""

    def cell(self, step: str, state: StateBackend, holder: HasKey) -> Cell:
        return _ContainerCell(state.table(f"{step}/{self.name}", prunes_empty=True), holder, dict)


class _ValueCell:
    __slots__ = ("_handle",)

    def __init__(self, handle: Value[Any]) -> None:
        self._handle = handle

    def current(self) -> Value[Any]:
        return self._handle


class _ContainerCell:
    __slots__ = ("_table", "_holder", "_create")

    def __init__(self, table: Table, holder: HasKey, create: type) -> None:
        self._table = table
        self._holder = holder
        self._create = create

    def current(self) -> Any:
        key = state_key(self._holder.key)
        container = self._table.entries.get(key)
        if container is None:
            container = self._table.entries[key] = self._create()
        self._table.changed[key] = None
        return container


class BadStateName(JobError):
    """A descriptor's name cannot name a table."""

    name: str

    def __str__(self) -> str:
        return f"{self.name!r} cannot name a state: give it a name without '/' that stays the same in later versions."
