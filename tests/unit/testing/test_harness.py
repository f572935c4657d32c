"""The test harness drives one step: clock, records and death; and a replay repeats what was seen."""

from __future__ import annotations

import os
import random as standard
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from clonos import CallInDoubt, Tumbling, ValueState, clock, http, random, service
from clonos.core.model.errors import ReplayDiverged
from clonos.testing import Harness, HarnessMisused, OutputDiverged

BEGINNING = datetime(2026, 1, 1, tzinfo=UTC)


class Sessions:
    """Counts per key until nothing has come for a minute."""

    seen = ValueState[int]("seen", default=0)
    due = ValueState[float]("due", default=0.0)

    def process(self, value: Any, context: Any) -> None:
        seen, due = context.state(self.seen), context.state(self.due)
        seen.value += 1
        if due.value:
            context.delete_timer(due.value)
        due.value = clock.time() + 60
        context.set_timer(due.value)

    def on_timer(self, timestamp: datetime, context: Any) -> None:
        seen, due = context.state(self.seen), context.state(self.due)
        context.emit((context.key, seen.value, random.getrandbits(40)))
        seen.value, due.value = 0, 0.0


class Forgetting:
    """Counts in a list of its own."""

    def open(self, context: Any) -> None:
        self.seen: list[Any] = []

    def process(self, value: Any, context: Any) -> None:
        self.seen.append(value)  # clonos: ok to be detected
        context.emit(len(self.seen))


@service
def rate(currency: str) -> float:
    """Must not be called in a test."""
    raise AssertionError("the network was reached")


@service(effect=True)
def order(number: int) -> str:
    """Must not be called in a test."""
    raise AssertionError("the network was reached")


def find_order(key: str, number: int) -> str:
    """Must not be called in a test."""
    raise AssertionError("the network was reached")


@service(effect=True, reconcile=find_order)
def order_once(number: int) -> str:
    """Must not be called in a test."""
    raise AssertionError("the network was reached")


class Orders:
    """An external system that knows what was ordered."""

    def __init__(self) -> None:
        self.placed: list[int] = []

    def __call__(self, number: int) -> str:
        self.placed.append(number)
        return f"order {number}"

    def reconcile(self, key: str, number: int) -> str:
        return f"found {number} of {self.placed}"


# ------------------------------------------------------------------ records and time


def test_the_harness_returns_outputs_of_records_and_due_timers(harness: Callable[..., Harness]) -> None:
    sessions = harness(Sessions, key=lambda word: word[0], start=BEGINNING)
    assert sessions.push(["ant", "bee", "ape"]) == []
    first_due = sessions.next_timer
    assert first_due == BEGINNING + timedelta(seconds=60)
    assert sessions.advance(59) == []
    assert sorted((key, count) for key, count, _ in sessions.advance(1)) == [("a", 2), ("b", 1)]
    assert sessions.next_timer is None
    assert sessions.now == BEGINNING + timedelta(seconds=60)


def test_windows_end_according_to_the_manual_clock(harness: Callable[..., Harness]) -> None:
    counts = harness(steps=lambda words: words.window(Tumbling("10s")).count(), key=str.lower, start=BEGINNING)
    counts.push(["A", "a", "b"])
    found = counts.advance(timedelta(seconds=10))
    assert [(window.key, window.value, window.end) for window in found] == [
        ("a", 2, BEGINNING + timedelta(seconds=10)),
        ("b", 1, BEGINNING + timedelta(seconds=10)),
    ]


def test_the_end_of_the_input_fires_pending_timers(harness: Callable[..., Harness]) -> None:
    sessions = harness(Sessions, key=lambda word: word)
    sessions.push(["ant"])
    assert [row[:2] for row in sessions.end()] == [("ant", 1)]


def test_a_keyed_function_has_state_and_a_plain_function_is_a_map(harness: Callable[..., Harness]) -> None:
    summed = harness(lambda key, total, number: ((total or 0) + number,) * 2, key=lambda number: number % 2)
    assert summed.push([1, 2, 3, 4]) == [1, 2, 4, 6]
    assert harness(lambda number: number * 2).push([1, 2]) == [2, 4]


