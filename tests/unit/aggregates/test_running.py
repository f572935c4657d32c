"""Named aggregates of streams: after each record, now and then, and at the end of the input."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clonos import agg
from clonos.api.emission import at_end, each, every
from clonos.api.graph import JobGraph
from clonos.api.graph_errors import InvalidJob
from clonos.api.stream import Stream
from clonos.api.windows import Tumbling
from clonos.core.model.options import Options
from clonos.core.values import register
from clonos.core.values.keys import state_key
from clonos.operators.emission_times import Emission
from clonos.operators.user_errors import RoutedError
from tests.unit.operators.driver import Given, Outbox, Run, run


def no_values() -> list[Any]:
    """A new accumulator."""
    return []


@register
class Sale(NamedTuple):
    key: Any
    cents: int
    ratio: float


KEYS = ["a", "b", True, 1, 0, None, ("x", False), ("x", 0), b"a"]

sales = st.lists(
    st.builds(Sale, st.sampled_from(KEYS), st.integers(-9, 9), st.floats(-1e9, 1e9, allow_nan=False)), max_size=40
)

AGGREGATES: dict[str, Any] = {
    "who": agg.distinct("cents"),
    "n": agg.count(),
    "total": agg.sum_("cents"),
    "ratio": agg.mean("ratio"),
    "top": agg.top_k(2, by="cents"),
    "all": agg.collect("cents"),
    "half": agg.quantile("cents", 0.5),
    "own": agg.aggregate(no_values, list.append, list.extend, len),
}


def twin(group: list[Sale]) -> dict[str, Any]:
    cents = [sale.cents for sale in group]
    return {
        "who": list(dict.fromkeys(cents)),
        "n": len(group),
        "total": sum(cents),
        "ratio": math.fsum(sale.ratio for sale in group) / len(group),
        "top": sorted(group, key=lambda sale: sale.cents, reverse=True)[:2],
        "all": cents,
        "half": float(sorted(cents)[(len(cents) - 1) // 2]),
        "own": len(group),
    }


def grouped(records: list[Sale]) -> dict[Any, list[Sale]]:
    found: dict[Any, list[Sale]] = {}
    for sale in records:
        found.setdefault(state_key(sale.key), []).append(sale)
    return found


def close(found: Any, expected: Any) -> bool:
    """Equal, but for the last bit of the mean: the twin rounds twice."""
    if isinstance(expected, dict):
        return list(found) == list(expected) and all(close(found[name], expected[name]) for name in expected)
    if isinstance(expected, float):
        return type(found) is float and math.isclose(found, expected, rel_tol=1e-15, abs_tol=1e-300)
    return repr(found) == repr(expected)


def aggregated(records: list[Sale], emit: Emission, parallelism: int = 1, batch: int = 7) -> list[Any]:
    graph = JobGraph("job")
    keyed = graph.source(Given(records), parallelism=1).key_by(lambda sale: sale.key)
    keyed.aggregate(emit=emit, **AGGREGATES).sink(Outbox())
    return next(iter(run(graph, parallelism, batch).written.values()), [])


@settings(max_examples=40, deadline=None)
@given(sales, st.integers(1, 3), st.integers(1, 9))
def test_running_aggregates_of_a_key_are_those_of_its_records_so_far(
    records: list[Sale], parallelism: int, batch: int
) -> None:
    found: dict[Any, list[Sale]] = {}
    expected: list[tuple[Any, Any]] = []
    for sale in records:
        found.setdefault(state_key(sale.key), []).append(sale)
        expected.append((sale.key, twin(found[state_key(sale.key)])))
    results = aggregated(records, each(1), parallelism, batch)
    assert len(results) == len(expected)
    for key in found:
        mine = [result for each_key, result in results if state_key(each_key) == key]
        theirs = [result for each_key, result in expected if state_key(each_key) == key]
        assert len(mine) == len(theirs)
        assert all(map(close, mine, theirs))


@settings(max_examples=40, deadline=None)
@given(sales, st.integers(1, 3), st.integers(1, 9))
def test_final_aggregates_are_one_row_a_key_in_the_order_of_first_records(
    records: list[Sale], parallelism: int, batch: int
) -> None:
    results = aggregated(records, at_end(), parallelism, batch)
    expected = {key: twin(group) for key, group in grouped(records).items()}
    assert len(results) == len(expected)
    assert all(close(result, expected[state_key(key)]) for key, result in results)
    if parallelism == 1:
        assert [state_key(key) for key, _ in results] == list(expected)


@settings(max_examples=40, deadline=None)
@given(sales, st.integers(2, 4))
def test_every_nth_record_of_a_key_emits_and_the_rest_at_the_end(records: list[Sale], count: int) -> None:
    expected = []
    for key, group in grouped(records).items():
        ends = [*range(count, len(group) + 1, count), *([len(group)] if len(group) % count else [])]
        expected += [(key, twin(group[:end])) for end in ends]
    results = [(state_key(key), result) for key, result in aggregated(records, each(count))]
    for key in grouped(records):
        mine, theirs = ([result for each_key, result in rows if each_key == key] for rows in (results, expected))
        assert len(mine) == len(theirs)
        assert all(map(close, mine, theirs))


def test_every_interval_emits_the_keys_that_have_changed() -> None:
    graph = JobGraph("job")
    records = [("a", 1), ("b", 2), ("a", 3), ("c", 4), ("a", 5), ("c", 6)]
    keyed = graph.source(Given(records)).key_by(lambda record: record[0])
    keyed.aggregate(total=agg.sum_(lambda record: record[1]), emit=every("2s"), name="totals").sink(Outbox())
    job = Run(graph.compile(Options(), parallelism=1))
    job.read(3)
    job.drain()
    assert job.written == {}
    job.pass_time(2)
    assert job.written["totals"] == [("a", {"total": 4}), ("b", {"total": 2})]
    job.pass_time(4)
    job.read(2)
    job.drain()
    job.pass_time(1)
    assert len(job.written["totals"]) == 2
    job.pass_time(1)
    assert job.written["totals"][2:] == [("c", {"total": 4}), ("a", {"total": 9})]
    job.finish()
    assert job.written["totals"][4:] == [("c", {"total": 10})]


def totals(records: list[Any], parallelism: int = 2, emit: Emission | None = None, **aggregates: Any) -> list[Any]:
    graph = JobGraph("job")
    graph.source(Given(records)).aggregate(emit=emit or at_end(), **aggregates).sink(Outbox())
    return next(iter(run(graph, parallelism).written.values()), [])


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(-9, 9), max_size=40), st.integers(1, 3))
def test_a_total_is_one_row_whatever_the_number_of_tasks(records: list[int], parallelism: int) -> None:
    expected = {"n": len(records), "total": sum(records), "least": min(records, default=None)}
    assert totals(records, parallelism, n=agg.count(), total=agg.sum_(), least=agg.min_()) == [expected]


def test_a_total_that_depends_on_order_has_the_records_of_one_task_in_order() -> None:
    assert totals(list(range(20)), 1, first=agg.first(), all=agg.collect()) == [{"first": 0, "all": list(range(20))}]
    ((row),) = totals(list(range(20)), 3, all=agg.collect())
    assert sorted(row["all"]) == list(range(20))


def test_a_running_total_is_one_row_a_record() -> None:
    rows = totals([3, 4, 5], 1, each(1), total=agg.sum_(), n=agg.count())
    assert rows == [{"total": 3, "n": 1}, {"total": 7, "n": 2}, {"total": 12, "n": 3}]
    assert totals([3, 4, 5], 1, each(2), total=agg.sum_()) == [{"total": 7}, {"total": 12}]


def steps_of(**aggregates: Any) -> list[tuple[str, Any]]:
    graph = JobGraph("job")
    graph.source(Given([])).aggregate(emit=at_end(), name="total", **aggregates).sink(Outbox())
    return [(step.name, step.parallelism) for step in graph.steps[1:-1]]


def test_tasks_aggregate_their_own_records_first_where_order_does_not_matter() -> None:
    assert steps_of(n=agg.count()) == [("total-partial", None), ("total", 1)]
    assert steps_of(n=agg.count(), all=agg.collect()) == [("total", 1)]


@settings(max_examples=40, deadline=None)
@given(sales)
def test_the_value_of_a_window_is_that_of_its_records(records: list[Sale]) -> None:
    graph = JobGraph("job")
    keyed = graph.source(Given(records)).key_by(lambda sale: sale.key)
    keyed.window(Tumbling("1s")).aggregate(**AGGREGATES).sink(Outbox())
    results = next(iter(run(graph, 1).written.values()), [])
    expected = {key: twin(group) for key, group in grouped(records).items()}
    assert [state_key(result.key) for result in results] == list(expected)
    assert all(close(result.value, expected[state_key(result.key)]) for result in results)


def _running(stream: Stream[Any]) -> Stream[Any]:
    return stream.key_by("key").aggregate(**AGGREGATES)


def _each(stream: Stream[Any]) -> Stream[Any]:
    return stream.key_by("key").aggregate(emit=each(3), **AGGREGATES)


def _every(stream: Stream[Any]) -> Stream[Any]:
    return stream.key_by("key").aggregate(emit=every("2s"), **AGGREGATES)


def _final(stream: Stream[Any]) -> Stream[Any]:
    return stream.key_by("key").aggregate(emit=at_end(), **AGGREGATES)


def _total(stream: Stream[Any]) -> Stream[Any]:
    return stream.aggregate(emit=at_end(), n=agg.count(), ratio=agg.mean("ratio"))


def _windows(stream: Stream[Any]) -> Stream[Any]:
    return stream.key_by("key").window(Tumbling("2s")).aggregate(**AGGREGATES)


actions = st.lists(st.sampled_from(["read", "read", "time", "barrier", "full barrier", "restore"]), max_size=20)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(st.sampled_from([_running, _each, _every, _final, _total, _windows]), actions, st.integers(1, 2))
def test_aggregates_restored_at_any_barrier_are_those_of_an_undisturbed_job(
    build: Callable[[Stream[Any]], Stream[Any]], actions: list[str], parallelism: int
) -> None:
    graph = JobGraph("job")
    rows = [{"key": KEYS[i * i % len(KEYS)], "cents": i % 7, "ratio": i / 3} for i in range(60)]
    build(graph.source(Given(rows))).sink(Outbox())
    image = graph.compile(Options(), parallelism=parallelism)
    steady, troubled = Run(image), Run(image)
    for checkpoint, action in enumerate([*actions, "restore"], start=1):
        for each_run in (steady, troubled):
            if action == "read":
                each_run.read(5)
                each_run.drain()
            elif action == "time":
                each_run.pass_time(1.1)
        if action == "restore":
            taken, written = troubled.barrier(checkpoint), troubled.written
            troubled.close()
            troubled = Run(image, taken, troubled.clock)
            troubled.written = written
        elif action.endswith("barrier"):
            troubled.barrier(checkpoint, full=action.startswith("full"))
    for each_run in (steady, troubled):
        each_run.finish(5)
        each_run.close()
    assert repr(troubled.written) == repr(steady.written)


@pytest.mark.parametrize("build", [_final, _total, _every, _each])
def test_a_task_restored_after_its_input_has_ended_emits_nothing_twice(
    build: Callable[[Stream[Any]], Stream[Any]],
) -> None:
    graph = JobGraph("job")
    rows = [{"key": i % 3, "cents": i % 7, "ratio": i / 3} for i in range(20)]
    build(graph.source(Given(rows))).sink(Outbox())
    image = graph.compile(Options(), parallelism=1)
    ended = Run(image)
    ended.finish()
    assert ended.written
    restored = Run(image, ended.barrier(1))
    restored.finish()
    assert restored.written == {}


def test_a_record_that_raises_goes_to_the_error_output_and_is_in_no_aggregate() -> None:
    graph = JobGraph("job", errors=Outbox())
    rows = [{"key": "a", "cents": 1}, {"key": "a", "cents": "2"}, {"key": "a"}, {"key": "a", "cents": 4}]
    keyed = graph.source(Given(rows)).key_by("key")
    keyed.aggregate(n=agg.count(), all=agg.collect(), total=agg.sum_("cents"), name="totals").sink(Outbox())
    written = run(graph, 1).written
    assert [result["total"] for _, result in written["totals"]] == [1, 5]
    assert written["totals"][-1][1]["n"] == 2
    assert written["totals"][-1][1]["all"] == [rows[0], rows[3]]
    routed: list[RoutedError] = written["errors"]
    assert [error.record for error in routed] == rows[1:3]
    assert "'2' is a str, not a number" in routed[0].error
    assert "the record has no field 'cents'; it has key" in routed[1].error


def test_a_mistake_in_the_call_is_one_sentence() -> None:
    keyed: Any = JobGraph("job").source(Given([])).key_by("key")
    wrong: list[tuple[Callable[[], Any], str]] = [
        (lambda: keyed.aggregate(), "the step aggregate gets no aggregates. Give each a name, as in"),
        (lambda: keyed.aggregate(n=agg.count), "gets n=count, a function and no aggregate. Call it, as in count()"),
        (lambda: keyed.aggregate(top=sorted), "gets top=sorted, a function and no aggregate. Call it, as in count()"),
        (lambda: keyed.aggregate(n=3), "gets n=3, which is no aggregate. Use the aggregates of clonos.agg"),
        (lambda: keyed.aggregate(name=agg.first("name")), "gets an aggregate as name=, which names the step. Give"),
        (lambda: keyed.aggregate(n=agg.count(), emit="end"), "has emit='end'. Give each(n) for every n-th record"),
        (lambda: keyed.window(Tumbling("1s")).aggregate(), "gets no aggregates. Give each a name"),
        (
            lambda: keyed.window(Tumbling("1s")).aggregate(list, list.append, n=agg.count()),
            "gets both functions of an accumulator and named aggregates. Name all",
        ),
    ]
    for make, sentence in wrong:
        with pytest.raises(InvalidJob) as raised:
            make()
        assert sentence in str(raised.value)
