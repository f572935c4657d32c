"""Values in columns of the plan: none becomes another one, and each error says one thing."""

from __future__ import annotations

from math import inf

import pyarrow as pa

from clonos.operators.columnar.fitting import ColumnMisfit, as_planned
from clonos.operators.columnar.refused_results import ResultTooLarge


def test_a_float_that_its_planned_type_would_make_infinite_does_not_fit() -> None:
    """The second file of a folder had 1e300 where the first one has floats of 32 bits: the result was infinite."""
    given = pa.record_batch({"x": pa.array([1.5, 1e300, inf, None, -1e300])})
    fitted, misfits = as_planned(given, pa.schema([("x", pa.float32())]))
    assert fitted.column("x").to_pylist() == [1.5, None, inf, None, None]
    assert {index: error.value for index, error in misfits.items()} == {1: "1e+300", 4: "-1e+300"}


def test_the_advice_is_a_sentence_of_its_own() -> None:
    for error in (ColumnMisfit("x", "'a'", "int64"), ResultTooLarge("total", "int64")):
        assert str(error) == f"{error.set_aside_text()}. Job(..., errors=sink) sets such records aside."
