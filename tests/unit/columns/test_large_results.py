"""Sums over columns never wrap: they are exact whatever their size, and a result that does not fit is an error."""

from __future__ import annotations

from decimal import Decimal
from math import inf, nan
from typing import Any

import numpy
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from clonos.agg import count, mean, stddev, sum_, variance
from clonos.api.emission import at_end, changes, each
from clonos.api.event_time import Timestamps
from clonos.api.graph import JobGraph
from clonos.api.windows import Session, Sliding, Tumbling
from clonos.operators.aggregates.aggregate import Named
from clonos.operators.columnar.refused_results import fitting_results
from clonos.operators.emission_times import Emission
from clonos.operators.kinds.total_kind import name_before
from tests.harnesses.both_kernels import kernels
from tests.unit.columns.test_column_aggregates import add, in_rows, made, new_state, results
from tests.unit.columns.test_column_windows import START, ColumnsOf
from tests.unit.columns.test_partial_aggregates import partial_always
from tests.unit.operators.driver import Outbox, Run, run

__all__ = ["kernels"]

INT_MAX = 2**63 - 1
LARGE = st.sampled_from([INT_MAX, -INT_MAX - 1, 1, -1, 2**62, -(2**62), 2**53 + 1]) | st.integers(-9, 9)
FLOATS = st.sampled_from([2.0**1023, -(2.0**1023), 1.5 * 2.0**1023, -(2.0**1022), 2.0**1000, -(2.0**900), inf, nan])
DECIMALS = st.sampled_from([10**38 - 1, -(10**38) + 1, 1, -(10**37), 2**64]).map(Decimal)


def add_batches(aggregates: Any, state: Any, batches: list[Any], type_: Any, has_panes: bool) -> None:
    """Adds values of slots, by way of a state of each batch with ``has_panes``."""
    for batch in batches:
        pane = new_state(aggregates) if has_panes else state
        add(aggregates, pane, batch, type_)
        slots = numpy.unique(numpy.array([slot for slot, _ in batch], numpy.int32))
        for each_ in aggregates if has_panes else ():
            each_.merge(state, slots, {name: column[slots] for name, column in pane.items()})


@pytest.mark.parametrize("has_panes", [False, True])
@pytest.mark.parametrize("type_", [pa.int64(), pa.decimal128(38, 0)])
@given(st.data())
def test_sums_are_exact_whatever_their_size_and_those_that_do_not_fit_are_found(
    type_: Any, has_panes: bool, data: st.DataObject
) -> None:
    is_int = type_ == pa.int64()
    values = st.tuples(st.integers(0, 2), LARGE if is_int else DECIMALS)
    batches = data.draw(st.lists(st.lists(values, max_size=6), max_size=6))
    aggregation = Named({"sum": sum_("x"), **({"mean": mean("x"), "var": variance("x")} if is_int else {})})
    aggregates = made(aggregation, type_)
    state = new_state(aggregates)
    add_batches(aggregates, state, batches, type_, has_panes)
    expected = in_rows(aggregation, batches, type_)
    limit, keys = INT_MAX + 1 if is_int else 10**38, sorted(expected)
    fitting = fitting_results(aggregates, state, numpy.array(keys, numpy.int32), lambda place, error: None)
    fits = [True] * len(keys) if fitting is None else fitting.tolist()
    assert fits == [-limit - is_int < expected[slot]["sum"] < limit for slot in keys]
    for found, slot, is_fitting in zip(results(aggregates, state, keys), keys, fits, strict=True):
        if not is_fitting:
            del found["sum"], expected[slot]["sum"]
        assert found == expected[slot]


@pytest.mark.parametrize("has_panes", [False, True])
@given(batches=st.lists(st.lists(st.tuples(st.integers(0, 1), FLOATS), max_size=5), max_size=5))
@example(batches=[[(0, 1e308), (0, 1e308)], [(0, -1e308), (0, 1e308)]])
def test_a_sum_of_floats_beyond_all_floats_on_the_way_is_exact_wherever_batches_are_cut(
    batches: list[list[tuple[int, float]]], has_panes: bool
) -> None:
    aggregation = Named({"sum": sum_("x"), "mean": mean("x")})
    aggregates = made(aggregation, pa.float64())
    state = new_state(aggregates)
    add_batches(aggregates, state, batches, pa.float64(), has_panes)
    expected = in_rows(aggregation, batches, pa.float64())
    found = dict(zip(expected, results(aggregates, state, list(expected)), strict=True))
    assert str(found) == str(expected)  # nan is not equal to itself


