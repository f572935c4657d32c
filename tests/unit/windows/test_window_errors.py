"""Errors of the user's code in windows: what they take with them, and what the error output gets."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest

from clonos.agg import aggregate, count, sum_
from clonos.api.emission import each
from clonos.api.event_time import Timestamps
from clonos.api.graph import JobGraph
from clonos.api.window_step import last_values
from clonos.api.windows import CountSliding, CountTumbling, Global, Session, Sliding, Tumbling
from clonos.core.model.options import Options
from clonos.core.ports.operator_chain import StepFailed
from clonos.operators.windows.triggers import Trigger, TriggerContext
from tests.unit.operators.driver import Given, Outbox, Run
from tests.unit.windows.stepping import Stepping

Record = dict[str, Any]
Step = Callable[[Any], Any]


class Bad(Exception):
    """Error of the user's code."""


def played(
    records: list[Record], step: Step, *, restores: bool = False, has_errors: bool = True
) -> tuple[list[Any], list[Any]]:
    """Returns the values of the windows of a step on records with times "t" in ms, and the records of its errors."""
    graph = JobGraph("job", errors=Outbox() if has_errors else None)
    stamps = Timestamps("t", unit="ms", out_of_order="1s", watermark_every="1ms", future_max=None)
    step(graph.source(Given(records), timestamps=stamps).key_by(lambda record: "k")).sink(Outbox(), name="results")
    image = graph.compile(Options(), parallelism=1)
    job = Run(image)
    checkpoint = 0
    while job.read(1):
        job.drain()
        if restores:
            written, taken = job.written, job.barrier(checkpoint := checkpoint + 1)
            job = Run(image, taken, job.clock)
            job.written = written
    job.finish(1)
    job.close()
    errors = [error.record for error in job.written.pop("errors", [])]
    (rows,) = job.written.values() or [[]]
    return [getattr(row, "value", row) for row in rows], errors


def total(so_far: int, record: Record) -> int:
    return so_far + int(record["x"])


RECORDS: list[Record] = [{"t": 1, "x": 1}, {"t": 2}, {"t": 3, "x": 3}]

GATHERING: dict[str, Step] = {
    "session": lambda keyed: keyed.window(Session("10ms")).fold(0, total),
    "session with lateness": lambda keyed: keyed.window(Session("10ms"), lateness="1s").fold(0, total),
    "tumbling": lambda keyed: keyed.window(Tumbling("10ms")).fold(0, total),
    "tumbling with lateness": lambda keyed: keyed.window(Tumbling("10ms"), lateness="1s").fold(0, total),
    "tumbling with evictor": lambda keyed: keyed.window(Tumbling("10ms"), evictor=last_values(9)).sum("x"),
    "global with evictor": lambda keyed: keyed.window(Global(), evictor=last_values(9)).sum("x"),
}


@pytest.mark.parametrize("name", GATHERING)
def test_a_record_for_which_an_aggregate_raises_is_left_out_of_its_window(name: str) -> None:
    for restores in (False, True):
        assert played(RECORDS, GATHERING[name], restores=restores) == ([4], [{"t": 2}]), restores


def test_each_result_of_a_count_window_leaves_a_bad_record_out() -> None:
    values, errors = played(RECORDS, lambda keyed: keyed.window(CountSliding(3, every=1)).sum("x"))
    assert (values, errors) == ([1, 1, 4], [{"t": 2}] * 2)


def test_a_window_of_bad_records_only_has_no_result() -> None:
    bad: list[Record] = [{"t": 1}, {"t": 2}, {"t": 500, "x": 5}]
    assert played(bad, lambda keyed: keyed.window(Session("10ms")).fold(0, total)) == ([5], bad[:2])
    assert played(bad, lambda keyed: keyed.window(Tumbling("10ms"), evictor=last_values(2)).sum("x")) == ([5], bad[:2])


def test_a_bad_record_fails_the_job_without_an_error_output() -> None:
    for step in GATHERING.values():
        with pytest.raises(StepFailed) as caught:
            played(RECORDS, step, has_errors=False)
        assert isinstance(caught.value.__cause__, Exception)


def test_a_pane_that_cannot_be_merged_is_left_out() -> None:
    records: list[Record] = [{"t": 7, "x": Decimal(1)}, {"t": 2, "x": 0.5}, {"t": 13, "x": 1.5}]
    windows: Step = lambda keyed: keyed.window(Sliding("15ms", every="5ms"))  # noqa: E731
    values, errors = played(records, lambda keyed: windows(keyed).aggregate(n=count(), total=sum_("x")))
    assert [(each["n"], each["total"]) for each in values] == [(1, 0.5), (1, 0.5), (2, 2.0), (1, 1), (1, 1.5)]
    assert errors == [[1, Decimal(1)], [1, Decimal(1)], [1, (3, 1)]]


