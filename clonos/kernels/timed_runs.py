"""Runs of timed records: sorted by the slot of their key, then by timestamp, then by arrival."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy

from clonos.kernels import choice

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[numpy.int64]


NO_BEGINS: Final = numpy.empty(0, numpy.int32)

SPAN_MAX: Final = 8
"""Slots for each record, up to which a run has a table of where they begin: 4 bytes each in place of a search."""

SEARCHES_MIN: Final = 4
"""A run has this table when it was searched for one key of every four slots."""


class Run:
    """Records with their numbers, at least one."""

    __slots__ = ("slots", "times", "numbers", "earliest_ns", "_begins", "_searched")

    def __init__(self, slots: Ints, times: Ints, numbers: Ints, earliest_ns: int) -> None:
        self.slots, self.times, self.numbers, self.earliest_ns = slots, times, numbers, earliest_ns
        self._begins: NDArray[numpy.int32] | None = None
        self._searched = 0

    def begins(self, searches: int) -> NDArray[numpy.int32]:
        """Returns where each slot begins, from the least one on, and the end; empty if a search costs less so far.

        ``searches``: the number of keys that are looked for now.
        """
        if self._begins is not None:
            return self._begins
        assert choice.native is not None, "the twin in numpy searches"
        width = int(self.slots[-1]) - int(self.slots[0]) + 1
        self._searched += searches
        if width > SPAN_MAX * len(self.slots) or len(self.slots) >= numpy.iinfo(numpy.int32).max:
            self._begins = NO_BEGINS
        elif self._searched * SEARCHES_MIN >= width:
            self._begins = numpy.empty(width + 1, numpy.int32)
            choice.native.run_begins(self.slots, self._begins)
        return NO_BEGINS if self._begins is None else self._begins

    def only(self, stays: NDArray[numpy.bool_]) -> Run:
        """Returns the run without the records that do not stay; one stays at least."""
        times = self.times[stays]
        return Run(self.slots[stays], times, self.numbers[stays], int(times.min()))


def new_run(slots: Ints, times: Ints, numbers: Ints) -> Run:
    """Returns a run of records in the order of arrival, at least one."""
    native = choice.native
    earliest_ns = int(times.min())
    if native is None:
        order = numpy.lexsort((times, slots))
    else:
        order = numpy.empty(len(slots), numpy.int64)
        native.run_order(numpy.ascontiguousarray(slots), numpy.ascontiguousarray(times), order)
    return Run(slots[order], times[order], numbers[order], earliest_ns)


def merged(first: Run, second: Run) -> Run:
    """Returns a run of the records of two; those of the first one arrived before those of the second."""
    native = choice.native
    slots = numpy.concatenate([first.slots, second.slots])
    times = numpy.concatenate([first.times, second.times])
    numbers = numpy.concatenate([first.numbers, second.numbers])
    if native is None:
        order = numpy.lexsort((times, slots))
    else:
        order = numpy.empty(len(slots), numpy.int64)
        native.merged_order(slots, times, len(first.slots), order)
    return Run(slots[order], times[order], numbers[order], min(first.earliest_ns, second.earliest_ns))


def bounds(run: Run, slots: Ints, firsts: Ints, lasts: Ints) -> tuple[Ints, Ints]:
    """Returns where the records of each slot from the first to the last timestamp begin and end."""
    native = choice.native
    if native is None:
        low = _places_of(run, slots, firsts, with_equal=False)
        return low, numpy.maximum(low, _places_of(run, slots, lasts, with_equal=True))
    low, high = numpy.empty(len(slots), numpy.int64), numpy.empty(len(slots), numpy.int64)
    given = [numpy.ascontiguousarray(each, numpy.int64) for each in (slots, firsts, lasts)]
    native.run_bounds(run.slots, run.times, run.begins(len(slots)), *given, low, high)
    return low, high


def _places_of(run: Run, slots: Ints, times: Ints, *, with_equal: bool) -> Ints:
    """Returns after how many records of a run each pair of a slot and a timestamp stands: all that are below it, and
    ``with_equal`` those that are equal."""
    found = numpy.zeros(len(slots), numpy.int64)
    left = len(run.slots)
    while left:
        half = left // 2
        at = found + half
        run_slots, run_times = run.slots[at], run.times[at]
        is_earlier = run_times <= times if with_equal else run_times < times
        found += numpy.where((run_slots < slots) | ((run_slots == slots) & is_earlier), left - half, 0)
        left = half
    return found
