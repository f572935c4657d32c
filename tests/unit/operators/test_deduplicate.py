"""deduplicate, distinct and top_k against dumb twins, and restored at any barrier."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clonos.api.event_time import Timestamps
from clonos.api.graph import JobGraph
from clonos.api.graph_errors import InvalidJob
from clonos.api.stream import Stream
from clonos.core.model.options import Options
from clonos.core.ports.operator_chain import StepFailed
from clonos.operators.event_time.timestamps import from_timestamp_ns
from tests.unit.operators.driver import START_NS, Given, Outbox, Run, run
from tests.unit.operators.restoring import actions, check_restores

SECOND_NS = 1_000_000_000
KEYS: list[Any] = ["a", True, 1, None, ("x", False), ("x", 0)]
DISORDER_S = 5

Record = tuple[int, int, int]
"""(number, index of the key, second)."""


def key_of(record: Record) -> Any:
    return KEYS[record[1]]


def instant_of(record: Record) -> Any:
    return from_timestamp_ns(START_NS + record[2] * SECOND_NS)


def disordered(draws: list[tuple[int, int, int]]) -> list[Record]:
    """Records whose seconds rise by up to 4 and lie back by up to the disorder."""
    found, second = [], 0
    for number, (key, rise, back) in enumerate(draws):
        second += rise
        found.append((number, key, second - back))
    return found


draws = st.lists(st.tuples(st.integers(0, len(KEYS) - 1), st.integers(0, 4), st.integers(0, DISORDER_S)), max_size=40)


def timed(graph: JobGraph, records: list[Record]) -> Stream[Any]:
    timestamps = Timestamps(instant_of, out_of_order=f"{DISORDER_S}s", watermark_every="1ms")
    return graph.source(Given(records), parallelism=1, timestamps=timestamps)


def output(graph: JobGraph, parallelism: int = 2) -> list[Any]:
    return [row for rows in run(graph, parallelism).written.values() for row in rows]


def twin_first(records: list[Record], within: int | None) -> list[Record]:
    """A record is retained unless an earlier retained one of its key is nearer than ``within``."""
    retained: list[Record] = []
    for record in records:
        of_key = [each for each in retained if each[1] == record[1]]
        if not any(within is None or abs(each[2] - record[2]) < within for each in of_key):
            retained.append(record)
    return retained


def twin_last(records: list[Record], within: int) -> list[Record]:
    last: dict[Record, Record] = {}  # by the record that opened the span
    for record in records:
        opener = next((each for each in last if each[1] == record[1] and abs(each[2] - record[2]) < within), None)
        if opener is None:
            last[record] = record
        elif record[2] >= last[opener][2]:
            last[opener] = record
    return list(last.values())


@settings(max_examples=40, deadline=None)
@given(draws, st.sampled_from([None, 1, 3, 7]), st.booleans())
def test_the_first_record_of_each_key_in_event_time_is_passed_on(
    draws: list[tuple[int, int, int]], within: int | None, is_keyed: bool
) -> None:
    records = disordered(draws)
    graph = JobGraph("job")
    stream = timed(graph, records)
    duration = None if within is None else float(within)
    if is_keyed:
        stream.key_by(key_of).deduplicate(within=duration).sink(Outbox())
    else:
        stream.deduplicate(key_of, within=duration).sink(Outbox())
    assert sorted(output(graph)) == twin_first(records, within)


@settings(max_examples=40, deadline=None)
@given(draws, st.sampled_from([1, 3, 7]))
def test_the_last_record_of_each_span_in_event_time_is_passed_on(
    draws: list[tuple[int, int, int]], within: int
) -> None:
    records = disordered(draws)
    graph = JobGraph("job")
    timed(graph, records).deduplicate(key_of, keep="last", within=float(within)).sink(Outbox())
    assert sorted(output(graph)) == sorted(twin_last(records, within))


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3)), max_size=25), st.sampled_from(["first", "last"]))
def test_without_timestamps_the_clock_counts(steps: list[tuple[int, int]], keep: Any) -> None:
    """Each record arrives some seconds after the one before."""
    records, second = [], 0
    for number, (key, pause) in enumerate(steps):
        second += pause
        records.append((number, key, second))
    graph = JobGraph("job")
    graph.source(Given(records), parallelism=1).deduplicate(key_of, keep=keep, within="4s").sink(Outbox())
    going = Run(graph.compile(Options(), parallelism=2))
    for record, (_, pause) in zip(records, steps, strict=True):
        going.pass_time(pause)
        assert going.read(1), record
        going.drain()
    going.finish()
    found = sorted(row for rows in going.written.values() for row in rows)
    twin = twin_first(records, 4) if keep == "first" else twin_last(records, 4)
    assert found == sorted(twin)
    going.close()


def test_a_key_is_forgotten_when_its_time_is_over() -> None:
    graph = JobGraph("job")
    graph.source(Given(range(40)), parallelism=1).deduplicate(within="10s").sink(Outbox())
    going = Run(graph.compile(Options(), parallelism=1))
    going.read()
    going.drain()
    full = len(going.barrier(1, full=True)[1][0][0])
    going.pass_time(11)
    empty = len(going.barrier(2, full=True)[1][0][0])
    assert empty < full / 2
    going.close()


def test_the_last_record_of_a_span_is_not_late_for_a_step_after() -> None:
    class Late:
        def process(self, value: Any, context: Any) -> None:
            context.emit(context.watermark_ns is not None and context.timestamp_ns < context.watermark_ns)

    records = disordered([(number % 3, number % 4, number % DISORDER_S) for number in range(60)])
    graph = JobGraph("job")
    timed(graph, records).deduplicate(key_of, keep="last", within="4s").process(Late).sink(Outbox())
    found = output(graph)
    assert found
    assert not any(found)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2), st.sampled_from([1, True, "1", 2, None])), max_size=30))
def test_distinct_keeps_the_first_of_equal_records(records: list[Any]) -> None:
    graph = JobGraph("job")
    source = graph.source(Given(records), parallelism=1)
    source.distinct(name="whole").sink(Outbox(), name="to-whole")
    source.key_by(lambda record: record[0]).distinct(lambda record: record[1], name="keyed").sink(Outbox())
    source.distinct(lambda record: record[1], name="by").sink(Outbox())
    written = run(graph).written
    by_pair = list({repr(record): record for record in reversed(records)}.values())
    by_second = {repr(record[1]): repr(record) for record in reversed(records)}
    of = {vertex.split("-")[0]: sorted(map(repr, rows)) for vertex, rows in written.items()}
    assert of.get("whole", []) == of.get("keyed", []) == sorted(map(repr, by_pair))
    assert of.get("by", []) == sorted(by_second.values())


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 9)), max_size=40), st.integers(1, 4))
def test_top_k_emits_the_new_list_whenever_it_changes(records: list[tuple[int, int]], k: int) -> None:
    numbered = [(key, rank, number) for number, (key, rank) in enumerate(records)]
    graph = JobGraph("job")
    keyed = graph.source(Given(numbered), parallelism=1).key_by(lambda record: record[0])
    keyed.top_k(k, lambda record: record[1]).sink(Outbox())
    twin: list[Any] = []
    latest: dict[int, Any] = {}
    for end, (key, _, _) in enumerate(numbered, start=1):
        of_key = [record for record in numbered[:end] if record[0] == key]
        highest = sorted(of_key, key=lambda record: -record[1])[:k]  # stable: the earlier of equal ones is first
        if highest != latest.get(key):
            latest[key] = highest
            twin.append((key, highest))
    found = output(graph)
    assert sorted(found, key=repr) == sorted(twin, key=repr)
    for key in latest:
        assert [each for each in found if each[0] == key] == [each for each in twin if each[0] == key]


def test_top_k_passes_over_records_without_a_rank() -> None:
    graph = JobGraph("job")
    ranks = [None, 2.0, float("nan"), None, 3.0, 1.0]
    graph.source(Given(ranks), parallelism=1).key_by(lambda _: 0).top_k(2).sink(Outbox())
    written = [row for rows in run(graph).written.values() for row in rows]
    assert written == [(0, [2.0]), (0, [3.0, 2.0])]


def _first(graph: JobGraph, records: list[Record]) -> None:
    timed(graph, records).deduplicate(key_of, within="3s").sink(Outbox())
    graph.source(Given(records)).key_by(key_of).deduplicate(lambda r: r[0] % 2, within="2s").sink(Outbox())


def _last(graph: JobGraph, records: list[Record]) -> None:
    timed(graph, records).deduplicate(key_of, keep="last", within="3s").sink(Outbox())
    graph.source(Given(records)).deduplicate(key_of, keep="last", within="2s").sink(Outbox())


def _distinct(graph: JobGraph, records: list[Record]) -> None:
    keyed = graph.source(Given(records)).key_by(key_of)
    keyed.distinct(lambda record: record[2] % 3).sink(Outbox())
    keyed.top_k(3, lambda record: record[2]).sink(Outbox())


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(st.sampled_from([_first, _last, _distinct]), draws, actions, st.integers(1, 3), st.integers(1, 5))
def test_a_restore_at_any_barrier_changes_nothing(
    build: Callable[[JobGraph, list[Any]], None],
    draws: list[tuple[int, int, int]],
    actions: list[str],
    parallelism: int,
    records_max: int,
) -> None:
    check_restores(build, disordered(draws), actions, parallelism, records_max)


def test_wrong_arguments_get_one_sentence() -> None:
    stream = JobGraph("job").source(Given([1]))
    with pytest.raises(InvalidJob, match="keep='newest'"):
        stream.deduplicate(keep="newest")  # type: ignore[arg-type]
    with pytest.raises(InvalidJob, match="k=0"):
        stream.key_by(lambda n: n).top_k(0)
    graph = JobGraph("job")
    graph.source(Given([1])).key_by(lambda n: n).distinct(lambda _: 1.5).sink(Outbox())
    with pytest.raises(StepFailed) as failed:
        run(graph)
    assert failed.value.at.step == "distinct"
    assert failed.value.at.record == "1"
