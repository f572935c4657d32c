"""Records whose processing raises midway go to the error output, and the state is as if they had not been there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from clonos.agg import aggregate, collect, max_
from clonos.api.emission import at_end, changes, each, every
from clonos.api.event_time import Timestamps
from clonos.api.graph import JobGraph
from clonos.api.keyed_stream import KeyedStream
from clonos.api.stream import Stream
from clonos.api.windowed import WindowedStream
from clonos.api.windows import (
    CountTumbling,
    Global,
    Session,
    Sliding,
    Tumbling,
)
from clonos.core.model.options import Options
from clonos.operators.windows.triggers import Trigger
from tests.unit.operators.driver import Given, Outbox, Run, run

Record = tuple[int, int, bool]
"""Timestamp in ms, number, and whether the record is bad."""

Step = Callable[[Any], Stream[Any]]

TIMES_MS = (1, 3, 2, 4, 8, 11, 9, 3, 12, 21, 14, 22, 23, 19, 30, 31, 24, 41)
RECORDS: list[Record] = [
    (time_ms, 2 * place + is_bad, bool(is_bad)) for place, time_ms in enumerate(TIMES_MS) for is_bad in (0, 1)
]


class Bad(Exception):
    """Error of the user's code at a bad record."""


def check(record: Record) -> None:
    if record[2]:
        raise Bad(record)


def appended(seen: list[Any], record: Record) -> None:
    """Changes the accumulator, then raises."""
    seen.append(record)
    check(record)


def counted(total: dict[str, int], record: Record) -> dict[str, int]:
    total["n"] = total.get("n", 0) + 1
    check(record)
    return total


def merged(total: dict[str, int], other: dict[str, int]) -> dict[str, int]:
    return {"n": total.get("n", 0) + other.get("n", 0)}


def widest(so_far: list[Record], record: list[Record]) -> list[Record]:
    """Reduction that changes the value so far, then raises."""
    so_far += record
    check(record[0])
    return so_far


def listed(record: Record) -> list[Record]:
    return [record]


def last_is_good(seen: list[Any]) -> list[Any]:
    check(seen[-1])
    return seen


def one(record: Any) -> str:
    return "one"


def named(**more: Any) -> dict[str, Any]:
    """Aggregates of which some change before another one raises."""
    return {
        "first": aggregate(list, list.append, list.extend),
        "second": aggregate(dict, counted, merged),
        "third": aggregate(list, appended, list.extend),
        "all": collect(),
        "most": max_(lambda record: record[1]),
        **more,
    }


AGGREGATES: dict[str, Step] = {
    "running": lambda keyed: keyed.aggregate(**named()),
    "each": lambda keyed: keyed.aggregate(emit=each(3), **named()),
    "every": lambda keyed: keyed.aggregate(emit=every("5ms"), **named()),
    "at end": lambda keyed: keyed.aggregate(emit=at_end(), **named()),
    "changes": lambda keyed: keyed.aggregate(emit=changes(), **named()),
    "fold": lambda keyed: keyed.fold([], appended, emit=each(2)),
    "fold changes": lambda keyed: keyed.fold([], appended, emit=changes()),
    "fold once": lambda keyed: keyed.fold({}, counted, emit=at_end()),
    "running result": lambda keyed: keyed.aggregate(
        last=aggregate(list, list.append, list.extend, last_is_good), all=collect()
    ),
    "paced result": lambda keyed: keyed.aggregate(
        last=aggregate(list, list.append, list.extend, last_is_good), all=collect(), emit=each(1)
    ),
}

WINDOW_AGGREGATES: dict[str, Step] = {
    "named": lambda windows: windows.aggregate(**named()),
    "aggregate": lambda windows: windows.aggregate(list, appended, merge=list.extend),
    "reduce": lambda windows: windows.reduce(widest),
}


class EveryOther(Trigger):
    """Trigger that raises at bad records, after it has changed its state and its timer."""

    def on_record(self, value: Any, context: Any) -> bool:
        seen = context.state or []
        seen.append(context.time_ns)
        context.state = seen
        context.set_event_timer_ns(context.time_ns + 2_000_000)
        check(value[0] if isinstance(value, list) else value)
        return len(seen) % 2 == 0

    def on_event_timer(self, context: Any) -> bool:
        return True


WINDOWS: dict[str, Callable[[KeyedStream[Any, Any]], WindowedStream[Any, Any]]] = {
    "tumbling": lambda keyed: keyed.window(Tumbling("10ms")),
    "late, accumulating": lambda keyed: keyed.window(Tumbling("10ms"), lateness="20ms"),
    "late, discarding": lambda keyed: keyed.window(Tumbling("10ms"), lateness="20ms", accumulate=False),
    "late, sliding": lambda keyed: keyed.window(Sliding("12ms", every="4ms"), lateness="20ms", accumulate=False),
    "sliding": lambda keyed: keyed.window(Sliding("12ms", every="4ms")),
    "sliding, early": lambda keyed: keyed.window(Sliding("12ms", every="4ms"), early=each(2)),
    "session": lambda keyed: keyed.window(Session("4ms"), lateness="20ms"),
    "count": lambda keyed: keyed.window(CountTumbling(3)),
    "global": lambda keyed: keyed.window(Global(), trigger=each(3)),
    "own trigger": lambda keyed: keyed.window(Global(), trigger=EveryOther()),
    "own trigger, sliding": lambda keyed: keyed.window(Sliding("12ms", every="4ms"), trigger=EveryOther()),
}


