"""A job restored from a snapshot has the same output, order and timers."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clonos.api.graph import JobGraph
from clonos.api.windows import Tumbling
from clonos.core.model.options import Options
from clonos.operators.event_time.timestamps import from_timestamp_ns
from clonos.operators.state.keyed_state import StateImage
from clonos.operators.state.state_descriptors import ListState, MapState, ValueState
from clonos.operators.steps.context import Context
from tests.unit.operators.driver import START_NS, Given, Outbox, Run
from tests.unit.operators.restoring import actions, check_restores

KEYS = ["a", "b", True, 1, 0, None, ("x", False), ("x", 0), b"a"]


class Sessions:
    """Collects a key's values until none has come for two seconds; counts what it has seen."""

    seen = ValueState[int]("seen", default=0)
    values = ListState[Any]("values")
    by_kind = MapState[str, int]("by_kind")
    last = ValueState[datetime | None]("last")

    def process(self, value: Any, context: Context[Any, Any]) -> None:
        context.state(self.seen).value += 1
        context.state(self.values).append(value)
        kinds = context.state(self.by_kind)
        kinds[type(value[1]).__name__] = kinds.get(type(value[1]).__name__, 0) + 1
        last = context.state(self.last)
        if last.value is not None:
            context.delete_timer(last.value)
        last.value = from_timestamp_ns(START_NS + (value[0] // 3 + 2) * 1_000_000_000)
        context.set_timer(last.value)

    def on_timer(self, timestamp: datetime, context: Context[Any, Any]) -> None:
        context.emit((context.key, timestamp, context.state(self.seen).value, list(context.state(self.values))))
        context.state(self.values).clear()
        context.state(self.last).clear()
        if context.state(self.seen).value % 3 == 0:
            context.state(self.by_kind).clear()
            context.state(self.seen).clear()


def _collected(graph: JobGraph, records: list[Any]) -> None:
    keyed = graph.source(Given(records)).key_by(lambda record: record[1])
    keyed.window(Tumbling("3s")).aggregate(list, list.append).sink(Outbox(), name="lists")


def _counted(graph: JobGraph, records: list[Any]) -> None:
    keyed = graph.source(Given(records)).map(lambda record: record[1]).key_by(lambda value: value)
    keyed.window(Tumbling("2s")).count(name="windows").sink(Outbox())
    keyed.count(name="running").sink(Outbox())


def _sessions(graph: JobGraph, records: list[Any]) -> None:
    graph.source(Given(records)).key_by(lambda record: record[1]).process(Sessions).sink(Outbox())


def _states(graph: JobGraph, records: list[Any]) -> None:
    def step(key: Any, state: Any, value: Any) -> tuple[Any, Any]:
        state = (state or 0) + value[0]
        return (None if state % 5 == 0 else state), (key, state)

    keyed = graph.source(Given(records), name="left").key_by(lambda record: record[1])
    other = graph.source(Given(records), name="right").key_by(lambda record: record[1])
    keyed.union(other).stateful_map(step).sink(Outbox())
    keyed.reduce(lambda left, right: (left[0] + right[0], right[1])).sink(Outbox())


def contents(image: StateImage) -> str:
    """Tables with their entries in order; an empty one is none."""
    return repr([(name, list(entries.items())) for name, entries in sorted(image.tables.items()) if entries])


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(st.sampled_from([_collected, _counted, _sessions, _states]), actions, st.integers(1, 3), st.integers(1, 5))
def test_a_job_restored_at_any_barrier_gives_the_same_output(
    build: Callable[[JobGraph, list[Any]], None], actions: list[str], parallelism: int, records_max: int
) -> None:
    records = [(number, KEYS[number * number % len(KEYS)]) for number in range(60)]
    check_restores(build, records, actions, parallelism, records_max)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.sampled_from(["read", "time", "barrier"]), max_size=25))
def test_incremental_snapshots_add_up_to_a_full_one(actions: list[str]) -> None:
    graph = JobGraph("job")
    _sessions(graph, [(number, KEYS[number % len(KEYS)]) for number in range(60)])
    run = Run(graph.compile(Options(), parallelism=1))
    for action in actions:
        if action == "read":
            run.read()
            run.drain()
        elif action == "time":
            run.pass_time(1.1)
        else:
            run.barrier(1)
    changes, _ = run.barrier(2)[1]
    image = run.image.new_mirror(1)
    for each in changes:
        image.apply(each)
    whole = run.image.new_mirror(1)
    whole.apply(run.chains[1].snapshot(3, True).changes)
    assert contents(image) == contents(whole)
    run.close()
