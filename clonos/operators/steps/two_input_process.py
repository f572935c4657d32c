"""Process functions of two inputs, which share state and timers, and broadcast state.

Records of a broadcast input reach every task. What they write into broadcast state is therefore the same in all tasks;
other methods only read it.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Any, Final, TypeVar, overload

from clonos.core.model.errors import JobError
from clonos.core.values.copying import copied
from clonos.core.values.keys import state_key
from clonos.operators.operator import Times, TwoInputOperator
from clonos.operators.state.keyed_state import Table
from clonos.operators.state.state_descriptors import (
    BROADCAST_CONTAINERS,
    BROADCAST_VALUES,
    Cell,
    MapState,
    State,
    Value,
    ValueState,
)
from clonos.operators.state.state_spec import StateSpec
from clonos.operators.steps.context import Context
from clonos.operators.steps.process import Process, method_of

K = TypeVar("K")
U = TypeVar("U")
T = TypeVar("T")
MapKey = TypeVar("MapKey")
MapValue = TypeVar("MapValue")

ALL_KEYS: Final = None
"""Key of broadcast state in its table."""


READ_ONLY: Final = (
    "changes broadcast state outside of process_second: only records of the broadcast stream may change it"
)


class _AllKeys:
    """Holder of the key of broadcast state."""

    key = ALL_KEYS
    has_mutable_state = True
    has_times = False

    def now_ns(self, is_event_time: bool) -> int:
        raise AssertionError("broadcast state has no ttl")


class ReadOnlyValue:
    """Value of broadcast state outside of ``process_second``."""

    __slots__ = ("_step", "_found")

    def __init__(self, step: str, found: Any) -> None:
        self._step, self._found = step, found

    @property
    def value(self) -> Any:
        """Value, or the default."""
        return self._found

    @value.setter
    def value(self, value: Any) -> None:
        raise BroadcastStateMisused(self._step, READ_ONLY)

    def clear(self) -> None:
        """Refuses to delete the value.

        Raises:
            BroadcastStateMisused: always.
        """
        raise BroadcastStateMisused(self._step, READ_ONLY)


class TwoInputContext(Context[K, U]):
    """Context of a process function with two inputs: also gives broadcast state.

    ``key`` is None in ``process_second`` of a broadcast stream; keyed state and timers cannot be used there.
    """

    __slots__ = ("_broadcast_cells", "is_broadcast", "has_key", "writes_broadcast")

    _broadcast_cells: dict[str, tuple[State, Cell, Table]]
    is_broadcast: bool
    """Whether the second stream is broadcast."""
    has_key: bool
    """Whether state and timers of the current key can be used now."""
    writes_broadcast: bool
    """Whether broadcast state can be written now."""

    @overload
    def broadcast_state(self, descriptor: ValueState[T]) -> Value[T]: ...

    @overload
    def broadcast_state(self, descriptor: MapState[MapKey, MapValue]) -> dict[MapKey, MapValue]: ...

    def broadcast_state(self, descriptor: Any) -> Any:
        """Returns state that ``process_second`` of a broadcast stream writes and all other methods read.

        It is the same in all tasks, unless it depends on the order of records from several tasks. Outside of
        ``process_second`` it cannot be changed; do not change values within it either.

        Raises:
            BroadcastStateMisused: the second stream is not broadcast, or the descriptor is of another kind.
        """
        if not self.is_broadcast:
            raise BroadcastStateMisused(
                self._step,
                "uses broadcast state, and its second stream is not broadcast: connect(rules.broadcast())",
            )
        if not isinstance(descriptor, (MapState, ValueState)):
            raise BroadcastStateMisused(self._step, "uses broadcast state that is neither a MapState nor a ValueState")
        if descriptor.has_ttl:
            raise BroadcastStateMisused(self._step, "uses broadcast state with a ttl, which only state of a key has")
        self.has_mutable_state = True
        found = self._broadcast_cells.get(descriptor.name)
        if found is None or found[0] is not descriptor:
            cell = descriptor.cell(self._step, self._state, _AllKeys(), self._undo, is_broadcast=True)
            found = descriptor, cell, descriptor.table(self._state, is_broadcast=True)
            self._broadcast_cells[descriptor.name] = found
        _, cell, table = found
        if self.writes_broadcast:
            return cell.current()
        stored: Any = table.entries.get(state_key(ALL_KEYS))
        if isinstance(descriptor, MapState):
            contents: Mapping[Any, Any] = {} if stored is None else stored
            return MappingProxyType(contents)
        return ReadOnlyValue(self._step, copied(descriptor.default if stored is None else stored))

    def state(self, descriptor: Any) -> Any:
        """Returns the state of the current key: see ``Context.state``."""
        self._check_key()
        return super().state(descriptor)

    def set_timer(self, timestamp: datetime | float) -> None:
        """Sets a timer for the current key: see ``Context.set_timer``."""
        self._check_key()
        super().set_timer(timestamp)

    def delete_timer(self, timestamp: datetime | float) -> None:
        """Deletes a timer of the current key: see ``Context.delete_timer``."""
        self._check_key()
        super().delete_timer(timestamp)

    def set_event_timer(self, timestamp: datetime | float) -> None:
        """Sets an event-time timer for the current key: see ``Context.set_event_timer``."""
        self._check_key()
        super().set_event_timer(timestamp)

    def delete_event_timer(self, timestamp: datetime | float) -> None:
        """Deletes an event-time timer of the current key: see ``Context.delete_event_timer``."""
        self._check_key()
        super().delete_event_timer(timestamp)

    def _check_key(self) -> None:
        if not self.has_key:
            raise BroadcastStateMisused(
                self._step,
                "uses state or timers of a key in process_second, whose records are broadcast and have no key:"
                " use context.broadcast_state(...) there",
            )


class TwoInputProcess(Process, TwoInputOperator):
    """Operator that runs a process function on the records of two inputs, both keyed or only the first one."""

    def __init__(
        self, step: str, function: Any, is_keyed: bool, is_broadcast: bool = False, has_times: bool = False
    ) -> None:
        """Creates the operator. ``is_broadcast``: the second input is broadcast, and has no key."""
        super().__init__(step, function, is_keyed, has_times)
        self._is_broadcast = is_broadcast

    @property
    def state_specs(self) -> tuple[StateSpec, ...]:
        broadcast = (BROADCAST_VALUES, BROADCAST_CONTAINERS) if self._is_broadcast else ()
        return (*super().state_specs, *broadcast)

    def _bind(self) -> None:
        self._first = method_of(self._function, "process_first")
        self._second = method_of(self._function, "process_second")

    def _new_context(self, *arguments: Any, **rest: Any) -> Context[Any, Any]:
        context: TwoInputContext[Any, Any] = TwoInputContext(*arguments, **rest)
        context._broadcast_cells = {}
        context.is_broadcast = self._is_broadcast
        context.has_key, context.writes_broadcast = True, False
        return context

    def first(self, rows: list[Any], times: Times = None) -> None:
        self._process(self._first, rows if self._is_keyed else [(None, row) for row in rows], self._own(times))

    def second(self, rows: list[Any], times: Times = None) -> None:
        pairs = rows if self._is_keyed and not self._is_broadcast else [(None, row) for row in rows]
        self._enter(True)
        try:
            self._process(self._second, pairs, self._own(times))
        finally:
            self._enter(False)

    def _own(self, times: Times) -> Times:
        """Returns timestamps only if both inputs have them."""
        return times if self._has_times else None

    def _enter(self, is_second: bool) -> None:
        context = self._context
        assert isinstance(context, TwoInputContext), context
        context.has_key = not (is_second and self._is_broadcast and self._is_keyed)
        context.writes_broadcast = is_second and self._is_broadcast


class BroadcastStateMisused(JobError):
    """A process function of two inputs uses broadcast state, or keyed state, where it cannot."""

    step: str
    problem: str

    def __str__(self) -> str:
        return f"the step {self.step} {self.problem}."
