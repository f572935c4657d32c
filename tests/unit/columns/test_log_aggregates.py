"""Aggregates over columns whose state is a log against those over rows: any types, nulls, cuts, panes, compactions."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from decimal import Decimal
from random import Random
from typing import Any

import numpy
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clonos.agg import approx_distinct, bottom_k, collect, count_distinct, distinct, quantile, top_k
from clonos.operators.aggregates.aggregate import Named
from clonos.operators.columnar.aggregate_maker import column_aggregates
from clonos.operators.columnar.column_aggregates import ColumnAggregate
from clonos.operators.columnar.logs.log_aggregate import LogAggregate
from clonos.operators.columnar.logs.pane_table import log_names
from clonos.operators.columnar.logs.value_log import ValueLog

SLOTS = 3

FLOATS = st.sampled_from([0.0, -0.0, math.nan, math.inf, -math.inf, 1.5, -1e300, 5e-324]) | st.floats(
    -100, 100, width=32
)
VALUES: dict[Any, st.SearchStrategy[Any]] = {
    pa.int64(): st.integers(-(2**63), 2**63 - 1) | st.integers(-3, 3),
    pa.uint8(): st.integers(0, 255),
    pa.float64(): FLOATS,
    pa.float32(): FLOATS.filter(lambda x: not math.isfinite(x) or abs(x) < 1e30),
    pa.bool_(): st.booleans(),
    pa.string(): st.sampled_from(["", "a", "b", "ä"]),
    pa.binary(): st.sampled_from([b"", b"a"]),
    pa.date32(): st.dates(date(1990, 1, 1), date(1990, 1, 9)),
    pa.timestamp("us", "UTC"): st.integers(0, 9).map(lambda second: datetime(2026, 1, 1, 0, 0, second, tzinfo=UTC)),
    pa.decimal128(10, 2): st.decimals(-3, 3, places=2).map(lambda number: number + Decimal(0)),
}
NUMBERS = (pa.int64(), pa.uint8(), pa.float64(), pa.float32(), pa.bool_())
UNRANKED = (pa.string(), pa.binary(), pa.decimal128(10, 2))


def aggregation_of(type_: Any) -> Named[Any]:
    """All aggregates of logs that a column of this type has."""
    named: dict[str, Any] = {"all": collect("x"), "distinct": distinct("x"), "n": count_distinct("x")}
    named["some"] = approx_distinct("x", error=0.2)
    if type_ in NUMBERS:
        named |= {"median": quantile("x", 0.5), "high": quantile("x", 0.9, error=0.1), "least": quantile("x", 0)}
    if type_ not in UNRANKED:
        named |= {"top": top_k(3, "x"), "bottom": bottom_k(2, "x")}
    return Named(named)


Batch = list[tuple[int, Any]]


@st.composite
def cases(draw: st.DrawFn) -> tuple[Any, list[Batch]]:
    """Draws the type of a column, and batches of (slot, value)."""
    type_ = draw(st.sampled_from([*VALUES]))
    pairs = st.lists(st.tuples(st.integers(0, SLOTS - 1), st.none() | VALUES[type_]), max_size=9)
    return type_, draw(st.lists(pairs, max_size=5))


def made(type_: Any) -> list[ColumnAggregate]:
    schema = pa.schema([("number", pa.int64()), ("x", type_)])
    found = column_aggregates(aggregation_of(type_), schema, has_logs=True)
    assert found is not None
    for each in found:
        assert isinstance(each, LogAggregate)
        each.compacted_min = 5
    return found


def new_state(aggregates: list[ColumnAggregate]) -> dict[str, Any]:
    return {name: ValueLog() for name in log_names(aggregates)}


def add(aggregates: list[ColumnAggregate], state: dict[str, Any], batch: Batch, type_: Any, number: int) -> None:
    slots = numpy.array([slot for slot, _ in batch], numpy.int32)
    cells = pa.array([None, *[value for _, value in batch]], type_).slice(1)
    numbers = pa.array(range(number, number + len(batch)), pa.int64())
    records = pa.RecordBatch.from_arrays([numbers, cells], ["number", "x"])
    for each in aggregates:
        each.add(state, slots, each.cells(records))


def results(aggregates: list[ColumnAggregate], state: dict[str, Any], slots: list[int]) -> list[dict[str, Any]]:
    columns = {each.name: each.results(state, numpy.array(slots, numpy.int32)).to_pylist() for each in aggregates}
    return [{name: column[place] for name, column in columns.items()} for place in range(len(slots))]


def in_rows(batches: list[Batch], type_: Any) -> dict[int, Any]:
    """The accumulators over rows by slot."""
    aggregation, found, number = aggregation_of(type_), dict[int, Any](), 0
    for batch in batches:
        values = pa.array([value for _, value in batch], type_).to_pylist()
        for (slot, _), value in zip(batch, values, strict=True):
            record = {"number": number, "x": value}
            found[slot] = aggregation.add(found.get(slot, aggregation.create()), record)
            number += 1
    return found


def of_rows(batches: list[Batch], type_: Any) -> list[Any]:
    """The results over rows of each slot, as texts, because nan is not equal to itself."""
    aggregation, found = aggregation_of(type_), in_rows(batches, type_)
    return [repr(aggregation.result(found.get(slot, aggregation.create()))) for slot in range(SLOTS)]


def all_added(aggregates: list[ColumnAggregate], batches: list[Batch], type_: Any) -> dict[str, Any]:
    state, number = new_state(aggregates), 0
    for batch in batches:
        add(aggregates, state, batch, type_, number)
        number += len(batch)
    return state


@settings(deadline=None)
@given(cases())
def test_logs_over_columns_have_the_results_of_rows(case: Any) -> None:
    type_, batches = case
    aggregates = made(type_)
    state = all_added(aggregates, batches, type_)
    assert [*map(repr, results(aggregates, state, [0, 1, 2]))] == of_rows(batches, type_)
    assert [*map(repr, results(aggregates, state, [2, 0]))] == [of_rows(batches, type_)[slot] for slot in (2, 0)]


@settings(deadline=None)
@given(cases())
def test_merged_logs_have_the_results_of_one(case: Any) -> None:
    type_, batches = case
    aggregates = made(type_)
    merged, number = new_state(aggregates), 0
    slots = numpy.array([2, 0, 1])
    for batch in batches:
        state = new_state(aggregates)
        add(aggregates, state, [([1, 2, 0][slot], value) for slot, value in batch], type_, number)
        number += len(batch)
        for each in aggregates:
            each.merge(merged, slots, state)
    assert [*map(repr, results(aggregates, merged, [0, 1, 2]))] == of_rows(batches, type_)


@pytest.mark.parametrize("seed", range(4))
def test_sketches_of_many_values_are_those_of_rows(seed: int) -> None:
    rng = Random(seed)
    numbers = [rng.choice([rng.gauss(0, 1) * 10 ** rng.randint(-5, 5), 0.0, math.inf, -math.inf]) for _ in range(900)]
    whole = [(rng.choice((0, 0, 1)), number) for number in numbers] + [(2, 1.5)] * 64
    cuts = sorted(rng.sample(range(len(whole)), 7))
    batches = [whole[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
    for compacted_min in (5, 300, 10_000):
        aggregates = made(pa.float64())
        for each in aggregates:
            assert isinstance(each, LogAggregate)
            each.compacted_min = compacted_min
        state = all_added(aggregates, batches, pa.float64())
        assert [*map(repr, results(aggregates, state, [0, 1, 2]))] == of_rows(batches, pa.float64())


def test_logs_of_sketches_and_ranks_do_not_grow_with_the_records() -> None:
    aggregates = made(pa.int64())
    sizes = []
    for count in (20, 40):
        state = all_added(
            aggregates, [[(0, number * batch) for number in range(500)] for batch in range(count)], pa.int64()
        )
        sizes.append({each.name: len(state[each.log]) for each in aggregates if isinstance(each, LogAggregate)})
    for name in ("some", "median", "top", "bottom"):
        assert sizes[1][name] < 1.5 * sizes[0][name] + 10, name
    assert sizes[1]["all"] == 20_000
