"""Triggers, gaps and watermark strategies of the user: checked, guarded and copied as other functions are."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

import pytest

from clonos.agg import count
from clonos.api.checks.code.code_check import warnings_of
from clonos.api.event_time import Timestamps
from clonos.api.graph import JobGraph
from clonos.api.graph_errors import InvalidJob
from clonos.api.stream import Stream
from clonos.api.windows import Global, Session, Tumbling
from clonos.core.model.options import Options
from clonos.core.ports.operator_chain import StepFailed
from clonos.operators.event_time.watermark_strategies import PunctuatedWatermarks, WatermarkStrategy
from clonos.operators.windows.triggers import Trigger, TriggerChanged, TriggerContext
from tests.unit.operators.driver import Given, Outbox, Run


class OnAlarm(Trigger):
    """Raises for a record without a number."""

    def on_record(self, value: Any, context: TriggerContext) -> bool:
        return bool(value["alarm"] > 5)


def gap(record: Any) -> str:
    """Raises for a record without a number."""
    return f"{record['alarm'] + 10}s"


RECORDS = [{"t": 1, "alarm": 1}, {"t": 2, "alarm": None}, {"t": 3, "alarm": 1}]
WINDOWS: dict[str, Callable[[Any], Any]] = {
    "trigger": lambda keyed: keyed.window(Tumbling("10s"), trigger=OnAlarm()),
    "early": lambda keyed: keyed.window(Tumbling("10s"), early=OnAlarm()),
    "gap": lambda keyed: keyed.window(Session(gap)),
}


@pytest.mark.parametrize("name", WINDOWS)
@pytest.mark.parametrize("is_keyed", [False, True])
def test_a_count_routes_records_for_which_a_trigger_or_a_gap_raises(name: str, is_keyed: bool) -> None:
    graph = JobGraph("job", errors=Outbox())
    rows = graph.source(Given(RECORDS), timestamps=Timestamps("t"))
    WINDOWS[name](rows.key_by(lambda record: "k") if is_keyed else rows).count(name="w").sink(Outbox(), name="out")
    job = Run(graph.compile(Options(), parallelism=1))
    job.finish(1)
    assert [error.record for error in job.written.pop("errors")] == [RECORDS[1]]
    assert [result.value for results in job.written.values() for result in results] == [2]


class ByTheWall(Trigger):
    """Asks clocks and random numbers that are not recorded."""

    def on_record(self, value: Any, context: TriggerContext) -> bool:
        return time.time() % 2 > 1

    def on_event_timer(self, context: TriggerContext) -> bool:
        return random.random() > 1


def wall_gap(record: Any) -> float:
    return time.time()


class WallWatermarks(WatermarkStrategy):
    """Strategy that asks a clock."""

    def watermark(self, before_ns: int | None, records: Sequence[Any], timestamps_ns: Sequence[int]) -> int | None:
        return time.time_ns()


def wall_mark(record: Any, timestamp: datetime) -> float:
    return time.time()


BESIDE: dict[str, tuple[Callable[[Stream[Any]], Any], list[str]]] = {
    "a trigger": (
        lambda rows: rows.window(Tumbling("1s"), trigger=ByTheWall()).aggregate(n=count()),
        ["time.time", "random.random"],
    ),
    "an early trigger of a count": (
        lambda rows: rows.key_by("t").window(Tumbling("1s"), early=ByTheWall()).count(),
        ["time.time", "random.random"],
    ),
    "a gap": (lambda rows: rows.window(Session(wall_gap)).count(), ["time.time"]),
    "a strategy": (
        lambda rows: rows.with_timestamps(Timestamps("t", watermarks=WallWatermarks())),
        ["time.time_ns"],
    ),
    "punctuated watermarks": (
        lambda rows: rows.with_timestamps(Timestamps("t", watermarks=PunctuatedWatermarks(wall_mark))),
        ["time.time"],
    ),
}


@pytest.mark.parametrize("name", BESIDE)
def test_a_clock_in_a_trigger_a_gap_or_a_strategy_is_warned_of(name: str) -> None:
    graph = JobGraph("job")
    step, calls = BESIDE[name]
    step(graph.source(Given(RECORDS), timestamps=Timestamps("t")))
    texts = [text for _, text in warnings_of(graph)]
    assert len(texts) == len(calls)
    assert all(f"calls {call} (" in text for call, text in zip(calls, texts, strict=True)), texts


def test_a_strategy_of_a_source_is_warned_of() -> None:
    graph = JobGraph("job")
    graph.source(Given(RECORDS), timestamps=Timestamps("t", watermarks=WallWatermarks()))
    assert [text.count("calls time.time_ns ") for _, text in warnings_of(graph)] == [1]


class Counting(Trigger):
    """Counts in an attribute."""

    n = 0

    def on_record(self, value: Any, context: TriggerContext) -> bool:
        self.n += 1  # clonos: ok it is refused
        return self.n % 3 == 0


def test_an_attribute_that_a_trigger_sets_is_refused() -> None:
    graph = JobGraph("job", errors=Outbox())
    graph.source(Given(range(6))).window(Global(), trigger=Counting()).count(name="w").sink(Outbox(), name="out")
    job = Run(graph.compile(Options(), parallelism=1))
    with pytest.raises(StepFailed) as caught:
        job.finish(1)
    assert isinstance(caught.value.__cause__, TriggerChanged)
    assert str(caught.value.__cause__) == (
        "the trigger of w sets self.n: the value would be lost when its process dies, and one object serves all"
        " windows. Assign it to context.state."
    )


class Gathering(Trigger):
    """Changes a list of its object in place, which nothing can see."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def on_record(self, value: Any, context: TriggerContext) -> bool:
        self.seen.append(value)  # clonos: ok the copy of each task is shown by it
        return len(self.seen) == 2


def test_each_task_has_a_copy_of_a_trigger() -> None:
    graph = JobGraph("job")
    keyed = graph.source(Given(range(16)), parallelism=1).key_by(lambda number: number)
    keyed.window(Global(), trigger=Gathering()).count(parallelism=2).sink(Outbox(), name="out")
    job = Run(graph.compile(Options(), parallelism=1))
    while job.read(1):
        job.drain()
    assert [len(results) for results in job.written.values()] == [2], "one result of each task"


class TakesTooFew(Trigger):
    """Has a method with another signature."""

    def on_record(self, value: Any) -> bool:  # type: ignore[override]
        return True


def test_a_trigger_whose_methods_take_other_arguments_is_refused() -> None:
    with pytest.raises(InvalidJob) as caught:
        JobGraph("job").source(Given([1])).window(Global(), trigger=TakesTooFew()).count(name="w")
    assert str(caught.value) == (
        "the step w calls TakesTooFew.on_record(value, context), but TakesTooFew.on_record(value) takes 1 argument."
        " Give it a function with 2 arguments."
    )
