"""Partial aggregates in front of an exchange change no result: same records, same results in the same order."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import numpy
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clonos.agg import count, first, max_, mean, min_, sum_
from clonos.api.event_time import Timestamps
from clonos.api.graph import JobGraph
from clonos.api.windows import Session, Sliding, Tumbling
from clonos.core.model.options import Options
from clonos.core.model.watermark import ACTIVE, IDLE
from clonos.core.ports.operator_chain import ChainContext
from clonos.operators.aggregates.aggregate import Named
from clonos.operators.chain import Input, Node, VertexImage
from clonos.operators.columnar.partial_aggregates import PartialAggregates
from clonos.operators.event_time.timestamps import TimestampColumn
from clonos.operators.operator import Operator
from clonos.operators.state.keyed_state import StateImage
from clonos.operators.windows.grid import UtcGrid
from tests.unit.columns.test_column_windows import KINDS, LATE, SCHEMA, START, ColumnsOf, records
from tests.unit.operators.driver import Clock, Given, Outbox, Run, run
from tests.unit.operators.joins.given_sides import ACTIONS, steady_and_troubled


@contextmanager
def partial_always(keys_max: int = 2) -> Iterator[list[int]]:
    """Makes partial aggregates of each batch; yields how many were made of each."""
    made: list[int] = []
    partials = PartialAggregates.partials

    def counting(self: Any, *arguments: Any) -> Any:
        found: Any = partials(self, *arguments)
        made.append(found.num_rows)
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PartialAggregates, "rows_min", 1)
        patch.setattr(PartialAggregates, "gain_min", 1)
        patch.setattr(PartialAggregates, "keys_max", keys_max)
        patch.setattr(PartialAggregates, "partials", counting)
        yield made


def aggregates() -> dict[str, Any]:
    """One of each kind that can be partial."""
    return {
        "n": count(),
        "total": sum_("x"),
        "mean": mean("x"),
        "least": min_("x"),
        "most": max_("y"),
    }


def windowed(
    graph: JobGraph, source: Any, kind: Any, *, is_event_time: bool = True, lateness: str | None = None
) -> None:
    """Adds the job: aggregates of each window, and the late records."""
    timestamps: Any = Timestamps("at", out_of_order="4s", watermark_every="1s", future_max=None)
    stream = graph.source(source, timestamps=timestamps if is_event_time else None)
    windows = stream.key_by("key").window(kind, late=LATE if is_event_time else None, lateness=lateness)
    results = windows.aggregate(**aggregates(), name="totals")
    results.sink(Outbox(), name="out")
    if is_event_time:
        results.side_output(LATE).sink(Outbox(), name="late")


def of(
    source: Any, kind: Any, parallelism: int = 1, records_max: int = 9, lateness: str | None = None
) -> dict[str, list[Any]]:
    graph = JobGraph("job")
    windowed(graph, source, kind, lateness=lateness)
    return run(graph, parallelism, records_max).written


@settings(max_examples=40, deadline=None)
@given(records, st.sampled_from(KINDS), st.integers(1, 2), st.integers(1, 9))
def test_windows_of_partial_aggregates_give_what_windows_over_rows_do(
    rows: list[dict[str, Any]], kind: Any, parallelism: int, records_max: int
) -> None:
    with partial_always():
        assert of(ColumnsOf(rows), kind, parallelism, records_max) == of(Given(rows), kind, parallelism, records_max)


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(records, st.sampled_from(KINDS), st.integers(1, 2), st.integers(1, 9))
def test_windows_with_lateness_after_partial_aggregates_give_what_windows_over_rows_do(
    rows: list[dict[str, Any]], kind: Any, parallelism: int, records_max: int
) -> None:
    with partial_always():
        found = of(ColumnsOf(rows), kind, parallelism, records_max, "6s")
    assert found == of(Given(rows), kind, parallelism, records_max, "6s")


@settings(max_examples=20, deadline=None)
@given(records, st.sampled_from(KINDS), ACTIONS, st.integers(1, 2), st.integers(1, 5), st.booleans())
def test_windows_of_partial_aggregates_restored_at_any_barrier_give_the_same(
    rows: list[dict[str, Any]], kind: Any, actions: list[str], parallelism: int, records_max: int, is_event_time: bool
) -> None:
    def build(graph: JobGraph) -> None:
        windowed(graph, ColumnsOf(rows), kind, is_event_time=is_event_time)

    with partial_always():
        steady, troubled = steady_and_troubled(build, actions, parallelism, records_max)
    assert troubled == steady


def test_late_records_reach_the_side_output_as_they_came_and_all_others_leave_as_partial_aggregates() -> None:
    ats = [0, 1, 0, 9, 20, 20, 21, 1, 22, 2, 23, 23]
    rows = [{"key": "ab"[at % 2], "at": START + at, "x": at, "y": 0.5} for at in ats]
    with partial_always() as made:
        written = of(ColumnsOf(rows), Tumbling("5s"), records_max=3)
    assert written == of(Given(rows), Tumbling("5s"), records_max=3)
    assert [row["at"] - START for row in written["late"]] == [1, 2]
    assert made == [2, 2, 1]  # not of the first three records: no watermark is known yet


def test_windows_by_the_clock_take_partial_aggregates() -> None:
    rows = [{"key": key, "at": START, "x": 1, "y": 0.5} for key in "aabbabcc"]
    graph = JobGraph("job")
    windowed(graph, ColumnsOf(rows), Tumbling("5s"), is_event_time=False)
    with partial_always() as made:
        running = Run(graph.compile(Options(), parallelism=1))
        while running.read(3):
            running.drain()
            running.pass_time(3)
        running.finish()
    (written,) = running.written.values()
    assert [(row.key, row.value["n"]) for row in written] == [("a", 3), ("b", 3), ("c", 2)]
    assert made == [2, 2, 1]


def forms_of_batches(rows: list[dict[str, Any]], records_max: int) -> list[int]:
    """Rows of each batch that the windows get."""
    graph = JobGraph("job")
    windowed(graph, ColumnsOf(rows), Tumbling("100s"), is_event_time=False)
    seen: list[int] = []
    running = Run(graph.compile(Options(), parallelism=1))
    task = running.plan.first_task[1]
    chain: Any = running.chains[task]
    process = chain.process_columns

    def seeing(port: int, batch: Any) -> None:
        seen.append(batch.num_rows)
        process(port, batch)

    chain.process_columns = seeing
    running.finish(records_max)
    return seen


def test_a_batch_that_hardly_becomes_smaller_passes_and_decides_for_no_other_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(PartialAggregates, "rows_min", 3)
    rows = [{"key": key, "at": START, "x": 1, "y": 0.5} for key in "abc" + "aaa" + "cba" + "aaa"]
    assert forms_of_batches(rows, 3) == [3, 1, 3, 1]


def partial_steps(build: Any) -> int:
    graph = JobGraph("job")
    build(graph)
    image = graph.compile(Options(), parallelism=1)
    nodes = [node for vertex in image.vertices for node in vertex.nodes]
    return sum(getattr(node.make, "func", None) is PartialAggregates for node in nodes)


def test_only_windows_whose_aggregates_ignore_order_get_partial_aggregates() -> None:
    def job(kind: Any, source: Any = None, key: Any = "key", **named: Any) -> int:
        def build(graph: JobGraph) -> None:
            stream = graph.source(source or ColumnsOf([]), timestamps=Timestamps("at", future_max=None))
            stream.key_by(key).window(kind).aggregate(**named).sink(Outbox())

        return partial_steps(build)

    assert job(Tumbling("5s"), **aggregates()) == 1
    assert job(Sliding("6s", every="2s"), n=count()) == 1
    assert job(Tumbling("5s"), n=count(), first=first("x")) == 0
    assert job(Session("5s"), n=count()) == 0
    assert job(Tumbling("5s"), key=lambda row: row["key"], n=count()) == 0
    assert job(Tumbling("5s"), source=Given([]), n=count()) == 0


def test_another_step_after_the_same_key_gets_the_records() -> None:
    rows = [{"key": key, "at": START + at, "x": 1, "y": 0.5} for at, key in enumerate("aabbaa")]

    def build(graph: JobGraph) -> None:
        keyed = graph.source(ColumnsOf(rows), timestamps=Timestamps("at", future_max=None)).key_by("key")
        keyed.window(Tumbling("100s")).count(name="counted").sink(Outbox(), name="counts")
        keyed.count(name="running").sink(Outbox(), name="running_counts")

    graph = JobGraph("job")
    build(graph)
    assert partial_steps(build) == 1
    with partial_always():
        running, counts = sorted(run(graph, 1, 3).written.values(), key=len, reverse=True)
    assert [(row.key, row.value) for row in counts] == [("a", 4), ("b", 2)]
    assert running == [("a", 1), ("a", 2), ("b", 1), ("b", 2), ("a", 3), ("a", 4)]


@pytest.mark.parametrize("type_", [pa.dictionary(pa.int32(), pa.string()), pa.large_string(), pa.string()])
def test_keys_of_any_text_are_partial(type_: Any) -> None:
    rows = [{"key": key, "at": START + at, "x": 1, "y": 0.5} for at, key in enumerate("aabbaa")]
    with partial_always() as made:
        written = of(ColumnsOf(rows, SCHEMA.set(0, pa.field("key", type_))), Tumbling("5s"))
    assert written == of(Given(rows), Tumbling("5s"))
    assert made


def test_keys_that_are_views_of_texts_are_partial() -> None:
    rows = [{"key": key, "at": START + at, "x": 1, "y": 0.5} for at, key in enumerate("abac")]
    with partial_always() as made:
        written = of(ColumnsOf(rows, SCHEMA.set(0, pa.field("key", pa.string_view()))), Tumbling("5s"))
    assert written == of(Given(rows), Tumbling("5s"))
    assert made


@pytest.mark.parametrize("key", [0, -3, 1 << 39, 1 << 40, (1 << 63) - 2, -(1 << 63)])
def test_whole_numbers_of_any_size_are_partial(key: int) -> None:
    keys = [key, key + 1, key, key, key + 1, key]
    rows = [{"key": each, "at": START + 3 * at, "x": 1, "y": 0.5} for at, each in enumerate(keys)]
    with partial_always() as made:
        written = of(ColumnsOf(rows, SCHEMA.set(0, pa.field("key", pa.int64()))), Tumbling("5s"))
    assert written == of(Given(rows), Tumbling("5s"))
    assert made


def test_a_batch_of_very_many_panes_passes_as_it_is() -> None:
    ats = [0, 0, 1, 1, 30_000_000, 30_000_000]
    rows = [{"key": "a", "at": START + at, "x": 1, "y": 0.5} for at in ats]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PartialAggregates, "rows_min", 1)
        written = of(ColumnsOf(rows), Tumbling("1s"))
    assert written == of(Given(rows), Tumbling("1s"))


def test_a_record_of_1970_in_a_batch_of_today_costs_few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    start_of = UtcGrid.start_of

    def counting(self: UtcGrid, index: int) -> int:
        asked.append(index)
        assert len(asked) < 1_000, "panes are looked at one by one"
        return start_of(self, index)

    monkeypatch.setattr(UtcGrid, "start_of", counting)
    rows = [
        {"key": "a", "at": at, "x": 1, "y": 0.5} for at in [START + 9] * 4 + [0, START + 10, START + 10, START + 10]
    ]
    with partial_always() as made:
        written = of(ColumnsOf(rows), Tumbling("1s"), records_max=4)
    assert made
    assert [row["at"] for row in written["late"]] == [0]
    assert written == of(Given(rows), Tumbling("1s"), records_max=4)


class Passing(Operator):
    """Follower that keeps the batches of columns."""

    takes_columns = True

    def __init__(self, taken: list[Any]) -> None:
        self.taken = taken

    def columns(self, batch: Any) -> None:
        self.taken.append(batch)

    def on_watermark(self, watermark: Any) -> None:
        pass


@pytest.mark.parametrize("is_restored", [False, True])
def test_a_task_that_has_been_idle_sends_records_since_its_windows_may_have_ended(is_restored: bool) -> None:
    graph = JobGraph("job")
    windowed(graph, ColumnsOf([]), Tumbling("5s"))
    (form,) = (step.form for step in graph.steps if step.form is not None)
    make = form.before_exchange("windows")
    assert make is not None
    taken: list[Any] = []
    nodes = (
        Node("partial", make, (1,), timestamp_column=TimestampColumn("at")),
        Node("out", lambda: Passing(taken)),
    )
    image = VertexImage("source", nodes, (Input(0),))
    chain = image.new_chain()
    context = ChainContext("source/0", 0, 0, 1, 128, "job", 0, 1, Clock(), cast(Any, None), "")
    chain.open(context, None, None)
    batch = pa.RecordBatch.from_pylist([{"key": "a", "at": START + 9, "x": 1, "y": 0.5}] * 4, SCHEMA)
    with partial_always():
        chain.advance_watermark(int(START * 1e9))
        chain.process_columns(0, batch)
        chain.advance_watermark(IDLE)
        chain.advance_watermark(ACTIVE)
        if is_restored:
            state = StateImage()
            state.apply(chain.snapshot(1, True).changes)
            chain = image.new_chain()
            chain.open(context, state, None)
        chain.process_columns(0, batch)
    assert [each.num_rows for each in taken] == [1, 4]


@settings(max_examples=60)
@given(
    rows=st.lists(st.tuples(st.integers(-3, 40), st.integers(0, 6), st.integers(-9, 9)), min_size=1, max_size=120),
    has_panes=st.booleans(),
)
def test_keys_as_places_and_keys_of_an_index_give_the_same_partial_aggregates(
    rows: list[tuple[int, int, int]], has_panes: bool
) -> None:
    keys, panes, numbers = (numpy.array(column, numpy.int64) for column in zip(*rows, strict=True))
    batch = pa.record_batch({"k": keys, "x": numbers})
    found = []
    for dense_max in (0, 1000):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(PartialAggregates, "places_max", dense_max)
            patch.setattr(PartialAggregates, "gain_min", 0)
            aggregation = Named({"n": count(), "total": sum_("x"), "least": min_("x")})
            step = PartialAggregates("step", cast(Any, None), aggregation, ("k",), ("x",), has_panes)
            partials: Any = step.partials(step.kind_of(batch.schema), batch, panes if has_panes else None)
            found.append(partials.to_pylist())
    assert found[0] == found[1]
    distinct = dict.fromkeys(zip(panes.tolist() if has_panes else [0] * len(keys), keys.tolist(), strict=True))
    assert [row["k"] for row in found[0]] == [key for _, key in sorted(distinct, key=lambda each: each[0])]
    assert sum(row["clonos.state.n.n"] for row in found[0]) == len(rows)
