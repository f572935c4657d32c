"""Exchanges of keys alone: a step that reads no more of its records gets no more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from clonos.api.event_time import Timestamps
from clonos.api.graph import JobGraph
from clonos.api.keyed_stream import KeyedStream
from clonos.api.stream import Stream
from clonos.api.windows import CountTumbling, Session, Sliding, Tumbling
from clonos.core.model.options import Options
from clonos.operators.aggregates.counting import Count
from clonos.operators.chain import InputShape
from clonos.operators.tags import Tag
from tests.unit.operators.driver import Given, Outbox, run

Keyed = KeyedStream[Any, Any]

LATE = Tag[Any]("late")


def keyed(graph: JobGraph) -> Keyed:
    records = [(f"key {number % 3}", number) for number in range(20)]
    times = Timestamps(lambda record: record[1])
    return graph.source(Given(records), timestamps=times).key_by(lambda record: record[0])


def forms(build: Callable[[Keyed], Stream[Any]]) -> list[InputShape]:
    graph = JobGraph("keys")
    build(keyed(graph)).sink(Outbox())
    return [each.form for vertex in graph.compile(Options()).vertices for each in vertex.inputs]


@pytest.mark.parametrize(
    "build",
    [
        lambda stream: stream.count(),
        lambda stream: stream.window(Tumbling("5s")).count(),
        lambda stream: stream.window(Sliding("10s", every="2s"), lateness="1s").count(),
        lambda stream: stream.window(Session("2s")).count(),
    ],
    ids=["running", "tumbling", "sliding", "sessions"],
)
def test_a_step_that_counts_records_gets_keys_alone(build: Callable[[Keyed], Stream[Any]]) -> None:
    assert forms(build) == [InputShape.KEYS]


@pytest.mark.parametrize(
    "build",
    [
        lambda stream: stream.window(Tumbling("5s"), late=LATE).count(),
        lambda stream: stream.window(Session(lambda record: "2s")).count(),
        lambda stream: stream.window(CountTumbling(2)).count(),
        lambda stream: stream.window(Tumbling("5s")).aggregate(some=Count(bool)),
        lambda stream: stream.window(Tumbling("5s")).sum(lambda record: record[1]),
        lambda stream: stream.window(Tumbling("5s")).apply(lambda key, window, records: records),
    ],
    ids=["late records", "gap", "counted windows", "aggregate", "sum", "apply"],
)
def test_a_step_with_a_use_for_its_records_gets_them(build: Callable[[Keyed], Stream[Any]]) -> None:
    assert forms(build) == [InputShape.PAIRS]


def test_each_reader_of_one_key_gets_what_it_reads() -> None:
    graph = JobGraph("keys")
    stream = keyed(graph)
    stream.window(Tumbling("10s")).count().map(lambda window: ("count", window.key, window.value)).sink(Outbox())
    sums = stream.window(Tumbling("10s")).sum(lambda record: record[1])
    sums.map(lambda window: ("sum", window.key, window.value)).sink(Outbox())
    written = [row for rows in run(graph).written.values() for row in rows]
    numbers = {start: range(start, start + 10) for start in (0, 10)}
    assert sorted(written) == sorted(
        (what, f"key {key}", value)
        for each in numbers.values()
        for key in range(3)
        for what, value in (
            ("count", sum(number % 3 == key for number in each)),
            ("sum", sum(number for number in each if number % 3 == key)),
        )
    )
