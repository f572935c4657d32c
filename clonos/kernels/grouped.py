"""Reductions by slot: sums, minima, maxima and counts in columns of state, positions and running counts in a batch.

``numpy.add.at`` and its kind are as fast as C here: both wait for the memory of the column.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy

from clonos.kernels import choice
from clonos.kernels.index import new_index

if TYPE_CHECKING:
    from numpy.typing import NDArray


def add_at(column: NDArray[Any], slots: NDArray[Any], values: NDArray[Any] | int | float) -> None:
    """Adds each value to the column at its slot, in the order of rows."""
    numpy.add.at(column, slots, values)


def count_at(column: NDArray[numpy.int64], slots: NDArray[Any]) -> None:
    """Adds to the column, at each slot, how often it is given."""
    numpy.add.at(column, slots, 1)


def minimum_at(column: NDArray[Any], slots: NDArray[Any], values: NDArray[Any]) -> None:
    """Lowers the column at each slot to the value, if that is less."""
    numpy.minimum.at(column, slots, values)


def maximum_at(column: NDArray[Any], slots: NDArray[Any], values: NDArray[Any]) -> None:
    """Raises the column at each slot to the value, if that is greater."""
    numpy.maximum.at(column, slots, values)


def distinct_slots(slots: NDArray[Any]) -> tuple[NDArray[numpy.int64], NDArray[numpy.int32]]:
    """Returns the distinct slots in the order of first occurrence, and the number of each row's slot among them."""
    index = new_index("int64")
    numbers = index.add(slots.astype(numpy.int64, copy=False))
    return index.keys(), numbers


def last_rows(slots: NDArray[Any]) -> tuple[NDArray[numpy.int64], NDArray[numpy.int64]]:
    """Returns the distinct slots in the order of first occurrence, and the last row of each."""
    distinct, numbers = distinct_slots(slots)
    rows = numpy.empty(len(distinct), numpy.int64)
    rows[numbers] = numpy.arange(len(slots))  # numpy keeps the last of several values for one place
    return distinct, rows


def first_rows(slots: NDArray[Any]) -> tuple[NDArray[numpy.int64], NDArray[numpy.int64]]:
    """Returns the distinct slots in the order of first occurrence, and the first row of each."""
    distinct, numbers = distinct_slots(slots)
    rows = numpy.empty(len(distinct), numpy.int64)
    rows[numbers[::-1]] = numpy.arange(len(slots))[::-1]
    return distinct, rows


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
