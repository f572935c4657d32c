"""Index of the records of one side of a join: by key, then timestamp, then arrival.

Records are in sorted arrays, runs, which are merged when the last ones are of about the same size, so that a record is
copied once for each factor of 2 between a batch and all. New records are not sorted until many keys are looked for:
few keys are found by a pass over the new records, many of which are forgotten before that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple

import numpy

from clonos.kernels.timed_runs import SPAN_MAX, Run, bounds, merged, new_run

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[numpy.int64]

TIMES: Final = numpy.iinfo(numpy.int64)


class Matches(NamedTuple):
    """Records of a side that match those of a batch, by place in the batch, then by timestamp and arrival.

    They match the records from the place ``first`` to ``end``; ``probes`` are the places in the batch.
    """

    first: int
    end: int
    probes: Ints
    numbers: Ints
    times: Ints


class SortedRuns:
    """Runs of one side."""

    pairs_max: ClassVar[int] = 1 << 16
    """Matches that are found at once, unless one record has more."""

    new_per_key_min: ClassVar[int] = 8
    """New records for each key that is looked for, from which on a pass over them costs less than to sort them."""

    passes_max: ClassVar[int] = 8
    """Passes over the new records after which they are sorted."""

    __slots__ = ("_new", "_passed", "_runs")

    def __init__(self) -> None:
        self._runs: list[Run] = []  # the numbers of a run are above those of the one before it
        self._new: list[Run] = []  # after the others, in the order of arrival in place of a sorted one
        self._passed = 0  # new records that passes have read

    def __len__(self) -> int:
        return sum(len(run.numbers) for run in self._all())

    def _all(self) -> list[Run]:
        return [*self._runs, *self._new]

    @property
    def earliest_ns(self) -> int | None:
        """Returns the earliest timestamp, None without records."""
        return min((run.earliest_ns for run in self._all()), default=None)

    @property
    def least_number(self) -> int | None:
        """Returns the least number of a record, None without records."""
        return min((int(run.numbers.min()) for run in self._all()), default=None)

    def add(self, slots: Ints, times: Ints, numbers: Ints) -> None:
        """Adds records, whose numbers ascend and are above all others."""
        if len(numbers):
            self._new.append(Run(slots, times, numbers, int(times.min())))

    def merge(self) -> None:
        """Makes one run of all."""
        self._sort()
        while len(self._runs) > 1:
            self._merge_last()

    def _sort(self) -> None:
        """Makes a run of the new records."""
        new, self._new, self._passed = self._new, [], 0
        if not new:
            return
        runs = self._runs
        runs.append(new_run(*_columns_of(new)))
        while len(runs) > 1 and len(runs[-2].numbers) < 2 * len(runs[-1].numbers):
            self._merge_last()

    def _searched(self, slots: Ints) -> list[Run]:
        """Returns runs that have all records of some keys."""
        count = sum(len(run.numbers) for run in self._new)
        self._passed += count
        ends = [int(run.slots.max()) + 1 for run in self._new] if self._passed <= self.passes_max * count else []
        if not ends or len(slots) * self.new_per_key_min > count or max(ends) > SPAN_MAX * count:
            self._sort()
            return self._runs
        is_wanted = numpy.zeros(max(ends), numpy.bool_)
        is_wanted[slots[(slots >= 0) & (slots < len(is_wanted))]] = True
        columns = _columns_of(self._new)
        places = numpy.flatnonzero(is_wanted[columns[0]])
        return [*self._runs, new_run(*(column[places] for column in columns))] if len(places) else self._runs

    def _merge_last(self) -> None:
        self._runs[-2:] = [merged(*self._runs[-2:])]

    def counts(self, slots: Ints, firsts: Ints, lasts: Ints) -> Ints:
        """Returns how many records of a key are from the first to the last timestamp, for each of several keys."""
        found = [bounds(run, slots, firsts, lasts) for run in self._searched(slots)]
        return sum((high - low for low, high in found), numpy.zeros(len(slots), numpy.int64))

    def between(self, slots: Ints, firsts: Ints, lasts: Ints) -> Iterator[Matches]:
        """Yields the records of each key from the first to the last timestamp.

        All keys are covered, those without a match too.
        """
        runs = self._searched(slots)
        found = [bounds(run, slots, firsts, lasts) for run in runs]
        ends = numpy.cumsum(sum((high - low for low, high in found), numpy.zeros(len(slots), numpy.int64)))
        first = 0
        while first < len(slots):
            before = int(ends[first - 1]) if first else 0
            end = max(first + 1, int(numpy.searchsorted(ends, before + self.pairs_max, "right")))
            parts = []
            for run, (low, high) in zip(runs, found, strict=True):
                probes, places = _expanded(low[first:end], high[first:end])
                if len(probes):
                    parts.append((probes + first, run.numbers[places], run.times[places]))
            yield Matches(first, end, *_merged(parts))
            first = end

    def last_at(self, slots: Ints, times: Ints) -> tuple[Ints, Ints]:
        """Returns for each key the number and the timestamp of the last record that is not later; the number is -1
        where there is none."""
        firsts = numpy.full(len(slots), TIMES.min)

        def place(run: Run) -> tuple[Ints, NDArray[numpy.bool_]]:
            low, high = bounds(run, slots, firsts, times)
            return high - 1, low < high

        return self._nearest(len(slots), place, is_better=numpy.greater_equal)

    def first_at(self, slots: Ints, times: Ints) -> tuple[Ints, Ints]:
        """Returns for each key the number and the timestamp of the first record that is not earlier, and of several
        with its timestamp the last to arrive; the number is -1 where there is none."""
        lasts = numpy.full(len(slots), TIMES.max)

        def place(run: Run) -> tuple[Ints, NDArray[numpy.bool_]]:
            low, high = bounds(run, slots, times, lasts)
            at = run.times[numpy.minimum(low, len(run.times) - 1)]
            return bounds(run, slots, at, at)[1] - 1, low < high

        return self._nearest(len(slots), place, is_better=numpy.less_equal)

    def _nearest(
        self,
        count: int,
        place: Callable[[Run], tuple[Ints, NDArray[numpy.bool_]]],
        is_better: Callable[..., NDArray[numpy.bool_]],
    ) -> tuple[Ints, Ints]:
        numbers, times = numpy.full(count, -1), numpy.zeros(count, numpy.int64)
        self._sort()
        for run in self._runs:
            at, exists = place(run)
            theirs = run.times[at]
            is_found = exists & ((numbers < 0) | is_better(theirs, times))
            numbers, times = numpy.where(is_found, run.numbers[at], numbers), numpy.where(is_found, theirs, times)
        return numbers, times

    def remove_where(self, is_gone: Callable[[Run], NDArray[numpy.bool_] | None]) -> Ints:
        """Removes records and returns their numbers. ``is_gone`` says which ones of a run, None for no one."""
        removed = [numpy.empty(0, numpy.int64)]

        def left(runs: list[Run]) -> Iterator[Run]:
            for run in runs:
                gone = is_gone(run)
                if gone is None or not gone.any():
                    yield run
                    continue
                removed.append(run.numbers[gone])
                if not gone.all():
                    yield run.only(~gone)

        self._runs, self._new = list(left(self._runs)), list(left(self._new))
        return numpy.concatenate(removed)


def _columns_of(runs: list[Run]) -> tuple[Ints, Ints, Ints]:
    """Returns the slots, the timestamps and the numbers of runs, at least one."""
    if len(runs) == 1:
        return runs[0].slots, runs[0].times, runs[0].numbers
    return (
        numpy.concatenate([run.slots for run in runs]),
        numpy.concatenate([run.times for run in runs]),
        numpy.concatenate([run.numbers for run in runs]),
    )


def _expanded(low: Ints, high: Ints) -> tuple[Ints, Ints]:
    """Returns for ranges of places the number of the range of each place in them, and the place."""
    counts = high - low
    if counts.max(initial=0) <= 1:
        probes = numpy.flatnonzero(counts)
        return probes, low[probes]
    probes = numpy.repeat(numpy.arange(len(low)), counts)
    offsets = numpy.arange(len(probes)) - numpy.repeat(numpy.cumsum(counts) - counts, counts)
    return probes, numpy.repeat(low, counts) + offsets


def _merged(parts: list[tuple[Ints, Ints, Ints]]) -> tuple[Ints, Ints, Ints]:
    """Merges sorted matches of several runs."""
    if not parts:
        empty = numpy.empty(0, numpy.int64)
        return empty, empty, empty
    if len(parts) == 1:
        return parts[0]
    probes, numbers, times = (numpy.concatenate([part[place] for part in parts]) for place in range(3))
    order = numpy.argsort(probes, kind="stable")  # merges, as those of a run ascend
    found = probes[order]
    if (found[1:] == found[:-1]).any():
        order = numpy.lexsort((times, probes))  # stable, and the numbers of a run are above those of the one before it
    return probes[order], numbers[order], times[order]
