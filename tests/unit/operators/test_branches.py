"""sample, peek, branch and split: each record alone."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clonos import random
from clonos.api.graph import JobGraph
from clonos.api.graph_errors import InvalidJob
from clonos.core.ports.operator_chain import StepFailed
from tests.unit.operators.driver import Given, Outbox, run
from tests.unit.operators.samples import ColumnsGiven
from tests.unit.operators.test_timestamps import Stamped, at, stamped


def rows_of(graph: JobGraph, parallelism: int = 2) -> list[Any]:
    return [row for rows in run(graph, parallelism).written.values() for row in rows]


def _pair(index: int, record: int) -> tuple[int, int]:
    return index, record


def _divides(divisor: int, record: int) -> bool:
    return record % divisor == 0


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(0, 20), max_size=30), st.lists(st.integers(1, 7), min_size=1, max_size=3), st.booleans())
def test_a_record_goes_to_the_first_branch_whose_predicate_is_true(
    records: list[int], divisors: list[int], has_rest: bool
) -> None:
    graph = JobGraph("job")
    predicates: list[Any] = [partial(_divides, divisor) for divisor in divisors]
    predicates += [True] * has_rest
    for index, branch in enumerate(graph.source(Given(records)).branch(*predicates)):
        branch.map(partial(_pair, index)).sink(Outbox())
    twin = []
    for record in records:
        index = next((i for i, divisor in enumerate(divisors) if record % divisor == 0), len(divisors))
        if has_rest or index < len(divisors):
            twin.append((index, record))
    assert sorted(rows_of(graph)) == sorted(twin)


def test_a_predicate_is_called_once_per_record() -> None:
    graph = JobGraph("job")
    stream = graph.source(Given(range(10)), parallelism=1)
    odd, rest = stream.split(lambda _: random.random() < 0.5)
    odd.sink(Outbox())
    rest.sink(Outbox())
    assert sorted(rows_of(graph, 1)) == list(range(10))


def test_branches_do_not_share_mutable_records() -> None:
    def mark(row: dict[str, int]) -> dict[str, int]:
        row["marked"] = 1
        return row

    graph = JobGraph("job")
    stream = graph.source(Given([{"n": n} for n in range(4)]), parallelism=1)
    low, _ = stream.split(lambda row: row["n"] < 2)
    low.map(mark).sink(Outbox())
    stream.sink(Outbox())
    found = rows_of(graph, 1)
    assert sorted(found, key=repr) == [
        {"n": 0, "marked": 1},
        {"n": 0},
        {"n": 1, "marked": 1},
        {"n": 1},
        {"n": 2},
        {"n": 3},
    ]


def test_branches_and_samples_keep_timestamps() -> None:
    found = stamped(lambda stream: stream.map(lambda row: row["n"]).branch(lambda n: n % 2, True)[1], range(20))
    assert found == sorted([(n, n) for n in range(0, 20, 2)], key=repr)
    found = stamped(lambda stream: stream.map(lambda row: row["n"]).sample(0.5).peek(repr), range(20))
    assert 0 < len(found) < 20
    assert all(n == second for n, second in found)


def test_records_of_a_branch_keep_their_timestamps_after_one_whose_predicate_raised() -> None:
    graph = JobGraph("job", errors=Outbox())
    stream = graph.source(Given([{"n": n, "at": at(n)} for n in range(9)]), timestamps="at")
    for branch in stream.map(lambda row: row["n"]).branch(lambda n: 1 / (n - 3) > 0, True):
        branch.process(Stamped).sink(Outbox())
    written = run(graph).written
    assert [error.record for error in written.pop("errors")] == [3]
    found = [pair for pairs in written.values() for pair in pairs]
    assert sorted(found) == [(n, n) for n in range(9) if n != 3]


def test_a_sample_has_about_its_fraction_and_is_the_same_in_every_run() -> None:
    def sampled(fraction: float, seed: int) -> list[int]:
        graph = JobGraph("job")
        graph.source(Given(range(2000))).sample(fraction, seed).sink(Outbox())
        return sorted(rows_of(graph))

    assert sampled(0.25, 1) == sampled(0.25, 1) != sampled(0.25, 2)
    assert 400 < len(sampled(0.25, 1)) < 600
    assert set(sampled(0.25, 1)) < set(sampled(0.5, 1))
    assert sampled(0, 1) == []
    assert len(sampled(1, 1)) == 2000
    # The choice is part of what a job writes: it must not change between versions.
    assert sampled(0.005, 7) == SAMPLE


SAMPLE = [181, 522, 794, 951, 1003, 1078, 1374, 1449, 1735, 1940, 1991]


def test_peek_passes_records_on_and_its_errors_fail_the_step() -> None:
    graph = JobGraph("job")
    graph.source(ColumnsGiven([{"n": 1}])).peek(lambda row: row["n"] / 0).sink(Outbox())
    with pytest.raises(StepFailed) as failed:
        run(graph)
    assert failed.value.at.step == "peek"
    assert failed.value.at.record == "{'n': 1}"


@settings(max_examples=20, deadline=None)
@given(st.lists(st.integers(1, 60), max_size=15), st.integers(1, 12))
def test_iterate_repeats_a_function_until_it_returns_none_or_was_called_often_enough(
    records: list[int], times_max: int
) -> None:
    graph = JobGraph("job")
    collatz = graph.source(Given(records), parallelism=1).iterate(_collatz, times_max=times_max)
    collatz.sink(Outbox())
    twin = []
    for record in records:
        for _ in range(times_max):
            if record > 1:
                record = record // 2 if record % 2 == 0 else 3 * record + 1
        twin.append(record)
    assert rows_of(graph, 1) == twin


def _collatz(n: int) -> int | None:
    if n == 1:
        return None
    return n // 2 if n % 2 == 0 else 3 * n + 1


def test_a_cycle_is_refused_with_what_to_use_instead() -> None:
    stream = JobGraph("job").source(Given([1]))
    with pytest.raises(AttributeError, match=r"cannot feed a step before it\. Use iterate"):
        stream.feedback(stream)  # type: ignore[attr-defined]


def test_wrong_arguments_get_one_sentence() -> None:
    stream = JobGraph("job").source(Given([1]))
    for fraction in (2, -0.1, True, "half"):
        with pytest.raises(InvalidJob, match="number from 0 to 1"):
            stream.sample(fraction)  # type: ignore[arg-type]
    with pytest.raises(InvalidJob, match="times_max=0"):
        stream.iterate(lambda n: n, times_max=0)
    for predicates in ((), (1,)):
        with pytest.raises(InvalidJob, match="one function of the record for each branch"):
            stream.branch(*predicates)
