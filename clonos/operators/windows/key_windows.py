"""Windows whose state is per key: sessions, count and global windows, and all windows with a trigger or an evictor.

State: ``step/windows`` has the cells of the open windows of each key. A timer (instant, key) means: look at the windows
of this key. A session that grows keeps its timer, which is set anew when it fires too early, so a record does not set
one. A record that comes after the end of a window, within its lateness, sets a timer at the end, which has passed: the
next result leaves at the next watermark.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby, repeat
from operator import itemgetter
from typing import Any, ClassVar, Final

from clonos.core.model.watermark import Activity, Watermark
from clonos.core.ports.recorder import Recorder
from clonos.core.values.copying import copied
from clonos.core.values.keys import key_of, state_key, state_keys
from clonos.operators.aggregates.aggregate import Aggregation
from clonos.operators.event_time.late_records import LateRecords
from clonos.operators.event_time.timestamps import result_time_ns
from clonos.operators.operator import DueTimer, Operator, Scope, Times
from clonos.operators.state.timers import Timers
from clonos.operators.user_errors import RAISED
from clonos.operators.warn_once import WarnOnce
from clonos.operators.windows.assigners import Assigner, Span
from clonos.operators.windows.evictors import Evictor
from clonos.operators.windows.gathered import Failure
from clonos.operators.windows.late_text import late_text, torn_session_text
from clonos.operators.windows.triggers import Trigger, TriggerContext, trigger_of_task
from clonos.operators.windows.window_cells import (
    ACCUMULATOR,
    CLOCK_TIMER,
    END,
    EVENT_TIMER,
    NUMBER,
    PENDING,
    START,
    STATE,
    Cell,
    merge_cells,
    new_cell,
)
from clonos.operators.windows.window_results import window_of
from clonos.operators.windows.window_rules import ApplyFunction, Results, WindowRules

Growing = tuple[list[Cell], Cell, bool, bool]
"""Window to which a record is added: the cells that it joins, its cell, whether its trigger emits, and sets a timer."""


WINDOWS_NAME: Final = "windows"
WATERMARK_NAME: Final = "watermark"
ARRIVALS_NAME: Final = "arrivals"
"""Table with one entry, the number of records that have begun a window."""


class KeyWindows(Operator):
    """Operator of windows whose state is per key."""

    keeps_times = False
    has_timers: ClassVar[bool] = True
    has_event_timers: ClassVar[bool] = True

    def __init__(
        self,
        step: str,
        assigner: Assigner,
        aggregation: Aggregation[Any, Any],
        rules: WindowRules,
        trigger: Trigger | None = None,
        evictor: Evictor | None = None,
        apply: ApplyFunction | None = None,
    ) -> None:
        """Creates the operator. ``evictor``: the aggregation gathers values with their times."""
        self._step = step
        self._assigner = assigner
        self._order: Callable[[Cell], tuple[int, int]] = _by_start if assigner.joins else _span_of
        self._aggregation = aggregation
        self._rules = rules
        self._trigger = trigger_of_task(trigger or Trigger(), step)
        self._has_trigger = trigger is not None
        self._evictor = evictor
        self._results = Results(aggregation, apply)
        self._rows: list[Any] = []  # results of the present call, with their times
        self._row_times: list[int] = []
        self._failures: list[Failure] = []  # of results of the present call

    def open(self, scope: Scope) -> None:
        self._recorder: Recorder = scope.context.recorder
        self._late_records = LateRecords(self._step, self._rules.late_tag, scope, self, late_text)
        self._torn_session = WarnOnce(self._step, self._recorder)
        self._table = scope.state.table(f"{self._step}/{WINDOWS_NAME}")
        self._reached = scope.state.table(f"{self._step}/{WATERMARK_NAME}", is_small=True)
        self._arrivals = scope.state.table(f"{self._step}/{ARRIVALS_NAME}", is_small=True)
        self._next_number: int = self._arrivals.entries.get(0, 0)
        self._event_timers = Timers(f"{self._step}/event timers", scope.state)
        self._clock_timers = Timers(f"{self._step}/timers", scope.state)
        self._end_timers = self._event_timers if self._rules.is_event_time else self._clock_timers

    def prepare(self, checkpoint: int) -> None:
        self._arrivals.set(0, self._next_number)

    # --- records

    def rows(self, rows: list[Any], times: Times = None) -> None:
        pairs = rows if self._rules.is_keyed else [(None, row) for row in rows]
        stored = state_keys([key for key, _ in pairs])
        uses_clock = times is None or (self._assigner.ends and not self._rules.is_event_time)
        own_times = repeat(self._recorder.instant_ns(False), len(pairs)) if uses_clock else times
        assert own_times is not None, "a stream without timestamps uses the clock"
        late: list[int] = []
        wrapped = list(zip(range(len(pairs)), stored, [value for _, value in pairs], own_times, strict=True))
        self.guard.run(lambda records: self._consume(records, late), wrapped, pairs=pairs)
        self._pass_results()
        if late:
            assert times is not None, "records are late in event time only"
            found = [pairs[place][1] for place in late], [times[place] for place in late]
            self._late_records.take(*found, self._reached.entries[0])

    def _consume(self, records: Iterator[Any], late: list[int]) -> None:
        reached_ns, lateness_ns = self._reached_ns(), self._rules.lateness_ns
        add = self._aggregation.add_or_keep if self.guard.routes else self._aggregation.add
        for place, stored, value, time_ns in records:
            cells = self._table.entries.get(stored, ())
            growing: list[Growing] = []
            for span in self._assigner.spans_of(value, time_ns):
                joining, joined = self._joining(cells, span)
                if reached_ns is None or not self._assigner.ends or joined[1] + lateness_ns > reached_ns:
                    growing.append(self._growing(joining, joined, value, time_ns))
            if not growing:
                late.append(place)
                continue
            added = value if self._evictor is None else (time_ns, value)
            if len(growing) == 1:
                cell = growing[0][1]
                cell[ACCUMULATOR] = add(cell[ACCUMULATOR], added)
            else:
                self._add_to_each([cell for _, cell, _, _ in growing], added)
            self._grow(stored, cells, growing)

    def _joining(self, cells: Sequence[Cell], span: Span) -> tuple[list[Cell], Span]:
        """Returns the cells that a new window of a key joins, and the window that they become."""
        joining: list[Cell] = []
        if not self._assigner.joins:
            place = bisect_left(cells, span, key=_span_of)
            return [cell for cell in cells[place : place + 1] if _span_of(cell) == span], span
        for cell in cells:
            joined = self._assigner.joined((cell[START], cell[END]), span)
            if joined is not None:
                joining.append(cell)
                span = joined
        return joining, span

    def _growing(self, joining: list[Cell], span: Span, value: Any, time_ns: int) -> Growing:
        """Returns the window that some cells become with a record, before it is added, as a cell apart from theirs."""
        if len(joining) == 1:
            cell = list(joining[0])
        elif joining:
            cell = copied(joining[0])
            for other in joining[1:]:
                merge_cells(cell, other, self._aggregation.merge, self._trigger.merged_state)
        else:
            cell = new_cell(span, self._next_number, self._aggregation.create())
        cell[START], cell[END] = span
        cell[PENDING] += 1
        if not self._has_trigger:
            return joining, cell, False, False
        if self.guard.routes:
            cell[STATE] = copied(cell[STATE])
        context = self._context(cell, time_ns)
        emits = self._trigger.on_record(value, context)
        return joining, cell, emits, context.has_set_timer

    def _add_to_each(self, cells: list[Cell], value: Any) -> None:
        """Adds a record to several windows, or to none if it raises and goes to the error output."""
        routes, add = self.guard.routes, self._aggregation.add
        copies = self._aggregation.changes_terms
        for cell in cells:
            accumulator = copied(cell[ACCUMULATOR]) if routes else cell[ACCUMULATOR]
            cell[ACCUMULATOR] = add(accumulator, copied(value) if copies else value)

    def _grow(self, stored: Any, cells: Sequence[Cell], growing: list[Growing]) -> None:
        """Puts the windows that have a further record in place of the cells that they join, and emits results."""
        changed, emitting = list(cells), []
        for joining, cell, emits, has_set_timer in growing:
            if self._assigner.joins and self._assigner.ends:
                self._look_at_start(joining, cell)
            was_ended = bool(joining) and self._has_passed(min(each[END] for each in joining))
            if len(joining) == 1:
                joining[0][:] = cell
                cell = joining[0]
            else:
                if joining:
                    changed = [each for each in changed if not any(each is one for one in joining)]
                changed.append(cell)
            if not joining:
                cell[NUMBER] = self._next_number
                self._next_number += 1
            if self._assigner.ends and (not joining or was_ended):
                self._end_timers.set(cell[END], key_of(stored))
            if has_set_timer:
                self._set_timers(stored, cell)
            if emits:
                emitting.append(cell)
        changed.sort(key=self._order)
        self._table.set(stored, changed)
        for cell in emitting:
            changed = self._emitted(stored, changed, cell)

    def _look_at_start(self, joining: list[Cell], cell: Cell) -> None:
        """Warns of a session that begins earlier with a record behind the watermark: what came before it is gone."""
        reached_ns, start_ns = self._reached_ns(), cell[START]
        if reached_ns is None or start_ns + self._rules.lateness_ns >= reached_ns:
            return
        if all(start_ns < each[START] for each in joining):
            self._torn_session.warn(lambda: torn_session_text(self._step, start_ns, reached_ns))

    def _has_passed(self, instant_ns: int) -> bool:
        reached_ns = self._reached_ns()
        return reached_ns is not None and instant_ns <= reached_ns

    def _reached_ns(self) -> int | None:
        return self._reached.entries.get(0) if self._rules.is_event_time else None

    # --- triggers

    def _context(self, cell: Cell, time_ns: int) -> TriggerContext:
        return TriggerContext(cell, time_ns, lambda: self._recorder.instant_ns(False), self._reached.entries.get(0))

    def _set_timers(self, stored: Any, cell: Cell) -> None:
        for place, timers in ((EVENT_TIMER, self._event_timers), (CLOCK_TIMER, self._clock_timers)):
            if cell[place] is not None:
                timers.set(cell[place], key_of(stored))

    def _ring(self, stored: Any, instant_ns: int, place: int) -> None:
        """Tells the trigger of the windows of a key whose timers are due."""
        for cell in list(self._table.entries.get(stored, ())):
            if cell[place] is None or cell[place] > instant_ns:
                continue
            cell[place] = None
            cells = self._table.entries[stored]
            self._table.set(stored, cells)
            changed = list(cell)  # a trigger that raises leaves the state of the window as it is
            if self.guard.routes:
                changed[STATE] = copied(changed[STATE])
            context = self._context(changed, instant_ns)
            emits = (self._trigger.on_event_timer if place == EVENT_TIMER else self._trigger.on_timer)(context)
            cell[:] = changed
            if context.has_set_timer:
                self._set_timers(stored, cell)
            if emits and (cell[PENDING] or self._rules.accumulates):
                self._emitted(stored, cells, cell)

    # --- results

    def _emitted(self, stored: Any, cells: list[Cell], cell: Cell) -> list[Cell]:
        """Emits the result of a window, which stays open; returns the cells that its key has then."""
        self._emit(stored, cell)
        left = cells
        if not self._rules.accumulates and not self._assigner.ends:
            left = [each for each in cells if each is not cell]
        self._replace(stored, left)
        return left

    def _emit(self, stored: Any, cell: Cell) -> None:
        """Emits the result of a window. What raises is passed on later, as the present record is not to blame."""
        if self._evictor is not None:
            cell[ACCUMULATOR] = self._evictor.rest_of(cell[ACCUMULATOR])
            if not self._assigner.ends:
                times = [time_ns for time_ns, _ in cell[ACCUMULATOR]]
                cell[START], cell[END] = min(times), max(times)
        window, routes = window_of(cell[START], cell[END]), self.guard.routes
        rows, failures = self._results.of(stored, [cell[ACCUMULATOR]], window, routes=routes)
        self._failures += failures
        cell[PENDING] = 0
        if not self._rules.accumulates:
            cell[ACCUMULATOR] = self._aggregation.create()
        time_ns = (
            result_time_ns(cell[END])
            if self._assigner.ends
            else max(cell[END], self._reached.entries.get(0, cell[END]))
        )
        self._rows += rows
        self._row_times += repeat(time_ns, len(rows))

    def _replace(self, stored: Any, cells: list[Cell]) -> None:
        if cells:
            self._table.set(stored, cells)
        else:
            self._table.delete(stored)

    def _pass_results(self) -> None:
        rows, times, failures = self._rows, self._row_times, self._failures
        self._rows, self._row_times, self._failures = [], [], []
        for error, record in failures:
            self.guard.caught(error, record)
        if rows:
            self.out.rows(rows, times if self._rules.has_times else None)

    def on_watermark(self, watermark: Watermark) -> None:
        if not isinstance(watermark, Activity):
            self._reached.set(0, watermark)
        self.out.on_watermark(watermark)

    def next_timer_ns(self) -> int | None:
        return self._clock_timers.next_ns()

    def due(self, until_ns: int | None) -> list[DueTimer]:
        """Returns the timers that are due; none at the end of the input, see ``end_of_time``."""
        return [] if until_ns is None else self._clock_timers.due(until_ns)

    def fire(self, due: Sequence[DueTimer]) -> None:
        self._fire(due, self._clock_timers, CLOCK_TIMER)

    def next_event_ns(self) -> int | None:
        return self._event_timers.next_ns()

    def due_events(self, until_ns: int | None) -> list[DueTimer]:
        return [] if until_ns is None else self._event_timers.due(until_ns)

    def fire_events(self, due: Sequence[DueTimer]) -> None:
        self._fire(due, self._event_timers, EVENT_TIMER)

    def _fire(self, due: Sequence[DueTimer], timers: Timers, place: int) -> None:
        """Fires timers by instant: those of triggers by registration, then ends of windows by first arrival."""
        taken = [(timer.instant_ns, state_key(timer.token[2])) for timer in due if timers.take(timer)]
        for instant_ns, group in groupby(taken, key=itemgetter(0)):
            keys = [stored for _, stored in group]
            if self._has_trigger:
                for stored in keys:
                    self._guarded(self._ring, stored, instant_ns, place)
            if self._assigner.ends and timers is self._end_timers:
                ended = [
                    (cell[END], cell[NUMBER], stored, cell)
                    for stored in keys
                    for cell in self._looked_at(stored, instant_ns)
                ]
                for _, _, stored, cell in sorted(ended, key=itemgetter(0, 1)):
                    self._guarded(self._end, stored, cell, instant_ns)
        self._pass_results()

    def _looked_at(self, stored: Any, instant_ns: int) -> list[Cell]:
        """Returns the windows of a key that have ended; sets the timer of each that goes on."""
        cells = self._table.entries.get(stored, ())
        for cell in cells:
            if cell[END] > instant_ns:
                self._end_timers.set(cell[END], key_of(stored))
        return [cell for cell in cells if cell[END] <= instant_ns]

    def _end(self, stored: Any, cell: Cell, instant_ns: int) -> None:
        """Emits what a window that has ended owes, and forgets it when its lateness has passed."""
        cells = list(self._table.entries.get(stored, ()))
        forgets = cell[END] + self._rules.lateness_ns <= instant_ns
        if forgets:
            cells = [each for each in cells if each is not cell]
        else:
            self._end_timers.set(cell[END] + self._rules.lateness_ns, key_of(stored))
        self._replace(stored, cells)
        if self._owes(cell, instant_ns):
            self._emit(stored, cell)

    def end_of_time(self) -> None:
        """Emits what open windows have not emitted yet, by their end, if they have one, and first arrival."""
        contents = self._table.contents()
        cells = [(cell[END], cell[NUMBER], stored, cell) for stored, found in contents.items() for cell in found]
        for _, _, stored, cell in sorted(cells, key=itemgetter(0, 1) if self._assigner.ends else itemgetter(1)):
            if self._owes(cell, cell[END]):
                self._guarded(self._emit, stored, cell)
            self._table.delete(stored)
        for timers in (self._event_timers, self._clock_timers):
            for timer in timers.due(None):
                timers.take(timer)
        self._pass_results()

    def _owes(self, cell: Cell, instant_ns: int) -> bool:
        """Returns whether a window emits at an instant: further records, or all of them once more at its end."""
        is_end = instant_ns == cell[END] and not self._has_passed(instant_ns)
        repeats = is_end and self._rules.emits_at_end and self._rules.accumulates
        return bool(cell[PENDING] or repeats)

    def _guarded(self, function: Any, stored: Any, *arguments: Any) -> None:
        """Calls code of the user outside of a record."""
        try:
            function(stored, *arguments)
        except RAISED as error:
            self.guard.caught(error, None)


def _by_start(cell: Cell) -> tuple[int, int]:
    return cell[START], cell[NUMBER]


def _span_of(cell: Cell) -> Span:
    return cell[START], cell[END]
