"""Sinks with flush=: groups of rows, keyed and columnar input, restores, and refusals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clonos.api.emission import Emission, at_end, each, every
from clonos.api.graph import JobGraph
from clonos.api.graph_errors import InvalidJob
from clonos.connectors import blackhole, files
from clonos.core.model.options import Options
from tests.unit.operators.driver import Given, Outbox, Run, run
from tests.unit.operators.restoring import actions, check_restores
from tests.unit.operators.samples import ColumnsGiven, Files


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 30), st.integers(1, 7), st.integers(1, 9))
def test_each_n_passes_groups_of_n_rows_and_the_rest_at_the_end(size: int, count: int, records_max: int) -> None:
    graph = JobGraph("job")
    graph.source(Given(range(size)), parallelism=1).sink(Outbox(), flush=each(count))
    going = Run(graph.compile(Options(), parallelism=1))
    is_open = True
    while is_open:
        is_open = going.read(records_max)
        rows = [row for rows in going.written.values() for row in rows]
        assert len(rows) % count == 0
        assert rows == list(range(len(rows)))
    going.finish()
    assert [row for rows in going.written.values() for row in rows] == list(range(size))
    going.close()


@settings(max_examples=30, deadline=None)
@given(
    st.sampled_from([each(1), each(4), every("2s"), at_end()]),
    st.lists(st.tuples(st.integers(0, 2), st.integers(-5, 5)), max_size=30),
    actions,
    st.integers(1, 3),
    st.integers(1, 5),
)
def test_a_sink_restored_at_any_barrier_gets_the_same_rows(
    flush: Emission, records: list[Any], actions: list[str], parallelism: int, records_max: int
) -> None:
    def build(graph: JobGraph, records: list[Any]) -> None:
        source = graph.source(Given(records))
        source.sink(Outbox(), flush=flush)
        source.key_by(lambda record: record[0]).sink(Outbox(), flush=flush)
        source.key_by(lambda record: record).sink(Outbox(), flush=flush, parallelism=2)

    check_restores(build, records, actions, parallelism, records_max)


def test_a_row_that_waits_stays_as_it_was_when_the_step_before_changes_it() -> None:
    seen: list[int] = []

    def gather(number: int) -> list[int]:  # clonos: ok what a sink with flush makes of it
        seen.append(number)
        return seen

    graph = JobGraph("job")
    graph.source(Given([1, 2]), parallelism=1).map(gather).sink(Outbox(), flush=at_end())
    assert [row for rows in run(graph, 1, 1).written.values() for row in rows] == [[1], [1, 2]]


def test_rows_of_columns_wait_too() -> None:
    graph = JobGraph("job")
    graph.source(ColumnsGiven([{"n": n} for n in range(5)]), parallelism=1).sink(Files(), flush=each(2))
    going = Run(graph.compile(Options(), parallelism=1))
    going.read(3)
    going.barrier(1)
    assert going.prepared == {0: [b"{'n': 0}\n{'n': 1}"]}
    going.close()


def test_the_tasks_of_a_sink_with_flush_are_those_that_it_would_have() -> None:
    graph = JobGraph("job")
    source = graph.source(Given([1]), parallelism=2)
    source.sink(Outbox(), flush=each(2), name="same")
    source.sink(Outbox(), flush=each(2), name="other", parallelism=1)
    plan = graph.compile(Options(), parallelism=3).plan
    assert [vertex.parallelism for vertex in plan.vertices] == [2, 1]


def test_a_table_with_a_key_may_have_flush() -> None:
    from clonos.connectors import sqlite

    graph = JobGraph("job")
    table = sqlite("unused.db", "latest", columns=["word", "n"], upsert="word")
    graph.source(Given([{"word": "to", "n": 1}])).key_by("word").sink(table, flush=each(10))
    graph.compile(Options(), parallelism=2)


REFUSALS: dict[str, tuple[Callable[[], Any], Any]] = {
    "has flush=5. Give each(n)": (Outbox, 5),
    "has flush=each(2), and it shows its rows nowhere": (blackhole, each(2)),
    "single=True shows its rows once, when the job has ended": (lambda: files.jsonl("x", single=True), every("10s")),
    "its rows become visible with checkpoints only, every 5s. Lower checkpoint_every to 1s": (Files, every("1s")),
}


@pytest.mark.parametrize("sentence", REFUSALS)
def test_a_flush_without_a_meaning_is_refused(sentence: str) -> None:
    sink, flush = REFUSALS[sentence]

    def described() -> None:
        graph = JobGraph("job")
        graph.source(Given([1])).sink(sink(), flush=flush)
        graph.compile(Options(), parallelism=1)

    with pytest.raises(InvalidJob) as refused:
        described()
    assert sentence in str(refused.value)


def test_rows_that_leave_at_once_need_no_checkpoint_to_be_flushed() -> None:
    graph = JobGraph("job")
    graph.source(Given([1])).sink(Outbox(), flush=every("1s"))
    graph.source(Given([1])).sink(Files(), flush=every("5s"))
    graph.compile(Options(), parallelism=1)
