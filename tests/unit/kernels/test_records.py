"""Kernels that make datetimes and dicts: what they refuse."""

from __future__ import annotations

from typing import Any

import numpy
import pytest

from clonos.kernels.records import datetimes, dicts
from tests.harnesses.both_kernels import kernels  # noqa: F401


@pytest.mark.parametrize(
    ("names", "columns", "count"),
    [(["a"], [[1]], 2), (["a"], [[1, 2]], 1), (["a", "b"], [[1]], 1), ([], [[1]], 1)],
)
def test_columns_of_another_length_are_refused(names: list[str], columns: list[list[Any]], count: int) -> None:
    with pytest.raises(ValueError, match="rows"):
        dicts(names, columns, count)


def test_rows_without_columns_are_separate_dicts() -> None:
    first, second = dicts([], [], 2)
    assert first == second == {}
    assert first is not second


@pytest.mark.parametrize("us", [-62_135_596_800_000_001, 253_402_300_800_000_000, -(1 << 63), (1 << 63) - 1])
def test_a_year_that_python_does_not_have_is_an_overflow(us: int) -> None:
    with pytest.raises(OverflowError, match="out of range"):
        datetimes(numpy.array([0, us]), None)
