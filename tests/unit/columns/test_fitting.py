"""Values in columns of the plan: none becomes another one, and each error says one thing."""

from __future__ import annotations

from decimal import Decimal
from math import inf, nan
from typing import Any

import pyarrow as pa
import pytest

from clonos.operators.columnar.fitting import ColumnMisfit, as_planned
from clonos.operators.columnar.refused_results import ResultTooLarge


@pytest.mark.parametrize(
    ("given", "planned", "fitting"),
    [
        (
            [1.5, 1e300, inf, None, -1e300, 0.1, -0.0, 1e-50],
            pa.float32(),
            [1.5, None, inf, None, None, None, -0.0, None],
        ),
        ([0.5, 1 / 3, 65_504.0, 65_536.0, -inf], pa.float16(), [0.5, None, 65_504.0, None, -inf]),
        ([2_048, 2_049, 70_000, 2**63 - 1, None], pa.float16(), [2_048.0, None, None, None, None]),
        ([2**24, 2**24 + 1], pa.float32(), [2.0**24, None]),
        ([2**53, 2**53 + 1], pa.float64(), [2.0**53, None]),
        ([Decimal("1.20"), Decimal("1.25")], pa.decimal128(9, 1), [Decimal("1.2"), None]),
    ],
    ids=str,
)
def test_a_number_that_its_planned_type_would_round_does_not_fit(
    given: list[Any], planned: Any, fitting: list[Any]
) -> None:
    """The second file of a folder may have 1e300 or 0.1 where the first one has floats of 32 bits."""
    fitted, misfits = as_planned(pa.record_batch({"x": pa.array(given)}), pa.schema([("x", planned)]))
    assert str(fitted.column("x").to_pylist()) == str(fitting)  # -0.0 is not 0.0
    wrong = [index for index, (value, found) in enumerate(zip(given, fitting, strict=True)) if value and found is None]
    assert {index: error.value for index, error in misfits.items()} == {index: repr(given[index]) for index in wrong}


def test_nan_fits_floats_of_any_size() -> None:
    fitted, misfits = as_planned(pa.record_batch({"x": pa.array([nan])}), pa.schema([("x", pa.float16())]))
    assert (str(fitted.column("x").to_pylist()), misfits) == ("[nan]", {})


def test_the_advice_is_a_sentence_of_its_own() -> None:
    for error in (ColumnMisfit("x", "'a'", "int64"), ResultTooLarge("total", "int64")):
        assert str(error) == f"{error.set_aside_text()}. Job(..., errors=sink) sets such records aside."
