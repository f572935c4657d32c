"""Distinct slots of a batch, and running counts, sums and extremes by slot.

For columns of state ``numpy.add.at`` and its kind are as fast as C: both wait for the memory of the column.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy

from clonos.kernels import choice
from clonos.kernels.index import new_index

if TYPE_CHECKING:
    from numpy.typing import NDArray

SUM, LEAST, MOST, FLOATS = 0, 1, 2, 2
"""Reductions of the native kernel; ``FLOATS`` is added to extremes of floats."""

NO_BOOLS = numpy.empty(0, numpy.bool_)


def distinct_slots(slots: NDArray[Any]) -> tuple[NDArray[numpy.int64], NDArray[numpy.int32]]:
    """Returns the distinct slots in the order of first occurrence, and the number of each row's slot among them."""
    index = new_index("int64")
    numbers = index.add(slots.astype(numpy.int64, copy=False))
    return index.keys(), numbers


def running_counts(totals: NDArray[numpy.int64], slots: NDArray[Any]) -> NDArray[numpy.int64]:
    """Returns for each row how often its slot has occurred so far, and brings ``totals``, by slot, up to date.

    Raises: IndexError, if a slot is not within ``totals``.
    """
    if choice.native is not None and totals.dtype == numpy.int64 and totals.flags.c_contiguous:
        counts = numpy.empty(len(slots), numpy.int64)
        choice.native.running_counts(numpy.ascontiguousarray(slots, numpy.int32), totals, counts)
        return counts
    if len(slots) and not (slots.min() >= 0 and slots.max() < len(totals)):
        raise IndexError(f"slots from {slots.min()} to {slots.max()} were given, and 0 to {len(totals) - 1} exist")
    order = numpy.argsort(slots, kind="stable")
    ordered = slots[order]
    begins = numpy.flatnonzero(numpy.concatenate(([True], ordered[1:] != ordered[:-1])))[: len(slots)]
    sizes = numpy.diff(numpy.append(begins, len(slots)))
    distinct = ordered[begins]
    counts = numpy.empty(len(slots), numpy.int64)
    counts[order] = numpy.arange(1, len(slots) + 1) + numpy.repeat(totals[distinct] - begins, sizes)
    totals[distinct] += sizes
    return counts


def running_sums(
    totals: NDArray[numpy.int64], slots: NDArray[Any], values: NDArray[numpy.int64], is_valid: NDArray[numpy.bool_]
) -> NDArray[Any] | None:
    """Returns for each row the sum of its slot so far, without invalid rows, and brings ``totals`` up to date.

    Returns None without the native kernel: sums and extremes in numpy are made for all aggregates at once
    (``clonos.operators.columnar.running.scans``).

    Raises: IndexError, if a slot is not within ``totals``.
    """
    if choice.native is None or totals.dtype != numpy.int64:
        return None
    return _run(SUM, slots, values, is_valid, totals, NO_BOOLS)[0]


def running_extremes(
    totals: NDArray[Any],
    has_value: NDArray[numpy.bool_],
    slots: NDArray[Any],
    values: NDArray[Any],
    is_valid: NDArray[numpy.bool_],
    *,
    is_largest: bool,
) -> tuple[NDArray[Any], NDArray[numpy.bool_]] | None:
    """Returns for each row the extreme value of its slot so far, and whether there is one, as ``running_sums`` does.

    A nan gives way to any number.

    Raises: IndexError, if a slot is not within ``totals``.
    """
    if choice.native is None or totals.dtype not in (numpy.int64, numpy.float64):
        return None
    what = (MOST if is_largest else LEAST) + (FLOATS if totals.dtype == numpy.float64 else 0)
    return _run(what, slots, values, is_valid, totals, has_value)


def _run(
    what: int,
    slots: NDArray[Any],
    values: NDArray[Any],
    is_valid: NDArray[Any],
    totals: NDArray[Any],
    has: NDArray[Any],
) -> tuple[NDArray[Any], NDArray[numpy.bool_]]:
    found, found_has = numpy.empty(len(slots), totals.dtype), numpy.empty(len(slots) if len(has) else 0, numpy.bool_)
    values, slots = numpy.ascontiguousarray(values, totals.dtype), numpy.ascontiguousarray(slots, numpy.int32)
    assert choice.native is not None
    choice.native.run_values(what, slots, values, numpy.ascontiguousarray(is_valid), totals, has, found, found_has)
    return found, found_has
