"""A record that several accumulators keep is not changed in one of them by the function of another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from clonos.agg import aggregate, first
from clonos.api.emission import at_end, each
from clonos.api.graph import JobGraph
from clonos.api.stream import Stream
from clonos.api.windows import Sliding, Tumbling
from clonos.core.model.options import Options
from tests.unit.operators.driver import Given, Outbox, Run
from tests.unit.windows.stepping import NEVER, stepping

SECOND = 1_000_000_000


def add(total: dict[str, int], other: dict[str, int]) -> dict[str, int]:
    """Reduction that changes the value so far in place."""
    total["n"] += other["n"]
    return total


def append(seen: list[dict[str, int]], record: dict[str, int]) -> None:
    """Keeps the first record and changes it."""
    if seen:
        add(seen[0], record)
    else:
        seen.append(record)


def extend(seen: list[dict[str, int]], other: list[dict[str, int]]) -> None:
    for record in other:
        append(seen, record)


STEPS: dict[str, Callable[[Any], Stream[Any]]] = {
    "reduce": lambda windows: windows.reduce(add),
    "aggregate": lambda windows: windows.aggregate(list, append, lambda seen: seen[0], merge=extend),
    "named": lambda windows: windows.aggregate(own=aggregate(list, append, extend, lambda seen: seen[0])),
}


@pytest.mark.parametrize("name", STEPS)
@pytest.mark.parametrize("options", [{}, {"early": each(100)}, {"trigger": at_end()}])
@pytest.mark.parametrize("restores", [False, True])
def test_overlapping_windows_do_not_share_the_record_that_begins_them(
    name: str, options: dict[str, Any], restores: bool
) -> None:
    step = stepping(lambda keyed: STEPS[name](keyed.window(Sliding("10s", every="5s"), **options)))
    for second, number in ((7, 1), (8, 10), (9, 100)):
        step.rows([(("a", {"n": number}), second * SECOND)])
        if restores:
            step.restore()
    step.watermark(NEVER)
    found = [result.value["own"] if name == "named" else result.value for result, _ in step.results]
    assert found == [{"n": 111}, {"n": 111}]


@pytest.mark.parametrize("accumulates", [False, True])
def test_a_pane_and_the_late_records_of_its_windows_do_not_share_a_record(accumulates: bool) -> None:
    def total(restores: bool) -> list[Any]:
        step = stepping(
            lambda keyed: keyed.window(Sliding("10s", every="5s"), lateness="1min", accumulate=accumulates).reduce(add)
        )
        step.watermark(10 * SECOND)
        for second, number in ((7, 1), (8, 10), (9, 100)):
            step.rows([(("a", {"n": number}), second * SECOND)])
            if restores:
                step.restore()
        step.watermark(11 * SECOND)
        step.watermark(NEVER)
        return [(result.start, result.value) for result, _ in step.results]

    assert [value for _, value in total(False)] == [{"n": 111}, {"n": 111}]
    assert total(True) == total(False)


@pytest.mark.parametrize("has_errors", [False, True])
@pytest.mark.parametrize("is_windowed", [False, True])
def test_aggregates_of_one_pass_do_not_share_a_record(has_errors: bool, is_windowed: bool) -> None:
    graph = JobGraph("job", errors=Outbox() if has_errors else None)
    keyed = graph.source(Given([{"n": 1}, {"n": 10}, {"n": 100}])).key_by(lambda record: "k")
    both: dict[str, Any] = {"first": first(), "own": aggregate(list, append, extend), "too": aggregate(list, append)}
    if is_windowed:
        keyed.window(Tumbling("1h")).aggregate(**both).map(lambda result: result.value).sink(Outbox(), name="w")
    else:
        keyed.aggregate(**both, emit=at_end()).map(lambda result: result[1]).sink(Outbox(), name="w")
    job = Run(graph.compile(Options(), parallelism=1))
    job.finish(1)
    (written,) = job.written.values()
    assert written == [{"first": {"n": 1}, "own": [{"n": 111}], "too": [{"n": 111}]}]


def drain(seen: list[dict[str, int]]) -> int:
    """Empties the accumulator and changes its records."""
    total = 0
    while seen:
        record = seen.pop()
        total, record["n"] = total + record["n"], 0
    return total


DRAINS: dict[str, tuple[Callable[[Any], Stream[Any]], list[int]]] = {
    "a window that accumulates": (
        lambda keyed: keyed.window(Tumbling("10s"), early=each(1)).aggregate(list, list.append, drain),
        [1, 11, 111, 111],
    ),
    "windows that overlap": (
        lambda keyed: keyed.window(Sliding("10s", every="5s")).aggregate(list, list.append, drain, merge=list.extend),
        [111, 111],
    ),
    "windows that overlap and have a trigger": (
        lambda keyed: keyed.window(Sliding("10s", every="5s"), trigger=at_end()).aggregate(list, list.append, drain),
        [111, 111],
    ),
}


@pytest.mark.parametrize("name", DRAINS)
@pytest.mark.parametrize("restores", [False, True])
def test_a_result_that_changes_its_accumulator_in_place_changes_no_state(name: str, restores: bool) -> None:
    make, expected = DRAINS[name]
    step = stepping(make)
    for second, number in ((7, 1), (8, 10), (9, 100)):
        step.rows([(("a", {"n": number}), second * SECOND)])
        if restores:
            step.restore()
    step.watermark(NEVER)
    assert [result.value for result, _ in step.results] == expected


@pytest.mark.parametrize("others", [{}, {"first": first("n")}])
def test_a_running_result_that_changes_its_accumulator_in_place_changes_no_state(others: dict[str, Any]) -> None:
    graph = JobGraph("job")
    keyed = graph.source(Given([{"n": 1}, {"n": 10}, {"n": 100}])).key_by(lambda record: "k")
    running = keyed.aggregate(own=aggregate(list, list.append, None, drain), **others)
    running.map(lambda result: result[1]["own"]).sink(Outbox(), name="w")
    job = Run(graph.compile(Options(), parallelism=1))
    job.finish(1)
    assert list(job.written.values()) == [[1, 11, 111]]


def spoil(result: Any) -> list[int]:
    """Returns the first item of each list of a result, and changes the lists."""
    found = [item[0] for item in result[1]["own"]]
    for item in result[1]["own"]:
        item[0] = 99
    return found


@pytest.mark.parametrize("result", [sorted, list, lambda seen: seen])
def test_a_step_that_changes_a_result_in_place_changes_no_state(result: Callable[[Any], Any]) -> None:
    graph = JobGraph("job")
    keyed = graph.source(Given([[1], [2], [3]])).key_by(lambda record: "k")
    keyed.aggregate(own=aggregate(list, list.append, None, result)).map(spoil).sink(Outbox(), name="w")
    job = Run(graph.compile(Options(), parallelism=1))
    job.finish(1)
    assert list(job.written.values()) == [[[1], [1, 2], [1, 2, 3]]]
