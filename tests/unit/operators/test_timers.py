"""Timers of a step: what they hold in memory, and what they call after a resume."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from clonos.api.event_time import Timestamps
from clonos.api.graph import JobGraph
from clonos.core.model.options import Options
from clonos.core.ports.operator_chain import StepFailed
from clonos.operators.job_image import JobImage
from clonos.operators.state.declared_state import StepState
from clonos.operators.state.keyed_state import StateBackend
from clonos.operators.state.timers import SPARE_MAX, Timers, timer_spec
from tests.unit.operators.driver import START_NS, Given, Outbox, Run

SECOND_NS = 1_000_000_000


def test_deleted_timers_leave_memory_and_the_others_keep_their_order() -> None:
    spec = timer_spec("timers")
    timers = Timers(spec, StepState(StateBackend(None, 1 << 20), "step", (spec,)))
    timers.set(7_000_000, "b")
    timers.set(7_000_000, "a")
    for instant_ns in range(1, 10_000):
        timers.set(instant_ns * 100, "key")
        timers.delete((instant_ns - 1) * 100, "key")
        assert len(timers) <= 2 * 3 + SPARE_MAX + 1
    assert [due.token[2] for due in timers.due(None)] == ["key", "b", "a"]


class Plain:
    """Sets no timers."""

    def process(self, value: int, context: Any) -> None:
        context.emit(value)


class Later(Plain):
    """Sets a timer of each kind for each record."""

    def process(self, value: int, context: Any) -> None:
        context.set_timer(context.timestamp + timedelta(days=1))
        context.set_event_timer(context.timestamp + timedelta(days=1))

    def on_timer(self, timestamp: datetime, context: Any) -> None:
        """Does nothing."""

    on_event_timer = on_timer


def image_of(function: type, errors: bool) -> JobImage:
    graph = JobGraph("job", errors=Outbox() if errors else None)
    seconds = Timestamps(lambda value: START_NS // SECOND_NS + value)
    stream = graph.source(Given(range(9)), timestamps=seconds).key_by(lambda value: "key")
    stream.process(function, name="later").sink(Outbox())
    return graph.compile(Options(), parallelism=1)


@pytest.mark.parametrize("errors", [False, True])
def test_timers_of_a_method_that_a_resumed_job_lacks_are_named(errors: bool) -> None:
    before = Run(image_of(Later, errors))
    before.read()
    taken = before.barrier(1)
    before.close()
    after = Run(image_of(Plain, errors), taken)
    with pytest.raises(StepFailed) as raised:
        after.finish()
    assert str(raised.value.__cause__) == (
        "the step later has timers from before the resume, and its function has no on_timer(timestamp, context)"
        " any more. Add the method; it may do nothing."
    )
    after.close()
