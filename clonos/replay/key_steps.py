"""Course of one key in a replay: its records at each step, with the calls made for them and its state."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, NamedTuple

from clonos.core.values.copying import copied
from clonos.core.values.keys import key_of, state_key
from clonos.operators.operator import Operator
from clonos.operators.state.keyed_state import StateBackend
from clonos.operators.state.state_spec import ANY, StateKind, StateScope
from clonos.operators.steps.awaited_events import EVENTS, FOLLOWING, SUSPENDED, AwaitedEvents
from clonos.replay.model_exchange import messages_of
from clonos.replay.seen_calls import SeenCall, text_of

BROADCAST: Final = "broadcast/"
"""Begin of the names of state that all tasks have alike."""

QUEUES: Final = frozenset((EVENTS.name, FOLLOWING.name))
"""Tables of what waits for a call of a key, or for the end of one."""


class StepEvent(StrEnum):
    """Reason why a key comes to a step."""

    RECORD = "record"
    EVENT = "event"  # that a function awaits
    TIMER = "timer"  # or a watermark


class KeyRecord(NamedTuple):
    """Record of a key. ``number``: of the task's input in the epoch, from 1, None if it is not known."""

    number: int | None
    record: Any


KeyState = dict[str, Any]
"""Values of a key by the name of the state."""


@dataclass
class KeyStep:
    """Passage of a key through a step: a record, with its calls, or several records that it processes at once.

    ``result``: what the function of an asynchronous call has returned beside the state, as text; None if that is not
    known. ``awaits``: the event that the function awaits, "" if none. ``is_open``: its call is under way where the log
    ends. ``notes``: sentences about what is not known.
    """

    step: str
    event: StepEvent
    key: Any
    records: list[KeyRecord]
    before: KeyState
    after: KeyState = field(default_factory=dict)
    calls: list[SeenCall] = field(default_factory=list)
    calls_as_before: int = 0
    result: str | None = None
    error: str = ""
    awaits: str = ""
    is_open: bool = False
    notes: list[str] = field(default_factory=list)

    @property
    def has_records(self) -> bool:
        """Whether records have come, and not an event or a timer."""
        return self.event is StepEvent.RECORD

    def to_json(self) -> dict[str, Any]:
        """Returns it for a program."""
        return {
            "step": self.step,
            "event": self.event.value,
            "key": text_of(self.key),
            "records": [{"number": each.number, "record": text_of(each.record)} for each in self.records],
            "before": state_json(self.before),
            "after": state_json(self.after),
            "calls": [each.to_json() for each in self.calls],
            "calls_as_before": self.calls_as_before,
            "result": self.result,
            "error": self.error or None,
            "awaits": self.awaits or None,
            "open": self.is_open,
            "notes": self.notes,
        }


def state_json(state: KeyState) -> list[dict[str, Any]]:
    """Returns the state of a key for a program, with the messages of conversations."""
    return [
        {"name": name, "text": text_of(value), "messages": [each._asdict() for each in messages_of(value)]}
        for name, value in state.items()
    ]


def is_keyed(operator: Operator) -> bool:
    """Returns whether a step has state by key, so that its rows are pairs of a key and a record."""
    return any(spec.scope is StateScope.KEYED and spec.kind is StateKind.TABLE for spec in operator.state_specs)


def has_keys_in_columns(operator: Operator) -> bool:
    """Returns whether a step has state by key in columns."""
    return any(spec.scope is StateScope.KEYED and spec.kind is not StateKind.TABLE for spec in operator.state_specs)


class KeyedTables:
    """State of one step by key, to look up one key after the other."""

    def __init__(self, step: str, operator: Operator) -> None:
        self._step, self._operator = operator.state_step or step, operator
        awaited = {spec.name for spec in AwaitedEvents.SPECS}
        specs = [spec for spec in operator.state_specs if ANY not in spec.name]
        self._left_out = awaited | {
            spec.name for spec in specs if spec.scope is not StateScope.KEYED or spec.key_place != (0,)
        }

    def of(self, state: StateBackend, stored: Any) -> KeyState:
        """Returns copies of what a stored key has."""
        self._operator.write_back()
        prefix = f"{self._step}/"
        found = KeyState()
        for name, table in state.opened():
            own = name.removeprefix(prefix)
            if name.startswith(prefix) and self._is_by_key(own) and stored in table.entries:
                found[own] = copied(table.entries[stored])
        return found

    def keys(self, state: StateBackend) -> list[Any]:
        """Returns the stored keys, also those that have no more than a suspended call or an event."""
        prefix = f"{self._step}/"
        tables = [(name.removeprefix(prefix), table) for name, table in state.opened() if name.startswith(prefix)]
        own = [table for name, table in tables if self._is_by_key(name) or name == SUSPENDED.name]
        found = [key for table in own for key in table.contents()]
        queues = [table for name, table in tables if name in QUEUES]
        return found + [_key_of_queue(entry) for table in queues for entry in table.contents()]

    def queued(self, state: StateBackend, stored: Any) -> KeyState:
        """Returns the events of a stored key that no call has awaited yet, as (name, value), and the records that wait
        for its suspended call."""
        found: dict[str, list[Any]] = {}
        for name, table in state.opened():
            own = name.removeprefix(f"{self._step}/")
            if name.startswith(f"{self._step}/") and own in QUEUES:
                items = [item for entry, item in table.contents().items() if _key_of_queue(entry) == stored]
                if items:
                    found[own] = [item[:2] if own == EVENTS.name else item[0][1] for item in items]
        return KeyState(found)

    def _is_by_key(self, name: str) -> bool:
        return name not in self._left_out and not name.startswith(BROADCAST)


def _key_of_queue(entry: Any) -> Any:
    """Returns the stored key of an entry (number, key) of a queue."""
    found: Any = key_of(entry)
    return state_key(found[1])
