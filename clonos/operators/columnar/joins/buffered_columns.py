"""Joins by time over columns: interval joins, joins within windows, and joins whose state is forgotten by the clock.

Results are those of ``BufferedJoin``, in the same order. A batch meets the index of the other side as a whole. Records
that no other one can match any more are forgotten when the records of their side have doubled: they match nothing that
is on time, so only memory depends on it.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

import numpy
import pyarrow

from clonos.core.ports.recorder import Recorder
from clonos.kernels.index import new_index
from clonos.kernels.packed_keys import KeyIndex
from clonos.kernels.record_batch import RecordBatch
from clonos.kernels.timed_runs import Run
from clonos.operators.columnar.joins.column_join import ColumnJoin
from clonos.operators.columnar.joins.join_results import MISSING, JoinResults, nulls
from clonos.operators.columnar.joins.side_rows import SideRows
from clonos.operators.columnar.joins.sides import NO_SLOT, key_columns, slots_of
from clonos.operators.columnar.joins.sorted_runs import Matches
from clonos.operators.joins.buffered_join import LEFT_NAME, NUMBERS_NAME, RIGHT_NAME
from clonos.operators.joins.match_rules import How, Keys, MatchRule
from clonos.operators.operator import Scope
from clonos.operators.state.column_table import ColumnSpec, ColumnTable

ROWS_SUFFIX: Final = "-rows"
ALONE_SUFFIX: Final = "-unmatched"
NAMES: Final = (LEFT_NAME, RIGHT_NAME)
LAST: Final = "last"
"""Column of the unmatched records: the last timestamp that may match."""
ARRIVAL: Final = "arrival"
ALONE: Final = ColumnSpec((pyarrow.int64(),), {LAST: numpy.int64, ARRIVAL: numpy.int64})

LIMIT: Final = numpy.iinfo(numpy.int64)


class BufferedColumns(ColumnJoin):
    """Base of joins by time over columns."""

    records_min: ClassVar[int] = 1 << 13
    """Number of records of a side up to which none is forgotten."""

    keys_spare: ClassVar[int] = 1 << 10
    """Keys without a record beyond which the index of keys is made anew, if they are half of all."""

    def __init__(
        self, step: str, keys: Keys, schemas: tuple[Any, Any], rule: MatchRule, how: How, has_time: bool
    ) -> None:
        super().__init__(step, keys, schemas)
        self._rule, self._how = rule, how
        self._keeps = how.keeps(True), how.keeps(False)
        self._results = JoinResults(keys, (self._keeps[1], self._keeps[0]), has_time)

    def open(self, scope: Scope) -> None:
        self._recorder: Recorder = scope.context.recorder
        self._sides = [
            SideRows(scope.state.row_store(f"{self._step}/{name}{ROWS_SUFFIX}"), schema)
            for name, schema in zip(NAMES, self.schemas, strict=True)
        ]
        self._alone: list[ColumnTable | None] = [
            scope.state.column_table(f"{self._step}/{name}{ALONE_SUFFIX}", ALONE) if keeps else None
            for name, keeps in zip(NAMES, self._keeps, strict=True)
        ]
        """Records that leave if nothing matches them, by their numbers."""
        self._numbers = scope.state.table(f"{self._step}/{NUMBERS_NAME}", is_small=True)
        self._next_number: int = self._numbers.entries.get(0, 0)
        self._doubled = [self.records_min, self.records_min]
        """Numbers of records of both sides beyond which some may be forgotten."""
        self._make_index()

    def prepare(self, checkpoint: int) -> None:
        if self._numbers.entries.get(0, 0) != self._next_number:
            self._numbers.set(0, self._next_number)

    def _make_index(self) -> None:
        """Makes the index of the keys of all buffered records."""
        self._index = KeyIndex(self.kinds)
        for side, keys in zip(self._sides, self.keys_of, strict=True):
            side.clear()
            for each in side.stored():
                slots = self._index.add(key_columns(each.rows, keys, self.kinds))
                side.runs.add(slots.astype(numpy.int64), each.times, each.numbers)

    # --- matching

    def _add(self, is_left: bool, batch: RecordBatch, times: Any, reached_ns: int | None) -> None:
        """Matches records with the buffer of the other side, and buffers those that may still match."""
        slots = slots_of(self._index.add, self._key_columns(is_left, batch))
        arrivals = numpy.arange(self._next_number, self._next_number + len(times))
        self._next_number += len(times)
        firsts, lasts = self._partners(is_left, times)
        if not (is_left or self._how.gives_pairs) and self._rule.shared_ns:
            is_new = self._is_first(slots, firsts, lasts)
            if not is_new.all():
                batch = batch.filter(pyarrow.array(is_new))
                slots, times, arrivals, firsts, lasts = (
                    each[is_new] for each in (slots, times, arrivals, firsts, lasts)
                )
        stays = slots != NO_SLOT if reached_ns is None else (slots != NO_SLOT) & (lasts >= reached_ns)
        other = self._sides[is_left]
        if is_left and not self._how.gives_pairs:
            is_alone = other.runs.counts(slots, firsts, lasts) == 0
            leaves = ~is_alone if self._how is How.SEMI else is_alone & ~stays
            self._emit_lefts(batch.filter(pyarrow.array(leaves)))
            stays &= is_alone
        else:
            is_alone = numpy.ones(len(times), numpy.bool_)
            for matches in other.runs.between(slots, firsts, lasts):
                is_alone[matches.probes] = False
                if self._how.gives_pairs:
                    self._pair(is_left, batch, times, matches, is_alone & ~stays)
                else:
                    self._decide(matches)
        if not stays.all():
            batch = batch.filter(pyarrow.array(stays))
        if batch.num_rows:
            numbers = self._sides[not is_left].add(slots[stays], batch, times[stays])
            alone = self._alone[not is_left]
            if alone is not None and (left_over := is_alone[stays]).any():
                rows = alone.slots(numbers[left_over])
                alone.values[LAST][rows] = lasts[stays][left_over]
                alone.values[ARRIVAL][rows] = arrivals[stays][left_over]

    def _is_first(self, slots: Any, firsts: Any, lasts: Any) -> Any:
        """Returns which right records are the first of their key in their window: the others decide nothing more."""
        is_first = self._sides[1].runs.counts(slots, firsts, lasts) == 0
        width = len(self._index) + 1  # NO_SLOT is in front of the slots
        if (int(lasts.max()) - int(lasts.min())) // self._rule.shared_ns < LIMIT.max // width:
            windows = (lasts - lasts.min()) // self._rule.shared_ns
            seen = new_index("int64").add(windows * width + slots)
            is_first &= numpy.diff(numpy.maximum.accumulate(seen), prepend=-1) > 0
        return is_first

    def _partners(self, is_left: bool, times: Any) -> tuple[Any, Any]:
        """Returns the first and the last timestamps that match, as ``rule.partners`` does; near the limits of time they
        end there."""
        partners = self._rule.partners
        ends = (*partners(is_left, int(times.min())), *partners(is_left, int(times.max())))
        if LIMIT.min <= min(ends) and max(ends) <= LIMIT.max:
            found: tuple[Any, Any] = partners(is_left, times)
            return found
        exact = numpy.array([partners(is_left, each) for each in times.tolist()], object)
        firsts, lasts = numpy.clip(exact, LIMIT.min, LIMIT.max).astype(numpy.int64).T
        return firsts, lasts

    def _pair(self, is_left: bool, batch: RecordBatch, times: Any, matches: Matches, leaves: Any) -> None:
        """Emits the pairs of some records of a batch, and those of them that leave without a match."""
        probes, numbers, found_times = matches.probes, matches.numbers, matches.times
        other = self._alone[is_left]
        if other is not None and len(numbers) and len(other):
            rows = other.find(numbers)
            other.remove(rows[rows >= 0])
        result_times = numpy.maximum(times[probes], found_times)
        if self._keeps[not is_left]:
            alone = numpy.flatnonzero(leaves[matches.first : matches.end]) + matches.first
            if len(alone):
                order = numpy.argsort(numpy.concatenate([probes, alone]), kind="stable")
                probes = numpy.concatenate([probes, alone])[order]
                numbers = numpy.concatenate([numbers, numpy.full(len(alone), MISSING)])[order]
                result_times = numpy.concatenate([result_times, times[alone]])[order]
        if not len(probes):
            return
        probing = batch if _is_each_once(probes, batch.num_rows) else batch.take(pyarrow.array(probes))
        self._emit(is_left, probing, numbers, result_times)

    def _emit(self, is_left: bool, rows: Any, numbers: Any, times: Any) -> None:
        """Emits results of records of one side, and those of the other side by their numbers."""
        has = numbers >= 0
        others = self._sides[is_left].take(numbers) if has.any() else nulls(self.schemas[is_left], len(numbers))
        left, right = (rows, others) if is_left else (others, rows)
        known = None if has.all() else has
        for batch in self._results.batches(left, right, (None, known) if is_left else (known, None), times):
            self._give(batch)

    def _decide(self, matches: Matches) -> None:
        """Lets the left records go for which a match decides."""
        side, alone = self._sides[0], self._alone[0]
        found = matches.numbers[~side.is_gone(matches.numbers)]
        numbers, places = numpy.unique(found, return_index=True)
        if not len(numbers):
            return
        if self._how is How.SEMI:
            self._emit_lefts(side.take(found[numpy.sort(places)]))
        side.remove(numbers)
        if alone is not None:
            alone.remove(alone.find(numbers))

    def _emit_lefts(self, batch: RecordBatch) -> None:
        if batch.num_rows:
            self.out.columns(batch)

    # --- forgetting

    def _forget(self, reached_ns: int | None) -> None:
        """Emits the records without a match that nothing from ``reached_ns`` on matches (None: all).

        They leave in the order of the last timestamp that could have matched, then of arrival.
        """
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
            self._emit_lefts(self._sides[0].take(numbers))
            self._sides[0].remove(numbers)
            return
        times, rows, has = numpy.zeros(len(numbers), numpy.int64), [], []
        for place, side in enumerate(self._sides):
            is_here = places == place
            if is_here.any():
                times[is_here] = side.times_at(numbers[is_here])
                rows.append(side.take(numpy.where(is_here, numbers, MISSING)))
            else:
                rows.append(nulls(self.schemas[place], len(numbers)))
            has.append(None if is_here.all() else is_here)
        for batch in self._results.batches(rows[0], rows[1], has, times):
            self._give(batch)

    def drop_before(self, reached_ns: int | None, *, at_once: bool) -> None:
        """Removes the records that nothing from ``reached_ns`` on matches (None: all), of a side that has doubled or
        ``at_once``."""
        for place, side in enumerate(self._sides):
            if not at_once and len(side) <= self._doubled[place]:
                continue
            is_left = place == 0

            def is_over(run: Run, is_left: bool = is_left) -> Any:
                if reached_ns is None:
                    return numpy.ones(len(run.times), numpy.bool_)
                return self._partners(is_left, run.times)[1] < reached_ns

            side.forget(is_over)
            self._doubled[place] = max(self.records_min, 2 * len(side))
        if len(self._index) > self.keys_spare + 2 * sum(map(len, self._sides)):
            self._make_index()


def _is_each_once(probes: Any, count: int) -> bool:
    """Returns whether the places are those of a whole batch, in order."""
    return len(probes) == count and bool((probes == numpy.arange(count)).all())
