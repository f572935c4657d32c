"""Limits, triggers, folds and ends: what each of them emits, and that every bounded input ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clonos.api.emission import at_end, each, every
from clonos.api.graph import JobGraph
from clonos.api.graph_errors import InvalidJob
from clonos.core.model.options import Options
from clonos.operators.emission_times import Emission
from clonos.operators.event_time.durations import InvalidDuration
from clonos.operators.job_image import JobImage
from tests.unit.operators.driver import Given, Outbox, Run, run
from tests.unit.operators.restoring import actions, check_restores
from tests.unit.operators.samples import ColumnsGiven, Endless
from tests.unit.operators.test_timestamps import stamped

SECOND_NS = 1_000_000_000
records_of = st.lists(st.tuples(st.integers(0, 2), st.integers(-5, 5)), max_size=30)


def add(total: int, record: tuple[int, int]) -> int:
    return total + record[1]


def first(record: tuple[int, int]) -> int:
    return record[0]


def output(graph: JobGraph, parallelism: int = 2) -> list[Any]:
    return [row for rows in run(graph, parallelism).written.values() for row in rows]


# ------------------------------------------------------------------ folds


@settings(max_examples=30, deadline=None)
@given(records_of, st.integers(1, 4))
def test_folds_of_keys_emit_every_nth_value_and_the_rest_at_the_end(records: list[tuple[int, int]], count: int) -> None:
    graph = JobGraph("job")
    graph.source(Given(records), parallelism=1).key_by(first).fold(0, add, emit=each(count)).sink(Outbox())
    found = output(graph)
    for key in range(3):
        numbers = [number for of, number in records if of == key]
        ends = sorted({*range(count, len(numbers) + 1, count), len(numbers)} - {0})
        assert [pair for pair in found if pair[0] == key] == [(key, sum(numbers[:end])) for end in ends]


@settings(max_examples=30, deadline=None)
@given(records_of)
def test_folds_at_the_end_fire_once(records: list[tuple[int, int]]) -> None:
    graph = JobGraph("job")
    source = graph.source(Given(records))
    source.fold(0, add, emit=at_end(), name="all").sink(Outbox())
    source.key_by(first).fold([], list.append, emit=at_end(), name="keyed").map(
        lambda pair: (pair[0], len(pair[1]))
    ).sink(Outbox())
    written = run(graph).written
    assert written.get("all", []) == [sum(number for _, number in records)] * bool(records)
    counts = [(key, sum(1 for of, _ in records if of == key)) for key in range(3)]
    assert sorted(written.get("keyed", [])) == [pair for pair in counts if pair[1]]


def test_the_accumulator_of_each_key_is_a_copy_of_the_initial_value() -> None:
    graph = JobGraph("job")
    keyed = graph.source(Given([0, 1, 0]), parallelism=1).key_by(lambda n: n)
    keyed.fold({"seen": []}, lambda total, n: total["seen"].append(n), emit=each(1)).sink(Outbox())
    assert sorted(output(graph, 1), key=repr) == [(0, {"seen": [0, 0]}), (0, {"seen": [0]}), (1, {"seen": [1]})]


@settings(max_examples=30, deadline=None)
@given(
    st.sampled_from([each(1), each(3), every("2s"), at_end()]),
    records_of,
    actions,
    st.integers(1, 3),
    st.integers(1, 5),
)
def test_a_fold_restored_at_any_barrier_emits_the_same(
    emit: Emission, records: list[Any], actions: list[str], parallelism: int, records_max: int
) -> None:
    def build(graph: JobGraph, records: list[Any]) -> None:
        source = graph.source(Given(records))
        source.key_by(first).fold([], list.append, emit=emit).sink(Outbox())
        source.fold(0, add, emit=emit).sink(Outbox())

    check_restores(build, records, actions, parallelism, records_max)


@pytest.mark.parametrize(
    ("wrong", "reported"),
    [
        (lambda: each(0), "each gets 0"),
        (lambda: each(True), "each gets True"),
        (lambda: JobGraph("job").source(Given([1])).fold(0, max, emit=5), "has emit=5"),  # type: ignore[arg-type]
        (lambda: JobGraph("job").source(Given([1])).fold(0, max, emit=each(1), parallelism=2), "has the parallelism 2"),
    ],
)
def test_wrong_arguments_get_one_sentence(wrong: Callable[[], Any], reported: str) -> None:
    with pytest.raises(InvalidJob) as refused:
        wrong()
    assert reported in str(refused.value)
    with pytest.raises(InvalidDuration):
        every("5 parsecs")


# ------------------------------------------------------------------ limits


def test_a_limit_counts_over_the_splits_of_a_source_and_over_several_senders() -> None:
    graph = JobGraph("job")
    graph.source(Given(range(100)), parallelism=3).limit(7, name="a").sink(Outbox())
    graph.source(Given(range(100)), name="b", limit=7).sink(Outbox())
    written = run(graph, 3).written
    assert [len(rows) for rows in written.values()] == [7, 7]


def test_limited_columns_stay_columns_and_limited_records_keep_their_timestamps() -> None:
    graph = JobGraph("job")
    columns = graph.source(ColumnsGiven([{"n": n} for n in range(20)]), limit=5)
    columns.map_batches(lambda batch: batch).map(lambda row: row["n"]).sink(Outbox())
    assert output(graph, 1) == [0, 1, 2, 3, 4]
    found = stamped(lambda stream: stream.limit(6).map(lambda row: row["n"]), range(20))
    assert len(found) == 6
    assert all(n == second for n, second in found)


@settings(max_examples=30, deadline=None)
@given(actions, st.integers(1, 3), st.integers(1, 5))
def test_a_limit_restored_at_any_barrier_passes_the_same(
    actions: list[str], parallelism: int, records_max: int
) -> None:
    def build(graph: JobGraph, records: list[Any]) -> None:
        graph.source(Endless(), name="ended", limit=9).sink(Outbox())
        graph.source(Given(records), parallelism=1).limit(11, name="a").map(lambda n: n, parallelism=1).limit(
            7, name="b"
        ).sink(Outbox())

    check_restores(build, list(range(40)), actions, parallelism, records_max)


@pytest.mark.parametrize("count", [7, 5, 1])
@pytest.mark.parametrize("is_after_exchange", [False, True])
def test_a_limit_that_is_lowered_below_what_has_passed_ends_the_resumed_job(
    count: int, is_after_exchange: bool
) -> None:
    def image_of(limit: int) -> JobImage:
        graph = JobGraph("job")
        numbers = graph.source(Given(range(30)), name="read", parallelism=1)
        (numbers.rebalance() if is_after_exchange else numbers).limit(limit, name="first").sink(Outbox())
        return graph.compile(Options(), parallelism=1)

    before = Run(image_of(20))
    for _ in range(3):
        before.read()
    taken = before.barrier(1)
    before.close()
    assert [len(rows) for rows in before.written.values()] == [9]
    after = Run(image_of(count), taken)
    reads = 0
    while after.read() and reads < 20:
        reads += 1
    assert reads <= 8, "the source is not asked again when it has been read"
    after.drain()
    after.close()
    assert not after.written


def test_wrong_limits_get_one_sentence() -> None:
    graph = JobGraph("job")
    for count in (0, True, "5"):
        with pytest.raises(InvalidJob, match="limit gets"):
            graph.source(Given([1])).limit(count)  # type: ignore[arg-type]
    with pytest.raises(InvalidJob, match="has a limit and the parallelism 2"):
        graph.source(Given([1]), limit=5, parallelism=2)
