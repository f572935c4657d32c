"""Events that calls of keys await: those that came first, and the calls that wait for one.

A call that awaits an event is not open: its record, its parts and the records that have come for its key since are
state of the key, so they move with it. The event is a part of the call when the call goes on, and so is the error when
its time is up or it is cancelled.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

from clonos.core.log.call_outcomes import encode_outcome
from clonos.core.ports.recorder import CANCELLED
from clonos.core.values import register
from clonos.core.values.keys import key_of, state_key
from clonos.operators.event_time.durations import duration_text
from clonos.operators.operator import DueTimer, Scope
from clonos.operators.state.keyed_state import Table
from clonos.operators.state.state_spec import Encoding, StateSpec, keyed
from clonos.operators.state.timers import Timers, timer_spec
from clonos_services.awaiting import EVENT, AwaitTimeout, CallCancelled

EVENTS: Final = keyed("events", key_place=(0, 1))
"""Table of events that no call has awaited yet: (number, key) -> (name, value, timestamp)."""

SUSPENDED: Final = replace(keyed("suspended calls"), encoding=Encoding.RESUMED, encoded_place=(1, 4))
"""Table of calls that await an event: key -> ``SuspendedCall``, as a tuple."""

FOLLOWING: Final = keyed("records after suspended calls", key_place=(0, 1))
"""Table of records that wait for a suspended call of their key: (number, key) -> (record, timestamp)."""

TIMEOUTS: Final = timer_spec("timeouts of events")
"""Table of timers, one of each suspended call that waits for a limited time."""

ENDED: Final = b"ended"
"""Name of the part of a call whose time was up because the input has ended: it may not wait for a time again."""


@register
class Event(NamedTuple):
    """Record that a call awaits. It goes to the call of its key that awaits this name, and no function gets it
    otherwise."""

    name: str
    value: Any


@register
class Cancel(NamedTuple):
    """Record that cancels the call of its key: in it, ``await_event`` raises ``CallCancelled``, with this value.

    So does the next recorded call that a running function makes. It cancels no later call: without a call of its key,
    if that call ends before, or if it was cancelled before, nothing happens. Records that wait for the call follow it.
    """

    value: Any


@register
class Awaits(NamedTuple):
    """Outcome of a call that awaits an event. ``part``: the name under which the call gets the event. ``timeout_ns``:
    for how long it waits at most, in nanoseconds; None: as long as it takes."""

    name: str
    part: bytes
    timeout_ns: int | None = None


class SuspendedCall(NamedTuple):
    """Call that awaits an event. ``part``: the name under which it gets the event. ``parts``: those that it has.
    ``due_ns``: when its time is up, in nanoseconds since the Unix epoch; None: never."""

    name: str
    part: bytes
    record: Any
    timestamp_ns: int | None
    parts: Mapping[bytes, bytes]
    timeout_ns: int | None
    due_ns: int | None


class ResumedCall(NamedTuple):
    """Call that goes on. ``following``: the records that have come for its key, with their timestamps."""

    record: Any
    timestamp_ns: int | None
    parts: Mapping[bytes, bytes]
    following: Sequence[tuple[Any, int | None]]


class AwaitedEvents:
    """Events and suspended calls of a step."""

    SPECS: Final[tuple[StateSpec, ...]] = (EVENTS, SUSPENDED, FOLLOWING, TIMEOUTS)

    def __init__(self, scope: Scope) -> None:
        self._suspended = scope.state.table(SUSPENDED)
        self._events, self._following = _Queues(scope.state.table(EVENTS)), _Queues(scope.state.table(FOLLOWING))
        self._timers = Timers(TIMEOUTS, scope.state)

    def is_suspended(self, stored: Any) -> bool:
        """Returns whether the call of a key awaits an event."""
        return stored in self._suspended.entries

    def suspended(self, stored: Any) -> SuspendedCall | None:
        """Returns the call of a key that awaits an event, None without one."""
        found = self._suspended.entries.get(stored)
        return None if found is None else SuspendedCall(*found)

    def add(self, stored: Any, event: Event, timestamp_ns: int | None) -> None:
        """Keeps an event until a call of its key awaits it."""
        self._events.append(stored, (event.name, event.value, timestamp_ns))

    def suspend(self, stored: Any, call: SuspendedCall) -> None:
        """Keeps a call until its event comes, its time is up, or it is cancelled."""
        self._suspended.set(stored, tuple(call))
        if call.due_ns is not None:
            self._timers.set(call.due_ns, key_of(stored))

    def follow(self, stored: Any, record: Any, timestamp_ns: int | None) -> None:
        """Lets a record wait after the suspended call of its key."""
        self._following.append(stored, (record, timestamp_ns))

    def take_ready(self, stored: Any) -> ResumedCall | None:
        """Takes the suspended call of a key whose event has come, with the event among its parts. Returns None if
        there is no such call."""
        if (call := self.suspended(stored)) is None:
            return None
        for number, (name, value, at_ns) in self._events.items(stored):
            if name == call.name:
                self._events.delete(stored, number)
                return self._take(stored, encode_outcome(EVENT, value), at_ns)
        return None

    def take_cancelled(self, stored: Any, cancelled: bytes, at_ns: int | None) -> ResumedCall | None:
        """Takes the suspended call of a key, which is cancelled; None if it has been cancelled before.

        ``cancelled``: the encoded error.
        """
        call = SuspendedCall(*self._suspended.entries[stored])
        if call.parts.get(CANCELLED) in [data for name, data in call.parts.items() if name != CANCELLED]:
            return None
        resumed = self._take(stored, cancelled, at_ns)
        return resumed._replace(parts={**resumed.parts, CANCELLED: cancelled})

    def take_due(self, due: DueTimer, at_ns: int | None) -> tuple[Any, ResumedCall] | None:
        """Takes the suspended call whose time is up, with its key as it is stored; None if the call does not wait any
        more."""
        timer, has_ended = due.token
        if not self._timers.take(timer):
            return None
        stored = state_key(timer.token[2])
        call = SuspendedCall(*self._suspended.entries[stored])
        assert call.timeout_ns is not None, "only a call that waits for a limited time has a timer"
        error = AwaitTimeout(call.name, duration_text(call.timeout_ns), has_ended)
        resumed = self._take(stored, encode_outcome(EVENT, error), at_ns)
        return stored, resumed._replace(parts={**resumed.parts, ENDED: b""}) if has_ended else resumed

    def next_due_ns(self) -> int | None:
        """Returns when the time of the first call is up, None if none is limited."""
        return self._timers.next_ns()

    def due(self, until_ns: int | None) -> list[DueTimer]:
        """Returns the timers of the calls whose time is up at ``until_ns``; None: at the end of the input."""
        return [DueTimer(timer.instant_ns, (timer, until_ns is None)) for timer in self._timers.due(until_ns)]

    def take_all(self) -> Iterator[tuple[Any, str]]:
        """Takes all suspended calls and what follows them: yields each record, and the name of the event."""
        for stored, found in list(self._suspended.contents().items()):
            call = SuspendedCall(*found)
            self._suspended.delete(stored)
            yield call.record, call.name
            for record, _ in self._following.take(stored):
                yield record, call.name

    def _take(self, stored: Any, outcome: bytes, at_ns: int | None) -> ResumedCall:
        """Takes a suspended call, which goes on with an outcome. Neither the call nor what follows it is older than
        ``at_ns``, because the watermark has not waited for them."""
        call = SuspendedCall(*self._suspended.entries[stored])
        self._suspended.delete(stored)
        if call.due_ns is not None:
            self._timers.delete(call.due_ns, key_of(stored))
        following = [(record, _later(timestamp_ns, at_ns)) for record, timestamp_ns in self._following.take(stored)]
        return ResumedCall(call.record, _later(call.timestamp_ns, at_ns), {**call.parts, call.part: outcome}, following)


class _Queues:
    """Queues of keys in a table, one entry for each item: (number, key) -> item."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._numbers: dict[Any, dict[int, None]] = {}  # by the stored key, in order of arrival
        for entry in table.entries:
            number, key = _entry_of(entry)
            self._numbers.setdefault(state_key(key), {})[number] = None

    def append(self, stored: Any, item: tuple[Any, ...]) -> None:
        """Adds an item of a key."""
        numbers = self._numbers.setdefault(stored, {})
        number = next(reversed(numbers), -1) + 1
        numbers[number] = None
        self._table.set(_entry(number, stored), item)

    def items(self, stored: Any) -> Iterator[tuple[int, tuple[Any, ...]]]:
        """Yields the number of each item of a key, and the item."""
        for number in self._numbers.get(stored, ()):
            yield number, self._table.entries[_entry(number, stored)]

    def delete(self, stored: Any, number: int) -> None:
        """Deletes an item of a key."""
        numbers = self._numbers[stored]
        del numbers[number]
        if not numbers:
            del self._numbers[stored]
        self._table.delete(_entry(number, stored))

    def take(self, stored: Any) -> list[tuple[Any, ...]]:
        """Takes all items of a key."""
        found = list(self.items(stored))
        for number, _ in found:
            self.delete(stored, number)
        return [item for _, item in found]


def cancelled_outcome(cancel: Cancel) -> bytes:
    """Returns what a cancelled call gets."""
    return encode_outcome(EVENT, CallCancelled(cancel.value))


def _entry(number: int, stored: Any) -> Any:
    return state_key((number, key_of(stored)))


def _entry_of(entry: Any) -> tuple[int, Any]:
    found = key_of(entry)
    assert isinstance(found, tuple), "a queue of keys has entries (number, key)"
    return found


def _later(timestamp_ns: int | None, at_ns: int | None) -> int | None:
    return timestamp_ns if timestamp_ns is None or at_ns is None else max(timestamp_ns, at_ns)
