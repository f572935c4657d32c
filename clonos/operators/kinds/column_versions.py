"""Sides of as-of joins and lookups whose records are columns.

State: the left records that wait, and the versions, as rows. An index finds the versions of all left records that leave
at once. Versions that no left record can meet any more are forgotten when their number has doubled. A lookup has the
rows in a row store, ``step/rows``, and which of them a key has in a table of columns, ``step/keys``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar, Final, NamedTuple

import numpy

from clonos.kernels.packed_keys import KeyIndex
from clonos.kernels.timed_runs import Run
from clonos.operators.columnar.joins.join_results import MISSING, taken
from clonos.operators.columnar.joins.side_rows import SideRows
from clonos.operators.columnar.joins.sides import NO_SLOT
from clonos.operators.columnar.joins.sorted_runs import SortedRuns
from clonos.operators.event_time.column_times import distances
from clonos.operators.joins.match_rules import AsOfRules, Direction
from clonos.operators.kinds.column_side import ColumnSide, KeysOf
from clonos.operators.state.column_table import ColumnSpec
from clonos.operators.state.declared_state import StepState
from clonos.operators.state.state_spec import Numbers, StateKind, StateScope, StateSpec

ROW: Final = "row"
"""Column of the table with the number of the row of a key."""

LATEST_ROWS: Final = StateSpec("rows", StateKind.ROWS, StateScope.REFERRED, owner="keys")
LATEST: Final = StateSpec(
    LATEST_ROWS.owner, StateKind.COLUMNS, StateScope.KEYED, numbers=(Numbers(LATEST_ROWS.name, ROW),)
)
"""Last row of each key."""


class Found(NamedTuple):
    """Numbers of right rows, ``MISSING`` without one, and what takes rows by such numbers."""

    numbers: Any
    take: Callable[[Any], Any]


class ColumnLefts:
    """See ``Lefts``."""

    def __init__(self, rows: SideRows, keys_of: KeysOf) -> None:
        self._rows, self._keys_of = rows, keys_of
        self._waiting = [(each.times, each.numbers) for each in rows.stored()]
        """Timestamps and numbers."""

    def add(self, batch: ColumnSide) -> None:
        """See ``Lefts``."""
        if len(batch):
            self._waiting.append((batch.times, self._rows.add(None, batch.batch, batch.times)))

    def take(self, before_ns: int | None) -> Iterator[ColumnSide]:
        """See ``Lefts``."""
        due: list[tuple[Any, Any]] = []
        waiting: list[tuple[Any, Any]] = []
        rest: list[tuple[Any, Any]] = []
        for times, numbers in self._waiting:
            is_due = numpy.ones(len(times), numpy.bool_) if before_ns is None else times < before_ns
            if not is_due.any():
                waiting.append((times, numbers))
                continue
            due.append((times[is_due], numbers[is_due]))
            if not is_due.all():
                rest.append((times[~is_due], numbers[~is_due]))
        if not due:
            return
        if rest:
            waiting.append(_concatenated(rest))
        self._waiting = waiting
        times, numbers = _concatenated(due)
        order = numpy.lexsort((numbers, times))
        times, numbers = times[order], numbers[order]
        for first in range(0, len(times), SortedRuns.pairs_max):
            part = slice(first, first + SortedRuns.pairs_max)
            rows = self._rows.take(numbers[part])
            yield ColumnSide(rows, self._keys_of, times[part])
        self._rows.discard(numbers)


class ColumnVersions:
    """See ``Versions``."""

    versions_min: ClassVar[int] = 1 << 10
    """Number of versions up to which none is forgotten."""

    def __init__(self, rows: SideRows, keys_of: KeysOf, kinds: tuple[Any, ...], rules: AsOfRules) -> None:
        self._rows, self._keys_of, self._kinds, self._rules = rows, keys_of, kinds, rules
        self._versions_max = self.versions_min
        self._make_index()

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def key_count(self) -> int:
        """Number of keys in the index."""
        return len(self._index)

    def _make_index(self) -> None:
        self._index = KeyIndex(self._kinds)
        self._rows.clear()
        for each in self._rows.stored():
            slots = self._index.add(self._keys_of(each.rows))
            self._rows.runs.add(slots.astype(numpy.int64), each.times, each.numbers)

    def add(self, batch: ColumnSide) -> None:
        """See ``Versions``."""
        if len(batch):
            self._rows.add(batch.slots(self._index.add), batch.batch, batch.times)

    def last_before(self, batch: ColumnSide, instant_ns: int) -> Iterator[tuple[int, Any, int, int]]:
        """See ``Versions``."""
        times, slots = batch.times, batch.slots(self._index.add)
        places = numpy.flatnonzero((times <= instant_ns) & (slots != NO_SLOT))
        times, slots = times[places], slots[places]
        numbers, last = self._rows.runs.last_at(slots, numpy.full(len(slots), instant_ns))
        last = numpy.where(numbers >= 0, last, times)
        yield from zip(*(each.tolist() for each in (places, slots, times, last)), strict=True)

    def find(self, lefts: ColumnSide) -> Found:
        """See ``Versions``."""
        slots, times, rules = lefts.slots(self._index.find), lefts.times, self._rules
        found: list[tuple[Any, Any]] = []
        if rules.direction is not Direction.FORWARD:
            found.append(self._rows.runs.last_at(slots, times))
        if rules.direction is not Direction.BACKWARD:
            found.append(self._rows.runs.first_at(slots, times))
        numbers, at = found[0]
        if len(found) > 1:
            after, after_at = found[1]
            is_after = (after >= 0) & ((numbers < 0) | (distances(after_at, times) < distances(times, at)))
            numbers, at = numpy.where(is_after, after, numbers), numpy.where(is_after, after_at, at)
        if rules.tolerance_ns is not None:
            numbers = numpy.where(distances(at, times) <= rules.tolerance_ns, numbers, MISSING)
        return Found(numbers, self._rows.take)

    def forget(self, earliest_ns: int) -> None:
        """See ``Versions``."""
        if len(self._rows) <= self._versions_max:
            return
        is_backward, tolerated_ns = self._rules.direction is Direction.BACKWARD, self._rules.tolerated_ns

        def is_over(run: Run) -> Any:
            over = numpy.zeros(len(run.times), numpy.bool_)
            if is_backward:
                slots = run.slots
                over[:-1] = (slots[1:] == slots[:-1]) & (run.times[1:] <= earliest_ns)
            if tolerated_ns is not None:
                over |= run.times < earliest_ns - tolerated_ns
            return over

        self._rows.runs.merge()
        self._rows.forget(is_over)
        self._versions_max = max(self.versions_min, 2 * len(self._rows))
        if len(self._index) > self._versions_max:
            self._make_index()


class ColumnLatest:
    """See ``Latest``."""

    def __init__(self, state: StepState, kinds: tuple[Any, ...], metadata: Any) -> None:
        """Creates it; rows get ``metadata``, which says what their form is."""
        self._rows, self._metadata = state.row_store(LATEST_ROWS), metadata
        spec = ColumnSpec(kinds, {ROW: numpy.int64}, {ROW: MISSING})
        self._table = state.column_table(LATEST, spec)

    def add(self, batch: ColumnSide) -> None:
        """See ``Latest``."""
        if len(batch):
            self._rows.replace(self._table, ROW, batch.slots(self._table.slots), batch.batch)

    def find(self, lefts: ColumnSide) -> Found:
        """See ``Latest``."""
        slots = lefts.slots(self._table.find)
        numbers = self._table.values[ROW][slots] if len(self._table) else slots
        return Found(numpy.where(slots >= 0, numbers, MISSING), self._take)

    def _take(self, numbers: Any) -> Any:
        """Returns rows with these numbers, with nulls where one is ``MISSING``."""
        has = numbers >= 0
        if has.all():
            rows = self._rows.take(numbers)
        else:
            rows = taken(self._rows.take(numbers[has]), numpy.where(has, numpy.cumsum(has) - 1, MISSING))
        return rows.replace_schema_metadata(self._metadata)


def _concatenated(parts: Sequence[tuple[Any, Any]]) -> tuple[Any, Any]:
    times, numbers = (numpy.concatenate([part[place] for part in parts]) for place in (0, 1))
    return times, numbers