def test_an_exception_of_the_function_is_raised_by_the_harness(harness: Callable[..., Harness]) -> None:
    dividing = harness(lambda number: 1 // number)
    assert dividing.push([1]) == [1]
    with pytest.raises(ZeroDivisionError):
        dividing.push([0])


# ------------------------------------------------------------------ death and replay


def test_a_replay_gives_the_same_output_and_the_successor_continues(harness: Callable[..., Harness]) -> None:
    sessions = harness(Sessions, key=lambda word: word[0])
    sessions.push(["ant", "bee"])
    sessions.advance(30)
    sessions.push(["ape"])
    seen = sessions.advance(45)
    sessions.crash()
    sessions.restore()
    assert sessions.replay() == seen
    assert [row[:2] for row in sessions.advance(60)] == [("a", 2)]


def test_a_snapshot_bounds_the_replay(harness: Callable[..., Harness]) -> None:
    sessions = harness(Sessions, key=lambda word: word)
    sessions.push(["ant"] * 3)
    assert sessions.snapshot() == 1
    sessions.push(["ant"])
    assert sessions.snapshot() == 2
    sessions.push(["bee"])
    for _ in range(2):
        sessions.crash()
        sessions.restore()
        assert sessions.replay() == []
    assert [row[:2] for row in sessions.advance(60)] == [("ant", 4), ("bee", 1)]


def test_a_replay_makes_no_call(harness: Callable[..., Harness]) -> None:
    rates = iter([1.5, 2.5, 3.5])
    asking = harness(
        lambda number: (number, rate("EUR"), http.get("http://rates/now").json()),
        services={rate: lambda currency: next(rates)},
        http=lambda request: {"now": request.url},
    )
    assert asking.push([7]) == [(7, 1.5, {"now": "http://rates/now"})]
    asking.crash()
    asking.restore()
    assert asking.replay() == [(7, 1.5, {"now": "http://rates/now"})]
    assert [call.service for call in asking.calls] == [rate.name, "http.get"]
    assert asking.push([8])[0][1] == 2.5


def test_choices_lost_from_the_log_are_made_again_and_calls_keep_their_keys(harness: Callable[..., Harness]) -> None:
    asking = harness(lambda number: (number, rate("EUR")), services={rate: lambda currency: 1.5}, step_records=1)
    asking.push([1])
    asking.push([2])
    asking.crash(lost=2)  # the call's outcome and the output
    assert asking.outputs == [(1, 1.5)]
    asking.restore()
    assert asking.replay() == [(1, 1.5)]
    assert asking.outputs == [(1, 1.5), (2, 1.5)]
    first, second, again = asking.calls
    assert first.key != second.key == again.key


def test_a_call_with_an_effect_whose_outcome_is_lost_is_in_doubt(harness: Callable[..., Harness]) -> None:
    def ordering(number: int) -> str:
        try:
            return order(number)
        except CallInDoubt as doubt:
            return f"in doubt: {doubt.key}"

    orders = harness(ordering, effects=True, services={"order": lambda number: f"order {number}"})
    assert orders.push([1]) == ["order 1"]
    orders.crash(lost=2)  # the call's outcome and the output; the announcement is known
    orders.restore()
    assert orders.replay() == []
    assert orders.outputs == [f"in doubt: {orders.calls[0].key}"]
    assert len(orders.calls) == 1


def test_a_call_in_doubt_is_reconciled_by_the_stand_in(harness: Callable[..., Harness]) -> None:
    stand_in = Orders()
    orders = harness(lambda number: order_once(number), effects=True, services={order_once: stand_in})
    assert orders.push([1]) == ["order 1"]
    orders.crash(lost=2)
    orders.restore()
    orders.replay()
    assert orders.outputs == ["found 1 of [1]"]
    assert stand_in.placed == [1]


# ------------------------------------------------------------------ hidden choices


@pytest.mark.parametrize(
    "function",
    [
        pytest.param(lambda number: (number, standard.random()), id="random"),  # clonos: ok to be detected
        pytest.param(lambda number: (number, time.perf_counter_ns()), id="time"),  # clonos: ok to be detected
        pytest.param(
            lambda number: (number, id(object()) + standard.getrandbits(60)),  # clonos: ok to be detected
            id="address",
        ),
    ],
)
def test_choices_outside_the_log_are_detected_by_the_replay(
    harness: Callable[..., Harness], function: Callable[[int], Any]
) -> None:
    hidden = harness(function)
    seen = hidden.push([1, 2])
    hidden.crash()
    hidden.restore()
    with pytest.raises(ReplayDiverged) as raised:
        hidden.replay()
    assert isinstance(raised.value, OutputDiverged)
    assert f"at its output 0: it was {seen[0]!r}, replay makes (1, " in str(raised.value)


def test_a_different_kind_of_choice_is_detected_by_the_runtime(
    harness: Callable[..., Harness], monkeypatch: pytest.MonkeyPatch
) -> None:
    moody = harness(lambda number: clock.time() if os.environ.get("MOOD") else random.random())  # clonos: ok to be seen
    moody.push([1])
    moody.crash()
    moody.restore()
    monkeypatch.setenv("MOOD", "bad")
    with pytest.raises(ReplayDiverged, match=r"asked for random numbers; its replay asks for the time"):
        moody.replay()


def test_state_outside_of_declared_state_is_detected(harness: Callable[..., Harness]) -> None:
    forgetting = harness(Forgetting)
    assert forgetting.push(["a", "b"]) == [1, 2]
    forgetting.snapshot()
    assert forgetting.push(["c"]) == [3]
    forgetting.crash()
    forgetting.restore()
    with pytest.raises(OutputDiverged, match="at its output 2: it was 3, replay makes 1"):
        forgetting.replay()


# ------------------------------------------------------------------ use


def test_a_harness_used_out_of_order_names_the_missing_call(harness: Callable[..., Harness]) -> None:
    plain = harness(str)
    with pytest.raises(HarnessMisused, match=r"restore\(\): the process is alive"):
        plain.restore()
    plain.crash()
    with pytest.raises(HarnessMisused, match=r"push\(\): the process is dead"):
        plain.push([1])
    plain.restore()
    with pytest.raises(HarnessMisused, match=r"push\(\): the successor has not replayed its input"):
        plain.push([1])
    plain.replay()
    assert plain.push([1]) == ["1"]
    with pytest.raises(HarnessMisused, match="more than one task"):
        harness(steps=lambda stream: stream.map(str).rebalance().map(str))
    with pytest.raises(HarnessMisused, match="either a function"):
        harness()


def test_a_clock_that_goes_back_and_a_negative_loss_are_refused() -> None:
    with Harness(lambda number: number) as harness:
        with pytest.raises(HarnessMisused, match="never runs backwards"):
            harness.advance(-1)
        with pytest.raises(HarnessMisused, match="lost=-1 is below 0"):
            harness.crash(lost=-1)
