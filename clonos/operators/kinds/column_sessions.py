"""Sessions of keys in columns, with a fixed gap in event time.

State: ``step/sessions``, a table with the open sessions of all keys: the key and a number that no other session of the
key has, start, end, the number of the first record by arrival, and the columns of the aggregates. The records of a
batch become sessions per key, which join the open ones that they overlap. Results are those of objects, in the same
order.

Where an aggregate depends on the order of records, a batch is added in parts (``arrival_order``).

A session is open until its lateness has passed. With lateness it also has the column ``pending``: whether records have
come since its last result.

A record that would be late by its time is not late if it joins an open session. These records, and the others of their
keys, are looked at one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy
import pyarrow

from clonos.kernels.record_batch import RecordBatch
from clonos.operators.columnar.column_aggregates import ColumnAggregate, FirstColumn, LastColumn
from clonos.operators.columnar.sessions.arrival_order import parts_by_arrival
from clonos.operators.columnar.sessions.batch_sessions import BatchSessions, sessions_of
from clonos.operators.columnar.sessions.joined_spans import OpenSpans, joined_spans
from clonos.operators.columnar.sessions.session_chains import NONE, SessionChains
from clonos.operators.columnar.window_columns import WindowColumns, WindowKeys
from clonos.operators.kinds.column_batch import ColumnBatch, KindOfColumns
from clonos.operators.kinds.window_kind import TakenBatch, WindowedStep
from clonos.operators.operator import DueTimer, Operator
from clonos.operators.state.column_table import ColumnSpec
from clonos.operators.state.state_spec import KEY_COLUMN, Numbers, StateKind, StateScope, StateSpec
from clonos.operators.windows.window_rules import WindowRules

if TYPE_CHECKING:
    from numpy.typing import NDArray

    IntArray = NDArray[numpy.int64]

START: Final = "start"
END: Final = "end"
NUMBER: Final = "number"
PENDING: Final = "pending"
"""Columns of a session beside those of the aggregates, whose names have a dot."""

SESSIONS: Final = StateSpec("sessions", StateKind.COLUMNS, StateScope.KEYED, numbers=(Numbers("arrival", NUMBER),))


class ColumnSessionsKind(KindOfColumns):
    """Sessions of columns with a fixed gap in event time."""

    fires_in_spans = True

    def __init__(self, gap_ns: int, aggregates: Sequence[ColumnAggregate], keys: Sequence[pyarrow.Field]) -> None:
        """Creates it for batches in which ``keys`` are the columns of the key."""
        self.gap_ns, self.aggregates, self.keys = gap_ns, tuple(aggregates), WindowKeys(keys)

    def state_specs(self, rules: WindowRules) -> tuple[StateSpec, ...]:
        """See ``WindowsKind``."""
        return (self.sessions_spec,)

    @property
    def sessions_spec(self) -> StateSpec:
        """Declaration of the table of open sessions, whose last key column has the number with which each began."""
        count = len(self.keys.types)
        began_as = Numbers("arrival", f"{KEY_COLUMN}{count}")
        return replace(SESSIONS, key_columns=count, numbers=(*SESSIONS.numbers, began_as))

    def of_columns(self, operator: Operator, batch: RecordBatch, key: Any) -> ColumnBatch:
        """See ``WindowsKind``."""
        return ColumnBatch(operator, batch, self.keys.of(batch))

    def windows(self, step: WindowedStep) -> ColumnSessions:
        """See ``WindowsKind``."""
        return ColumnSessions(self, step)


class ColumnSessions:
    """Sessions of each key."""

    def __init__(self, kind: ColumnSessionsKind, step: WindowedStep) -> None:
        self._step, self._rules, self._gap_ns = step, step.rules, kind.gap_ns
        self._aggregates, self._keys = kind.aggregates, kind.keys
        self._read = tuple(dict.fromkeys(each.of for each in kind.aggregates if each.of is not None))
        dtypes = {name: dtype for each in kind.aggregates for name, dtype in each.dtypes().items()}
        self._parts = tuple(dtypes)
        spans = dict.fromkeys((START, END, NUMBER), numpy.int64)
        pending = {PENDING: numpy.bool_} if step.rules.lateness_ns else {}
        spec = ColumnSpec((*self._keys.types, pyarrow.int64()), {**spans, **pending, **dtypes})
        self._table = step.scope.state.column_table(kind.sessions_spec, spec)
        self._results = WindowColumns(self._keys, kind.aggregates)
        self._is_ordered = any(isinstance(each, FirstColumn | LastColumn) for each in kind.aggregates)
        self._torn_ns: int | None = None  # of the present batch
        self._make_chains()
        live = self._table.live()
        self._next_end = int(self._next_instants(live).min()) if len(live) else None
        """No session ends, or is forgotten, earlier; None without sessions."""

    def _make_chains(self) -> None:
        self._layout, live = self._table.layout, self._table.live()
        self._chains = SessionChains(self._keys.types)
        if len(live):
            self._chains.add(self._chains.keys(self._table.keys(live)[:-1]), live)

    # --- records

    def take(self, batch: ColumnBatch, instants: IntArray, first_number: int) -> TakenBatch:
        """See ``KeyedWindows``."""
        if self._layout != self._table.layout or self._chains.is_full(len(self._table)):
            self._make_chains()
        self._torn_ns = None
        keys, numbers = self._chains.keys(batch.keys), numpy.arange(first_number, first_number + len(instants))
        late = self._late(keys, instants)
        if not len(late):
            self._take(batch.batch, keys, instants, numbers)
        elif len(late) < len(instants):
            is_left = numpy.ones(len(instants), numpy.bool_)
            is_left[late] = False
            needed = batch.batch.select(list(dict.fromkeys((*self._keys.names, *self._read))) or [0])
            part = needed.filter(pyarrow.array(is_left))
            self._take(part, keys[is_left], instants[is_left], numbers[is_left])
        return TakenBatch(late, self._torn_ns)

    def _take(self, batch: RecordBatch, keys: IntArray, times: IntArray, numbers: IntArray) -> None:
        """Adds records, none of which is late."""
        if not self._is_ordered:
            self._add(batch, keys, times, numbers)
            return
        for rows in parts_by_arrival(keys, times, self._gap_ns, self._open_spans):
            part = batch if len(rows) == len(times) else batch.take(pyarrow.array(rows))
            self._add(part, keys[rows], times[rows], numbers[rows])

    def _add(self, batch: RecordBatch, keys: IntArray, times: IntArray, numbers: IntArray) -> None:
        """Adds records with their numbers by arrival."""
        found = sessions_of(keys, times, self._gap_ns)
        slots = self._joined(found)
        new = numpy.flatnonzero(slots == NONE)
        if len(new):
            slots[new] = self._begun(batch, found, new, numbers[found.rows[new]])
        values, of_rows = self._table.values, slots[found.of_rows]
        if self._rules.lateness_ns:
            values[PENDING][slots] = True
        for each in self._aggregates:
            each.add(values, of_rows, each.cells(batch))

    def _begun(self, batch: RecordBatch, found: BatchSessions, new: IntArray, numbers: IntArray) -> IntArray:
        """Opens sessions of a batch, and returns their slots."""
        rows = pyarrow.array(found.rows[new])
        keys = [column.take(rows) for column in self._keys.of(batch)]
        slots = self._table.slots([*keys, pyarrow.array(numbers)]).astype(numpy.int64)
        values = self._table.values
        values[START][slots], values[END][slots], values[NUMBER][slots] = found.starts[new], found.ends[new], numbers
        self._look_at_starts(found.starts[new])
        self._chains.add(found.keys[new], slots)
        self._note_ends(found.ends[new])
        return slots

    def _note_ends(self, ends: IntArray) -> None:
        next_end = int(ends.min())
        self._next_end = next_end if self._next_end is None else min(self._next_end, next_end)

    def _joined(self, found: BatchSessions) -> IntArray:
        """Joins sessions of a batch with open ones: returns the slots of these, NONE for a session that joins none."""
        heads = self._chains.heads(found.keys)
        slots = numpy.full(len(heads), NONE)
        is_known = heads != NONE
        is_simple = is_known & ~found.has_others
        is_simple[is_simple] = self._chains.is_last(heads[is_simple])
        one = numpy.flatnonzero(is_simple)  # a session in the batch, and an open one
        values = self._table.values
        starts, ends = values[START][heads[one]], values[END][heads[one]]
        overlaps = (found.starts[one] < ends) & (starts < found.ends[one])
        joining = one[overlaps]
        self._look_at_starts(found.starts[joining], starts[overlaps])
        slots[joining] = heads[joining]
        self._table.touch(slots[joining])
        values[START][slots[joining]] = numpy.minimum(starts[overlaps], found.starts[joining])
        values[END][slots[joining]] = numpy.maximum(ends[overlaps], found.ends[joining])
        others = numpy.flatnonzero(is_known & ~is_simple)
        if len(others):
            slots[others] = self._joined_with_several(found, others)
        if self._rules.lateness_ns and len(ended := slots[slots != NONE]):  # they may have ended, and end again
            self._note_ends(values[END][ended])
        return slots

    def _joined_with_several(self, found: BatchSessions, sessions: IntArray) -> IntArray:
        """Does the same for keys that have several sessions, in the batch or open."""
        values, spans = self._table.values, self._open_spans(numpy.unique(found.keys[sessions]))
        joined = joined_spans(spans, found.keys[sessions], found.starts[sessions], found.ends[sessions])
        self._table.touch(numpy.concatenate((joined.targets, joined.extras)))
        self._look_at_starts(joined.starts, values[START][joined.targets])
        values[START][joined.targets], values[END][joined.targets] = joined.starts, joined.ends
        if len(joined.extras):
            self._merge(joined.extra_targets, joined.extras)
        return joined.slots

    def _open_spans(self, keys: IntArray) -> OpenSpans:
        """Returns the open sessions of distinct keys."""
        values, parts = self._table.values, [(numpy.empty(0, numpy.int64),) * 2, *self._chains.of(keys)]
        owners = keys[numpy.concatenate([places for places, _ in parts])]
        slots = numpy.concatenate([part for _, part in parts])
        return OpenSpans(owners, values[START][slots], values[END][slots], slots)

    def _merge(self, targets: IntArray, extras: IntArray) -> None:
        """Merges open sessions into earlier ones of their keys; those of a target are in the order of their starts."""
        values = self._table.values
        numpy.minimum.at(values[NUMBER], targets, values[NUMBER][extras])
        left, others = targets, extras
        while len(left):
            _, first = numpy.unique(left, return_index=True)
            one = {name: column[others[first]] for name, column in values.items()}
            for each in self._aggregates:
                each.merge(values, left[first], one)
            left, others = numpy.delete(left, first), numpy.delete(others, first)
        self._remove(extras)

    def _look_at_starts(self, starts: IntArray, before: IntArray | None = None) -> None:
        """Notes a session that begins earlier with a record behind the watermark: what came before it is gone."""
        reached_ns = self._step.reached_ns
        if reached_ns is None or self._torn_ns is not None:
            return
        is_behind = starts + self._rules.lateness_ns < reached_ns
        torn = starts[is_behind if before is None else is_behind & (starts < before)]
        if len(torn):
            self._torn_ns = int(torn[0])

    def _remove(self, slots: IntArray) -> None:
        self._table.remove(slots)
        is_removed = self._table.store.is_removed
        assert is_removed is not None, "a slot has been removed"
        self._chains.drop(slots, is_removed)

    # --- late records

    def _late(self, keys: IntArray, times: IntArray) -> IntArray:
        """Returns the late rows of a batch: those whose session would be forgotten, and that join no open one."""
        reached_ns, none = self._step.reached_ns, numpy.empty(0, numpy.int64)
        if reached_ns is None:
            return none
        is_doubtful = times + self._gap_ns + self._rules.lateness_ns <= reached_ns
        if not is_doubtful.any():
            return none
        doubtful = numpy.unique(keys[is_doubtful])
        is_open = self._chains.heads(doubtful) != NONE
        begun = keys[~is_doubtful & (times < reached_ns)]  # sessions that they may join
        followed = doubtful[is_open | numpy.isin(doubtful, begun)]
        is_followed = numpy.isin(keys, followed)
        late = numpy.flatnonzero(is_doubtful & ~is_followed)
        rows = numpy.flatnonzero(is_followed)
        if not len(rows):
            return late
        return numpy.sort(numpy.concatenate((late, self._followed(rows, keys[rows], times[rows], reached_ns))))

    def _followed(self, rows: IntArray, keys: IntArray, times: IntArray, reached_ns: int) -> IntArray:
        """Returns those of some rows that are late, by the sessions of their keys after each row."""
        distinct, values = numpy.unique(keys), self._table.values
        spans: dict[int, list[tuple[int, int]]] = {key: [] for key in distinct.tolist()}
        for places, slots in self._chains.of(distinct):
            bounds = zip(values[START][slots].tolist(), values[END][slots].tolist(), strict=True)
            for key, span in zip(distinct[places].tolist(), bounds, strict=True):
                spans[key].append(span)
        late: list[int] = []
        for row, key, time_ns in zip(rows.tolist(), keys.tolist(), times.tolist(), strict=True):
            start, end = time_ns, time_ns + self._gap_ns
            joining = [span for span in spans[key] if span[0] < end and start < span[1]]
            if not joining and end + self._rules.lateness_ns <= reached_ns:
                late.append(row)
                continue
            joining.append((start, end))
            joined = min(span[0] for span in joining), max(span[1] for span in joining)
            spans[key] = [joined, *(span for span in spans[key] if span not in joining)]
        return numpy.array(late, numpy.int64)

    # --- time

    def next_ns(self, is_event: bool) -> int | None:
        """See ``KeyedWindows``."""
        return self._next_end if is_event else None

    def due(self, is_event: bool, until_ns: int) -> list[DueTimer]:
        """See ``KeyedWindows``."""
        is_due = is_event and self._next_end is not None and self._next_end <= until_ns
        return [DueTimer(until_ns, None)] if is_due else []

    def fire(self, is_event: bool, due: Sequence[DueTimer]) -> None:
        """See ``KeyedWindows``."""
        for timer in due:
            until_ns, live = timer.instant_ns, self._table.live()
            instants = self._next_instants(live)
            is_due = instants <= until_ns
            left, ended = instants[~is_due], live[is_due]
            if self._rules.lateness_ns:  # those that end now are forgotten later
                ends = self._table.values[END][ended] + self._rules.lateness_ns
                left = numpy.concatenate((left, ends[ends > until_ns]))
            self._next_end = int(left.min()) if len(left) else None
            self._end(ended, until_ns)

    def _next_instants(self, slots: IntArray) -> IntArray:
        """Returns when sessions end, or those without a pending result are forgotten."""
        ends: IntArray = self._table.values[END][slots]
        return ends if not self._rules.lateness_ns else ends + ~self._pending(slots) * self._rules.lateness_ns

    def _pending(self, slots: IntArray) -> NDArray[numpy.bool_]:
        """Returns which sessions have records that no result has."""
        has_pending = self._rules.lateness_ns > 0
        return self._table.values[PENDING][slots] if has_pending else numpy.ones(len(slots), numpy.bool_)

    def end_of_time(self) -> None:
        """See ``KeyedWindows``."""
        self._end(self._table.live(), None)

    def _end(self, slots: IntArray, until_ns: int | None) -> None:
        """Emits the pending results of sessions by their end and first arrival, and forgets what has to be.

        ``until_ns``: sessions whose lateness has passed then are forgotten; None: all.
        """
        if not len(slots):
            return
        table, values = self._table, self._table.values
        if self._layout != table.layout:
            self._make_chains()
        pending = slots[self._pending(slots)]
        pending = pending[numpy.lexsort((values[NUMBER][pending], values[END][pending]))]
        starts, ends = values[START][pending], values[END][pending]
        for batch in self._results.batches(self._step.operator.guard, table.keys, values, pending, starts, ends):
            self._step.operator.out.columns(batch)
        is_over = numpy.ones(len(slots), numpy.bool_)
        if until_ns is not None and self._rules.lateness_ns:
            is_over = values[END][slots] + self._rules.lateness_ns <= until_ns
            self._clear(slots[~is_over])
        if is_over.any():
            self._remove(slots[is_over])

    def _clear(self, slots: IntArray) -> None:
        """Takes note that the results of sessions have left, which stay open."""
        if not len(slots):
            return
        self._table.touch(slots)
        values = self._table.values
        for name in (PENDING,) if self._rules.accumulates else (PENDING, *self._parts):
            values[name][slots] = 0
