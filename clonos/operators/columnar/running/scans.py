"""Running states of aggregates within a batch: for each record, that of the records of its key up to it.

Counts, sums of ints, least and largest values have a native kernel, which adds a record at a time. For others, and
without it, the records of a batch are sorted by slot, and states are merged with those 1, 2, 4, ... records before
them. So the cost grows with the logarithm of the records of one key, and any aggregate that can merge has running
results.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy

from clonos.kernels import choice, grouped
from clonos.operators.columnar.column_aggregates import (
    CountColumn,
    ExtremeColumn,
    MeanColumn,
    SumColumn,
    numbers_of,
)

if TYPE_CHECKING:
    from clonos.operators.columnar.column_aggregates import ColumnAggregate, Slots, State


def running_states(aggregates: Sequence[ColumnAggregate], totals: State, slots: Slots, cells: Sequence[Any]) -> State:
    """Returns the state of each aggregate after each record of a batch, and brings ``totals``, by slot, up to date.

    ``cells``: for each aggregate the Arrow array that it reads, None if it reads none.
    """
    found: dict[str, Any] = {}
    left = []
    for each, column in zip(aggregates, cells, strict=True):
        states = _row_by_row(each, totals, slots, column)
        found |= states or {}
        left += [] if states else [(each, column)]
    return found | _scanned(left, totals, slots) if left else found


def _row_by_row(aggregate: ColumnAggregate, totals: State, slots: Slots, cells: Any) -> dict[str, Any] | None:
    """Returns the same of one aggregate, from a kernel that adds a row at a time; None if there is none for it."""
    names = list(aggregate.dtypes())
    if (own := aggregate.running(totals, slots, cells)) is not None:
        return own
    if type(aggregate) is CountColumn:
        return {names[0]: grouped.running_counts(totals[names[0]], slots)}
    if type(aggregate) not in (SumColumn, MeanColumn, ExtremeColumn) or choice.native is None:
        return None
    dtype = aggregate.dtypes()[names[0]]
    if cells.null_count:
        is_valid, numbers = cells.is_valid().to_numpy(zero_copy_only=False), numpy.zeros(len(slots), dtype)
        numbers[is_valid] = numbers_of(cells.drop_null(), dtype)
    else:
        is_valid, numbers = numpy.ones(len(slots), numpy.bool_), numbers_of(cells, dtype)
    if isinstance(aggregate, ExtremeColumn):
        values, has_value = (totals[name] for name in names)
        pair = grouped.running_extremes(values, has_value, slots, numbers, is_valid, is_largest=aggregate.is_largest)
        return None if pair is None else dict(zip(names, pair, strict=True))
    assert isinstance(aggregate, SumColumn)
    if not aggregate.has_room_for(totals, slots, numbers):
        return None
    total, carry, *count = names
    found: dict[str, Any] = {carry: totals[carry][slots]}
    for name, terms in zip((total, *count), (numbers, is_valid.astype(numpy.int64)), strict=False):
        found[name] = grouped.running_sums(totals[name], slots, terms, is_valid)
    return found


def _scanned(parts: Sequence[tuple[ColumnAggregate, Any]], totals: State, slots: Slots) -> dict[str, Any]:
    """Returns the same of aggregates with their cells, by merging states."""
    count = len(slots)
    order = numpy.argsort(slots, kind="stable")
    ordered, ranks = slots[order], numpy.arange(count)
    begins = numpy.flatnonzero(numpy.concatenate(([True], ordered[1:] != ordered[:-1])))
    sizes = numpy.diff(numpy.append(begins, count))
    nth = ranks - numpy.repeat(begins, sizes)  # number of earlier records of the key in the batch
    shifts = [1 << power for power in range(int(nth.max()).bit_length())]
    later = [numpy.flatnonzero(nth >= shift) for shift in shifts]
    found: dict[str, Any] = {}
    for each, column in parts:
        names = each.dtypes()
        alone = {name: numpy.zeros(count, dtype) for name, dtype in names.items()}
        each.add(alone, ranks, column)
        states = {name: array[order] for name, array in alone.items()}
        for shift, places in zip(shifts, later, strict=True):
            merged = {name: array[places - shift] for name, array in states.items()}
            each.merge(merged, ranks[: len(places)], {name: array[places] for name, array in states.items()})
            for name, array in merged.items():
                states[name][places] = array
        running = {name: totals[name][ordered] for name in names}
        each.merge(running, ranks, states)
        for name, array in running.items():
            last = begins + sizes - 1
            totals[name][ordered[last]] = array[last]
            found[name] = numpy.empty_like(array)
            found[name][order] = array
    return found
