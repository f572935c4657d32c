"""Buffers of both sides of a join by time whose records are columns.

A batch meets the index of the other side as a whole. Records that no other one can match any more are forgotten when
the records of their side have doubled: they match nothing that is on time, so only memory depends on it.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

import numpy
import pyarrow

from clonos.kernels.index import new_index
from clonos.kernels.packed_keys import KeyIndex
from clonos.kernels.timed_runs import Run
from clonos.operators.columnar.joins.join_results import MISSING
from clonos.operators.columnar.joins.side_rows import SideRows
from clonos.operators.columnar.joins.sorted_runs import Matches
from clonos.operators.joins.match_rules import How, MatchRule
from clonos.operators.kinds.column_results import ColumnResults
from clonos.operators.kinds.column_side import ColumnSide
from clonos.operators.state.column_table import ColumnSpec, ColumnTable

LAST: Final = "last"
"""Column of the unmatched records: the last timestamp that may match."""
ARRIVAL: Final = "arrival"
ALONE: Final = ColumnSpec((pyarrow.int64(),), {LAST: numpy.int64, ARRIVAL: numpy.int64})

LIMIT: Final = numpy.iinfo(numpy.int64)


class ColumnBuffers:
    """See ``Buffers``."""

    records_min: ClassVar[int] = 1 << 13
    """Number of records of a side up to which none is forgotten."""

    keys_spare: ClassVar[int] = 1 << 10
    """Keys without a record beyond which the index of keys is made anew, if they are half of all."""

    def __init__(
        self, results: ColumnResults, alone: list[ColumnTable | None], rule: MatchRule, how: How, has_times: bool
    ) -> None:
        """Creates it. ``alone`` has for each side the records that leave if nothing matches them, by their numbers."""
        self._results, self._alone, self._rule, self._how, self._has_times = results, alone, rule, how, has_times
        self._rows: list[SideRows] = [results.rows(True), results.rows(False)]
        self._next_arrival = 1 + max(
            (int(each.values[ARRIVAL][each.live()].max()) for each in alone if each is not None and each.live_count),
            default=-1,
        )
        self._doubled = [self.records_min, self.records_min]
        """Numbers of records of both sides beyond which some may be forgotten."""
        self._make_index()

    def _make_index(self) -> None:
        """Makes the index of the keys of all buffered records."""
        self._index = KeyIndex(self._results.kinds)
        for place, rows in enumerate(self._rows):
            rows.clear()
            for each in rows.stored():
                slots = self._index.add(self._results.keys_of(place == 0, each.rows))
                rows.runs.add(slots.astype(numpy.int64), each.times, each.numbers)

    @property
    def first_end_ns(self) -> int | None:
        """See ``Buffers``."""
        found = []
        for place, rows in enumerate(self._rows):
            if (earliest_ns := rows.runs.earliest_ns) is not None:
                found.append(self._rule.partners(place == 0, earliest_ns)[1])
        return min(found, default=None)

    # --- matching

    def pair(self, is_left: bool, batch: ColumnSide, needed_ns: int | None) -> None:
        """See ``Buffers``."""
        slots, times = batch.slots(self._index.add), batch.times
        stays = batch.stays(needed_ns)
        is_alone = numpy.ones(len(times), numpy.bool_)
        for matches in self._rows[is_left].runs.between(slots, *self._partners(is_left, times)):
            is_alone[matches.probes] = False
            self._emit_matches(is_left, batch.batch, times, matches, is_alone & ~stays)
        self._buffer(is_left, batch.where(stays), is_alone[stays])

    def parted(self, batch: ColumnSide) -> tuple[ColumnSide, ColumnSide]:
        """See ``Buffers``."""
        slots = batch.slots(self._index.add)
        is_alone = self._rows[1].runs.counts(slots, *self._partners(True, batch.times)) == 0
        return batch.where(~is_alone), batch.where(is_alone)

    def first_of_windows(self, batch: ColumnSide) -> ColumnSide:
        """See ``Buffers``."""
        slots, (firsts, lasts) = batch.slots(self._index.add), self._partners(False, batch.times)
        is_first = self._rows[1].runs.counts(slots, firsts, lasts) == 0
        width = len(self._index) + 1  # NO_SLOT is in front of the slots
        if (int(lasts.max()) - int(lasts.min())) // self._rule.shared_ns < LIMIT.max // width:
            windows = (lasts - lasts.min()) // self._rule.shared_ns
            seen = new_index("int64").add(windows * width + slots)
            is_first &= numpy.diff(numpy.maximum.accumulate(seen), prepend=-1) > 0
        return batch.where(is_first)

    def decide(self, batch: ColumnSide, emits: bool) -> None:
        """See ``Buffers``."""
        rows, alone = self._rows[0], self._alone[0]
        for matches in rows.runs.between(batch.slots(self._index.add), *self._partners(False, batch.times)):
            found = matches.numbers[~rows.is_gone(matches.numbers)]
            numbers, places = numpy.unique(found, return_index=True)
            if not len(numbers):
                continue
            if emits:
                self._results.pass_on(rows.take(found[numpy.sort(places)]))
            rows.remove(numbers)
            if alone is not None:
                alone.remove(alone.find(numbers))

    def add(self, is_left: bool, batch: ColumnSide) -> None:
        """See ``Buffers``."""
        self._buffer(is_left, batch, numpy.ones(len(batch), numpy.bool_))

    def _buffer(self, is_left: bool, batch: ColumnSide, is_alone: Any) -> None:
        """Buffers records with keys. ``is_alone`` says which of them leave if nothing matches them."""
        if not len(batch):
            return
        place, times = not is_left, batch.times
        numbers = self._rows[place].add(batch.slots(self._index.add), batch.batch, times)
        alone = self._alone[place]
        if alone is not None and is_alone.any():
            rows = alone.slots(numbers[is_alone])
            alone.values[LAST][rows] = self._partners(is_left, times[is_alone])[1]
            alone.values[ARRIVAL][rows] = numpy.arange(len(rows)) + self._next_arrival
            self._next_arrival += len(rows)

    def pass_on(self, batch: ColumnSide) -> None:
        """See ``Buffers``."""
        self._results.pass_on(batch.batch)

    def _partners(self, is_left: bool, times: Any) -> tuple[Any, Any]:
        """Returns the first and the last timestamps that match, as ``rule.partners`` does; near the limits of time they
        end there."""
        partners = self._rule.partners
        if not len(times):
            return times, times
        ends = (*partners(is_left, int(times.min())), *partners(is_left, int(times.max())))
        if LIMIT.min <= min(ends) and max(ends) <= LIMIT.max:
            found: tuple[Any, Any] = partners(is_left, times)
            return found
        exact = numpy.array(self._rule.partners_of(is_left, times.tolist()), object)
        firsts, lasts = numpy.clip(exact, LIMIT.min, LIMIT.max).astype(numpy.int64).T
        return firsts, lasts

    def _emit_matches(self, is_left: bool, batch: Any, times: Any, matches: Matches, leaves: Any) -> None:
        """Emits the pairs of some records of a batch, and those of them that leave without a match."""
        probes, numbers, found_times = matches.probes, matches.numbers, matches.times
        other = self._alone[is_left]
        if other is not None and len(numbers) and len(other):
            rows = other.find(numbers)
            other.remove(rows[rows >= 0])
        result_times = numpy.maximum(times[probes], found_times)
        if self._how.keeps(is_left):
            alone = numpy.flatnonzero(leaves[matches.first : matches.end]) + matches.first
            if len(alone):
                order = numpy.argsort(numpy.concatenate([probes, alone]), kind="stable")
                probes = numpy.concatenate([probes, alone])[order]
                numbers = numpy.concatenate([numbers, numpy.full(len(alone), MISSING)])[order]
                result_times = numpy.concatenate([result_times, times[alone]])[order]
        if not len(probes):
            return
        probing = batch if _is_each_once(probes, batch.num_rows) else batch.take(pyarrow.array(probes))
        has = numbers >= 0
        others = self._rows[is_left].take(numbers) if has.any() else self._results.nulls(not is_left, len(numbers))
        left, right = (probing, others) if is_left else (others, probing)
        known = None if has.all() else has
        self._results.give(left, right, (None, known) if is_left else (known, None), result_times)

    # --- forgetting

    def forget(self, needed_ns: tuple[int, int] | None, reached_ns: int | None) -> None:
        """See ``Buffers``. By the clock it forgets at once."""
        self._emit_unmatched(reached_ns)
        self.drop_before(needed_ns, at_once=needed_ns is None or not self._has_times)

    def _emit_unmatched(self, reached_ns: int | None) -> None:
        parts = []
        for place, alone in enumerate(self._alone):
            if alone is None or not alone.live_count:
                continue
            rows = alone.live()
            if reached_ns is not None:
                rows = rows[alone.values[LAST][rows] < reached_ns]
            if len(rows):
                numbers = alone.keys(rows)[0].to_numpy()
                values = alone.values
                parts.append((numbers, numpy.full(len(rows), place), values[LAST][rows], values[ARRIVAL][rows]))
                alone.remove(rows)
        if not parts:
            return
        numbers, places, lasts, arrivals = (numpy.concatenate([part[each] for part in parts]) for each in range(4))
        order = numpy.lexsort((arrivals, lasts))
        self._emit_alone(numbers[order], places[order])

    def _emit_alone(self, numbers: Any, places: Any) -> None:
        """Emits records of both sides, which are at ``places``, by their numbers."""
        if not self._how.gives_pairs:
            self._results.pass_on(self._rows[0].take(numbers))
            self._rows[0].remove(numbers)
            return
        times, sides, has = numpy.zeros(len(numbers), numpy.int64), [], []
        for place, rows in enumerate(self._rows):
            is_here = places == place
            if is_here.any():
                times[is_here] = rows.times_at(numbers[is_here])
                sides.append(rows.take(numpy.where(is_here, numbers, MISSING)))
            else:
                sides.append(self._results.nulls(place == 0, len(numbers)))
            has.append(None if is_here.all() else is_here)
        self._results.give(sides[0], sides[1], has, times)

    def drop_before(self, needed_ns: tuple[int, int] | None, *, at_once: bool) -> None:
        """Removes the records of each side before an instant (None: all), of a side that has doubled or ``at_once``."""
        for place, rows in enumerate(self._rows):
            if not at_once and len(rows) <= self._doubled[place]:
                continue

            def is_over(run: Run, place: int = place) -> Any:
                return numpy.ones(len(run.times), numpy.bool_) if needed_ns is None else run.times < needed_ns[place]

            rows.forget(is_over)
            self._doubled[place] = max(self.records_min, 2 * len(rows))
        if len(self._index) > self.keys_spare + 2 * sum(map(len, self._rows)):
            self._make_index()


def _is_each_once(probes: Any, count: int) -> bool:
    """Returns whether the places are those of a whole batch, in order."""
    return len(probes) == count and bool((probes == numpy.arange(count)).all())
