"""Events that calls of keys await: those that came first, and the calls that wait for one.

A call that awaits an event is not open: its record, its parts and the records that have come for its key since are
state of the key, so they move with it. The event is a part of the call when the call goes on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple

from clonos.core.log.call_outcomes import encode_outcome
from clonos.core.values import register
from clonos.operators.operator import Scope
from clonos.operators.state.state_spec import Encoding, StateSpec, keyed

EVENTS: Final = keyed("events")
"""Table of events that no call has awaited yet: key -> name -> (value, timestamp) of each, in order of arrival."""

SUSPENDED: Final = replace(keyed("suspended calls"), encoding=Encoding.RESUMED, encoded_place=(1, 4))
"""Table of calls that await an event: key -> ``SuspendedCall``, as a tuple."""


@register
class Event(NamedTuple):
    """Record that a call awaits. It goes to the call of its key that awaits this name, and no function gets it
    otherwise."""

    name: str
    value: Any


@register
class Awaits(NamedTuple):
    """Outcome of a call that awaits an event. ``part``: the name under which the call gets the event."""

    name: str
    part: bytes


class SuspendedCall(NamedTuple):
    """Call that awaits an event. ``part``: the name under which it gets the event. ``parts``: those that it has.
    ``following``: records that have come for its key, with their timestamps."""

    name: str
    part: bytes
    record: Any
    timestamp_ns: int | None
    parts: Mapping[bytes, bytes]
    following: tuple[tuple[Any, int | None], ...]


class AwaitedEvents:
    """Events and suspended calls of a step."""

    SPECS: Final[tuple[StateSpec, ...]] = (EVENTS, SUSPENDED)

    def __init__(self, scope: Scope) -> None:
        self._events, self._suspended = scope.state.table(EVENTS), scope.state.table(SUSPENDED)

    def is_suspended(self, stored: Any) -> bool:
        """Returns whether the call of a key awaits an event."""
        return stored in self._suspended.entries

    def suspended(self, stored: Any) -> SuspendedCall | None:
        """Returns the call of a key that awaits an event, None without one."""
        found = self._suspended.entries.get(stored)
        return None if found is None else SuspendedCall(*found)

    def add(self, stored: Any, event: Event, timestamp_ns: int | None) -> None:
        """Keeps an event until a call of its key awaits it."""
        waiting = self._events.entries.get(stored, {})
        arrived = (*waiting.get(event.name, ()), (event.value, timestamp_ns))
        self._events.set(stored, {**waiting, event.name: arrived})

    def suspend(self, stored: Any, call: SuspendedCall) -> None:
        """Keeps a call until its event comes."""
        self._suspended.set(stored, tuple(call))

    def follow(self, stored: Any, record: Any, timestamp_ns: int | None) -> None:
        """Lets a record wait after the suspended call of its key."""
        call = self.suspended(stored)
        assert call is not None, "a record follows a suspended call"
        self.suspend(stored, call._replace(following=(*call.following, (record, timestamp_ns))))

    def take_ready(self, stored: Any) -> SuspendedCall | None:
        """Takes the suspended call of a key whose event has come, with the event among its parts. Returns None if
        there is no such call.

        Neither the call nor what follows it is older than the event, because the watermark has not waited for them.
        """
        if (call := self.suspended(stored)) is None:
            return None
        waiting = self._events.entries.get(stored, {})
        if not (arrived := waiting.get(call.name)):
            return None
        (value, at_ns), *rest = arrived
        left = {name: each for name, each in waiting.items() if name != call.name} | ({call.name: rest} if rest else {})
        if left:
            self._events.set(stored, left)
        else:
            self._events.delete(stored)
        self._suspended.delete(stored)
        parts = {**call.parts, call.part: encode_outcome("event", value)}
        following = tuple((record, _later(timestamp_ns, at_ns)) for record, timestamp_ns in call.following)
        return call._replace(timestamp_ns=_later(call.timestamp_ns, at_ns), parts=parts, following=following)

    def take_all(self) -> Iterator[tuple[Any, str]]:
        """Takes all suspended calls and what follows them: yields each record, and the name of the event."""
        for stored, found in list(self._suspended.contents().items()):
            call = SuspendedCall(*found)
            self._suspended.delete(stored)
            yield call.record, call.name
            for record, _ in call.following:
                yield record, call.name


def _later(timestamp_ns: int | None, at_ns: int | None) -> int | None:
    return timestamp_ns if timestamp_ns is None or at_ns is None else max(timestamp_ns, at_ns)
