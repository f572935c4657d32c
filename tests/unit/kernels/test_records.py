"""Kernels that make datetimes and dicts: what they refuse."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from typing import Any
from zoneinfo import ZoneInfo

import numpy
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from clonos.kernels import choice
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


ZONES = st.sampled_from([None, UTC, timezone(timedelta(hours=-7)), ZoneInfo("Europe/Berlin")])


@given(st.lists(st.datetimes().map(lambda each: each.replace(fold=0)), max_size=20), ZONES)
@example([datetime.min, datetime.max, datetime(2000, 2, 29), datetime(1900, 3, 1), datetime(1969, 12, 31, 23)], UTC)
def test_walls_of_datetimes_are_those_that_python_computes(cells: list[datetime], zone: tzinfo | None) -> None:
    if choice.native is not None:
        found = choice.native.walls([cell.replace(tzinfo=zone) for cell in cells])
        assert found == [(cell - datetime(1970, 1, 1)) // timedelta(microseconds=1) for cell in cells]


class Late(datetime):
    """Not a datetime of Python's."""


@pytest.mark.parametrize(
    "other",
    [1, None, date(2026, 1, 1), Late(2026, 1, 1), datetime(2026, 1, 1, fold=1), datetime(2026, 1, 1, tzinfo=UTC)],
)
def test_cells_that_are_no_datetimes_of_one_zone_have_no_walls(other: Any) -> None:
    if choice.native is not None:
        assert choice.native.walls((datetime(2026, 1, 1), other)) is None
        with pytest.raises(TypeError, match="a list or a tuple"):
            choice.native.walls(iter([other]))
