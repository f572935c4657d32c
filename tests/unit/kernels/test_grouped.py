"""Reductions by slot, against loops in Python."""

from __future__ import annotations

from math import copysign
from typing import Any

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clonos.kernels import choice, grouped
from tests.harnesses.both_kernels import kernels

__all__ = ["kernels"]

SLOTS = 6
ROWS = st.lists(st.tuples(st.integers(0, SLOTS - 1), st.integers(-(1 << 40), 1 << 40)), max_size=60)
KINDS = st.sampled_from([numpy.int32, numpy.int64])


@given(ROWS, KINDS)
def test_running_counts_go_on_from_the_totals(rows: list[tuple[int, int]], kind: Any) -> None:
    totals, wanted = numpy.arange(SLOTS), []
    model = totals.tolist()
    for slot, _ in rows:
        model[slot] += 1
        wanted.append(model[slot])
    assert grouped.running_counts(totals, numpy.array([row[0] for row in rows], kind)).tolist() == wanted
    assert totals.tolist() == model


@pytest.mark.parametrize("slot", [-1, SLOTS, 1 << 30])
def test_a_slot_that_does_not_exist_is_refused(slot: int) -> None:
    totals = numpy.zeros(SLOTS, numpy.int64)
    with pytest.raises(IndexError):
        grouped.running_counts(totals, numpy.array([0, slot], numpy.int32))


NUMBERS: dict[Any, Any] = {
    numpy.int64: st.sampled_from([-(1 << 63), -7, 0, 7, (1 << 63) - 1]),
    numpy.float64: st.sampled_from([-1.5, -0.0, 0.0, 2.5, float("inf"), float("nan")]),
}


def _place(number: Any) -> Any:
    return number, copysign(1, number)  # -0.0 is before 0.0


@given(st.data(), st.sampled_from(list(NUMBERS)), st.booleans())
def test_running_extremes_are_those_of_a_loop(data: st.DataObject, kind: Any, is_largest: bool) -> None:
    rows = data.draw(st.lists(st.tuples(st.integers(0, SLOTS - 1), st.none() | NUMBERS[kind]), max_size=40))
    totals, has = numpy.full(SLOTS, 3, kind), numpy.arange(SLOTS) % 2 == 0
    model: dict[int, Any] = {slot: totals[slot].item() for slot in range(0, SLOTS, 2)}
    wanted = []
    for slot, value in rows:
        others = [each for each in (value, model.get(slot)) if each is not None]
        numbers = [each for each in others if each == each]
        if others:
            model[slot] = (max if is_largest else min)(numbers, key=_place) if numbers else others[0]
        wanted.append(repr(model.get(slot)))
    slots, values = (
        numpy.array([row[0] for row in rows], numpy.int32),
        numpy.array([0 if row[1] is None else row[1] for row in rows], kind),
    )
    is_valid = numpy.array([row[1] is not None for row in rows], numpy.bool_)
    found = grouped.running_extremes(totals, has, slots, values, is_valid, is_largest=is_largest)
    if found is None:
        assert choice.native is None
        return
    assert [
        repr(value) if any_ else "None" for value, any_ in zip(*map(numpy.ndarray.tolist, found), strict=True)
    ] == wanted
    assert {slot: repr(totals[slot].item()) for slot in numpy.flatnonzero(has).tolist()} == {
        slot: repr(value) for slot, value in model.items()
    }


@given(ROWS, KINDS)
def test_running_sums_wrap_and_leave_invalid_rows_out(rows: list[tuple[int, int]], kind: Any) -> None:
    totals, slots = numpy.full(SLOTS, (1 << 63) - 5), numpy.array([row[0] for row in rows], kind)
    values, is_valid = (
        numpy.array([row[1] for row in rows], numpy.int64),
        numpy.array([row[1] % 3 > 0 for row in rows], bool),
    )
    model, wanted = totals.copy(), []
    for slot, value, counts in zip(slots, values, is_valid, strict=True):
        model[slot : slot + 1] += value * counts
        wanted.append(model[slot])
    found = grouped.running_sums(totals, slots, values, is_valid)
    if found is None:
        assert choice.native is None
        return
    assert found.tolist() == wanted
    assert totals.tolist() == model.tolist()
