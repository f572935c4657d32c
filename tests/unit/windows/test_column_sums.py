"""Sums of columns in windows: those of rows, wherever batches are cut."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any, cast

import pyarrow
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from clonos.api.graph import JobGraph
from clonos.api.windows import Tumbling
from clonos.core.model.options import Options
from clonos.core.ports.operator_chain import StepFailed
from clonos.operators.aggregates.exact_numbers import exact
from clonos.operators.aggregates.numeric import Sum
from clonos.operators.state.keyed_state import Table
from clonos.operators.user_errors import Guard
from clonos.operators.windows.window_aggregates import window_aggregate
from tests.harnesses.both_kernels import kernels
from tests.unit.operators.driver import Given, Outbox, Run
from tests.unit.operators.samples import ColumnsGiven

__all__ = ["kernels"]

INT_MAX = (1 << 63) - 1

numbers = st.one_of(
    st.lists(st.one_of(st.none(), st.integers(-INT_MAX - 1, INT_MAX)), max_size=6),
    st.lists(st.one_of(st.none(), st.integers(-9, 9)), max_size=6),
    st.lists(st.one_of(st.none(), st.floats(allow_nan=False)), max_size=6),
    st.lists(st.decimals(-99, 99, places=2), max_size=6),
    st.lists(st.timedeltas(timedelta(-9), timedelta(9)), max_size=6),
    st.lists(st.booleans(), max_size=6),
)


def sums(source: type, terms: list[Any], records_max: int) -> list[tuple[Any, Any]]:
    """Returns the sums of a window by key; keys alternate."""
    graph = JobGraph("job", errors=Outbox())
    rows = graph.source(source([{"k": "ab"[place % 2], "x": term} for place, term in enumerate(terms)]))
    stream = rows.map_batches(lambda batch: batch) if source is ColumnsGiven else rows
    stream.key_by("k").window(Tumbling("1s")).sum("x", name="w").sink(Outbox(), name="out")
    job = Run(graph.compile(Options(), parallelism=1))
    job.finish(records_max)
    errors = job.written.pop("errors", [])
    (results,) = job.written.values() or [[]]
    return [(result.key, result.value) for result in results] + [("error", error.record) for error in errors]


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(numbers, st.integers(1, 3))
@example([INT_MAX, 0, 1], 3)
@example([1e16, 0.0, 1.0, 0.0, -1e16], 3)
@example([timedelta(seconds=5)], 1)
@example([None, 0.0], 1)
def test_the_sum_of_a_column_is_that_of_its_rows(terms: list[Any], records_max: int) -> None:
    assert shown(sums(ColumnsGiven, terms, records_max)) == shown(sums(Given, terms, 1))


def shown(found: list[tuple[Any, Any]]) -> str:
    """Returns sums with their types, but for zeros: the sum of no floats is 0.0 in columns, and 0 in rows."""
    return repr([(key, 0 if value == 0 else value) for key, value in found])


@pytest.mark.parametrize("terms", [["12.5"], ["1", "b"]])
def test_a_column_that_has_no_numbers_goes_to_the_error_output(terms: list[Any]) -> None:
    found = sums(ColumnsGiven, terms, 3)
    assert found == [("error", {"k": "ab"[place], "x": term}) for place, term in enumerate(terms)]


def test_a_column_whose_type_changes_blames_the_record() -> None:
    table, collector = Table({}), cast(Any, None)
    summing, guard = window_aggregate(Sum("x")), Guard("w", False, collector, None)
    for terms in ([Decimal(1)], [2]):
        summing.add_columns(
            table, pyarrow.RecordBatch.from_pylist([{"k": "a", "x": term} for term in terms]), "k", guard
        )
    summing.add_columns(table, pyarrow.RecordBatch.from_pylist([{"k": "b", "x": timedelta(1)}]), "k", guard)
    for bad in ({"k": "a", "x": 0.5}, {"k": "b", "x": 7}):
        with pytest.raises(StepFailed) as caught:
            summing.add_columns(table, pyarrow.RecordBatch.from_pylist([bad]), "k", guard)
        assert caught.value.at.record == repr(bad)
    assert table.entries == {"a": Decimal(3), "b": exact(timedelta(1))}
