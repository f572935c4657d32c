"""Session windows over keyed columns, with a fixed gap in event time.

State: ``step/sessions``, a table with the open sessions of all keys: the key and a number that no other session of the
key has, start, end, the number of the first record by arrival, and the columns of the aggregates. The records of a
batch become sessions per key, which join the open ones that they overlap. Results are those of ``KeyWindows``, in the
same order.

Where an aggregate depends on the order of records, a batch is added in parts (``arrival_order``).

A session is open until its lateness has passed. With lateness it also has the column ``pending``: whether records have
come since its last result.

A record that would be late by its time is not late if it joins an open session. These records, and the others of their
keys, are looked at one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Final

import numpy
import pyarrow

from clonos.core.model.watermark import Activity, Watermark
from clonos.kernels.record_batch import RecordBatch
from clonos.operators.columnar.column_aggregates import ColumnAggregate, FirstColumn, LastColumn
from clonos.operators.columnar.column_form import ColumnOperator
from clonos.operators.columnar.sessions.arrival_order import parts_by_arrival
from clonos.operators.columnar.sessions.batch_sessions import BatchSessions, sessions_of
from clonos.operators.columnar.sessions.joined_spans import OpenSpans, joined_spans
from clonos.operators.columnar.sessions.session_chains import NONE, SessionChains
from clonos.operators.columnar.window_columns import WindowColumns, WindowKeys
from clonos.operators.event_time.late_records import LateRecords
from clonos.operators.operator import DueTimer, Scope
from clonos.operators.state.column_table import ColumnSpec
from clonos.operators.warn_once import WarnOnce
from clonos.operators.windows.key_windows import ARRIVALS_NAME
from clonos.operators.windows.late_text import late_text, torn_session_text
from clonos.operators.windows.paned import WATERMARK_NAME
from clonos.operators.windows.window_rules import WindowRules

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Numbers = NDArray[numpy.int64]

SESSIONS_NAME: Final = "sessions"

START: Final = "start"
END: Final = "end"
NUMBER: Final = "number"
PENDING: Final = "pending"
"""Columns of a session beside those of the aggregates, whose names have a dot."""


class ColumnSessions(ColumnOperator):
    """Operator of session windows over columns."""

    has_event_timers: ClassVar[bool] = True

    def __init__(
        self,
        step: str,
        gap_ns: int,
        aggregates: Sequence[ColumnAggregate],
        keys: Sequence[pyarrow.Field],
        rules: WindowRules,
    ) -> None:
        """Creates the operator for batches in which ``keys`` are the columns of the key."""
        self._step, self._gap_ns, self._rules = step, gap_ns, rules
        self._aggregates, self._keys = tuple(aggregates), WindowKeys(keys)
        self._read = tuple(dict.fromkeys(each.of for each in aggregates if each.of is not None))
        dtypes = {name: dtype for each in aggregates for name, dtype in each.dtypes().items()}
        self._parts = tuple(dtypes)
        spans = dict.fromkeys((START, END, NUMBER), numpy.int64)
        pending = {PENDING: numpy.bool_} if rules.lateness_ns else {}
        self._spec = ColumnSpec((*self._keys.types, pyarrow.int64()), {**spans, **pending, **dtypes})
        self._results = WindowColumns(self._keys, aggregates)
        self._is_ordered = any(isinstance(each, FirstColumn | LastColumn) for each in aggregates)
        self._next_end: int | None = None  # no session ends, or is forgotten, earlier; None without sessions

    def open(self, scope: Scope) -> None:
        self._state = scope.state
        self._late_records = LateRecords(self._step, self._rules.late_tag, scope, self, late_text)
        self._torn_session = WarnOnce(self._step, scope.context.recorder)
        self._table = scope.state.column_table(f"{self._step}/{SESSIONS_NAME}", self._spec)
        self._reached = scope.state.table(f"{self._step}/{WATERMARK_NAME}", is_small=True)
        self._arrivals = scope.state.table(f"{self._step}/{ARRIVALS_NAME}", is_small=True)
        self._next_number: int = self._arrivals.entries.get(0, 0)
        self._make_chains()
        live = self._table.live()
        self._next_end = int(self._next_instants(live).min()) if len(live) else None

    def prepare(self, checkpoint: int) -> None:
        self._arrivals.set(0, self._next_number)

    def _make_chains(self) -> None:
        self._layout, live = self._table.layout, self._table.live()
        self._chains = SessionChains(self._keys.types)
        if len(live):
            self._chains.add(self._chains.keys(self._table.keys(live)[:-1]), live)

    # --- records

    def columns(self, batch: RecordBatch) -> None:
        times = self.time_array(batch)
        assert times is not None, "sessions over columns are on streams with timestamps"
        if self._layout != self._table.layout or self._chains.is_full(len(self._table)):
            self._make_chains()
        keys = self._chains.keys(self._keys.of(batch))
        reached_ns: int | None = self._reached.entries.get(0)
        if reached_ns is None or not len(late := self._late(keys, times, reached_ns)):
            self._take(batch, keys, times)
            return
        is_left = numpy.ones(len(times), numpy.bool_)
        is_left[late] = False
        if is_left.any():
            needed = batch.select(list(dict.fromkeys((*self._keys.names, *self._read))) or [0])
            self._take(needed.filter(pyarrow.array(is_left)), keys[is_left], times[is_left])
        self._late_records.take_columns(batch.take(pyarrow.array(late)), times[late], reached_ns)

    def _take(self, batch: RecordBatch, keys: Numbers, times: Numbers) -> None:
        """Adds records, none of which is late."""
        parts = parts_by_arrival(keys, times, self._gap_ns, self._open_spans) if self._is_ordered else ()
        for rows in parts:
            part = batch if len(rows) == len(times) else batch.take(pyarrow.array(rows))
            self._add(part, keys[rows], times[rows], rows)
        if not self._is_ordered:
            self._add(batch, keys, times, numpy.arange(len(times)))
        self._next_number += len(times)

    def _add(self, batch: RecordBatch, keys: Numbers, times: Numbers, places: Numbers) -> None:
        """Adds records with their places by arrival."""
        found = sessions_of(keys, times, self._gap_ns)
        slots = self._joined(found)
        new = numpy.flatnonzero(slots == NONE)
        if len(new):
            slots[new] = self._begun(batch, found, new, places)
        values, of_rows = self._table.values, slots[found.of_rows]
        if self._rules.lateness_ns:
            values[PENDING][slots] = True
        for each in self._aggregates:
            each.add(values, of_rows, each.cells(batch))

    def _begun(self, batch: RecordBatch, found: BatchSessions, new: Numbers, places: Numbers) -> Numbers:
        """Opens sessions of a batch, and returns their slots."""
        numbers, rows = self._next_number + places[found.rows[new]], pyarrow.array(found.rows[new])
        keys = [column.take(rows) for column in self._keys.of(batch)]
        slots = self._table.slots([*keys, pyarrow.array(numbers)]).astype(numpy.int64)
        values = self._table.values
        values[START][slots], values[END][slots], values[NUMBER][slots] = found.starts[new], found.ends[new], numbers
        self._look_at_starts(found.starts[new])
        self._chains.add(found.keys[new], slots)
        self._note_ends(found.ends[new])
        return slots

    def _note_ends(self, ends: Numbers) -> None:
        next_end = int(ends.min())
        self._next_end = next_end if self._next_end is None else min(self._next_end, next_end)

    def _joined(self, found: BatchSessions) -> Numbers:
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

    def _joined_with_several(self, found: BatchSessions, sessions: Numbers) -> Numbers:
        """Does the same for keys that have several sessions, in the batch or open."""
        values, spans = self._table.values, self._open_spans(numpy.unique(found.keys[sessions]))
        joined = joined_spans(spans, found.keys[sessions], found.starts[sessions], found.ends[sessions])
        self._table.touch(numpy.concatenate((joined.targets, joined.extras)))
        self._look_at_starts(joined.starts, values[START][joined.targets])
        values[START][joined.targets], values[END][joined.targets] = joined.starts, joined.ends
        if len(joined.extras):
            self._merge(joined.extra_targets, joined.extras)
        return joined.slots

    def _open_spans(self, keys: Numbers) -> OpenSpans:
        """Returns the open sessions of distinct keys."""
        values, parts = self._table.values, [(numpy.empty(0, numpy.int64),) * 2, *self._chains.of(keys)]
        owners = keys[numpy.concatenate([places for places, _ in parts])]
        slots = numpy.concatenate([part for _, part in parts])
        return OpenSpans(owners, values[START][slots], values[END][slots], slots)

    def _merge(self, targets: Numbers, extras: Numbers) -> None:
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

    def _look_at_starts(self, starts: Numbers, before: Numbers | None = None) -> None:
        """Warns of a session that begins earlier with a record behind the watermark: what came before it is gone."""
        reached_ns: int | None = self._reached.entries.get(0)
        if reached_ns is None:
            return
        is_behind = starts + self._rules.lateness_ns < reached_ns
        torn = starts[is_behind if before is None else is_behind & (starts < before)]
        if len(torn):
            start_ns = int(torn[0])
            self._torn_session.warn(lambda: torn_session_text(self._step, start_ns, reached_ns))

    def _remove(self, slots: Numbers) -> None:
        self._table.remove(slots)
        is_removed = self._table.store.is_removed
        assert is_removed is not None, "a slot has been removed"
        self._chains.drop(slots, is_removed)

    # --- late records

    def _late(self, keys: Numbers, times: Numbers, reached_ns: int) -> Numbers:
        """Returns the late rows of a batch: those whose session would be forgotten, and that join no open one."""
        is_doubtful = times + self._gap_ns + self._rules.lateness_ns <= reached_ns
        if not is_doubtful.any():
            return numpy.empty(0, numpy.int64)
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

    def _followed(self, rows: Numbers, keys: Numbers, times: Numbers, reached_ns: int) -> Numbers:
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

    @property
    def fires_in_spans(self) -> bool:
        return True

    def on_watermark(self, watermark: Watermark) -> None:
        if not isinstance(watermark, Activity):
            self._reached.set(0, watermark)
        self.out.on_watermark(watermark)

    def next_event_ns(self) -> int | None:
        """Returns an instant before which no session ends or is forgotten."""
        return self._next_end

    def due_events(self, until_ns: int | None) -> list[DueTimer]:
        """Returns the sessions that end or are forgotten until ``until_ns``; none at the end of the input."""
        if until_ns is None or self._next_end is None or self._next_end > until_ns:
            return []
        live = self._table.live()
        instants = self._next_instants(live)
        is_due = instants <= until_ns
        left = instants[~is_due]
        due = live[is_due]
        if self._rules.lateness_ns:  # those that end now are forgotten later
            ends = self._table.values[END][due] + self._rules.lateness_ns
            left = numpy.concatenate((left, ends[ends > until_ns]))
        self._next_end = int(left.min()) if len(left) else None
        return [DueTimer(until_ns, due)] if len(due) else []

    def _next_instants(self, slots: Numbers) -> Numbers:
        """Returns when sessions end, or those without a pending result are forgotten."""
        ends: Numbers = self._table.values[END][slots]
        return ends if not self._rules.lateness_ns else ends + ~self._pending(slots) * self._rules.lateness_ns

    def _pending(self, slots: Numbers) -> NDArray[numpy.bool_]:
        """Returns which sessions have records that no result has."""
        has_pending = self._rules.lateness_ns > 0
        return self._table.values[PENDING][slots] if has_pending else numpy.ones(len(slots), numpy.bool_)

    def fire_events(self, due: Sequence[DueTimer]) -> None:
        for timer in due:
            self._end(timer.token, timer.instant_ns)

    def end_of_time(self) -> None:
        self._end(self._table.live(), None)

    def _end(self, slots: Numbers, until_ns: int | None) -> None:
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
        for batch in self._results.batches(self.guard, table.keys, values, pending, starts, ends):
            self.out.columns(batch)
        is_over = numpy.ones(len(slots), numpy.bool_)
        if until_ns is not None and self._rules.lateness_ns:
            is_over = values[END][slots] + self._rules.lateness_ns <= until_ns
            self._clear(slots[~is_over])
        if is_over.any():
            self._remove(slots[is_over])

    def _clear(self, slots: Numbers) -> None:
        """Takes note that the results of sessions have left, which stay open."""
        if not len(slots):
            return
        self._table.touch(slots)
        values = self._table.values
        for name in (PENDING,) if self._rules.accumulates else (PENDING, *self._parts):
            values[name][slots] = 0
