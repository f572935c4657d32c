"""Texts of each key over the whole input: the first, the last, the smallest and the largest, and what state has."""

from __future__ import annotations

from typing import Any

import numpy
import pyarrow as pa
import pytest

from clonos.agg import first, last, max_, min_
from clonos.api.emission import changes
from clonos.operators.columnar.running.retained_totals import RetainedTotal
from clonos.operators.kinds.column_totals import TOTALS
from clonos.operators.state.declared_state import StepState
from clonos.operators.state.keyed_state import StateBackend
from tests.harnesses.both_kernels import kernels
from tests.unit.columns.test_column_totals import played

__all__ = ["kernels"]


def test_a_text_is_retained_for_each_key_also_if_another_key_has_the_same() -> None:
    batches = [
        pa.record_batch({"key": ["a", "b", "a"], "x": ["ink", "tea", None]}),
        pa.record_batch({"key": ["c", "b", "a"], "x": ["ink", "ink", "tea"]}),
    ]
    named = {"least": min_("x"), "most": max_("x"), "first": first("x"), "last": last("x")}
    results = played(lambda stream: stream.key_by("key").aggregate(**named, emit=changes()), *batches)
    assert [(key, *each.values()) for key, each in results] == [
        ("a", "ink", "ink", "ink", "ink"),
        ("b", "tea", "tea", "tea", "tea"),
        ("c", "ink", "ink", "ink", "ink"),
        ("b", "ink", "tea", "tea", "ink"),
        ("a", "ink", "tea", "ink", "tea"),
    ]


@pytest.mark.parametrize(
    "aggregation", [first("x"), last("x"), min_("x"), max_("x")], ids=["first", "last", "min", "max"]
)
def test_texts_that_are_no_results_any_more_are_dropped_from_state(aggregation: Any) -> None:
    state = StateBackend(None)
    total = RetainedTotal("word", aggregation, "x", pa.string())
    total.open(StepState(state, "totals", (TOTALS, *total.state_specs)))
    columns = {name: numpy.zeros(2, dtype) for name, dtype in total.dtypes().items()}
    for number in range(50):
        total.add(columns, numpy.array([0, 1, 0]), pa.array([f"{number}", None, f"{-number}"]))
    values = state.row_store("totals/members/word/values")
    assert len(values) == 1
    total.remove(columns, numpy.array([0, 1]))
    assert len(values) == 0
