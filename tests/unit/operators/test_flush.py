"""Records that wait: of sinks with flush=, in groups of rows, keyed and columnar, and of functions of batches."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import pyarrow
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clonos import Tag, Timestamps, Tumbling
from clonos.api.emission import at_end, each, every
from clonos.api.graph import JobGraph
from clonos.api.graph_errors import InvalidJob
from clonos.connectors import blackhole, files
from clonos.core.model.options import Options
from clonos.operators.emission_times import Emission
from clonos.operators.operator import Operator, Scope
from clonos.operators.state.declared_state import StepState
from clonos.operators.state.keyed_state import StateBackend, StateImage
from clonos.operators.state.state_spec import StateScope
from clonos.operators.transforms.flush import Flush
from tests.unit.operators.dividing.test_rescaled_steps import modules
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
        columns = graph.source(ColumnsGiven([{"key": key, "n": n} for key, n in records]))
        columns.sink(Outbox(), flush=flush, name="columns")
        columns.key_by("key").sink(Outbox(), flush=flush, name="keyed_columns")
        columns.union(graph.source(Given(records))).sink(Outbox(), flush=flush, name="both", parallelism=1)

    check_restores(build, records, actions, parallelism, records_max)


def test_a_row_that_waits_stays_as_it_was_when_the_step_before_changes_it() -> None:
    seen: list[int] = []

    def gather(number: int) -> list[int]:  # clonos: ok what a sink with flush makes of it
        seen.append(number)
        return seen

    graph = JobGraph("job")
    graph.source(Given([1, 2]), parallelism=1).map(gather).sink(Outbox(), flush=at_end())
    assert [row for rows in run(graph, 1, 1).written.values() for row in rows] == [[1], [1, 2]]


@pytest.mark.parametrize("is_keyed", [False, True])
def test_columns_wait_as_columns_and_leave_in_groups(is_keyed: bool) -> None:
    graph = JobGraph("job")
    source = graph.source(ColumnsGiven([{"n": n} for n in range(5)]), parallelism=1)
    stream = source.key_by("n") if is_keyed else source
    stream.sink(Files(), flush=each(2), parallelism=1)
    going = Run(graph.compile(Options(), parallelism=1))
    going.read(3)
    going.barrier(1)
    assert going.prepared == {int(is_keyed): [b"columns {'n': 0}\ncolumns {'n': 1}"]}
    going.finish()
    going.barrier(2)
    rows = [line for part in going.prepared[int(is_keyed)] for line in part.decode().splitlines()]
    assert rows == [f"columns {{'n': {n}}}" for n in range(5)]
    going.close()


class Seen(Operator):
    """Notes the batches that it gets."""

    def __init__(self) -> None:
        self.batches: list[Any] = []

    def rows(self, rows: list[Any], times: Any = None) -> None:
        self.batches.append(rows)

    def columns(self, batch: Any) -> None:
        self.batches.append((batch.schema.names, batch.to_pylist()))


def test_rows_and_columns_of_several_schemas_leave_in_their_order_and_alike_ones_together() -> None:
    state = StateBackend(None)
    flush, seen = Flush("out", is_keyed=False, count=None, interval_ns=None), Seen()
    flush.out = seen

    def columns(name: str, *numbers: int) -> Any:
        return pyarrow.RecordBatch.from_pydict({name: list(numbers)})

    flush.open(Scope(SimpleNamespace(recorder=None), StepState(state, "out", flush.state_specs)))  # type: ignore[arg-type]
    flush.rows(["a"])
    flush.columns(columns("n", 1))
    flush.columns(columns("n", 2, 3))
    flush.columns(columns("m", 4))
    flush.rows(["b"])
    flush.rows(["c"])
    flush.prepare(1)
    again = Flush("out", is_keyed=False, count=None, interval_ns=None)
    again.out = seen
    image = StateImage()
    image.apply(state.changes(full=True))
    again.open(Scope(SimpleNamespace(recorder=None), StepState(StateBackend(image), "out", again.state_specs)))  # type: ignore[arg-type]
    again.end_of_time()
    assert seen.batches == [
        ["a"],
        (["n"], [{"n": 1}, {"n": 2}, {"n": 3}]),
        (["m"], [{"m": 4}]),
        ["b", "c"],
    ]
    again.end_of_time()
    assert len(seen.batches) == 4


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


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 30), st.integers(1, 7), st.integers(1, 9))
def test_a_function_of_batches_gets_as_many_rows_as_it_asks_for_and_the_rest_at_the_end(
    size: int, count: int, records_max: int
) -> None:
    graph = JobGraph("job")
    source = graph.source(ColumnsGiven([{"n": n} for n in range(size)]), parallelism=1)
    source.map_batches(as_list, rows=count).sink(Outbox())
    found = [row["all"] for rows in run(graph, 1, records_max).written.values() for row in rows]
    numbers = list(range(size))
    assert found == [numbers[first : first + count] for first in range(0, size, count)]


def as_list(batch: pyarrow.RecordBatch) -> pyarrow.Table:
    return pyarrow.table({"all": [batch.column("n").to_pylist()]})


def test_records_of_a_batch_wait_no_longer_than_within() -> None:
    graph = JobGraph("job")
    source = graph.source(ColumnsGiven([{"n": n} for n in range(5)]), parallelism=1)
    source.map_batches(as_list, rows=3, within="1s").sink(Outbox())
    going = Run(graph.compile(Options(), parallelism=1))
    going.read(2)
    going.drain()
    assert not any(going.written.values())
    going.pass_time(1.1)
    assert [row["all"] for rows in going.written.values() for row in rows] == [[0, 1]]
    going.finish()
    going.close()


def counted(graph: JobGraph, records: list[Any], **batches: Any) -> None:
    """Adds a job whose windows show a watermark that overtakes records: these are late."""
    given = [{"n": n, "key": key, "at": 1_000_000 * (at + place)} for place, (key, n, at) in enumerate(records)]
    timestamps = Timestamps("at", unit="us", out_of_order="3s", future_max=None)
    timed = graph.source(ColumnsGiven(given)).with_timestamps(timestamps)
    counts = timed.map_batches(plain, **batches).key_by("key").window(Tumbling("3s"), late=Tag("late")).count()
    counts.map(lambda result: (result.key, result.start, result.value)).sink(Outbox(), name="counts")
    counts.side_output(Tag("late")).sink(Outbox(), name="late")


def plain(batch: pyarrow.RecordBatch) -> pyarrow.RecordBatch:
    return batch


timed_records = st.lists(st.tuples(st.integers(0, 2), st.integers(-5, 5), st.integers(0, 2)), max_size=30)


@settings(max_examples=30, deadline=None)
@given(timed_records, actions, st.integers(1, 5), st.integers(1, 7), st.sampled_from([None, "2s"]))
def test_records_that_wait_for_a_batch_and_watermarks_that_wait_with_them_are_restored(
    records: list[Any], actions: list[str], records_max: int, rows: int, within: Any
) -> None:
    # With several tasks the driver's own watermarks, which it does not restore, would change the order of results.
    check_restores(partial(counted, rows=rows, within=within), records, actions, 1, records_max)


@settings(max_examples=30, deadline=None)
@given(timed_records, st.integers(1, 5), st.integers(1, 7))
def test_no_watermark_overtakes_the_records_that_wait_for_a_batch(
    records: list[Any], records_max: int, rows: int
) -> None:
    found = []
    for batches in ({}, {"rows": rows}):
        graph = JobGraph("job")
        counted(graph, records, **batches)
        found.append(sorted(repr(row) for rows in run(graph, 1, records_max).written.values() for row in rows))
    assert found[0] == found[1]


@pytest.mark.parametrize("batches", [{"rows": 0}, {"rows": "many"}, {"within": "1s"}, {"rows": 1 << 21}])
def test_a_size_of_batches_without_a_meaning_is_refused(batches: Any) -> None:
    with pytest.raises(InvalidJob, match=r"gets rows=.*Give the records of a batch"):
        JobGraph("job").source(ColumnsGiven([])).map_batches(plain, **batches)


@pytest.mark.parametrize("name", ["rows", "keyed rows", "columns"])
def test_rows_that_wait_leave_when_the_chain_drains_and_no_timer_stays(name: str) -> None:
    graph = JobGraph("job")
    records = [{"n": n} for n in range(7)]
    source = graph.source(ColumnsGiven(records) if name == "columns" else Given(records), parallelism=1)
    flushed = source.key_by("n") if name == "keyed rows" else source
    flushed.sink(Outbox(), flush=every("1h"), parallelism=1)
    going = Run(graph.compile(Options(), parallelism=1))
    while going.read(3):
        going.drain()
    assert not any(going.written.values())
    for chain in going.chains:
        chain.drain()
        assert chain.next_timer_ns() is None
    assert sum(map(len, going.written.values())) == len(records)
    going.close()


def test_each_step_in_which_rows_wait_makes_calls_or_lets_them_go_when_the_chain_drains() -> None:
    found = {}
    for module in modules():
        waits = any(getattr(spec, "scope", None) is StateScope.DRAINED for spec in vars(module).values())
        for name, made in vars(module).items():
            if waits and isinstance(made, type) and issubclass(made, Operator) and made.__module__ == module.__name__:
                found[name] = made.has_calls or made.drain is not Operator.drain
    assert found
    assert all(found.values()), found
