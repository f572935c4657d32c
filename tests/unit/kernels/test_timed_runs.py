"""Runs of timed records: their order, merged runs, and where the records of a key lie."""

from __future__ import annotations

from typing import Any

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clonos.kernels import choice
from clonos.kernels.timed_runs import NO_BEGINS, Run, bounds, merged, new_run
from tests.harnesses.both_kernels import kernels

__all__ = ["kernels"]

LEAST, HIGHEST = -(1 << 63), (1 << 63) - 1
SLOTS = st.integers(0, 5) | st.sampled_from([0, 2047, 2048, 1 << 22])
TIMES = st.integers(-5, 5) | st.integers(LEAST, HIGHEST) | st.sampled_from([LEAST, HIGHEST, -1, 1 << 40])
RECORDS = st.lists(st.tuples(SLOTS, TIMES), min_size=1, max_size=60)


def ints(values: Any) -> Any:
    return numpy.array(list(values), numpy.int64)


def run_of(records: list[tuple[int, int]], first: int = 0) -> Run:
    """The run of records that arrived with the numbers from ``first`` on."""
    slots, times = zip(*records, strict=True)
    return new_run(ints(slots), ints(times), numpy.arange(first, first + len(records)))


def listed(run: Run) -> list[tuple[int, int, int]]:
    return list(zip(run.slots.tolist(), run.times.tolist(), run.numbers.tolist(), strict=True))


@given(RECORDS, RECORDS)
def test_runs_are_sorted_by_slot_time_and_arrival(first: Any, second: Any) -> None:
    both = [(slot, time, number) for number, (slot, time) in enumerate([*first, *second])]
    runs = run_of(first), run_of(second, len(first))
    assert [listed(run) for run in runs] == [sorted(both[: len(first)]), sorted(both[len(first) :])]
    whole = merged(*runs)
    assert listed(whole) == sorted(both)
    assert whole.earliest_ns == min(time for _, time, _ in both)
    late = whole.times > whole.earliest_ns
    if late.any():
        left = whole.only(late)
        assert listed(left) == sorted(each for each in both if each[1] > whole.earliest_ns)
        assert left.earliest_ns == min(time for _, time, _ in both if time > whole.earliest_ns)


@given(RECORDS, st.lists(st.tuples(SLOTS | st.just(-1), TIMES, TIMES), max_size=40), st.sampled_from([1, 9]))
def test_bounds_enclose_the_records_of_a_key_in_a_range_of_time(records: Any, asked: Any, repeats: int) -> None:
    run = run_of(records)
    asked = asked * repeats  # a run that is searched often has a table
    low, high = bounds(run, *(ints(each[place] for each in asked) for place in range(3)))
    found = [run.numbers[start:end].tolist() for start, end in zip(low, high, strict=True)]
    records_of = listed(run)
    assert found == [
        [number for slot, time, number in records_of if slot == wanted and first <= time <= last]
        for wanted, first, last in asked
    ]


def test_native_runs_refuse_arrays_of_other_lengths() -> None:
    native = choice.native
    if native is None:
        pytest.skip("the twin takes arrays of numpy, which checks them")
    two, three = ints([1, 2]), ints([1, 2, 3])
    with pytest.raises(ValueError, match="times has 3 items, and 2 are needed"):
        native.run_order(two, three, two.copy())
    with pytest.raises(ValueError, match="order has 3 items, and 2 are needed"):
        native.run_order(two, two, three.copy())
    with pytest.raises(ValueError, match="order has 3 items, and 2 are needed"):
        native.merged_order(two, two, 1, three.copy())
    with pytest.raises(IndexError, match="the second run begins at 3 of 2"):
        native.merged_order(two, two, 3, two.copy())
    with pytest.raises(ValueError, match="timestamps has 3 items, and 2 are needed"):
        native.run_bounds(two, two, NO_BEGINS, two, three, two, two.copy(), two.copy())
    with pytest.raises(ValueError, match="bounds has 3 items, and 2 are needed"):
        native.run_bounds(two, two, NO_BEGINS, two, two, two, three.copy(), two.copy())


def test_native_tables_of_begins_are_refused_for_other_runs() -> None:
    native = choice.native
    if native is None:
        pytest.skip("the twin has no such table")
    slots, three = ints([4, 4, 6]), ints([0, 0, 0])
    begins = numpy.zeros(4, numpy.int32)
    native.run_begins(slots, begins)
    assert begins.tolist() == [0, 2, 2, 3]
    with pytest.raises(IndexError, match="slots from 4 on have no place in a table of 2"):
        native.run_begins(slots, begins[:3].copy())
    with pytest.raises(IndexError, match="slots from 4 on have no place"):
        native.run_begins(ints([4, 3]), begins.copy())
    with pytest.raises(IndexError, match="the table of begins is that of another run"):
        native.run_bounds(slots[:2], three[:2], begins, slots, three, three, three.copy(), three.copy())
