"""stateful_map_async: concurrent calls of keys that have state, one at a time for each key.

Open calls are those of ``AsyncMap``. Of the records of a key the first one has its call, and the others wait for it:
the state that a call gets has what the calls before it have returned. A call is requested where the one before it is
complete, so a replay requests the same calls with the same states.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from itertools import repeat
from typing import Any

from clonos.core.log.call_outcomes import decode_outcome
from clonos.core.model.errors import JobError
from clonos.core.ports.recorder import CallLife, EventAwaited
from clonos.core.values import encode_value
from clonos.core.values.keys import state_key
from clonos.operators.facts import Facts, KnownInputs
from clonos.operators.operator import Scope, Times
from clonos.operators.state.keyed_state import Table
from clonos.operators.state.state_spec import StateSpec
from clonos.operators.steps.async_map import AsyncMap
from clonos.operators.steps.awaited_events import AwaitedEvents, Awaits, Event, SuspendedCall
from clonos.operators.steps.call_attempts import CallPolicy
from clonos.operators.steps.keyed import STATE, beside, pair_of
from clonos.operators.user_errors import RAISED


class EventNeverCame(JobError):
    """The input has ended, and a call still awaits an event, or a record such a call."""

    step: str
    name: str

    def __str__(self) -> str:
        return f"the input of {self.step} has ended, and the event {self.name!r} has not come."


class AsyncStatefulMap(AsyncMap):
    """Function (key, state, value) -> (state, result). The state of a new key is None; returning None deletes it."""

    called_with = (("key", "state", "value"),)
    is_per_record = False

    _table: Table
    _awaited: AwaitedEvents | None = None

    @classmethod
    def facts(cls, given: KnownInputs, *functions: Any, **arguments: Any) -> Facts:
        """See ``AsyncMap``."""
        return replace(super().facts(given, *functions, **arguments), breaks_order="results of other keys overtake")

    def __init__(
        self,
        step: str,
        function: Callable[..., Any],
        capacity: int,
        policy: CallPolicy = CallPolicy(),  # noqa: B008  it is immutable
        logs_calls: bool = False,
    ) -> None:
        """See ``AsyncMap``."""
        super().__init__(step, function, capacity, False, policy, logs_calls=logs_calls)
        self._waiting: dict[Any, deque[int]] = {}  # by the stored key of an open call: records that wait for it

    @property
    def state_specs(self) -> tuple[StateSpec, ...]:
        return (*super().state_specs, STATE, *(AwaitedEvents.SPECS if self._logs_calls else ()))

    def open(self, scope: Scope) -> None:
        self._table = scope.state.table(STATE)
        if self._logs_calls:
            self._awaited = AwaitedEvents(scope)
        super().open(scope)
        self._hold(len(self._waiting))

    def rows(self, rows: list[Any], times: Times = None) -> None:
        for row, timestamp_ns in zip(rows, times or repeat(None)):  # noqa: B905  the second one may be endless
            key, value = row
            if self._awaited is not None and type(value) is Event:
                self._take_event(state_key(key), value, timestamp_ns)
            elif self._awaited is not None and self._awaited.is_suspended(stored := state_key(key)):
                if self._encoded(row) is not None:
                    self._awaited.follow(stored, row, timestamp_ns)
            else:
                self._come(row, timestamp_ns)
        self._next.set(0, self._number)
        self._hold(len(self._waiting))

    def awaiting(self, stored: Any) -> SuspendedCall | None:
        """Returns the call of a key that awaits an event, None without one."""
        return None if self._awaited is None else self._awaited.suspended(stored)

    def _take_event(self, stored: Any, event: Event, timestamp_ns: int | None) -> None:
        assert self._awaited is not None, "only a step that logs its calls takes events"
        self._awaited.add(stored, event, timestamp_ns)
        self._resume(stored)

    def _resume(self, stored: Any) -> None:
        """Requests the suspended call of a key again if its event has come, and lets what follows it wait."""
        if self._awaited is None or (call := self._awaited.take_ready(stored)) is None:
            return
        for name, data in call.parts.items():
            self.take_part(self._number, name, data)
        self._come(call.record, call.timestamp_ns)
        for record, timestamp_ns in call.following:
            self._come(record, timestamp_ns)

    def _admit(self, number: int, record: Any, request: bytes) -> None:
        stored = state_key(record[0])
        if (waiting := self._waiting.get(stored)) is not None:
            waiting.append(number)
            return
        self._waiting[stored] = deque()
        self._ask(number, record, stored)

    def _ask(self, number: int, record: Any, stored: Any) -> None:
        """Requests a call. What it asks for depends on the state: with another one it is another request."""
        (key, value), state = record, self._table.entries.get(stored)
        self._submit(number, (key, state, value), encode_value((record, state)))

    def complete(self, number: int, outcome: bytes) -> None:
        stored = state_key(self._open.entries[number][0])
        try:
            found: Any = decode_outcome(outcome)
        except RAISED as error:
            found = error
        if type(found) is Awaits:
            self._suspend(number, stored, found)
        else:
            self._end_call(number, stored, found)
            self._ask_next(stored)
        self._next.set(0, self._number)
        self._hold(len(self._waiting))
        self._pass_held()

    def _ask_next(self, stored: Any) -> None:
        """Requests the call of the next record of a key, if one waits."""
        if waiting := self._waiting[stored]:
            number = waiting.popleft()
            record = self._open.entries[number]
            self._ask(number, record, stored)
        else:
            del self._waiting[stored]

    def _perform(self, given: tuple[Any, ...], key: str, inside: CallLife | None = None) -> object:
        try:
            return pair_of(self._caller.call(given, key, inside), "stateful_map_async")
        except EventAwaited as awaited:
            return Awaits(awaited.name, awaited.part)

    def _suspend(self, number: int, stored: Any, awaits: Awaits) -> None:
        """Closes a call that awaits an event; the records that wait for it become state of the key, as it does."""
        assert self._awaited is not None, "only a step that logs its calls awaits events"
        assert self._parts is not None, "a step that logs its calls has parts"
        parts = {name: self._parts.entries[number, name] for name in self._part_names.get(number, ())}
        record, timestamp_ns = self._end(number)
        following = tuple(self._end(each) for each in self._waiting.pop(stored))
        self._awaited.suspend(stored, SuspendedCall(awaits.name, awaits.part, record, timestamp_ns, parts, following))
        self._resume(stored)

    def _end_call(self, number: int, stored: Any, found: Any) -> None:
        """Takes what a call has returned or raised."""
        record, timestamp_ns = self._end(number)
        if isinstance(found, Exception):
            self._fail(found, record)
            return
        state, result = found
        if state is None:
            self._table.delete(stored)
        else:
            self._table.set(stored, state)
        self.out.rows([beside(state, result)], None if timestamp_ns is None else [timestamp_ns])

    def end_of_time(self) -> None:
        for record, name in self._awaited.take_all() if self._awaited is not None else ():
            self.guard.refused(EventNeverCame(self._step, name), record[1], None)

    def _fail(self, error: Exception, record: Any) -> None:
        self.guard.caught(error, record[1])
