"""Time to live of state: a value is gone some time after its last write, by the clock or in event time."""

from __future__ import annotations

from typing import Any, cast

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from clonos.api.event_time import Timestamps
from clonos.api.graph import JobGraph
from clonos.core.model.options import Options
from clonos.core.ports.operator_chain import StepFailed
from clonos.operators.event_time.durations import InvalidDuration
from clonos.operators.state.state_descriptors import (
    InvalidStateTime,
    ListState,
    MapState,
    NoEventTimeForState,
    ValueState,
)
from clonos.operators.steps.context import Context
from clonos.operators.steps.two_input_process import BroadcastStateMisused
from tests.unit.operators.driver import START_NS, Given, Outbox, Run, run
from tests.unit.operators.joins.given_sides import ACTIONS, steady_and_troubled

START = START_NS // 1_000_000_000
TTL = 10
DISORDER = 4

Record = tuple[str, int]
"""Key and timestamp in seconds."""


class Counted:
    """Counts the records of a key; a negative number raises. ``n`` is any kind of state with a ttl."""

    def __init__(self, n: Any) -> None:
        self.n = n

    def process(self, record: Record, context: Context[str, Any]) -> None:
        state = context.state(self.n)
        if isinstance(self.n, ListState):
            state.append(None)
            count = len(state)
        elif isinstance(self.n, MapState):
            count = state["n"] = state.get("n", 0) + 1
        else:
            state.value += 1
            count = state.value
        if record[1] < 0:
            raise ValueError(record)
        context.emit((record[0], count))


KINDS = [
    lambda **more: ValueState("n", 0, ttl=TTL, **more),
    lambda **more: ListState("n", ttl=TTL, **more),
    lambda **more: MapState("n", ttl=TTL, **more),
]


def counted(graph: JobGraph, records: list[Record], kind: Any, **more: Any) -> None:
    stamps = Timestamps(lambda row: START + row[1], out_of_order=DISORDER, future_max=None)
    rows = graph.source(Given(records), timestamps=stamps, parallelism=1)
    rows.key_by(lambda row: row[0]).process(Counted(kind(**more)), name="counted").sink(Outbox(), name="out")


def twin(records: list[Record]) -> list[tuple[str, int]]:
    """Counts and their ends by key, record by record."""
    found: list[tuple[str, int]] = []
    states: dict[str, tuple[int, int]] = {}
    for key, at in records:
        count, ends = states.get(key, (0, 0))
        if ends <= at:
            count = 0
        states[key] = count + 1, max(ends, at + TTL)
        found.append((key, count + 1))
    return found


@st.composite
def records_in_some_disorder(draw: Any) -> list[Record]:
    at, found = 0, []
    for key, step, back in draw(
        st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 12), st.integers(0, DISORDER)), max_size=30)
    ):
        at += step
        found.append((key, max(0, at - back)))
    return found


@example([("a", 9), ("a", 5), ("a", 16)], KINDS[0], 1, 9)
@settings(max_examples=40, deadline=None)
@given(records_in_some_disorder(), st.sampled_from(KINDS), st.integers(1, 2), st.integers(1, 9))
def test_state_ends_in_event_time_by_the_timestamps_of_its_records(
    records: list[Record], kind: Any, parallelism: int, records_max: int
) -> None:
    graph = JobGraph("job")
    counted(graph, records, kind)
    written = [row for rows in run(graph, parallelism, records_max).written.values() for row in rows]
    assert sorted(written) == sorted(twin(records))


@settings(max_examples=25, deadline=None)
@given(records_in_some_disorder(), st.sampled_from(KINDS), ACTIONS, st.booleans(), st.integers(1, 5))
def test_state_with_a_ttl_restored_at_any_barrier_gives_the_same(
    records: list[Record], kind: Any, actions: list[str], by_clock: bool, records_max: int
) -> None:
    more = {"time": "processing"} if by_clock else {}
    steady, troubled = steady_and_troubled(lambda graph: counted(graph, records, kind, **more), actions, 1, records_max)
    assert troubled == steady


