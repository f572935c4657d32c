"""Aggregates over the whole input in columns give what those in rows do: same results in the same order."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clonos import col
from clonos.agg import collect, count, count_distinct, first, last, max_, mean, min_, sum_
from clonos.api.emission import at_end, changes, each
from clonos.api.event_time import Timestamps
from clonos.api.graph import JobGraph
from clonos.api.graph_errors import InvalidJob
from clonos.api.windows import Tumbling
from clonos.core.model.options import Options
from clonos.operators.emission_times import Emission
from tests.harnesses.both_kernels import kernels
from tests.unit.columns.test_column_windows import ColumnsOf
from tests.unit.operators.driver import START_NS, Given, Outbox, Run, run
from tests.unit.operators.joins.given_sides import ACTIONS, steady_and_troubled

__all__ = ["kernels"]

START = START_NS // 1_000_000_000
SCHEMA = pa.schema(
    [
        *(("key", pa.string()), ("other", pa.bool_()), ("at", pa.int64()), ("x", pa.int64()), ("y", pa.float64())),
        ("money", pa.decimal128(12, 2)),
        *(("word", pa.string()), ("raw", pa.binary()), ("big", pa.uint64()), ("list", pa.list_(pa.int64()))),
    ]
)
EMISSIONS = (each(1), changes(), changes(before=True), at_end())

records = st.lists(
    st.fixed_dictionaries(
        {
            "key": st.sampled_from(["a", "b", "c", None]),
            "other": st.booleans(),
            "at": st.integers(START, START + 30),
            "x": st.none() | st.integers(-5, 5),
            "y": st.none() | st.integers(-5, 5).map(float),
            "money": st.none() | st.integers(-500, 500).map(lambda cents: Decimal(cents).scaleb(-2)),
            "word": st.none() | st.sampled_from(["", "a", "ab", "b", "ä", "\U0001f600", "\uffff"]),
            "raw": st.none() | st.binary(max_size=2),
            "big": st.none() | st.sampled_from([0, 1, 1 << 63, (1 << 64) - 1]),
            "list": st.none() | st.lists(st.integers(0, 2), max_size=2),
        }
    ),
    max_size=40,
)


def aggregates() -> dict[str, Any]:
    """One of each kind that columns have."""
    return {
        "n": count(),
        "total": sum_("x"),
        "mean": mean("x"),
        "least": min_("x"),
        "most": max_("y"),
        "first": first("x"),
        "last": last("y"),
        "sum_of_floats": sum_("y"),
        "mean_of_floats": mean("y"),
        "money": sum_("money"),
        **{f"word_{of.__name__}": of("word") for of in (min_, max_, first, last)},
        "most_money": max_("money"),
        "least_raw": min_("raw"),
        "most_big": max_("big"),
        "last_list": last("list"),
    }


def aggregated(graph: JobGraph, source: Any, emit: Emission, keys: tuple[str, ...] = ("key",)) -> None:
    """Adds the job: aggregates of each key, and what a step in rows after them gets, with its timestamp."""
    stream = graph.source(source, timestamps=Timestamps("at", future_max=None) if emit.count else None)
    named = aggregates() | ({} if emit.count else {"different": count_distinct("x"), "sides": count_distinct("other")})
    results: Any = stream.key_by(*keys).aggregate(emit=emit, name="totals", **named)
    results.sink(Outbox(), name="out")
    if emit.count:
        results.window(Tumbling("5s")).count().sink(Outbox(), name="times")
    results.map(tuple, name="shown").sink(Outbox(), name="shown-out")


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(records, st.sampled_from(EMISSIONS), st.booleans(), st.integers(1, 3), st.integers(1, 9))
def test_totals_over_columns_are_those_over_rows(
    rows: list[dict[str, Any]], emit: Emission, has_two_keys: bool, parallelism: int, records_max: int
) -> None:
    found = []
    for source in (Given(rows), ColumnsOf(rows, SCHEMA)):
        graph = JobGraph("job")
        aggregated(graph, source, emit, ("key", "other") if has_two_keys else ("key",))
        found.append(run(graph, parallelism, records_max).written)
    assert found[1] == found[0]


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(records, st.sampled_from(EMISSIONS), ACTIONS, st.integers(1, 2), st.integers(1, 5))
def test_totals_over_columns_restored_at_any_barrier_are_the_same(
    rows: list[dict[str, Any]], emit: Emission, actions: list[str], parallelism: int, records_max: int
) -> None:
    def build(graph: JobGraph) -> None:
        aggregated(graph, ColumnsOf(rows, SCHEMA), emit)

    steady, troubled = steady_and_troubled(build, actions, parallelism, records_max)
    assert troubled == steady


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(records, st.integers(1, 9), st.integers(1, 9))
def test_the_last_change_of_a_key_is_the_same_for_every_cut(
    rows: list[dict[str, Any]], records_max: int, other_max: int
) -> None:
    def last_of(source: Any, records_max: int) -> dict[Any, Any]:
        graph = JobGraph("job")
        stream = graph.source(source).key_by("key").aggregate(emit=changes(), **aggregates())
        stream.sink(Outbox(), name="out")
        (written,) = run(graph, 1, records_max).written.values() if rows else ([],)
        return dict(written)

    assert last_of(ColumnsOf(rows, SCHEMA), records_max) == last_of(Given(rows), other_max)


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(records, st.integers(1, 9), st.integers(1, 3))
def test_a_replaced_result_equals_the_previous_result(
    rows: list[dict[str, Any]], records_max: int, parallelism: int
) -> None:
    graph = JobGraph("job")
    stream = graph.source(ColumnsOf(rows, SCHEMA)).key_by("key")
    stream.aggregate(emit=changes(before=True), **aggregates()).sink(Outbox(), name="out")
    last: dict[Any, dict[str, Any]] = {}
    (written,) = run(graph, parallelism, records_max).written.values() if rows else ([],)
    for key, results in written:
        expected = last.get(key, dict.fromkeys(aggregates()))
        assert {name: results[f"{name}_before"] for name in expected} == expected
        last[key] = {name: results[name] for name in expected}
    assert last.keys() == {row["key"] for row in rows}


def played(build: Any, *batches: Any, is_column: bool = True) -> list[Any]:
    graph = JobGraph("job")
    source: Any = Batches(batches) if is_column else Given([row for batch in batches for row in batch.to_pylist()])
    build(graph.source(source)).sink(Outbox(), name="out")
    (written,) = run(graph, 1, 100).written.values()
    return written


def last_of_keys(results: list[Any]) -> list[Any]:
    """Returns the last result of each key without those that it replaces, which follow from the cuts of batches."""
    return [
        (key, {name: value for name, value in last.items() if not name.endswith("_before")})
        for key, last in dict(results).items()
    ]


class Batches:
    """A source of given batches, one a read."""

    is_columnar = True

    def __init__(self, batches: Any) -> None:
        self.batches = list(batches)

    def splits(self, parallelism: int) -> list[bytes]:
        return [b"all"]

    def column_schema(self) -> Any:
        return self.batches[0].schema

    def reader(self) -> Any:
        return BatchReader(self.batches)


class BatchReader:
    def __init__(self, batches: list[Any]) -> None:
        self.batches, self.place = batches, 0

    def open(self, split: bytes, mark: bytes | None) -> None:
        self.place = int(mark or b"0")

    def read(self, records_max: int) -> Any:
        self.place += 1
        return self.batches[self.place - 1] if self.place <= len(self.batches) else None

    def mark(self) -> bytes:
        return str(self.place).encode()

    def close(self) -> None:
        pass


def test_a_change_is_one_result_a_key_and_batch() -> None:
    first_batch = pa.record_batch({"key": ["b", "a", "b"], "x": [1, 2, 3]})
    second = pa.record_batch({"key": ["c", "b"], "x": [4, 5]})

    def totals(stream: Any) -> Any:
        return stream.key_by("key").aggregate(n=count(), total=sum_("x"), emit=changes())

    expected = [
        ("b", {"n": 2, "total": 4}),
        ("a", {"n": 1, "total": 2}),
        ("c", {"n": 1, "total": 4}),
        ("b", {"n": 3, "total": 9}),
    ]
    assert played(totals, first_batch, second) == expected
    flat = played(lambda stream: totals(stream).filter(col("total") > 3).select("key", "total"), first_batch, second)
    assert flat == [{"key": key, "total": each["total"]} for key, each in expected if each["total"] > 3]


def test_a_final_result_leaves_once_though_a_barrier_follows() -> None:
    graph = JobGraph("job")
    aggregated(
        graph, ColumnsOf([{"key": "a", "other": True, "at": START, "x": 1, "y": 1.0, "money": None}], SCHEMA), at_end()
    )
    image = graph.compile(Options(), parallelism=1)
    ended = Run(image)
    ended.finish()
    assert [len(rows) for rows in ended.written.values()] == [1, 1]
    restored = Run(image, ended.barrier(1))
    restored.finish()
    assert restored.written == {}


def test_totals_that_need_rows_work_on_rows() -> None:
    graph = JobGraph("job")
    stream = graph.source(ColumnsOf([], SCHEMA))
    keyed = stream.key_by("key")
    for emit in EMISSIONS:
        keyed.aggregate(n=count(), emit=emit)
        assert graph.steps[-1].emits_columns
    for needing, more in (
        (keyed, {"all": collect("x")}),
        (keyed, {"key": count()}),
        (stream.key_by(lambda row: row["key"]), {"n": count()}),
    ):
        needing.aggregate(**more)
        assert not graph.steps[-1].emits_columns


@pytest.mark.parametrize(
    ("emit", "is_column"), [(each(1), False), (changes(), True), (changes(before=True), True), (at_end(), True)]
)
def test_distinct_values_are_counted_in_columns_but_for_a_result_per_record(emit: Emission, is_column: bool) -> None:
    graph = JobGraph("job")
    stream = graph.source(ColumnsOf([], SCHEMA))
    stream.key_by("key").aggregate(n=count_distinct("x"), emit=emit)
    assert graph.steps[-1].emits_columns is is_column
    stream.key_by("key").window(Tumbling("5s", time="processing")).aggregate(n=count_distinct("x"))
    assert graph.steps[-1].emits_columns


def test_a_value_counts_once_for_each_key() -> None:
    batch = pa.record_batch({"key": ["a", "b", "a", "a", "a"], "x": pa.array([1, 1, 2, None, 2])})
    results = played(lambda stream: stream.key_by("key").aggregate(n=count_distinct("x"), emit=changes()), batch, batch)
    assert results == [("a", {"n": 2}), ("b", {"n": 1})] * 2


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.int64(), [0, -1, (1 << 31) - 1, 1 << 31, -(1 << 63), (1 << 31) - 1, -1, (1 << 63) - 1]),
        (pa.uint64(), [0, 1 << 31, (1 << 64) - 1, 7, 1 << 31]),
        (pa.int8(), [0, -128, 127, -128]),
        (pa.bool_(), [True, False, True]),
        (pa.date32(), [date(1969, 12, 31), date(1970, 1, 1), date(2026, 1, 1), date(1969, 12, 31)]),
        (pa.string(), ["", "a", "b", "a"]),
    ],
)
def test_distinct_values_may_be_of_any_size(kind: Any, values: list[Any]) -> None:
    batches = [pa.record_batch({"key": ["a"], "x": pa.array([value], kind)}) for value in values]
    batches.append(pa.record_batch({"key": ["a"] * len(values), "x": pa.array(values, kind)}))
    batches.append(pa.record_batch({"key": ["a"] * 2, "x": pa.array([values[0], None], kind).dictionary_encode()}))
    results = played(lambda stream: stream.key_by("key").aggregate(n=count_distinct("x"), emit=changes()), *batches)
    counts = [len(set(values[: place + 1])) for place in range(len(values))]
    assert [result["n"] for _, result in results] == [*counts, counts[-1], counts[-1]]


def test_changes_are_for_aggregates_alone() -> None:
    stream = JobGraph("job").source(Given([]))
    with pytest.raises(InvalidJob, match=r"has trigger=changes\(\), which is for emit= of aggregate and fold"):
        stream.key_by("key").window(Tumbling("5s"), trigger=changes())
    with pytest.raises(InvalidJob, match=r"has flush=changes\(\)"):
        stream.sink(Outbox(), flush=changes())


@pytest.mark.parametrize(
    ("build", "meant"),
    [
        (lambda: changes(before=1), "before=1"),  # type: ignore[arg-type]
        (lambda: _keyed().fold(0, max, emit=changes(before=True)), "fold has emit=changes.before=True.*have no names"),
        (
            lambda: _keyed().aggregate(x=count(), x_before=count(), emit=changes(before=True)),
            "names a result 'x_before'",
        ),
    ],
)
def test_replaced_results_without_a_name_of_their_own_are_refused(build: Any, meant: str) -> None:
    with pytest.raises(InvalidJob, match=meant):
        build()


def _keyed() -> Any:
    return JobGraph("job").source(ColumnsOf([], SCHEMA)).key_by("key")


def test_a_fold_emits_its_changes() -> None:
    def build(stream: Any) -> Any:
        return stream.key_by("key").fold(0, lambda so_far, row: so_far + row["x"], emit=changes())

    batches = [pa.record_batch({"key": ["a", "a"], "x": [1, 2]}), pa.record_batch({"key": ["a"], "x": [3]})]
    assert played(build, *batches) == [("a", 3), ("a", 6)]


def test_a_count_goes_on_in_columns_and_reaches_a_step_of_rows_as_pairs() -> None:
    batch = pa.record_batch({"key": ["a", "b", "a"], "other": [True, True, False]})
    pairs = played(lambda stream: stream.key_by("key", "other").count().map(lambda pair: pair), batch)
    assert pairs == [(("a", True), 1), (("b", True), 1), (("a", False), 1)]
    flat = played(lambda stream: stream.key_by("key").count().filter(col("count") > 1), batch)
    assert flat == [{"key": "a", "count": 2}]


@pytest.mark.parametrize("emit", EMISSIONS[::2])
@pytest.mark.parametrize("largest", [0.75, 1e308])
@pytest.mark.parametrize("named", [{"y": sum_("y"), "share": mean("y")}, {"price": sum_("price")}])
def test_totals_of_floats_and_decimals_are_those_over_rows(
    emit: Emission, largest: float, named: dict[str, Any]
) -> None:
    floats = [[0.25, largest, -0.5], [largest, 7.5, 1.25], [-largest, -largest, 0.0]]
    prices = [["1.10", "99999999999999999999.99", "-3.00"], ["0.01", "5.00", "6.66"], ["0.02", "7.77", "8.88"]]
    batches = [
        pa.record_batch(
            {
                "key": list("aba"),
                "y": pa.array(of_batch, pa.float64()),
                "price": pa.array(map(Decimal, of_price), pa.decimal128(30, 2)),
            }
        )
        for of_batch, of_price in zip(floats, prices, strict=True)
    ]

    def build(stream: Any) -> Any:
        return stream.key_by("key").aggregate(emit=emit, **named)

    assert played(build, *batches) == played(build, *batches, is_column=False)
