"""Windows and their aggregates, on rows and on columns, against plain Python."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clonos.api.graph import JobGraph
from clonos.api.stream import Stream
from clonos.api.windowed import WindowedStream
from clonos.api.windows import Tumbling
from clonos.core.model.options import Options
from clonos.operators.event_time.durations import InvalidDuration
from clonos.operators.event_time.timestamps import from_timestamp_ns
from clonos.operators.windows.window_results import WindowResult
from tests.unit.operators.driver import START_NS, Given, Outbox, Run, run
from tests.unit.operators.samples import ColumnsGiven

Windows = WindowedStream[Any, Any]

keys = st.one_of(st.booleans(), st.integers(0, 2), st.sampled_from("ab"), st.none(), st.tuples(st.booleans()))
records = st.lists(st.fixed_dictionaries({"key": keys, "amount": st.integers(0, 9)}), max_size=40)


def by_key(values: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Keys by their text, since True and 1 are two keys."""
    found: dict[str, list[dict[str, Any]]] = {}
    for value in values:
        found.setdefault(repr(value["key"]), []).append(value)
    return found


def in_order(value: Any) -> Any:
    return sorted(value, key=lambda row: int(row["amount"])) if isinstance(value, list) else value


def larger(left: dict[str, Any], right: dict[str, Any]) -> dict[str, Any]:
    return max(left, right, key=lambda value: int(value["amount"]))


AGGREGATES: dict[str, tuple[Callable[[Windows], Stream[Any]], Callable[[list[dict[str, Any]]], Any]]] = {
    "count": (lambda windows: windows.count(), len),
    "sum of a field": (lambda windows: windows.sum("amount"), lambda values: sum(v["amount"] for v in values)),
    "sum of a function": (
        lambda windows: windows.sum(lambda value: value["amount"] + 1),
        lambda values: sum(v["amount"] + 1 for v in values),
    ),
    "reduce": (
        lambda windows: windows.reduce(larger),
        lambda values: max(values, key=lambda value: int(value["amount"])),
    ),
    "list": (lambda windows: windows.aggregate(list, list.append), list),
    "mean": (
        lambda windows: windows.aggregate(
            lambda: (0, 0), lambda mean, value: (mean[0] + value["amount"], mean[1] + 1), lambda mean: mean[0] / mean[1]
        ),
        lambda values: sum(v["amount"] for v in values) / len(values),
    ),
}


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(sorted(AGGREGATES)), records, st.booleans())
def test_an_aggregate_equals_the_result_of_a_plain_loop(
    name: str, values: list[dict[str, Any]], by_field: bool
) -> None:
    build, twin = AGGREGATES[name]
    graph = JobGraph("job")
    source = graph.source(Given(values))
    keyed = source.key_by("key") if by_field else source.key_by(lambda value: value["key"])
    build(keyed.window(Tumbling("1s"))).sink(Outbox(), name="results")
    results: list[WindowResult[Any, Any]] = next(iter(run(graph, 1).written.values()), [])
    assert {repr(result.key): result.value for result in results} == {
        key: twin(group) for key, group in by_key(values).items()
    }


@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from(sorted(AGGREGATES)),
    st.lists(st.fixed_dictionaries({"key": st.sampled_from("abc"), "amount": st.integers(0, 9)}), max_size=40),
)
def test_windows_over_columns_equal_windows_over_rows(name: str, values: list[dict[str, Any]]) -> None:
    build, twin = AGGREGATES[name]
    graph = JobGraph("job")
    batches = graph.source(ColumnsGiven(values)).map_batches(lambda batch: batch.slice(0))
    build(batches.key_by("key").window(Tumbling("1s"))).sink(Outbox(), name="results")
    results: list[WindowResult[Any, Any]] = next(iter(run(graph, 2).written.values()), [])
    # Two tasks read, so the order of arrival is another.
    found = {repr(result.key): in_order(result.value) for result in results}
    assert found == {key: in_order(twin(group)) for key, group in by_key(values).items()}


def test_a_map_after_columns_receives_dicts() -> None:
    graph = JobGraph("job")
    batches = graph.source(ColumnsGiven([{"word": "a", "n": 1}, {"word": "b", "n": 2}]))
    batches.map_batches(lambda batch: batch.select(["word"])).map(lambda row: row["word"]).sink(Outbox())
    assert run(graph, 1).written == {"source-map_batches-map-sink": ["a", "b"]}


def test_a_window_contains_the_records_of_its_span_and_fires_after_it() -> None:
    graph = JobGraph("job")
    graph.source(Given("abcdef")).key_by(lambda value: value).window(Tumbling(2)).count(name="count").sink(Outbox())
    job = Run(graph.compile(Options(), parallelism=1))
    for _ in range(2):  # "abc", and a second later "def"
        job.read(3)
        job.drain()
        job.pass_time(1)
    results = job.written["count"]
    assert [result.key for result in results] == list("abcdef")
    assert {(result.start, result.end) for result in results} == {
        (from_timestamp_ns(START_NS), from_timestamp_ns(START_NS) + timedelta(seconds=2))
    }
    assert job.chains[1].next_timer_ns() is None
    job.close()


def test_windows_due_at_once_fire_in_order_of_start_then_first_arrival() -> None:
    graph = JobGraph("job")
    graph.source(Given("cabbca")).key_by(lambda value: value).window(Tumbling(1)).count(name="count").sink(Outbox())
    job = Run(graph.compile(Options(), parallelism=1))
    for _ in range(2):
        job.read(3)
        job.drain()
        job.clock.now_ns += 1_000_000_000
    job.fire()
    assert [(result.key, result.value) for result in job.written["count"]] == [
        *[("c", 1), ("a", 1), ("b", 1)],
        *[("b", 1), ("c", 1), ("a", 1)],
    ]
    job.close()


def test_a_running_count_of_columns_counts_every_record() -> None:
    graph = JobGraph("job")
    words = [{"word": word} for word in "abracadabra"]
    graph.source(ColumnsGiven(words)).key_by("word").count().sink(Outbox())
    counted = run(graph, 2).written["count-sink"]
    assert Counter(word for word, _ in counted) == Counter("abracadabra")
    assert sorted(counted) == sorted(set(counted))


@pytest.mark.parametrize(
    ("size", "size_ns"),
    [
        ("500ms", 500_000_000),
        ("5s", 5_000_000_000),
        ("1.5 s", 1_500_000_000),
        ("2min", 120_000_000_000),
        ("1h", 3_600_000_000_000),
        (0.25, 250_000_000),
        (timedelta(days=1), 86_400_000_000_000),
    ],
)
def test_a_size_is_text_with_a_unit_a_timedelta_or_seconds(size: Any, size_ns: int) -> None:
    assert Tumbling(size).size_ns == size_ns


@pytest.mark.parametrize(
    "size",
    [
        "5",
        "s",
        "-1s",
        "1.0005s",
        0,
        -1,
        float("nan"),
        True,
        None,
        timedelta(0),
        "9" * 400 + "s",
        "101 s" * 2,
        timedelta(days=99_999),
    ],
)
def test_an_invalid_window_size_is_refused(size: Any) -> None:
    with pytest.raises(InvalidDuration, match="is not a length of time"):
        Tumbling(size)