def tables(running: Run, checkpoint: int = 1) -> dict[str, Any]:
    """Takes a snapshot and returns the tables of the state."""
    image = running.image.new_mirror(running.plan.vertex_of[len(running.chains) - 1])
    for changes in running.barrier(checkpoint)[-1][0]:
        image.apply(changes)
    return {name: entries for name, entries in image.tables.items() if entries and name.startswith("counted/n")}


@pytest.mark.parametrize("kind", KINDS, ids=["value", "list", "map"])
def test_the_watermark_deletes_state_that_has_ended(kind: Any) -> None:
    graph = JobGraph("job")
    counted(graph, [("a", 0), ("b", 5), ("a", 3), ("c", 0), ("d", 19 + DISORDER)], kind)
    running = Run(graph.compile(Options(), parallelism=1))
    while running.read(1):
        running.drain()
    assert [sorted(entries) for entries in tables(running).values()] == [["d"], ["d"]]


@pytest.mark.parametrize("kind", KINDS, ids=["value", "list", "map"])
def test_state_ends_by_the_clock_and_the_next_step_that_uses_state_deletes_it(kind: Any) -> None:
    graph = JobGraph("job")
    counted(graph, [("a", 0), ("b", 0), ("a", 0), ("c", 0), ("a", 0)], kind, time="processing")
    running = Run(graph.compile(Options(), parallelism=1))
    sizes = []
    for checkpoint, seconds in enumerate((6, 6, 6, 6, 0), 1):
        running.read(1)
        running.drain()
        sizes.append(sorted(tables(running, checkpoint)["counted/n"]))
        running.pass_time(seconds)
    (written,) = running.written.values()
    assert written == [("a", 1), ("b", 1), ("a", 1), ("c", 1), ("a", 1)]
    assert sizes == [["a"], ["a", "b"], ["a", "b"], ["a", "c"], ["a", "c"]]


@pytest.mark.parametrize("kind", KINDS, ids=["value", "list", "map"])
def test_a_record_that_raises_does_not_prolong_state(kind: Any) -> None:
    graph = JobGraph("job", errors=Outbox())
    state = kind()
    stamps = Timestamps(lambda row: START + abs(row[1]), future_max=None)
    rows = graph.source(Given([("a", 1), ("a", -8), ("a", 10), ("a", -30), ("a", 12)]), timestamps=stamps)
    rows.key_by(lambda row: row[0]).process(Counted(state), name="counted").sink(Outbox(), name="out")
    written = run(graph, 1, 1).written
    assert len(written.pop("errors")) == 2
    assert list(written.values()) == [[("a", 1), ("a", 2), ("a", 1)]]


@pytest.mark.parametrize(
    ("make", "error", "sentence"),
    [
        (lambda: ValueState("n", ttl="ten"), InvalidDuration, "'ten' is not a length of time"),
        (lambda: ListState("n", time="event"), InvalidStateTime, "has time='event' and no ttl"),
        (
            lambda: MapState("n", ttl="1h", time=cast(Any, "ingestion")),
            InvalidStateTime,
            'Give "event" or',
        ),
    ],
)
def test_a_ttl_that_cannot_be_used_is_refused(make: Any, error: Any, sentence: str) -> None:
    with pytest.raises(error, match=sentence):
        make()


def test_event_time_without_timestamps_and_a_ttl_of_broadcast_state_are_refused() -> None:
    graph = JobGraph("job")
    state = ValueState("n", 0, ttl="1h", time="event")
    graph.source(Given([("a", 1)])).key_by(lambda row: row[0]).process(Counted(state)).sink(Outbox())
    with pytest.raises(StepFailed) as raised:
        run(graph, 1)
    assert isinstance(raised.value.__cause__, NoEventTimeForState)

    class Rules:
        rule = ValueState("rule", 0, ttl="1h")

        def process_first(self, value: Any, context: Any) -> None: ...

        def process_second(self, value: Any, context: Any) -> None:
            context.broadcast_state(self.rule).value = value

    graph = JobGraph("job")
    rules = graph.source(Given([1])).broadcast()
    graph.source(Given(["a"])).key_by(lambda row: row).connect(rules).process(Rules).sink(Outbox())
    with pytest.raises(StepFailed) as raised:
        run(graph, 1)
    assert isinstance(raised.value.__cause__, BroadcastStateMisused)
