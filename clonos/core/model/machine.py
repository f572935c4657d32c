"""A state machine as a table: one explicit row for each pair ``(State, Event)`` that may happen.

A pair that may happen and means nothing has a row too. A pair without a row is a bug. ``docs/design/machines.md`` is
drawn from the tables: a handler's return type says to which states it leads, and mypy checks that it is true.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from clonos.core.model.errors import InternalError

StateT = TypeVar("StateT")
EventT = TypeVar("EventT")
StepT = TypeVar("StepT")

Table = dict[tuple[type, type], Callable[[Any, Any], StepT]]


@dataclass(frozen=True, slots=True)
class Machine(Generic[StateT, EventT, StepT]):
    """A named table. ``StepT`` is what a handler returns: the next state, often with effects."""

    name: str
    table: Table[StepT]

    def step(self, state: StateT, event: EventT) -> StepT:
        """Returns what the row of this state and event returns.

        Raises: InternalError, for a pair without a row.
        """
        handler = self.table.get((type(state), type(event)))
        if handler is None:
            raise self.no_row(state, type(event), event)
        return handler(state, event)

    def no_row(self, state: object, kind: type, event: object) -> InternalError:
        """Describes a pair without a row."""
        where = f"{kind.__name__} in state {type(state).__name__}"
        return InternalError(f"the {self.name} has no row for {where}: {event} in {state}")
