"""Process functions of two inputs: shared state, both kinds of timers, side outputs, and broadcast state."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clonos.api.graph import JobGraph
from clonos.api.graph_errors import InvalidJob
from clonos.core.model.options import Options
from clonos.core.ports.operator_chain import StepFailed
from clonos.operators.state.state_descriptors import ListState, MapState, ValueState
from clonos.operators.steps.process import AttributeSetLate
from clonos.operators.steps.two_input_process import BroadcastStateMisused
from clonos_services import clock
from tests.unit.operators import driver
from tests.unit.operators.driver import Outbox, Run, run
from tests.unit.operators.joins.given_sides import (
    ACTIONS,
    LATE,
    Given,
    key_of,
    restored,
    same,
    script_of,
    scripts,
    steady_and_troubled,
    timed,
)


class Matching:
    """Pairs by hand: what waits is in one state of both inputs, and leaves by an event-time timer after 5 s."""

    waiting = ListState[Any]("waiting")

    def process_first(self, value: Given, context: Any) -> None:
        self.take("first", value, context)

    def process_second(self, value: Given, context: Any) -> None:
        self.take("second", value, context)

    def take(self, side: str, value: Given, context: Any) -> None:
        waiting = context.state(self.waiting)
        for where, other in waiting:
            if where != side:
                context.emit((value.number, other.number))
        waiting.append((side, value))
        context.set_event_timer(context.timestamp + timedelta(seconds=5))

    def on_event_timer(self, timestamp: datetime, context: Any) -> None:
        for _, value in context.state(self.waiting):
            context.output(LATE, value.number)
        context.state(self.waiting).clear()


def build_matching(graph: JobGraph, first: list[Any], second: list[Any]) -> None:
    keyed = timed(graph, first, 3).key_by(key_of)
    found = keyed.connect(timed(graph, second, 3).key_by(key_of)).process(Matching, name="match")
    found.map(_same, name="out").sink(Outbox())
    found.side_output(LATE).map(_same, name="late").sink(Outbox())


@settings(max_examples=30, deadline=None)
@given(scripts(waits=False), scripts(waits=False), ACTIONS, st.integers(1, 2), st.integers(1, 4))
def test_connected_streams_restored_at_any_barrier_give_the_same(
    first: list[Any], second: list[Any], actions: list[str], parallelism: int, records_max: int
) -> None:
    steady, troubled = steady_and_troubled(
        lambda graph: build_matching(graph, first, second), actions, parallelism, records_max
    )
    assert repr(troubled) == repr(steady)


@settings(max_examples=30, deadline=None)
@given(scripts(), scripts(), st.integers(1, 2))
def test_both_inputs_share_state_timers_and_side_outputs(first: list[Any], second: list[Any], parallelism: int) -> None:
    first = [row and row._replace(at=0) for row in first]  # no timer fires before the end
    second = [row and row._replace(at=0, number=row.number + 100) for row in second]
    graph = JobGraph("job")
    build_matching(graph, first, second)
    written = run(graph, parallelism).written
    pairs = [row for rows in written.values() for row in rows if isinstance(row, tuple)]
    expected = [(one.number, two.number) for one in first for two in second if one and two and one.key == two.key]
    assert same([tuple(sorted(pair)) for pair in pairs], expected)
    numbers = [row for rows in written.values() for row in rows if not isinstance(row, tuple)]
    assert sorted(numbers) == sorted(row.number for row in [*first, *second] if row)


class Later:
    """Emits by a timer of the clock what both inputs have set."""

    held = ValueState[Any]("held")

    def process_first(self, value: Any, context: Any) -> None:
        context.state(self.held).value = value
        context.set_timer(clock.time() + 5)

    def process_second(self, value: Any, context: Any) -> Any:
        yield ("second", context.state(self.held).value)

    def on_timer(self, timestamp: datetime, context: Any) -> None:
        context.emit(("timer", context.key, context.state(self.held).value))


def test_streams_without_keys_share_the_state_of_the_task() -> None:
    graph = JobGraph("job")
    first, second = graph.source(driver.Given(["x"])), graph.source(driver.Given(["y"]))
    first.connect(second).process(Later, parallelism=1, name="later").sink(Outbox())
    (found,) = run(graph, parallelism=1).written.values()
    assert sorted(found) == [("second", "x"), ("timer", None, "x")]


class Limits:
    """Passes on payments above the limit of their country; counts those of each key."""

    limits = MapState[str, int]("limits")
    rules = ValueState[int]("rules", default=0)
    seen = ValueState[int]("seen", default=0)

    def process_first(self, value: Any, context: Any) -> None:
        context.state(self.seen).value += 1
        limit = context.broadcast_state(self.limits).get(value[1])
        if limit is not None and value[2] > limit:
            context.emit((*value, context.state(self.seen).value, context.broadcast_state(self.rules).value))

    def process_second(self, value: Any, context: Any) -> None:
        context.broadcast_state(self.limits)[value[0]] = value[1]
        context.broadcast_state(self.rules).value += 1


@pytest.mark.parametrize("is_keyed", [True, False])
@pytest.mark.parametrize("restores", [0, 1, 2])
def test_broadcast_state_is_the_same_in_all_tasks(is_keyed: bool, restores: int) -> None:
    graph = JobGraph("job")
    payments: Any = graph.source(driver.Given([(f"card {n}", "de" if n % 2 else "fr", n) for n in range(40)]))
    rules = graph.source(driver.Given([("de", 10), ("fr", 20), ("de", 30)]), name="rules", parallelism=1)
    payments = payments.key_by(lambda payment: payment[0]) if is_keyed else payments
    payments.connect(rules.broadcast()).process(Limits, name="limit", parallelism=3).sink(Outbox())
    running = Run(graph.compile(Options(), parallelism=2))
    source = next(task for task in running.plan.sources if running.plan.task_name(task).startswith("rules"))
    running.chains[source].read(*running.chains[source].poll(9))
    for checkpoint in range(restores):
        running = restored(running, checkpoint + 1)
    running.finish()
    (found,) = running.written.values()
    above = [n for n in range(40) if (n % 2 and n > 30) or (n % 2 == 0 and n > 20)]
    assert sorted(row[2] for row in found) == above
    assert {row[4] for row in found} == {3}
    if is_keyed:
        assert {row[3] for row in found} == {1}


class Misuse(Limits):
    """Does one thing that it may not do."""

    lists = ListState[int]("lists")

    def __init__(self, first: Any = None, second: Any = None) -> None:
        self.first, self.second = first, second

    def process_first(self, value: Any, context: Any) -> None:
        if self.first is not None:
            self.first(self, context)

    def process_second(self, value: Any, context: Any) -> None:
        if self.second is not None:
            self.second(self, context)


def set_rules(function: Misuse, context: Any) -> None:
    context.broadcast_state(function.rules).value = 3


def add_limit(function: Misuse, context: Any) -> None:
    context.broadcast_state(function.limits)["de"] = 3


def use_key(function: Misuse, context: Any) -> None:
    context.state(function.seen)


def use_timer(function: Misuse, context: Any) -> None:
    context.set_timer(clock.time() + 5)


def use_list(function: Misuse, context: Any) -> None:
    context.broadcast_state(function.lists)


def set_attribute(function: Misuse, context: Any) -> None:
    function.first = None  # clonos: ok to be detected


@pytest.mark.parametrize(
    ("function", "is_broadcast", "error", "sentence"),
    [
        (Misuse(first=set_rules), True, BroadcastStateMisused, "changes broadcast state outside of process_second"),
        (Misuse(first=add_limit), True, TypeError, "'mappingproxy' object does not support item assignment"),
        (Misuse(second=use_key), True, BroadcastStateMisused, "have no key: use context.broadcast_state"),
        (Misuse(second=use_timer), True, BroadcastStateMisused, "uses state or timers of a key in process_second"),
        (Misuse(first=use_list), True, BroadcastStateMisused, "neither a MapState nor a ValueState"),
        (Misuse(second=set_rules), False, BroadcastStateMisused, "its second stream is not broadcast"),
        (Misuse(second=set_attribute), True, AttributeSetLate, "sets self.first after open"),
    ],
    ids=("set", "add", "key", "timer", "list", "not-broadcast", "attribute"),
)
def test_misuse_of_broadcast_state_is_an_error(
    function: Any, is_broadcast: bool, error: type[Exception], sentence: str
) -> None:
    graph = JobGraph("job")
    first, second = graph.source(driver.Given([1])).key_by(_same), graph.source(driver.Given([1]))
    connected = first.connect(second.broadcast() if is_broadcast else second.key_by(_same))
    connected.process(function).sink(Outbox())
    with pytest.raises(StepFailed) as raised:
        run(graph, parallelism=1)
    assert isinstance(raised.value.__cause__, error)
    assert sentence in str(raised.value.__cause__)


def test_streams_that_do_not_fit_are_refused() -> None:
    graph = JobGraph("job")
    stream, other = graph.source(driver.Given([1])), graph.source(driver.Given([1]))
    with pytest.raises(
        InvalidJob, match=r"neither keyed nor broadcast\. Call key_by on both, or connect\(other.broadcast"
    ):
        stream.key_by(_same).connect(other)
    with pytest.raises(InvalidJob, match="connects a stream without keys with a keyed one"):
        stream.connect(other.key_by(_same))  # type: ignore[arg-type]
    with pytest.raises(InvalidJob, match=r"which has no method process_second\(value, context\)"):
        stream.connect(other).process(type("Half", (), {"process_first": Later.process_first}))
    with pytest.raises(InvalidJob, match="sets event-time timers, and one of its streams has no event time"):
        stream.key_by(_same).connect(timed(graph, script_of([])).key_by(key_of)).process(Matching)
    with pytest.raises(InvalidJob, match="two jobs"):
        stream.connect(JobGraph("other").source(driver.Given([1]))).process(Later)


def _same(row: Any) -> Any:
    return row