def played(step: Step, prepare: Callable[[Stream[Record]], Any], *, has_bad: bool) -> tuple[list[Any], int]:
    """Returns the results of a step on the records, with or without the bad ones, and how many were routed."""
    graph = JobGraph("job", errors=Outbox())
    stamps = Timestamps(lambda record: record[0], unit="ms", out_of_order="3ms", watermark_every="1ms", future_max=None)
    records = graph.source(Given(RECORDS), timestamps=stamps)
    retained = records if has_bad else records.filter(lambda record: not record[2])
    step(prepare(retained)).sink(Outbox(), name="results")
    job = Run(graph.compile(Options(), parallelism=1))
    while job.read():
        job.drain()
        job.pass_time(0.002)
    for chain in job.chains:
        chain.end_of_input()
        job.drain()
    job.close()
    routed = job.written.pop("errors", [])
    assert all(error.record is not None for error in routed)
    (results,) = job.written.values()
    return results, len(routed)


def changes_nothing(step: Step, prepare: Callable[[Stream[Record]], Any]) -> None:
    """Asserts that bad records are routed, except a late one, and that the results are those without them."""
    results, routed = played(step, prepare, has_bad=True)
    assert routed >= len(TIMES_MS) - 1
    assert results == played(step, prepare, has_bad=False)[0]


@pytest.mark.slow
@pytest.mark.parametrize("name", AGGREGATES)
@pytest.mark.parametrize("is_keyed", [True, False])
def test_a_failed_record_changes_no_aggregate(name: str, is_keyed: bool) -> None:
    changes_nothing(AGGREGATES[name], lambda records: records.key_by(one) if is_keyed else records)


def test_a_failed_record_changes_no_reduction() -> None:
    changes_nothing(lambda keyed: keyed.reduce(widest), lambda records: records.map(listed).key_by(one))


PAIRS = [(windows, aggregates) for windows in WINDOWS for aggregates in WINDOW_AGGREGATES]
PAIRS.remove(("count", "reduce"))  # where a bad record begins a window, the function is not called


@pytest.mark.slow
@pytest.mark.parametrize(("windows", "aggregates"), PAIRS)
def test_a_failed_record_changes_no_window(windows: str, aggregates: str) -> None:
    def prepare(records: Stream[Record]) -> Stream[Any]:
        return records.map(listed) if aggregates == "reduce" else records

    changes_nothing(lambda rows: WINDOW_AGGREGATES[aggregates](WINDOWS[windows](rows.key_by(one))), prepare)


def test_a_result_that_raises_is_an_error_of_the_values_of_its_window_and_the_key_goes_on() -> None:
    graph = JobGraph("job", errors=Outbox())

    def refused(key: str, window: Any, rows: list[int]) -> list[list[int]]:
        if 4 in rows:
            raise Bad(rows)
        return [rows]

    graph.source(Given(range(9))).key_by(one).window(CountTumbling(3)).apply(refused).sink(Outbox(), name="results")
    written = run(graph, parallelism=1).written
    assert [error.record for error in written.pop("errors")] == [[3, 4, 5]]
    assert list(written.values()) == [[[0, 1, 2], [6, 7, 8]]]


@pytest.mark.parametrize("key", [{"a": 1}, 1.5, [1]])
def test_an_invalid_key_sends_its_record_alone_to_the_error_output(key: Any) -> None:
    graph = JobGraph("job", errors=Outbox())
    rows = graph.source(Given([("a", 1), (key, 2), ("b", 3), (key, 4)]), parallelism=1)
    rows.key_by(lambda row: row[0]).count(name="counts").sink(Outbox(), name="out")
    written = run(graph, 2).written
    errors = written.pop("errors")
    assert [error.record[1] for error in errors] == [2, 4]
    assert all("cannot be a key" in error.error for error in errors)
    assert sorted(row for rows in written.values() for row in rows) == [("a", 1), ("b", 1)]


@pytest.mark.parametrize("gap", [0, None, "5 parsecs"])
def test_a_record_without_a_gap_goes_to_the_error_output_alone(gap: Any) -> None:
    graph = JobGraph("job", errors=Outbox())
    stamps = Timestamps(lambda row: 1_700_000_000 + row[0])
    rows = graph.source(Given([(1, 5), (2, gap), (3, 5)]), timestamps=stamps, parallelism=1)
    rows.key_by(lambda row: "k").window(Session(lambda row: row[1])).count(name="counts").sink(Outbox(), name="out")
    written = run(graph, 1).written
    (error,) = written.pop("errors")
    assert error.record[0] == 2
    assert "the function of Session returned" in error.error
    assert [row.value for rows in written.values() for row in rows] == [2]


def test_a_record_for_a_task_that_does_not_exist_goes_to_the_error_output_alone() -> None:
    graph = JobGraph("job", errors=Outbox())
    rows = graph.source(Given([0, 7, 1]), parallelism=1)
    rows.partition_custom(lambda row, tasks: row).map(lambda row: row, name="same").sink(Outbox(), name="out")
    written = run(graph, 2).written
    (error,) = written.pop("errors")
    assert error.record == 7
    assert sorted(row for rows in written.values() for row in rows) == [0, 1]
