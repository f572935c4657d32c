"""Calls of keys that await events: while they wait no call is open, and their records and outcomes are state."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from clonos.api.graph import JobGraph
from clonos.api.keyed_stream import KeyedStream
from clonos.core.log.call_outcomes import decode_outcome, encode_outcome
from clonos.core.model.options import Options
from clonos.core.ports.operator_chain import NothingToRead
from clonos.core.ports.recorder import OWN_KEY
from clonos.operators.job_image import JobImage
from clonos.operators.steps.async_map import EventWithoutKey
from clonos.operators.steps.awaited_events import Awaits, Event
from clonos.operators.user_errors import RoutedError
from clonos_services.awaiting import EventUnavailable, await_event
from tests.unit.operators.dividing.rescaling import rescaled
from tests.unit.operators.driver import Given, Outbox, Run
from tests.unit.operators.test_stateful_calls import HoldingCalls, read_all, rows_of

KEYS = 3
PART = b"part of the event"


@dataclass
class LoggedCalls(HoldingCalls):
    """A recorder that also has the parts with which each call was requested."""

    parts: dict[int, dict[bytes, bytes]] = field(default_factory=dict)

    def submit(self, number: int, service: str, request: bytes, perform: Any, parts: Any = None) -> str:
        self.parts[number] = dict(parts or {})
        return super().submit(number, service, request, perform, parts)


def added(key: int, state: int | None, value: int) -> tuple[int, Any]:
    return (state or 0) + value, (key, value, state)


def _key(value: Any) -> int:
    found: int = (value.value if isinstance(value, Event) else value) % KEYS
    return found


def image_of(values: list[Any]) -> JobImage:
    graph = JobGraph("job", errors=Outbox())
    numbers: KeyedStream[int, Any] = graph.source(Given(values), parallelism=1).key_by(_key)
    numbers.stateful_map_async(added, name="calls", log_calls=True).sink(Outbox())
    return graph.compile(Options(), parallelism=1)


def begun(values: list[Any]) -> tuple[Run, LoggedCalls]:
    calls = LoggedCalls()
    return Run(image_of(values), clock=calls), calls


def awaits(going: Run, number: int, calls: LoggedCalls, name: str = "go") -> None:
    """Ends a call that awaits an event."""
    del calls.open[number]
    going.chains[1].take_part(number, b"asked", b"answer")
    going.chains[1].complete(number, encode_outcome("step", Awaits(name, PART)))


def returns(going: Run, number: int, calls: LoggedCalls) -> None:
    going.chains[1].complete(number, encode_outcome("step", calls.open.pop(number)("key")))
    going.drain()


def test_a_call_that_awaits_an_event_goes_on_with_it_and_what_it_has_asked() -> None:
    going, calls = begun([1, Event("go", 1)])
    going.read(1)
    going.drain()
    awaits(going, 0, calls)
    assert not calls.open
    assert calls.held == 0
    read_all(going)
    assert list(calls.open) == [1]
    assert decode_outcome(calls.parts[1].pop(PART)) == 1
    assert calls.parts[1] == {OWN_KEY: b"key", b"asked": b"answer"}
    returns(going, 1, calls)
    assert rows_of(going) == [(1, 1, None)]
    going.close()


def test_an_event_that_came_first_is_given_at_once_and_the_next_one_to_the_next_call() -> None:
    going, calls = begun([Event("go", 1), Event("go", 4), Event("stop", 7), 1, 4])
    read_all(going)
    awaits(going, 0, calls)
    assert decode_outcome(calls.parts[2][PART]) == 1
    returns(going, 2, calls)
    awaits(going, 3, calls)
    assert decode_outcome(calls.parts[4][PART]) == 4
    returns(going, 4, calls)
    assert rows_of(going) == [(1, 1, None), (1, 4, 1)]
    going.close()


def test_records_of_the_key_wait_and_those_of_others_do_not() -> None:
    going, calls = begun([1, 4, 2, 7, Event("go", 1)])
    going.read(3)
    going.drain()
    awaits(going, 0, calls)
    returns(going, 2, calls)
    assert rows_of(going) == [(2, 2, None)]
    read_all(going)
    assert len(calls.open) == 1
    while calls.open:
        returns(going, min(calls.open), calls)
    assert rows_of(going) == [(2, 2, None), (1, 1, None), (1, 4, 1), (1, 7, 5)]
    going.close()


@pytest.mark.parametrize("width", [1, 2, 3])
def test_suspended_calls_and_events_move_with_their_keys(width: int) -> None:
    going, calls = begun([0, 1, 2, 3, Event("go", 2), Event("late", 5), Event("go", 0), Event("go", 1)])
    for _ in range(2):
        going.read(3)
        going.drain()
    for number in (0, 1, 2):
        awaits(going, number, calls)
    resumed = max(calls.open)
    returns(going, resumed, calls)
    assert not calls.open
    calls.parts.clear()
    after = rescaled(going, 1, width)
    asked = len(calls.asked)
    read_all(after)
    performed = sorted(perform("key")[1] for perform in calls.asked[asked:])
    assert performed == [(0, 0, None), (1, 1, None)]
    after.close()


def test_calls_whose_event_never_came_are_errors_with_what_waits_for_them() -> None:
    going, calls = begun([1, 4])
    read_all(going)
    awaits(going, 0, calls)
    assert going.chains[0].poll(6) is NothingToRead.ALL_READ
    going.chains[1].end_of_input()
    going.drain()
    errors = [row for rows in going.written.values() for row in rows if isinstance(row, RoutedError)]
    assert [error.record for error in errors] == [1, 4]
    assert "the event 'go' has not come" in errors[0].error
    going.close()


def test_an_event_is_refused_outside_of_a_call_of_a_key() -> None:
    with pytest.raises(EventUnavailable, match=r"'go' is awaited outside"):
        await_event("go")
    assert "stateful_map_async" in str(EventWithoutKey("ask", "go"))
