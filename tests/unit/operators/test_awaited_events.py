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
from clonos.core.ports.recorder import CANCELLED, OWN_KEY
from clonos.operators.job_image import JobImage
from clonos.operators.steps.async_map import EventWithoutKey
from clonos.operators.steps.awaited_events import Awaits, Cancel, Event
from clonos.operators.user_errors import RoutedError
from clonos_services.awaiting import AwaitTimeout, CallCancelled, EventUnavailable, await_event
from tests.harnesses.call_life import life
from tests.unit.operators.dividing.rescaling import rescaled
from tests.unit.operators.driver import Given, Outbox, Run
from tests.unit.operators.test_stateful_calls import HoldingCalls, read_all, rows_of

KEYS = 3
PART = b"part of the event"


@dataclass
class LoggedCalls(HoldingCalls):
    """A recorder that also has the parts with which each call was requested."""

    parts: dict[int, dict[bytes, bytes]] = field(default_factory=dict)
    cancelled: dict[int, bytes] = field(default_factory=dict)

    def submit(self, number: int, service: str, request: bytes, perform: Any, parts: Any = None) -> str:
        self.parts[number] = dict(parts or {})
        return super().submit(number, service, request, perform, parts)

    def cancel(self, number: int, outcome: bytes) -> None:
        self.cancelled.setdefault(number, outcome)


def added(key: int, state: int | None, value: int) -> tuple[int, Any]:
    return (state or 0) + value, (key, value, state)


def _key(value: Any) -> int:
    found: int = (value.value if isinstance(value, (Event, Cancel)) else value) % KEYS
    return found


def image_of(values: list[Any], *, log_calls: bool = True) -> JobImage:
    graph = JobGraph("job", errors=Outbox())
    numbers: KeyedStream[int, Any] = graph.source(Given(values), parallelism=1).key_by(_key)
    numbers.stateful_map_async(added, name="calls", log_calls=log_calls).sink(Outbox())
    return graph.compile(Options(), parallelism=1)


def begun(values: list[Any]) -> tuple[Run, LoggedCalls]:
    calls = LoggedCalls()
    return Run(image_of(values), clock=calls), calls


def awaits(
    going: Run, number: int, calls: LoggedCalls, name: str = "go", timeout_s: int | None = None, part: bytes = PART
) -> None:
    """Ends a call that awaits an event."""
    del calls.open[number]
    going.chains[1].take_part(number, b"asked", b"answer")
    timeout_ns = None if timeout_s is None else timeout_s * 1_000_000_000
    going.chains[1].complete(number, encode_outcome("step", Awaits(name, part, timeout_ns)))


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


def error_of(part: bytes) -> str:
    with pytest.raises((AwaitTimeout, CallCancelled)) as raised:
        decode_outcome(part)
    return f"{type(raised.value).__name__}: {raised.value}"


LATE = "AwaitTimeout: the event 'go' has not come within 1min."
ENDED_EARLY = "AwaitTimeout: the input has ended, and the event 'go' has not come."
GONE = "CallCancelled: the call was cancelled: 1"


def test_a_call_whose_time_is_up_goes_on_with_an_error_before_what_waits_for_it() -> None:
    going, calls = begun([1, 4, Event("go", 1)])
    going.read(2)
    going.drain()
    awaits(going, 0, calls, timeout_s=60)
    going.pass_time(59)
    assert not calls.open
    going.pass_time(1)
    assert list(calls.open) == [2]
    assert error_of(calls.parts[2].pop(PART)) == LATE
    assert calls.parts[2] == {OWN_KEY: b"key", b"asked": b"answer"}
    returns(going, 2, calls)
    assert list(calls.open) == [3]
    read_all(going)
    awaits(going, 3, calls, timeout_s=60)
    assert decode_outcome(calls.parts[4][PART]) == 1, "the event that came too late is for the next call"
    returns(going, 4, calls)
    assert rows_of(going) == [(1, 1, None), (1, 4, 1)]
    going.close()


def test_the_time_of_a_call_whose_event_has_come_does_not_end_that_of_the_next_one() -> None:
    going, calls = begun([1, Event("go", 1), 4])
    going.read(1)
    going.drain()
    awaits(going, 0, calls, timeout_s=60)
    going.pass_time(59)
    read_all(going)
    returns(going, 1, calls)
    awaits(going, 2, calls, timeout_s=60)
    going.pass_time(59)
    assert not calls.open
    going.pass_time(1)
    assert error_of(calls.parts[3][PART]) == LATE
    going.close()


