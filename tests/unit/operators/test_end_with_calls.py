"""The end of the input in front of asynchronous calls: each timer fires once there, also after a restore."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from clonos.api.graph import JobGraph
from clonos.core.model.options import Options
from clonos.operators.event_time.timestamps import from_timestamp_ns
from clonos.operators.job_image import JobImage
from clonos.operators.steps.context import Context
from tests.unit.operators.driver import START_NS, Given, Outbox, Run
from tests.unit.operators.test_calls import Calls, completed

MINUTE = timedelta(minutes=1)


class Beat:
    """Emits a row each minute, by a timer that sets itself again."""

    def process(self, value: str, context: Context[None, str]) -> None:
        context.set_timer(from_timestamp_ns(START_NS) + MINUTE)
        context.emit(value)

    def on_timer(self, timestamp: datetime, context: Context[None, str]) -> None:
        context.set_timer(timestamp + MINUTE)
        context.emit("beat")


def job() -> JobImage:
    graph = JobGraph("job")
    beats = graph.source(Given(["first"]), parallelism=1).process(Beat, name="beats")
    beats.map_async(str.upper, name="upper").sink(Outbox())
    return graph.compile(Options(), parallelism=1)


def read(going: Run, calls: Calls) -> None:
    while going.read(1):
        completed(going, 0, sorted(calls.open), calls)


def ended(going: Run, calls: Calls) -> list[Any]:
    """Ends the input as a task does: again and again, until no call is open."""
    for _ in range(5):
        going.chains[0].end_of_input()
        if not calls.open:
            return [row for rows in going.written.values() for row in rows]
        completed(going, 0, sorted(calls.open), calls)
    raise AssertionError("the input does not end")


def test_a_timer_that_sets_itself_again_fires_once_at_the_end_in_front_of_calls() -> None:
    going = Run(job(), clock=(calls := Calls()))
    read(going, calls)
    assert ended(going, calls) == ["FIRST", "BEAT"]


def test_a_timer_fires_at_no_time_after_the_end_of_its_step() -> None:
    going = Run(job(), clock=(calls := Calls()))
    read(going, calls)
    assert going.chains[0].next_timer_ns() is not None
    going.chains[0].end_of_input()
    assert going.chains[0].next_timer_ns() is None
    going.pass_time(3600)
    assert len(calls.open) == 1


def test_an_end_goes_on_where_it_was_after_a_restore() -> None:
    before = Run(job(), clock=(calls := Calls()))
    read(before, calls)
    before.chains[0].end_of_input()
    taken = before.barrier(1)
    before.close()
    after = Run(job(), taken, again := Calls())
    assert after.chains[0].next_timer_ns() is None
    assert ended(after, again) == ["BEAT"]