def three(key: str, window: Any, rows: list[Record]) -> list[int]:
    return [sum(10 // row["x"] for row in rows)]


def test_the_error_of_a_result_has_the_values_of_the_window() -> None:
    records: list[Record] = [{"t": place, "x": x} for place, x in enumerate([1, 2, 0, 5, 5, 5])]
    for options in ({}, {"evictor": last_values(3)}):
        values, errors = played(records, lambda keyed: keyed.window(CountTumbling(3), **options).apply(three))  # noqa: B023
        assert (values, errors) == ([6], [records[:3]])
    for kind in (Tumbling("3ms"), Session("1ms")):
        values, errors = played(records[:3], lambda keyed: keyed.window(kind).apply(three))  # noqa: B023
        assert errors == [records[:3]] if isinstance(kind, Tumbling) else [records[2:3]]


def test_a_result_that_raises_blames_its_window_in_a_job_without_an_error_output() -> None:
    records: list[Record] = [{"t": place, "x": x} for place, x in enumerate([1, 0, 2])]
    for kind in (CountTumbling(3), Tumbling("1s")):
        with pytest.raises(StepFailed) as caught:
            played(records, lambda keyed: keyed.window(kind).apply(three), has_errors=False)  # noqa: B023
        assert (caught.value.at.index, caught.value.at.record) == (None, repr(records))


class Once(Trigger):
    """Trigger whose first timer of a window raises after it has changed its state."""

    def on_record(self, value: Any, context: TriggerContext) -> bool:
        if value.get("sets"):
            context.set_event_timer_ns(context.time_ns + 5_000_000)
        if context.state is None:
            context.state = [0]
        return False

    def on_event_timer(self, context: TriggerContext) -> bool:
        context.state.append(1)
        if len(context.state) == 2:
            raise Bad
        return True


def test_a_trigger_that_raises_at_a_timer_changes_nothing_but_the_timer() -> None:
    records: list[Record] = [{"t": 1, "sets": 1}, {"t": 2}, {"t": 1010}, {"t": 1011, "sets": 1}, {"t": 2030}]
    step = lambda keyed: keyed.window(Tumbling("60s"), early=Once()).aggregate(n=count())  # noqa: E731
    for restores in (False, True):
        assert played(records, step, restores=restores) == ([{"n": 5}], [None, None])


class AtOnce(Trigger):
    """Trigger that emits at each record, and at a timer after it when nothing has come since."""

    def on_record(self, value: Any, context: TriggerContext) -> bool:
        context.set_event_timer_ns(context.time_ns + 5_000_000)
        return True

    def on_event_timer(self, context: TriggerContext) -> bool:
        return True


def test_a_trigger_gets_no_result_of_a_window_without_records() -> None:
    records: list[Record] = [{"t": 1, "x": 1}, {"t": 2000, "x": 2}, {"t": 4000, "x": 3}]
    steps: list[Step] = [
        lambda windows: windows.reduce(lambda first, second: second).map(lambda result: result.value["x"]),
        lambda windows: windows.sum("x"),
        lambda windows: windows.apply(lambda key, window, rows: [sum(row["x"] for row in rows)]),
        lambda windows: windows.aggregate(own=aggregate(list, list.append)).map(
            lambda result: sum(row["x"] for row in result.value["own"])
        ),
    ]
    for step in steps:
        for options in ({}, {"evictor": last_values(2)}):
            windows: Step = lambda keyed: keyed.window(Tumbling("60s"), trigger=AtOnce(), accumulate=False, **options)  # noqa: B023, E731
            assert played(records, lambda keyed: step(windows(keyed))) == ([1, 2, 3], [])  # noqa: B023


def test_each_of_several_windows_of_a_record_gets_it_or_none_does() -> None:
    records: list[Record] = [{"t": 7, "x": Decimal(1)}, {"t": 2, "x": 0.5}]
    windows: Step = lambda keyed: keyed.window(Sliding("10ms", every="5ms"), early=each(100))  # noqa: E731
    values, errors = played(records, lambda keyed: windows(keyed).aggregate(n=count(), total=sum_("x")))
    assert (values, errors) == ([{"n": 1, "total": Decimal(1)}] * 2, [records[1]])


@pytest.mark.parametrize("place", range(5))
def test_a_failed_record_of_a_pane_has_its_place_in_the_batch(place: int) -> None:
    records: list[Record] = [{"t": t, "x": 1} for t in (1, 12, 13, 2, 25)]
    del records[place]["x"]
    graph = JobGraph("job")
    stamps = Timestamps("t", unit="ms", out_of_order="1s", future_max=None)
    graph.source(Given(records), timestamps=stamps).key_by(lambda record: "k").window(Tumbling("10ms")).sum("x")
    step = next(each for each in graph.steps if each.kind == "window_sum")
    stepping = Stepping(step, has_times=True)
    with pytest.raises(StepFailed) as caught:
        stepping.rows([(("k", record), record["t"] * 1_000_000) for record in records])
    assert (caught.value.at.index, caught.value.at.record) == (place, repr(records[place]))