@pytest.mark.parametrize("width", [1, 2, 3])
def test_the_time_that_a_call_waits_goes_on_in_other_tasks(width: int) -> None:
    going, calls = begun([0, 1, 2, 3, 4])
    read_all(going)
    for number in (0, 1, 2):
        awaits(going, number, calls, timeout_s=60 if number else None)
    going.pass_time(40)
    after = rescaled(going, 1, width)
    asked = len(calls.asked)
    after.pass_time(20)
    performed = sorted(perform("key")[1] for perform in calls.asked[asked:])
    assert performed == [(1, 1, None), (2, 2, None)]
    assert calls.held == 1, "the record after the first call of its key waits for that"
    after.close()


def test_at_the_end_of_the_input_the_time_of_each_record_is_up_once() -> None:
    going, calls = begun([1, 4])
    read_all(going)
    awaits(going, 0, calls, timeout_s=60)
    going.chains[1].end_of_input()
    assert error_of(calls.parts[2][PART]) == ENDED_EARLY
    returns(going, 2, calls)
    awaits(going, 3, calls, timeout_s=60)
    going.chains[1].end_of_input()
    assert error_of(calls.parts[4][PART]) == ENDED_EARLY
    awaits(going, 4, calls, timeout_s=60, part=b"another part")
    going.chains[1].end_of_input()
    going.drain()
    assert not calls.open, "a function that asks until it gets an answer would not end"
    errors = [row for rows in going.written.values() for row in rows if isinstance(row, RoutedError)]
    assert [error.record for error in errors] == [4]
    assert rows_of(going) == [(1, 1, None)]
    going.close()


def test_a_cancelled_call_that_waits_goes_on_with_an_error() -> None:
    going, calls = begun([1, 4, Cancel(1), Cancel(2), 2])
    going.read(2)
    going.drain()
    awaits(going, 0, calls, timeout_s=60)
    read_all(going)
    assert error_of(calls.parts[2][PART]) == GONE
    returns(going, 2, calls)
    assert PART not in calls.parts[3], "what follows it is not cancelled"
    assert sorted(calls.open) == [3, 4], "without a call a cancellation is for none"
    assert calls.cancelled == {}
    going.pass_time(60)
    assert len(calls.open) == 2
    going.close()


def test_a_cancelled_call_that_runs_has_an_error_at_its_next_call_in_this_life_and_the_next() -> None:
    going, calls = begun([1, Cancel(1)])
    read_all(going)
    assert error_of(calls.cancelled[0]) == GONE
    taken = going.barrier(1)
    going.close()
    again = LoggedCalls()
    after = Run(image_of([1, Cancel(1)]), taken, again)
    assert again.parts[0][CANCELLED] == calls.cancelled[0]
    awaits(after, 0, again)
    assert error_of(again.parts[1].pop(PART)) == GONE, "it was about to wait when it was cancelled"
    assert again.parts[1][CANCELLED] == calls.cancelled[0]
    after.close()


def test_a_cancelled_call_that_had_the_error_may_wait_again() -> None:
    going, calls = begun([1, Cancel(1), Cancel(4), Event("go", 1)])
    going.read(2)
    going.drain()
    going.chains[1].take_part(0, b"failed", calls.cancelled[0])
    awaits(going, 0, calls)
    going.read(1)
    going.drain()
    assert not calls.open, "a call is cancelled once"
    read_all(going)
    assert decode_outcome(calls.parts[1][PART]) == 1
    going.close()


def test_a_default_stands_for_an_event_that_has_not_come_in_time() -> None:
    reported: dict[bytes, bytes] = {}
    with life(reported).attempt(0, lambda: 0) as begin:
        begin()
        with pytest.raises(BaseException, match="go") as awaited:
            await_event("go", timeout="1d")
        reported[awaited.value.part] = encode_outcome("event", AwaitTimeout("go", "1d", False))  # type: ignore[attr-defined]
    with life(reported).attempt(0, lambda: 0) as begin:
        begin()
        assert await_event("go", timeout="1d", default="no") == "no"
    with life(reported).attempt(0, lambda: 0) as begin:
        begin()
        with pytest.raises(AwaitTimeout, match="within 1d"):
            await_event("go", timeout="1d")


def test_events_and_cancellations_are_errors_of_a_step_that_logs_no_calls() -> None:
    calls = LoggedCalls()
    going = Run(image_of([1, Event("go", 1), Cancel(1)], log_calls=False), clock=calls)
    read_all(going)
    returns(going, 0, calls)
    errors = [row for rows in going.written.values() for row in rows if isinstance(row, RoutedError)]
    assert [error.record for error in errors] == [Event("go", 1), Cancel(1)]
    assert all("Add log_calls=True" in error.error for error in errors)
    assert not calls.open
    going.close()


def test_an_event_is_refused_outside_of_a_call_of_a_key() -> None:
    with pytest.raises(EventUnavailable, match=r"'go' is awaited outside"):
        await_event("go")
    assert "stateful_map_async" in str(EventWithoutKey("ask", "go"))
