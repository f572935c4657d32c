"""The highest rows of each number, against a loop in Python."""

from __future__ import annotations

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clonos.kernels.ranks import NO_ROW, highest_rows, insert_highest
from tests.harnesses.both_kernels import kernels

__all__ = ["kernels"]

NUMBERS = 4
EXTREMES = [-(1 << 63), (1 << 63) - 1]
ROWS = st.lists(st.tuples(st.integers(0, NUMBERS - 1), st.integers(-3, 3) | st.sampled_from(EXTREMES)), max_size=40)


def by_loop(numbers: list[int], ranks: list[int], k: int) -> list[bool]:
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


@given(ROWS, st.integers(1, 4))
def test_the_highest_rows_are_those_of_a_loop(rows: list[tuple[int, int]], k: int) -> None:
    numbers, ranks = [row[0] for row in rows], [row[1] for row in rows]
    found = highest_rows(numpy.array(numbers, numpy.int32), numpy.array(ranks, numpy.int64), k, NUMBERS)
    assert found.dtype == numpy.bool_
    assert found.tolist() == by_loop(numbers, ranks, k)


@pytest.mark.parametrize("number", [-1, NUMBERS, 1 << 30])
def test_a_number_outside_is_refused(number: int) -> None:
    with pytest.raises(IndexError, match="and 0 to 3 exist"):
        highest_rows(numpy.array([0, number], numpy.int32), numpy.zeros(2, numpy.int64), 2, NUMBERS)


@given(ROWS, st.integers(1, 4), st.integers(1, 9), st.booleans())
def test_candidates_are_inserted_as_in_a_loop(rows: list[tuple[int, int]], k: int, part: int, has_lists: bool) -> None:
    ranks, numbers = numpy.zeros((NUMBERS, k), numpy.int64), numpy.full((NUMBERS, k), NO_ROW)
    counts, top = numpy.zeros(NUMBERS, numpy.int64), [list[tuple[int, int]]() for _ in range(NUMBERS)]
    for first in range(0, len(rows), part):
        slots, given = (numpy.array(each, numpy.int64) for each in zip(*rows[first : first + part], strict=True))
        found = insert_highest(ranks, numbers, counts, slots, given, has_lists=has_lists)
        lists = list[int]()
        for place, (slot, rank) in enumerate(rows[first : first + part]):
            theirs, new = top[slot], (rank, NO_ROW - 1 - place)
            theirs.append(new)
            theirs.sort(key=lambda each: -each[0])  # which is stable
            left = theirs.pop() if len(theirs) > k else (0, NO_ROW)
            above = theirs.index(new) if new in theirs and left is not new else k
            size = len(theirs) if above < k else 0
            assert (found.above[place], found.size[place]) == (above, size)
            assert found.left[place] == (left[1] if above < k else NO_ROW)
            lists += [number for _, number in theirs] if above < k else []
        assert found.lists.tolist() == (lists if has_lists else [])
        for slot, theirs in enumerate(top):
            theirs[:] = [(rank, number if number >= 0 else first - number) for rank, number in theirs]
            assert ranks[slot, : counts[slot]].tolist() == [rank for rank, _ in theirs]
            numbers[slot, : counts[slot]] = [number for _, number in theirs]


@pytest.mark.parametrize("slot", [-1, NUMBERS, 1 << 30])
def test_a_slot_outside_is_refused(slot: int) -> None:
    cells, counts = numpy.zeros((NUMBERS, 2), numpy.int64), numpy.zeros(NUMBERS, numpy.int64)
    slots, ranks = numpy.array([0, slot]), numpy.zeros(2, numpy.int64)
    with pytest.raises(IndexError, match="and 0 to 3 exist"):
        insert_highest(cells, cells.copy(), counts, slots, ranks, has_lists=False)
