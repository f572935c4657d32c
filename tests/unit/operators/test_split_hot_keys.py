"""``split_hot_keys=True``: parts of the records of a key are aggregated before its exchange, and merged after it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clonos.agg import aggregate, collect, count, count_distinct, distinct, first, last, max_, mean, min_, sum_
from clonos.api.emission import at_end, changes, each, every
from clonos.api.event_time import Timestamps
from clonos.api.graph import JobGraph
from clonos.api.graph_errors import InvalidJob
from clonos.api.windows import CountTumbling, Session, Sliding, Tumbling
from clonos.core.model.options import Options
from clonos.core.values.value_limits import KEY_BYTES_MAX
from clonos.operators.aggregates.partial import PartialAggregate
from clonos.operators.kinds.partial_rows import PartialRows
from clonos.operators.user_errors import RoutedError
from clonos.operators.windows.partial_step import PartialStep
from tests.unit.columns.test_column_windows import KINDS, LATE, START, ColumnsOf, records
from tests.unit.operators.driver import Given, Outbox, Run, run
from tests.unit.operators.joins.given_sides import ACTIONS, steady_and_troubled

Record = dict[str, Any]
GIVES = {"rows": Given, "columns": ColumnsOf}


@contextmanager
def parts_always() -> Iterator[list[int]]:
    """Makes parts of each batch; yields how many rows were made parts of."""
    made: list[int] = []
    parts = PartialRows.partials

    def counting(self: Any, rows: list[Any]) -> list[Any]:
        made.append(len(rows))
        return parts(self, rows)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PartialStep, "rows_min", 1)
        patch.setattr(PartialStep, "gain_min", 0)
        patch.setattr(PartialRows, "partials", counting)
        yield made


def added(so_far: int, value: Record) -> int:
    return so_far + (value["x"] or 0)


def both(so_far: int, other: int) -> int:
    return so_far + other


def aggregates() -> dict[str, Any]:
    """One of each form of accumulators."""
    return {
        "n": count(),
        "total": sum_("x"),
        "mean": mean("y"),
        "least": min_("x"),
        "most": max_("y"),
        "texts": count_distinct("x"),
        "values": distinct("y"),
        "first": first("x"),
        "last": last("x"),
        "own": aggregate(int, added, merge=both),
    }


def plain() -> dict[str, Any]:
    """Those that are partial over columns, too."""
    return {"n": count(), "total": sum_("x"), "mean": mean("x"), "least": min_("x"), "most": max_("y")}


def stream_of(graph: JobGraph, source: Any) -> Any:
    timestamps: Any = Timestamps("at", out_of_order="4s", watermark_every="1s", future_max=None)
    return graph.source(source, timestamps=timestamps)


def windows(source: Any, kind: Any, is_split: bool, lateness: str | None = None) -> Callable[[JobGraph], None]:
    def build(graph: JobGraph) -> None:
        windowed = stream_of(graph, source).key_by("key").window(kind, late=LATE, lateness=lateness)
        results = windowed.aggregate(**aggregates(), name="totals", split_hot_keys=is_split)
        results.sink(Outbox(), name="out")
        results.side_output(LATE).sink(Outbox(), name="late")

    return build


def totals(source: Any, emit: Any, is_split: bool, named: dict[str, Any]) -> Callable[[JobGraph], None]:
    def build(graph: JobGraph) -> None:
        keyed = stream_of(graph, source).key_by("key")
        keyed.aggregate(**named, emit=emit, name="totals", split_hot_keys=is_split).sink(Outbox(), name="out")

    return build


def of(build: Callable[[JobGraph], None], parallelism: int = 1, records_max: int = 9) -> dict[str, list[Any]]:
    graph = JobGraph("job")
    build(graph)
    return run(graph, parallelism, records_max).written


def in_any_order(written: dict[str, list[Any]]) -> dict[str, list[str]]:
    fields = [
        (sink, [sorted(row.items()) if isinstance(row, dict) else row for row in rows])
        for sink, rows in written.items()
    ]
    return {sink: sorted(map(repr, rows)) for sink, rows in fields}


@settings(max_examples=20, deadline=None)
@given(records, st.sampled_from(KINDS), st.integers(1, 2), st.integers(1, 9), st.sampled_from((None, "6s")))
def test_windows_of_parts_give_what_those_of_records_do(
    rows: list[Record], kind: Any, parallelism: int, records_max: int, lateness: str | None
) -> None:
    whole = of(windows(Given(rows), kind, False, lateness), parallelism, records_max)
    for gives in GIVES.values():
        with parts_always():
            found = of(windows(gives(rows), kind, True, lateness), parallelism, records_max)
        assert in_any_order(found) == in_any_order(whole)


@settings(max_examples=15, deadline=None)
@given(records, st.sampled_from(KINDS), ACTIONS, st.integers(1, 2), st.integers(1, 5))
def test_windows_of_parts_restored_at_any_barrier_give_the_same(
    rows: list[Record], kind: Any, actions: list[str], parallelism: int, records_max: int
) -> None:
    with parts_always():
        steady, troubled = steady_and_troubled(windows(Given(rows), kind, True), actions, parallelism, records_max)
    assert troubled == steady


@settings(max_examples=15, deadline=None)
@given(records, st.integers(1, 2), st.integers(1, 9), st.sampled_from(sorted(GIVES)), st.booleans())
def test_totals_of_parts_end_as_those_of_records_do(
    rows: list[Record], parallelism: int, records_max: int, gives: str, is_plain: bool
) -> None:
    named = plain() if is_plain else aggregates()
    for emit in (at_end(), changes(), changes(before=True), every("5s")):
        whole = of(totals(Given(rows), emit, False, named), parallelism, records_max)
        with parts_always():
            found = of(totals(GIVES[gives](rows), emit, True, named), parallelism, records_max)
        assert last_of_each(found) == last_of_each(whole)


def last_of_each(written: dict[str, list[Any]]) -> dict[Any, Any]:
    """The last results of each key, without those that they replace."""
    rows = [row for rows in written.values() for row in rows]
    return {key: {name: value for name, value in results.items() if "_before" not in name} for key, results in rows}


@settings(max_examples=20, deadline=None)
@given(records, ACTIONS, st.integers(1, 5), st.sampled_from(sorted(GIVES)), st.sampled_from([changes(), every("2s")]))
def test_totals_of_parts_restored_at_any_barrier_give_the_same(
    rows: list[Record], actions: list[str], records_max: int, gives: str, emit: Any
) -> None:
    with parts_always():
        build = totals(GIVES[gives](rows), emit, True, plain())
        steady, troubled = steady_and_troubled(build, actions, 2, records_max)
    assert troubled == steady


def values_sent(build: Callable[[JobGraph], None], records_max: int) -> list[list[Any]]:
    """What the step gets of each batch: records, or parts of them."""
    graph = JobGraph("job")
    build(graph)
    seen: list[list[Any]] = []
    running = Run(graph.compile(Options(), parallelism=1))
    chain: Any = running.chains[running.plan.first_task[1]]
    process = chain.process_rows

    def seeing(port: int, rows: list[Any], *rest: Any) -> None:
        seen.append([value for _, value in rows])
        process(port, rows, *rest)

    chain.process_rows = seeing
    running.finish(records_max)
    return seen


def keyed(keys: str) -> list[Record]:
    return [{"key": key, "at": START, "x": 1, "y": 0.5} for key in keys]


def test_a_hot_key_reaches_its_task_as_one_part_of_each_batch() -> None:
    build = totals(Given(keyed("aaaaaaab" * 40)), changes(), True, {"n": count()})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tests.unit.operators.driver.GivenReader.read", read_whole)
        sent = values_sent(build, 64)
    assert sent == [[PartialAggregate([56]), PartialAggregate([8])]] * 5


def read_whole(self: Any, records_max: int) -> list[Any] | None:
    chunk = self.share[self.place : self.place + records_max]
    self.place += len(chunk)
    return chunk or None


def test_batches_that_hardly_become_smaller_and_small_ones_pass_as_records() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PartialStep, "rows_min", 3)
        sent = values_sent(totals(Given(keyed("aaaabcaaa")), changes(), True, {"n": count()}), 3)
    assert [[type(value) for value in batch] for batch in sent] == [[PartialAggregate], [dict] * 3, [PartialAggregate]]


def test_late_records_reach_the_side_output_as_they_came() -> None:
    ats = [0, 1, 0, 9, 20, 20, 21, 1, 22, 2, 23, 23]
    rows = [{"key": "ab"[at % 2], "at": START + at, "x": at, "y": 0.5} for at in ats]
    with parts_always() as made:
        written = of(windows(Given(rows), Tumbling("5s"), True), records_max=3)
    assert written == of(windows(Given(rows), Tumbling("5s"), False), records_max=3)
    assert [row["at"] - START for row in written["late"]] == [1, 2]
    assert sum(made) == len(rows) - 3 - 2  # the first three came before there was a watermark


def test_a_count_gives_the_count_of_each_key_once_per_batch_of_parts() -> None:
    for gives in GIVES.values():
        graph = JobGraph("job")
        graph.source(gives(keyed("aabbab"))).key_by("key").count(split_hot_keys=True).sink(Outbox(), name="out")
        with parts_always():
            (written,) = run(graph, 1, 3).written.values()
        assert written == [("a", 2), ("b", 1), ("b", 3), ("a", 3)]


@pytest.mark.parametrize("emit", [changes(), at_end()])
def test_a_record_that_raises_reaches_the_error_output_once_with_the_step(emit: Any) -> None:
    def of_record(record: Record) -> int:
        return int(1 // record["x"])

    rows = [{"key": "a", "at": START, "x": x, "y": None} for x in (1, 0, 1, 1)]
    graph = JobGraph("job")
    keyed_rows = graph.source(Given(rows)).key_by("key")
    keyed_rows.aggregate(n=sum_(of_record), emit=emit, name="totals", split_hot_keys=True).sink(Outbox(), name="out")
    graph.errors = Outbox()
    with parts_always() as made:
        finished = run(graph, 1, 9)
    errors = [row for rows in finished.written.values() for row in rows if isinstance(row, RoutedError)]
    assert [(error.step, error.record) for error in errors] == [("totals", rows[1])]
    results = [row for rows in finished.written.values() for row in rows if not isinstance(row, RoutedError)]
    assert results[-1] == ("a", {"n": 3})
    assert made


def test_a_key_that_cannot_be_one_reaches_the_error_output_as_its_record() -> None:
    rows: list[Record] = [
        {"key": key, "at": START, "x": 1, "y": None} for key in ("a", 0.5, "k" * (KEY_BYTES_MAX + 1), "a")
    ]
    graph = JobGraph("job")
    stream = graph.source(Given(rows)).key_by("key")
    stream.aggregate(n=count(), emit=at_end(), split_hot_keys=True).sink(Outbox(), name="out")
    graph.errors = Outbox()
    with parts_always():
        written = [row for rows in run(graph, 1, 9).written.values() for row in rows]
    assert [error.record["key"] for error in written if isinstance(error, RoutedError)] == [
        0.5,
        "k" * (KEY_BYTES_MAX + 1),
    ]
    assert ("a", {"n": 2}) in written


REFUSED: dict[str, tuple[Callable[[Any], Any], str]] = {
    "result of each record": (lambda keyed: keyed.aggregate(n=count(), split_hot_keys=True), r"emit=each\(1\)"),
    "results of some": (lambda keyed: keyed.aggregate(n=count(), emit=each(3), split_hot_keys=True), r"emit=each\(3\)"),
    "no merge": (
        lambda keyed: keyed.aggregate(n=aggregate(int, added), emit=changes(), split_hot_keys=True),
        "without merge= cannot be joined",
    ),
    "lists": (
        lambda keyed: keyed.aggregate(n=collect(), emit=changes(), split_hot_keys=True),
        r"collect\(\) keeps all records",
    ),
    "effects": (
        lambda keyed: keyed.aggregate(n=count(), emit=changes(), effects=True, split_hot_keys=True),
        "effects=True",
    ),
    "no bool": (lambda keyed: keyed.count(split_hot_keys=1), "split_hot_keys=1"),
    "sessions": (lambda keyed: keyed.window(Session("5s")).count(split_hot_keys=True), "in the task of their key"),
    "counted windows": (
        lambda keyed: keyed.window(CountTumbling(3)).count(split_hot_keys=True),
        "in the task of their key",
    ),
    "triggers": (
        lambda keyed: keyed.window(Tumbling("5s"), trigger=each(3)).count(split_hot_keys=True),
        "looks at each record",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_step_that_cannot_be_split_is_refused_with_the_reason(name: str) -> None:
    add, reason = REFUSED[name]
    graph = JobGraph("job")
    with pytest.raises(InvalidJob, match=reason):
        add(stream_of(graph, Given([])).key_by("key"))


def test_windows_without_a_key_are_not_split() -> None:
    graph = JobGraph("job")
    with pytest.raises(InvalidJob, match="have no key"):
        stream_of(graph, Given([])).window(Tumbling("5s")).count(split_hot_keys=True)


def test_columns_are_split_as_columns_where_they_can_be_and_as_rows_elsewhere() -> None:
    def kinds(step: Callable[[Any], Any]) -> set[str]:
        graph = JobGraph("job")
        step(stream_of(graph, ColumnsOf([])).key_by("key")).sink(Outbox())
        nodes = [node for vertex in graph.compile(Options(), parallelism=1).vertices for node in vertex.nodes]
        made = (getattr(node.make, "func", None) for node in nodes)
        return {each.__name__ for each in made if isinstance(each, type) and issubclass(each, PartialStep)}

    assert kinds(lambda keyed: keyed.count(split_hot_keys=True)) == {"PartialAggregates"}
    assert kinds(lambda keyed: keyed.aggregate(n=sum_("x"), emit=at_end(), split_hot_keys=True)) == {
        "PartialAggregates"
    }
    assert kinds(lambda keyed: keyed.aggregate(n=sum_("y"), emit=at_end(), split_hot_keys=True)) == {"PartialRows"}
    assert kinds(lambda keyed: keyed.aggregate(n=sum_("x"), emit=at_end())) == set()
    assert kinds(lambda keyed: keyed.window(Tumbling("5s")).count(split_hot_keys=True)) == {"PartialAggregates"}
    assert kinds(lambda keyed: keyed.window(Sliding("6s", every="2s"), lateness="1s").count(split_hot_keys=True)) == {
        "PartialRows"
    }
    assert kinds(lambda keyed: keyed.window(Tumbling("5s")).aggregate(n=count_distinct("x"), split_hot_keys=True)) == {
        "PartialRows"
    }