def test_a_variance_of_floats_fits_where_squares_do() -> None:
    aggregation = Named({"var": variance("x"), "std": stddev("x")})
    aggregates = made(aggregation, pa.float64())
    state = new_state(aggregates)
    batch = [(0, 1e150), (0, 3e150), (1, 1e308), (1, 1e308), (2, inf), (2, 1.0)]
    add(aggregates, state, batch, pa.float64())
    assert results(aggregates, state, [0])[0] == pytest.approx(in_rows(aggregation, [batch], pa.float64())[0])
    refused: list[Exception] = []
    fits = fitting_results(aggregates, state, numpy.arange(3), lambda place, error: refused.append(error))
    assert fits is not None
    assert fits.tolist() == [True, False, True]
    assert "of the type double: divide what it is computed of in front of the step" in str(refused[0])


def played(build: Any, rows: list[dict[str, Any]], records_max: int) -> tuple[list[Any], list[str]]:
    """Runs a job over columns; returns its results and what the error output gets."""
    graph = JobGraph("job", errors=Outbox())
    stream = graph.source(ColumnsOf(rows), timestamps=Timestamps("at", future_max=None))
    build(stream).select("total", "n", name="flat").sink(Outbox())
    finished: Run = run(graph, 1, records_max)
    errors = finished.written.pop("errors", [])
    (written,) = finished.written.values() or ([],)
    return [(row["total"], row["n"]) for row in written], [f"{each.record} {each.error}" for each in errors]


def records(keys: str, x: int) -> list[dict[str, Any]]:
    return [{"key": key, "at": START + at, "x": x, "y": 0.0} for at, key in enumerate(keys)]


@pytest.mark.parametrize("records_max", [1, 9])
@pytest.mark.parametrize(
    ("emit", "expected"),
    [
        (each(1), [(2**62, 1), (2**62, 1), (2**62 - 1, 3)]),
        (each(2), [(2**62, 1), (2**62 - 1, 3)]),
        (at_end(), [(2**62 - 1, 3), (2**62, 1)]),
    ],
    ids=str,
)
def test_a_total_that_does_not_fit_is_an_error_and_later_ones_that_fit_are_results(
    emit: Emission, expected: list[Any], records_max: int, kernels: None
) -> None:
    rows = records("aaba", 2**62)
    rows[-1]["x"] = -(2**62) - 1
    named: dict[str, Any] = {"n": count(), "total": sum_("x")}
    found, errors = played(lambda stream: stream.key_by("key").aggregate(emit=emit, **named), rows, records_max)
    assert found == expected
    assert len(errors) == (not emit.is_final)
    for error in errors:
        assert "'key': 'a'" in error
        assert "ResultTooLarge: the result 'total' is too large for its column, which is of the type int64" in error


def test_a_change_replaces_no_result_where_the_one_before_did_not_fit() -> None:
    rows = records("aaa", 2**62)
    rows[-1]["x"] = -(2**62) - 1
    before = name_before("total")

    def build(stream: Any) -> Any:
        totals = stream.key_by("key").aggregate(emit=changes(before=True), n=count(), total=sum_("x"))
        return totals.select("total", n=before)

    found, errors = played(build, rows, 1)
    assert found == [(2**62, None), (2**62 - 1, None)]
    assert len(errors) == 1


@pytest.mark.parametrize("has_partials", [False, True])
@pytest.mark.parametrize("records_max", [1, 9])
@pytest.mark.parametrize("window", [Tumbling("60s"), Sliding("60s", every="2s"), Session("3s")], ids=str)
def test_a_window_whose_sum_does_not_fit_is_an_error_and_others_are_results(
    window: Any, records_max: int, has_partials: bool
) -> None:
    rows = records("abaaa", 2**61)

    def build(stream: Any) -> Any:
        return stream.key_by("key").window(window).aggregate(n=count(), total=sum_("x"))

    if has_partials:
        with partial_always():
            found, errors = played(build, rows, records_max)
    else:
        found, errors = played(build, rows, records_max)
    assert all(total == n * 2**61 for total, n in found)
    assert {(2**61, 1)} <= set(found)
    assert errors
    for error in errors:
        assert error.startswith("{'key': 'a', 'start': ")
        assert "too large for its column, which is of the type int64" in error
