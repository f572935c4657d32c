"""Index of the records of one side of a join: by key, then timestamp, then arrival.

Records are in sorted arrays, runs, which are merged when the last ones are of about the same size, so that a record is
copied once for each factor of 2 between a batch and all. A run has one array to search: the slot of a key times the
number of distinct timestamps of the run, plus the rank of the record's timestamp among them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import numpy

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[numpy.int64]


class Run(NamedTuple):
    """Sorted records: ``places`` are what is searched, and ``distinct`` the distinct timestamps."""

    places: Ints
    times: Ints
    numbers: Ints
    distinct: Ints

    @property
    def slots(self) -> Ints:
        """Returns the slots of the keys."""
        return self.places // len(self.distinct)


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

    __slots__ = ("_runs",)

    def __init__(self) -> None:
        self._runs: list[Run] = []  # the numbers of a run are above those of the one before it

    def __len__(self) -> int:
        return sum(len(run.numbers) for run in self._runs)

    @property
    def earliest_ns(self) -> int | None:
        """Returns the earliest timestamp, None without records."""
        return min((int(run.distinct[0]) for run in self._runs), default=None)

    @property
    def least_number(self) -> int | None:
        """Returns the least number of a record, None without records."""
        return min((int(run.numbers.min()) for run in self._runs), default=None)

    def add(self, slots: Ints, times: Ints, numbers: Ints) -> None:
        """Adds records, whose numbers ascend and are above all others."""
        if not len(numbers):
            return
        runs = self._runs
        runs.append(_sorted(slots, times, numbers))
        while len(runs) > 1 and len(runs[-2].numbers) < 2 * len(runs[-1].numbers):
            self._merge_last()

    def merge(self) -> None:
        """Makes one run of all."""
        while len(self._runs) > 1:
            self._merge_last()

    def _merge_last(self) -> None:
        parts = self._runs[-2:]
        distinct = numpy.unique(numpy.concatenate([part.distinct for part in parts]))
        places = numpy.concatenate([_replaced(part, distinct) for part in parts])
        order = numpy.argsort(places, kind="stable")  # both parts are sorted, which it is fast with
        times, numbers = (numpy.concatenate(each)[order] for each in zip(*(part[1:3] for part in parts), strict=True))
        self._runs[-2:] = [Run(places[order], times, numbers, distinct)]

    def counts(self, slots: Ints, firsts: Ints, lasts: Ints) -> Ints:
        """Returns how many records of a key are from the first to the last timestamp, for each of several keys."""
        return sum(
            (high - low for low, high in self._bounds(slots, firsts, lasts)), numpy.zeros(len(slots), numpy.int64)
        )

    def between(self, slots: Ints, firsts: Ints, lasts: Ints) -> Iterator[Matches]:
        """Yields the records of each key from the first to the last timestamp.

        All keys are covered, those without a match too.
        """
        found = self._bounds(slots, firsts, lasts)
        ends = numpy.cumsum(sum((high - low for low, high in found), numpy.zeros(len(slots), numpy.int64)))
        first = 0
        while first < len(slots):
            before = int(ends[first - 1]) if first else 0
            end = max(first + 1, int(numpy.searchsorted(ends, before + self.pairs_max, "right")))
            parts = []
            for run, (low, high) in zip(self._runs, found, strict=True):
                probes, places = _expanded(low[first:end], high[first:end])
                if len(probes):
                    parts.append((probes + first, run.numbers[places], run.times[places]))
            yield Matches(first, end, *_merged(parts))
            first = end

    def last_at(self, slots: Ints, times: Ints) -> tuple[Ints, Ints]:
        """Returns for each key the number and the timestamp of the last record that is not later; the number is -1
        where there is none."""

        def place(run: Run, ranks: Callable[..., Ints]) -> Ints:
            at = slots * len(run.distinct) + ranks(times, "right")
            return numpy.searchsorted(run.places, at) - 1

        return self._nearest(slots, place, is_better=numpy.greater_equal)

    def first_at(self, slots: Ints, times: Ints) -> tuple[Ints, Ints]:
        """Returns for each key the number and the timestamp of the first record that is not earlier, and of several
        with its timestamp the last to arrive; the number is -1 where there is none."""

        def place(run: Run, ranks: Callable[..., Ints]) -> Ints:
            at = numpy.searchsorted(run.places, slots * len(run.distinct) + ranks(times, "left"))
            found = run.places[numpy.minimum(at, len(run.places) - 1)]
            is_end = at == len(run.places)
            return numpy.where(is_end, at, numpy.searchsorted(run.places, found, "right") - 1)

        return self._nearest(slots, place, is_better=numpy.less_equal)

    def _nearest(
        self, slots: Ints, place: Callable[..., Ints], is_better: Callable[..., NDArray[numpy.bool_]]
    ) -> tuple[Ints, Ints]:
        numbers, times = numpy.full(len(slots), -1), numpy.zeros(len(slots), numpy.int64)
        for run in self._runs:
            at = place(run, run.distinct.searchsorted)
            exists = (at >= 0) & (at < len(run.places)) & (slots >= 0)
            at = numpy.where(exists, at, 0)
            exists &= run.places[at] // len(run.distinct) == slots
            theirs = run.times[at]
            is_found = exists & ((numbers < 0) | is_better(theirs, times))
            numbers, times = numpy.where(is_found, run.numbers[at], numbers), numpy.where(is_found, theirs, times)
        return numbers, times

    def remove_where(self, is_gone: Callable[[Run], NDArray[numpy.bool_] | None]) -> Ints:
        """Removes records and returns their numbers. ``is_gone`` says which ones of a run, None for no one."""
        removed, left = [numpy.empty(0, numpy.int64)], []
        for run in self._runs:
            gone = is_gone(run)
            if gone is None or not gone.any():
                left.append(run)
                continue
            removed.append(run.numbers[gone])
            if not gone.all():
                stays = ~gone
                left.append(_sorted(run.slots[stays], run.times[stays], run.numbers[stays]))
        self._runs = left
        return numpy.concatenate(removed)

    def _bounds(self, slots: Ints, firsts: Ints, lasts: Ints) -> list[tuple[Ints, Ints]]:
        """Returns for each run where the records of each key begin and end."""
        found = []
        for run in self._runs:
            starts = slots * len(run.distinct)
            low = run.places.searchsorted(starts + run.distinct.searchsorted(firsts, "left"))
            high = run.places.searchsorted(starts + run.distinct.searchsorted(lasts, "right"))
            found.append((low, numpy.maximum(low, high)))
        return found


def _sorted(slots: Ints, times: Ints, numbers: Ints) -> Run:
    distinct = numpy.unique(times)
    places = slots.astype(numpy.int64) * len(distinct)
    if len(distinct) > 1:
        places += numpy.searchsorted(distinct, times)
    order = numpy.argsort(places, kind="stable")
    return Run(places[order], times[order], numbers[order], distinct)


def _replaced(run: Run, distinct: Ints) -> Ints:
    """Returns the places of a run for other distinct timestamps, which contain its own."""
    slots, ranks = numpy.divmod(run.places, len(run.distinct))
    found: Ints = slots * len(distinct) + numpy.searchsorted(distinct, run.distinct)[ranks]
    return found


def _expanded(low: Ints, high: Ints) -> tuple[Ints, Ints]:
    """Returns for ranges of places the number of the range of each place in them, and the place."""
    counts = high - low
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
    order = numpy.lexsort((times, probes))  # stable, and the numbers of a run are above those of the one before it
    return probes[order], numbers[order], times[order]
