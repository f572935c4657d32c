"""Running states of aggregates within a batch: for each record, that of the records of its key up to it.

The records of a batch are sorted by slot, and states are merged with those 1, 2, 4, ... records before them. So the
cost grows with the logarithm of the records of one key, and any aggregate that can merge has running results.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy

if TYPE_CHECKING:
    from clonos.operators.columnar.column_aggregates import ColumnAggregate, Slots, State


def running_states(aggregates: Sequence[ColumnAggregate], totals: State, slots: Slots, cells: Sequence[Any]) -> State:
    """Returns the state of each aggregate after each record of a batch, and brings ``totals``, by slot, up to date.

    ``cells``: for each aggregate the Arrow array that it reads, None if it reads none.
    """
    count = len(slots)
    order = numpy.argsort(slots, kind="stable")
    ordered, ranks = slots[order], numpy.arange(count)
    begins = numpy.flatnonzero(numpy.concatenate(([True], ordered[1:] != ordered[:-1])))
    sizes = numpy.diff(numpy.append(begins, count))
    nth = ranks - numpy.repeat(begins, sizes)  # number of earlier records of the key in the batch
    shifts = [1 << power for power in range(int(nth.max()).bit_length())]
    later = [numpy.flatnonzero(nth >= shift) for shift in shifts]
    found: dict[str, Any] = {}
    for each, column in zip(aggregates, cells, strict=True):
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
