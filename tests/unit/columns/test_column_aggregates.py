"""Aggregates over columns against those over rows: any types, nulls, cuts into batches and panes."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clonos.agg import count, first, last, max_, mean, min_, stddev, sum_, variance
from clonos.operators.aggregates.aggregate import Named
from clonos.operators.aggregates.exact_numbers import variance_of
from clonos.operators.columnar.aggregate_maker import column_aggregates
from clonos.operators.columnar.column_aggregates import ColumnAggregate
from clonos.operators.columnar.support import columns_read

SLOTS = 4
INSTANTS = st.datetimes(datetime(2000, 1, 1), datetime(2030, 1, 1)).map(lambda at: at.replace(tzinfo=UTC))
SMALL_FLOATS = st.floats(-1e6, 1e6, width=32) | st.sampled_from([math.nan, 0.0, -0.0])

NUMBERS = {
    pa.int64(): st.integers(-(2**40), 2**40),
    pa.int8(): st.integers(-128, 127),
    pa.uint32(): st.integers(0, 2**32 - 1),
}
VALUES = {
    **NUMBERS,
    pa.float64(): SMALL_FLOATS,
    pa.float32(): SMALL_FLOATS,
    pa.bool_(): st.booleans(),
    pa.timestamp("us", "UTC"): INSTANTS,
    pa.date32(): st.dates(date(1990, 1, 1), date(2030, 1, 1)),
}

EXTREMES = {"n": count(), "min": min_("x"), "max": max_("x"), "first": first("x"), "last": last("x")}
SPREADS = {"var": variance("x"), "pvar": variance("x", ddof=0), "std": stddev("x")}
ALL = {**EXTREMES, **SPREADS, "sum": sum_("x"), "mean": mean("x")}
DECIMALS = {
    pa.decimal128(20, 2): st.decimals(-(10**18) + 1, 10**18 - 1, places=2),
    pa.decimal128(38, 9): st.decimals(-(10**20), 10**20, places=9),
    pa.decimal64(18, 0): st.decimals(-(10**18) + 1, 10**18 - 1, places=0),
    pa.decimal32(5, -2): st.integers(-99_999, 99_999).map(lambda number: Decimal(number).scaleb(2)),
}
WIDE_FLOATS = (
    st.floats(-1e30, 1e30)
    | st.sampled_from([1e16, -1e16, 1.0, 0.1, -1e22, 1e22, 5e-324, -0.0])
    | st.sampled_from([math.inf, -math.inf, math.nan])
)


@st.composite
def cases(draw: st.DrawFn) -> tuple[Named[Any], Any, list[list[tuple[int, Any]]]]:
    """Draws an aggregation, the type of its column, and batches of (slot, value)."""
    type_ = draw(st.sampled_from([*VALUES, *DECIMALS]))
    value = st.none() | {**VALUES, **DECIMALS}[type_]
    batches = draw(st.lists(st.lists(st.tuples(st.integers(0, SLOTS - 1), value), max_size=8), max_size=5))
    if type_ in DECIMALS:
        return Named({"n": count(), "sum": sum_("x")}), type_, batches
    return Named(ALL if type_ in NUMBERS or pa.types.is_floating(type_) else EXTREMES), type_, batches


def made(aggregation: Named[Any], type_: Any) -> list[ColumnAggregate]:
    found = column_aggregates(aggregation, pa.schema([("x", type_)]))
    assert found is not None
    return found


def new_state(aggregates: list[ColumnAggregate]) -> dict[str, Any]:
    return {name: numpy.zeros(SLOTS, dtype) for each in aggregates for name, dtype in each.dtypes().items()}


def add(aggregates: list[ColumnAggregate], state: dict[str, Any], batch: list[tuple[int, Any]], type_: Any) -> None:
    slots = numpy.array([slot for slot, _ in batch], numpy.int32)
    cells = pa.array([None, *[value for _, value in batch]], type_).slice(1)
    for each in aggregates:
        each.add(state, slots, cells if each.of else None)


def results(aggregates: list[ColumnAggregate], state: dict[str, Any], slots: list[int]) -> list[dict[str, Any]]:
    columns = {each.name: each.results(state, numpy.array(slots, numpy.int32)).to_pylist() for each in aggregates}
    return [{name: column[place] for name, column in columns.items()} for place in range(len(slots))]


def in_rows(aggregation: Named[Any], batches: list[list[tuple[int, Any]]], type_: Any) -> dict[int, dict[str, Any]]:
    found: dict[int, Any] = {}
    for batch in batches:
        values = pa.array([value for _, value in batch], type_).to_pylist()
        for (slot, _), value in zip(batch, values, strict=True):
            found[slot] = aggregation.add(found.get(slot, aggregation.create()), {"x": value})
    return {slot: aggregation.result(accumulator) for slot, accumulator in found.items()}


def assert_same(found: dict[str, Any], expected: dict[str, Any]) -> None:
    for name, value in expected.items():
        if isinstance(value, float) and math.isfinite(value):
            assert found[name] == pytest.approx(value, rel=1e-9, abs=1e-6), name
        elif isinstance(value, float) and math.isnan(value):
            assert math.isnan(found[name]), name
        else:
            assert found[name] == value, name
        if name in EXTREMES and value == 0:
            assert repr(found[name]) == repr(value), name  # -0.0 is not 0.0
        assert type(found[name]) is type(value) or (name == "sum" and value == 0), name  # of no floats


@given(cases())
def test_aggregates_over_columns_give_what_those_over_rows_do(case: Any) -> None:
    aggregation, type_, batches = case
    aggregates = made(aggregation, type_)
    state = new_state(aggregates)
    for batch in batches:
        add(aggregates, state, batch, type_)
    expected = in_rows(aggregation, batches, type_)
    slots = sorted(expected)
    for found, slot in zip(results(aggregates, state, slots), slots, strict=True):
        assert_same(found, expected[slot])


@given(cases())
def test_merged_panes_give_what_one_pane_does(case: Any) -> None:
    aggregation, type_, batches = case
    aggregates = made(aggregation, type_)
    merged = new_state(aggregates)
    for batch in batches:
        pane = new_state(aggregates)
        add(aggregates, pane, batch, type_)
        slots = numpy.unique(numpy.array([slot for slot, _ in batch], numpy.int32))
        for each in aggregates:
            each.merge(merged, slots, {name: column[slots] for name, column in pane.items()})
    expected = in_rows(aggregation, batches, type_)
    slots_left = sorted(expected)
    for found, slot in zip(results(aggregates, merged, slots_left), slots_left, strict=True):
        assert_same(found, expected[slot])


@given(cases())
def test_aggregates_over_rows_can_go_on_with_the_accumulators(case: Any) -> None:
    aggregation, type_, batches = case
    aggregates = made(aggregation, type_)
    state = new_state(aggregates)
    for batch in batches:
        add(aggregates, state, batch, type_)
    expected = in_rows(aggregation, batches, type_)
    slots = sorted(expected)
    parts = {each.name: each.accumulators(state, numpy.array(slots, numpy.int32)) for each in aggregates}
    for place, slot in enumerate(slots):
        accumulator = aggregation.joined({name: part[place] for name, part in parts.items()})
        assert_same(aggregation.result(accumulator), expected[slot])


def test_the_mean_of_large_ints_is_the_nearest_float() -> None:
    aggregates = made(Named({"mean": mean("x")}), pa.int64())
    state = new_state(aggregates)
    add(aggregates, state, [(0, 2**53 + 1), (0, 2**53 + 1), (0, 2**53 + 2)], pa.int64())
    assert results(aggregates, state, [0]) == [{"mean": (3 * 2**53 + 4) / 3}]


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=2, max_size=9))
def test_the_variance_of_large_ints_is_the_nearest_float(numbers: list[int]) -> None:
    aggregation = Named({"var": variance("x"), "std": stddev("x")})
    aggregates = made(aggregation, pa.int64())
    state = new_state(aggregates)
    add(aggregates, state, [(0, number) for number in numbers], pa.int64())
    assert (
        results(aggregates, state, [0])[0] == in_rows(aggregation, [[(0, number) for number in numbers]], pa.int64())[0]
    )


@given(st.integers(-9, 9), st.integers(0, 99), *[st.integers(0, 9)] * 2)
def test_a_variance_does_not_depend_on_the_terms_of_its_sums(total: int, squares: int, left: int, right: int) -> None:
    in_other_terms = (total << left, left), (squares << right, right)
    assert variance_of(*in_other_terms, 4, 1) == variance_of((total, 0), (squares, 0), 4, 1)


def test_the_sum_of_millions_of_decimals_of_a_key_is_exact() -> None:
    """Their low words have 64 bits, of which floats would represent only the sum of 2**21."""
    type_, rows = pa.decimal128(38, 2), (1 << 21) + 3
    aggregates = made(Named({"sum": sum_("x")}), type_)
    state = new_state(aggregates)
    cells = pa.array([Decimal((1 << 64) - 1).scaleb(-2)], type_).take(pa.array(numpy.zeros(rows, numpy.int64)))
    aggregates[0].add(state, numpy.zeros(rows, numpy.int32), cells)
    assert results(aggregates, state, [0]) == [{"sum": Decimal(((1 << 64) - 1) * rows).scaleb(-2)}]


@pytest.mark.parametrize("of", ["x", None, lambda row: row["x"]])
def test_only_aggregates_of_columns_are_made_for_columns(of: Any) -> None:
    assert columns_read(sum_(of)) == (("x",) if of == "x" else None)


@pytest.mark.parametrize("type_", [pa.string(), pa.decimal256(10, 2), pa.uint64(), pa.float16(), pa.list_(pa.int64())])
def test_types_without_a_column_of_state_are_left_to_rows(type_: Any) -> None:
    assert column_aggregates(sum_("x"), pa.schema([("x", type_)])) is None
    assert column_aggregates(sum_("y"), pa.schema([("x", pa.int64())])) is None
    assert column_aggregates(mean("x"), pa.schema([("x", pa.decimal128(10, 2))])) is None


@pytest.mark.slow
@settings(max_examples=300)
@given(st.lists(st.lists(st.tuples(st.integers(0, 1), WIDE_FLOATS), max_size=30), max_size=6))
def test_sums_of_floats_are_those_of_rows_whatever_cancels(batches: list[list[tuple[int, float]]]) -> None:
    aggregation = Named({"sum": sum_("x"), "mean": mean("x")})
    aggregates = made(aggregation, pa.float64())
    state = new_state(aggregates)
    for batch in batches:
        add(aggregates, state, batch, pa.float64())
    expected = in_rows(aggregation, batches, pa.float64())
    slots = sorted(expected)
    largest = max((abs(x) for batch in batches for _, x in batch if math.isfinite(x)), default=0.0)
    for found, slot in zip(results(aggregates, state, slots), slots, strict=True):
        for name, value in expected[slot].items():
            if math.isfinite(value):
                assert abs(found[name] - value) <= 1e-9 * abs(value) + largest * 2.0**-90, name
            else:
                assert repr(found[name]) == repr(value)


def test_sums_of_many_floats_are_the_nearest_floats() -> None:
    rng = numpy.random.default_rng(7)
    numbers = rng.normal(size=40_000) * 10.0 ** rng.integers(-8, 9, 40_000)
    for cuts in ([40_000], [1, 17, 39_982], [8_000] * 5):
        (total,) = made(Named({"sum": sum_("x")}), pa.float64())
        state = new_state([total])
        for part in numpy.split(numbers, numpy.cumsum(cuts)[:-1]):
            total.add(state, numpy.zeros(len(part), numpy.int32), pa.array(part))
        assert results([total], state, [0]) == [{"sum": math.fsum(numbers)}]
