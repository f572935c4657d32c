"""The highest rows of each number, against a loop in Python."""

from __future__ import annotations

from typing import Any

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clonos.kernels.ranks import highest_rows
from tests.harnesses.both_kernels import kernels

__all__ = ["kernels"]

NUMBERS = 4
EXTREMES = [-(1 << 63), (1 << 63) - 1]
RANKS: Any = {
    numpy.int64: st.integers(-3, 3) | st.sampled_from(EXTREMES),
    numpy.float64: st.sampled_from([-2.5, -1.0, -0.0, 0.0, 1.0, 1e300, float("inf"), float("-inf")]),
}


def by_loop(numbers: list[int], ranks: list[Any], k: int) -> list[bool]:
    """Those of the present k highest after each row that are there at the end, or that were first."""
    top: dict[int, list[int]] = {}
    first = set[int]()
    for row, number in enumerate(numbers):
        rows = top.setdefault(number, [])
        if all(ranks[row] > ranks[other] for other in range(row) if numbers[other] == number):
            first.add(row)
        rows.append(row)
        rows.sort(key=lambda row: -ranks[row])  # which is stable
        del rows[k:]
    return [row in first or row in top[number] for row, number in enumerate(numbers)]


@given(st.data(), st.sampled_from(list(RANKS)), st.integers(1, 4))
def test_the_highest_rows_are_those_of_a_loop(data: st.DataObject, kind: Any, k: int) -> None:
    rows = data.draw(st.lists(st.tuples(st.integers(0, NUMBERS - 1), RANKS[kind]), max_size=40))
    numbers, ranks = [row[0] for row in rows], [row[1] for row in rows]
    found = highest_rows(numpy.array(numbers, numpy.int32), numpy.array(ranks, kind), k, NUMBERS)
    assert found.dtype == numpy.bool_
    assert found.tolist() == by_loop(numbers, ranks, k)


@pytest.mark.parametrize("number", [-1, NUMBERS, 1 << 30])
def test_a_number_outside_is_refused(number: int) -> None:
    with pytest.raises(IndexError, match="and 0 to 3 exist"):
        highest_rows(numpy.array([0, number], numpy.int32), numpy.zeros(2, numpy.int64), 2, NUMBERS)
