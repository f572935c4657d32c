"""stateful_map_async: concurrent calls of keys that have state, one at a time for each key.

Open calls are those of ``AsyncMap``. Of the records of a key the first one has its call, and the others wait for it:
the state that a call gets has what the calls before it have returned. A call is requested where the one before it is
complete, so a replay requests the same calls with the same states.

A call that awaits an event is suspended (``AwaitedEvents``), and requested again when the event has come, its time is
up, or it is cancelled.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import repeat
from typing import Any, ClassVar, Final

from clonos.core.log.call_outcomes import decode_outcome
from clonos.core.model.errors import JobError
from clonos.core.model.watermark import Activity, Watermark
from clonos.core.ports.recorder import CANCELLED, CallLife, EventAwaited
from clonos.core.values import encode_value
from clonos.core.values.keys import state_key
from clonos.operators.event_time.durations import duration_ns
from clonos.operators.facts import Facts, KnownInputs
from clonos.operators.operator import DueTimer, Scope, Times
from clonos.operators.state.keyed_state import Table
from clonos.operators.state.state_spec import StateSpec
from clonos.operators.steps.async_map import AsyncMap
from clonos.operators.steps.awaited_events import (
    ENDED,
    AwaitedEvents,
    Awaits,
    Cancel,
    Event,
    ResumedCall,
    SuspendedCall,
    cancelled_outcome,
)
from clonos.operators.steps.call_attempts import CallPolicy
from clonos.operators.steps.keyed import STATE, beside, pair_of
from clonos.operators.steps.process import WATERMARK
from clonos.operators.user_errors import RAISED

FOR_CALLS: Final = (Event, Cancel)


class EventNeverCame(JobError):
    """The input has ended, and a call still awaits an event, or a record such a call."""

    step: str
    name: str

    def __str__(self) -> str:
        return f"the input of {self.step} has ended, and the event {self.name!r} has not come."


class CallsUnlogged(JobError):
    """An ``Event`` or a ``Cancel`` has come for calls that can neither await nor be cancelled."""

    step: str
    record: str

    def __str__(self) -> str:
        return (
            f"the record {self.record} is for a call that awaits an event or is cancelled, and the calls of {self.step}"
            " are not logged. Add log_calls=True to stateful_map_async."
        )


class AsyncStatefulMap(AsyncMap):
    """Function (key, state, value) -> (state, result). The state of a new key is None; returning None deletes it."""

    called_with = (("key", "state", "value"),)
    is_per_record = False
    has_timers: ClassVar[bool] = True

    _table: Table
    _reached: Table
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
        self._asked: dict[Any, int] = {}  # by the stored key: its call that is requested

    @property
    def state_specs(self) -> tuple[StateSpec, ...]:
        return (*super().state_specs, STATE, *((*AwaitedEvents.SPECS, WATERMARK) if self._logs_calls else ()))

    def open(self, scope: Scope) -> None:
        self._table = scope.state.table(STATE)
        if self._logs_calls:
            self._awaited, self._reached = AwaitedEvents(scope), scope.state.table(WATERMARK)
        super().open(scope)
        self._hold(len(self._waiting))

    def rows(self, rows: list[Any], times: Times = None) -> None:
        for row, timestamp_ns in zip(rows, times or repeat(None)):  # noqa: B905  the second one may be endless
            key, value = row
            if self._awaited is None and isinstance(value, FOR_CALLS):
                self.guard.refused(CallsUnlogged(self._step, f"{value!r:.200}"), value, None)
            elif self._awaited is not None and type(value) is Event:
                self._awaited.add(stored := state_key(key), value, timestamp_ns)
                self._resume(stored, self._awaited.take_ready(stored))
            elif self._awaited is not None and type(value) is Cancel:
                self._cancel(state_key(key), value, timestamp_ns)
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

    def resumed(self, stored: Any) -> partial[object]:
        """Returns the call of the function for a key that awaits an event, as it is made when the event has come."""
        assert self._awaited is not None, "only a step that logs its calls awaits events"
        call = self._awaited.suspended(stored)
        assert call is not None, "the key has a suspended call"
        key, value = call.record
        return partial(self._perform, (key, self._table.entries.get(stored), value))

    def _cancel(self, stored: Any, cancel: Cancel, timestamp_ns: int | None) -> None:
        assert self._awaited is not None, "only a step that logs its calls takes cancellations"
        outcome = cancelled_outcome(cancel)
        if self._awaited.is_suspended(stored):
            self._resume(stored, self._awaited.take_cancelled(stored, outcome, timestamp_ns))
        elif (number := self._asked.get(stored)) is not None:
            self.take_part(number, CANCELLED, outcome)
            self._recorder.cancel(number, outcome)

    def _resume(self, stored: Any, call: ResumedCall | None) -> None:
        """Requests a suspended call of a key again, and lets what follows it wait."""
        if call is None:
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
        self._ask(number, record, stored, request)

    def _ask(self, number: int, record: Any, stored: Any, request: bytes) -> None:
        """Requests a call. What it asks for depends on the state: with another one it is another request.

        ``request``: the bytes of the record.
        """
        (key, value), state = record, self._table.entries.get(stored)
        self._asked[stored] = number
        self._submit(number, (key, state, value), request + encode_value(state))

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
            request = self._encoded(record)
            assert request is not None, "a record that waits had bytes when it came"
            self._ask(number, record, stored, request)
        else:
            del self._waiting[stored], self._asked[stored]

    def _perform(self, given: tuple[Any, ...], key: str, inside: CallLife | None = None) -> object:
        try:
            return pair_of(self._caller.call(given, key, inside), "stateful_map_async")
        except EventAwaited as awaited:
            timeout_ns = None if awaited.timeout is None else duration_ns(awaited.timeout)
            return Awaits(awaited.name, awaited.part, timeout_ns)

    def _suspend(self, number: int, stored: Any, awaits: Awaits) -> None:
        """Closes a call that awaits an event; the records that wait for it become state of the key, as it does."""
        assert self._awaited is not None, "only a step that logs its calls awaits events"
        assert self._parts is not None, "a step that logs its calls has parts"
        parts = {name: self._parts.entries[number, name] for name in self._part_names.get(number, ())}
        cancelled = parts.get(CANCELLED)
        record, timestamp_ns = self._end(number)
        following = [self._end(each) for each in self._waiting.pop(stored)]
        del self._asked[stored]
        due_ns = None
        if awaits.timeout_ns is not None and ENDED not in parts:
            due_ns = self._recorder.instant_ns(True) + awaits.timeout_ns  # a tick of a coarse clock is older
        call = SuspendedCall(awaits.name, awaits.part, record, timestamp_ns, parts, awaits.timeout_ns, due_ns)
        self._awaited.suspend(stored, call)
        for each, at_ns in following:
            self._awaited.follow(stored, each, at_ns)
        resumed = None if cancelled is None else self._awaited.take_cancelled(stored, cancelled, None)
        self._resume(stored, resumed or self._awaited.take_ready(stored))

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

    def next_timer_ns(self) -> int | None:
        return None if self._awaited is None else self._awaited.next_due_ns()

    def due(self, until_ns: int | None) -> list[DueTimer]:
        return [] if self._awaited is None else self._awaited.due(until_ns)

    def fire(self, due: Sequence[DueTimer]) -> None:
        for timer in due:
            assert self._awaited is not None, "only a step that logs its calls has timers"
            if (found := self._awaited.take_due(timer, self._reached.entries.get(0))) is not None:
                self._resume(*found)
        self._next.set(0, self._number)
        self._hold(len(self._waiting))

    def on_watermark(self, watermark: Watermark) -> None:
        if self._awaited is not None and not isinstance(watermark, Activity):
            self._reached.set(0, watermark)
        super().on_watermark(watermark)

    def end_of_time(self) -> None:
        for record, name in self._awaited.take_all() if self._awaited is not None else ():
            self.guard.refused(EventNeverCame(self._step, name), record[1], None)

    def _fail(self, error: Exception, record: Any) -> None:
        self.guard.caught(error, record[1])
