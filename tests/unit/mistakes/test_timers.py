"""Timers set for a length of time, for an instant in the past, or for a time of the record."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from clonos import ValueState
from clonos.api.event_time import Timestamps
from clonos.api.graph import JobGraph
from clonos.core.model.options import Options
from clonos.core.ports.operator_chain import StepFailed
from clonos.operators.event_time.regions import TimersRepeat
from clonos.operators.event_time.timestamps import from_timestamp_ns
from clonos.operators.steps.context import Context
from tests.unit.operators.driver import START_NS, Clock, Given, Outbox, Run, run

START = from_timestamp_ns(START_NS)


class At:
    """Sets a timer for the record, or for what ``instant_of`` makes of it; emits the year of each that fires."""

    def __init__(self, instant_of: Any = lambda record: record) -> None:
        self.instant_of = instant_of

    def process(self, record: Any, context: Context[Any, str]) -> None:
        context.set_timer(self.instant_of(record))

    def on_timer(self, timestamp: datetime, context: Context[Any, str]) -> None:
        if timestamp < START:
            context.set_timer(timestamp + timedelta(days=365))  # in the past too: a periodic timer that catches up
        context.emit(f"fired {timestamp.year}")


def warnings_of(
    caplog: pytest.LogCaptureFixture, records: list[Any], function: At, clock: Clock | None = None
) -> list[str]:
    """Returns what the step ``remind`` warned of, with the rows that it gave."""
    graph = JobGraph("job")
    graph.source(Given(records)).process(function, name="remind").sink(Outbox())
    with caplog.at_level(logging.WARNING):
        run = Run(graph.compile(Options(), parallelism=1), clock=clock)
        run.finish()
    return [record.getMessage() for record in caplog.records if record.name == "clonos.job.step.remind"]


@pytest.mark.parametrize("number", [5, 0, 0.5, 86_400, -5, 10**8])
def test_a_length_of_time_is_refused_with_the_two_right_ways(number: float) -> None:
    graph = JobGraph("job")
    graph.source(Given([number])).process(At(), name="remind").sink(Outbox())
    with pytest.raises(StepFailed) as raised:
        Run(graph.compile(Options(), parallelism=1)).finish()
    assert str(raised.value.__cause__) == (
        f"{number} is not a point in time: give an aware datetime, such as clock.now() + timedelta(seconds=5),"
        " or seconds since the Unix epoch, such as clock.time() + 5."
    )


@pytest.mark.parametrize("timestamp", [START + timedelta(seconds=5), START, START_NS / 1e9 + 5, START_NS / 1e9])
def test_an_instant_from_the_clock_is_taken_without_a_word(caplog: pytest.LogCaptureFixture, timestamp: Any) -> None:
    assert warnings_of(caplog, ["a"], At(lambda _: timestamp)) == []


def test_an_instant_in_the_past_fires_at_once_and_is_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    graph = JobGraph("job")
    instants = [START - timedelta(hours=2, seconds=number) for number in range(3)]
    graph.source(Given(range(3))).process(At(lambda number: instants[number]), name="remind").sink(Outbox())
    run = Run(graph.compile(Options(), parallelism=1))
    run.read()
    run.fire()
    assert run.written["remind"][:3] == ["fired 2023"] * 3
    (text,) = [record.getMessage() for record in caplog.records]
    assert text == (
        "the step remind set a timer for 2023-11-14T20:13:20+00:00, 2:00:00 ago, so it fires at once."
        " Timers follow the clock: set them from clock.now(), such as clock.now() + timedelta(seconds=5)."
    )


@pytest.mark.parametrize(
    "record",
    [
        datetime(2021, 3, 1, 12, tzinfo=UTC),
        ("ann", datetime(2021, 3, 1, 12, tzinfo=UTC)),
        {"who": "ann", "at": datetime(2021, 3, 1, 12)},
        {"who": "ann", "at": "2021-03-01T12:00:00+00:00"},
        ["ann", 1_614_600_000],
        ["ann", 1_614_600_000_000],
        {"at": 1_614_600_000.5},
    ],
)
def test_a_time_of_the_record_is_recognised_as_event_time(caplog: pytest.LogCaptureFixture, record: Any) -> None:
    function = At(lambda _: datetime(2021, 3, 1, 12, 0, 5, tzinfo=UTC))
    (text,) = warnings_of(caplog, [record], function)
    assert "the step remind set a timer for 2021-03-01T12:00:05+00:00, 988 days, 10:13:15 ago" in text
    assert "That is a time of the record, so event time seems to be meant: use context.set_event_timer" in text


def test_a_timer_that_catches_up_in_on_timer_is_not_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock(now_ns=START_NS - 3 * 365 * 86_400 * 10**9)  # the timer is in the future when it is set
    function = At(lambda _: START - timedelta(days=900))
    graph = JobGraph("job")
    graph.source(Given(["a"])).process(function, name="remind").sink(Outbox())
    run = Run(graph.compile(Options(), parallelism=1), clock=clock)
    run.read()
    clock.now_ns = START_NS
    for _ in range(4):
        run.fire()
    assert run.written["remind"] == ["fired 2021", "fired 2022", "fired 2023"]
    assert caplog.records == []


def test_a_replay_does_not_warn_again(caplog: pytest.LogCaptureFixture) -> None:
    function = At(lambda _: START - timedelta(days=1))
    assert warnings_of(caplog, ["a"], function, Clock(live=False)) == []
    assert len(warnings_of(caplog, ["a"], function)) == 1


class Again:
    """Sets the timer that fires anew, a number of times."""

    def __init__(self, times: int) -> None:
        self.left = ValueState("left", default=times)

    def process(self, record: Any, context: Context[None, str]) -> None:
        context.set_event_timer(START)

    def on_event_timer(self, timestamp: datetime, context: Context[None, str]) -> None:
        left = context.state(self.left)
        left.value -= 1
        if left.value:
            context.set_event_timer(timestamp)
        else:
            context.emit("done")


@pytest.mark.slow
def test_event_timers_that_set_themselves_again_for_ever_end_the_job() -> None:
    for times in (1_000, 1_000_000):
        graph = JobGraph("job")
        stream = graph.source(Given([{"at": START}]), timestamps=Timestamps("at", future_max=None))
        stream.process(Again(times), name="remind").sink(Outbox())
        if times == 1_000:
            assert list(run(graph).written.values()) == [["done"]]
            continue
        with pytest.raises(TimersRepeat, match="the step remind has set event-time timers at or before"):
            run(graph)
