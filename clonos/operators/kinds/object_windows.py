"""Windows of each key over Python objects: a table with the cells of the open windows of each key, in their order.

A heap has for each window the instant at which it is looked at next: its end, or later that at which it is forgotten. A
session that grows keeps its place there, and gets a new one when it is looked at too early.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count, repeat
from typing import Any, ClassVar, Final

from clonos.core.model.watermark import INSTANT_NS_MIN
from clonos.core.values.copying import copied
from clonos.core.values.keys import key_of, state_key, state_keys
from clonos.kernels.record_batch import RecordBatch
from clonos.operators.aggregates.aggregate import Aggregation
from clonos.operators.event_time.timestamps import result_time_ns
from clonos.operators.kinds.instant_heap import InstantHeap
from clonos.operators.kinds.object_batch import ObjectBatch
from clonos.operators.kinds.window_kind import TakenBatch, WindowedStep
from clonos.operators.operator import DueTimer, Operator, Times
from clonos.operators.state.state_spec import StateSpec
from clonos.operators.state.timers import Timers, timer_spec
from clonos.operators.user_errors import RAISED
from clonos.operators.windows.assigners import Assigner, SessionAssigner, Span
from clonos.operators.windows.evictors import Evictor
from clonos.operators.windows.gathered import Failure
from clonos.operators.windows.triggers import Trigger, TriggerContext, trigger_of_task
from clonos.operators.windows.window_cells import (
    ACCUMULATOR,
    CLOCK_TIMER,
    END,
    EVENT_TIMER,
    LOOK,
    NUMBER,
    PENDING,
    START,
    STATE,
    WINDOWS,
    Cell,
    merge_cells,
    new_cell,
)
from clonos.operators.windows.window_results import window_of
from clonos.operators.windows.window_rules import ApplyFunction, Results, WindowRules

EVENT_TIMERS: Final = timer_spec("event timers")
CLOCK_TIMERS: Final = timer_spec("timers")

Growing = tuple[list[Cell], Cell]
"""Window to which a record is added: the cells that it joins, and the cell that they become."""


@dataclass(frozen=True, slots=True)
class ObjectWindowsKind:
    """Windows of Python objects. ``evictor``: the aggregation gathers values with their times."""

    is_keyed: bool
    assigner: Assigner
    aggregation: Aggregation[Any, Any]
    apply: ApplyFunction | None
    trigger: Trigger | None
    evictor: Evictor | None

    takes_columns: ClassVar[bool] = False

    def state_specs(self, rules: WindowRules) -> tuple[StateSpec, ...]:
        """See ``WindowsKind``."""
        return WINDOWS, EVENT_TIMERS, CLOCK_TIMERS

    @property
    def fires_in_spans(self) -> bool:
        """See ``WindowsKind``."""
        return self.trigger is None

    def of_rows(self, operator: Operator, rows: list[Any], times: Times) -> ObjectBatch:
        """See ``WindowsKind``."""
        pairs = rows if self.is_keyed else [(None, row) for row in rows]
        return ObjectBatch(state_keys([key for key, _ in pairs]), pairs, times)

    def of_columns(self, operator: Operator, batch: RecordBatch, key: Any) -> ObjectBatch:
        """See ``WindowsKind``."""
        raise AssertionError("the operator gets rows of columns")

    def windows(self, step: WindowedStep) -> ObjectWindows:
        """See ``WindowsKind``."""
        if isinstance(self.assigner, SessionAssigner) and self.trigger is None and self.evictor is None:
            return ObjectSessions(self, step, self.assigner)
        return ObjectWindows(self, step)


class ObjectWindows:
    """Windows of each key."""

    def __init__(self, kind: ObjectWindowsKind, step: WindowedStep) -> None:
        self._step, self._rules = step, step.rules
        self._guard, self._out = step.operator.guard, step.operator.out
        self._assigner, self._aggregation, self._evictor = kind.assigner, kind.aggregation, kind.evictor
        self._trigger = trigger_of_task(kind.trigger or Trigger(), step.name)
        self._has_trigger = kind.trigger is not None
        self._order: Callable[[Cell], tuple[int, int]] = _by_start if kind.assigner.joins else _span_of
        self._results = Results(kind.aggregation, kind.apply)
        self._recorder, state = step.scope.context.recorder, step.scope.state
        self._table = state.table(WINDOWS)
        self._event_timers = Timers(EVENT_TIMERS, state)
        self._clock_timers = Timers(CLOCK_TIMERS, state)
        self._heap = self._looks() if kind.assigner.ends else InstantHeap([])
        self._torn_ns: int | None = None  # of the present batch
        self._rows: list[Any] = []  # results of the present call, with their times
        self._row_times: list[int] = []
        self._failures: list[Failure] = []  # of results of the present call

    # --- records

    def take(self, batch: ObjectBatch, instants: Sequence[int], first_number: int) -> TakenBatch:
        """See ``KeyedWindows``."""
        late: list[int] = []
        self._torn_ns = None
        records = list(zip(count(first_number), batch.keys, batch.rows, instants, strict=False))
        self._guard.run(lambda left: self._consume(left, late), records, pairs=batch.rows)
        self._pass_results()
        return TakenBatch([number - first_number for number in late], self._torn_ns)

    def _consume(self, records: Iterator[Any], late: list[int]) -> None:
        spans_of = self._assigner.spans_of
        for number, key, (_, value), time_ns in records:
            if not self._add(number, key, value, time_ns, spans_of(value, time_ns)):
                late.append(number)

    def _add(self, number: int, key: Any, value: Any, time_ns: int, spans: Sequence[Span]) -> bool:
        """Adds a record to its windows. Returns False if it is late."""
        cells = self._table.entries.get(key, ())
        growing = []
        for span in spans:
            joining, joined = self._joining(cells, span)
            if not self._assigner.ends or not self._step.has_passed(joined[1] + self._rules.lateness_ns):
                growing.append((joining, self._grown(joining, joined, number)))
        if not growing:
            return False
        answers = [self._ask(cell, value, time_ns) for _, cell in growing] if self._has_trigger else []
        added = value if self._evictor is None else (time_ns, value)
        if len(growing) == 1:
            cell = growing[0][1]
            add = self._aggregation.add_or_keep if self._guard.routes else self._aggregation.add
            cell[ACCUMULATOR] = add(cell[ACCUMULATOR], added)
        else:
            self._add_to_each([cell for _, cell in growing], added)
        for cell, (emits, has_set_timer) in zip(self._put(key, cells, growing), answers, strict=False):
            if has_set_timer:
                self._set_timers(key, cell)
            if emits:
                self._emit_early(key, cell)
        return True

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

    def _grown(self, joining: list[Cell], span: Span, number: int) -> Cell:
        """Returns the window that some cells become with a record, before it is added, as a cell apart from theirs."""
        if len(joining) == 1:
            cell = list(joining[0])
        elif joining:
            cell = copied(joining[0])
            for other in joining[1:]:
                merge_cells(cell, other, self._aggregation.merge, self._trigger.merged_state)
        else:
            cell = new_cell(span, number, self._aggregation.create())
            return cell
        cell[START], cell[END] = span
        cell[PENDING] += 1
        return cell

    def _add_to_each(self, cells: list[Cell], value: Any) -> None:
        """Adds a record to several windows, or to none if it raises and goes to the error output."""
        routes, add = self._guard.routes, self._aggregation.add
        copies = self._aggregation.changes_terms
        for cell in cells:
            accumulator = copied(cell[ACCUMULATOR]) if routes else cell[ACCUMULATOR]
            cell[ACCUMULATOR] = add(accumulator, copied(value) if copies else value)

    def _put(self, key: Any, cells: Sequence[Cell], growing: list[Growing]) -> list[Cell]:
        """Puts the windows that have a further record in place of the cells that they join, and returns them."""
        changed, put = list(cells), []
        for joining, cell in growing:
            if self._assigner.joins and self._assigner.ends:
                self._look_at_start(joining, cell)
            is_planned = False
            if len(joining) == 1:
                is_planned = cell[LOOK] == cell[END] or not self._step.has_passed(joining[0][END])
                joining[0][:] = cell
                cell = joining[0]
            else:
                changed = [each for each in changed if not any(each is one for one in joining)]
                changed.append(cell)
            if self._assigner.ends and not is_planned:
                self._look_again(key, cell, cell[END])
            put.append(cell)
        changed.sort(key=self._order)
        self._table.set(key, changed)
        return put

    def _look_at_start(self, joining: list[Cell], cell: Cell) -> None:
        """Notes a session that begins earlier with a record behind the watermark: what came before it is gone."""
        start_ns = cell[START]
        is_earlier = self._torn_ns is None and all(start_ns < each[START] for each in joining)
        reached_ns = self._step.reached_ns
        if is_earlier and reached_ns is not None and start_ns + self._rules.lateness_ns < reached_ns:
            self._torn_ns = start_ns

    def _look_again(self, key: Any, cell: Cell, instant_ns: int) -> None:
        cell[LOOK] = instant_ns
        self._heap.plan(instant_ns, cell[NUMBER], key)

    # --- triggers

    def _ask(self, cell: Cell, value: Any, time_ns: int) -> tuple[bool, bool]:
        """Asks the trigger of a window that gets a record: whether it emits, and whether it has set a timer."""
        if self._guard.routes:
            cell[STATE] = copied(cell[STATE])
        context = self._context(cell, time_ns)
        return self._trigger.on_record(value, context), context.has_set_timer

    def _ring(self, key: Any, instant_ns: int, place: int) -> None:
        """Tells the trigger of the windows of a key whose timers are due."""
        for cell in list(self._table.entries.get(key, ())):
            if cell[place] is None or cell[place] > instant_ns:
                continue
            cell[place] = None
            self._table.changed[key] = None
            changed = list(cell)  # a trigger that raises leaves the state of the window as it is
            if self._guard.routes:
                changed[STATE] = copied(changed[STATE])
            context = self._context(changed, instant_ns)
            emits = (self._trigger.on_event_timer if place == EVENT_TIMER else self._trigger.on_timer)(context)
            cell[:] = changed
            if context.has_set_timer:
                self._set_timers(key, cell)
            if emits and (cell[PENDING] or self._rules.accumulates):
                self._emit_early(key, cell)

    def _context(self, cell: Cell, time_ns: int) -> TriggerContext:
        return TriggerContext(cell, time_ns, lambda: self._recorder.instant_ns(False), self._step.watermark_ns)

    def _set_timers(self, key: Any, cell: Cell) -> None:
        for place, timers in ((EVENT_TIMER, self._event_timers), (CLOCK_TIMER, self._clock_timers)):
            if cell[place] is not None:
                timers.set(cell[place], key_of(key))

    def _emit_early(self, key: Any, cell: Cell) -> None:
        """Emits the result of a window, which stays open if it has an end or accumulates."""
        self._emit(key, cell)
        cells = self._table.entries[key]
        if not self._rules.accumulates and not self._assigner.ends:
            cells = [each for each in cells if each is not cell]
        self._replace(key, cells)

    # --- results

    def next_ns(self, is_event: bool) -> int | None:
        """See ``KeyedWindows``."""
        next_ns = self._timers(is_event).next_ns()
        end_ns = self._heap.earliest_ns if is_event == self._rules.is_event_time else None
        return end_ns if next_ns is None or (end_ns is not None and end_ns < next_ns) else next_ns

    def due(self, is_event: bool, until_ns: int) -> list[DueTimer]:
        """See ``KeyedWindows``. In event time these are all at one instant, see ``fires_in_spans``."""
        ends, next_ns = list[int](), self._heap.earliest_ns
        if is_event == self._rules.is_event_time and next_ns is not None and next_ns <= until_ns:
            ends = [until_ns] if is_event else self._heap.instants(until_ns)
        timers: dict[int, list[DueTimer]] = {instant_ns: [] for instant_ns in ends}
        for timer in self._timers(is_event).due(until_ns):
            timers.setdefault(timer.instant_ns, []).append(timer)
        return [DueTimer(instant_ns, timers[instant_ns]) for instant_ns in sorted(timers)]

    def fire(self, is_event: bool, due: Sequence[DueTimer]) -> None:
        """See ``KeyedWindows``. By instant: the timers of triggers by registration, and then the ends of windows."""
        timers, place = self._timers(is_event), EVENT_TIMER if is_event else CLOCK_TIMER
        taken = [
            (instant_ns, [state_key(timer.token[2]) for timer in token if timers.take(timer)])
            for instant_ns, token in due
        ]
        for instant_ns, keys in taken:
            for key in keys:
                self._guarded(self._ring, key, instant_ns, place)
            if is_event == self._rules.is_event_time:
                self._end(instant_ns)
        self._pass_results()

    def _timers(self, is_event: bool) -> Timers:
        return self._event_timers if is_event else self._clock_timers

    def _end(self, until_ns: int | None) -> None:
        """Emits what windows owe that have ended, and forgets those whose lateness has passed; None: all."""
        table, lateness_ns = self._table, self._rules.lateness_ns
        while (planned := self._heap.take(until_ns)) is not None:
            instant_ns, number, key = planned
            cells = table.entries.get(key, ())
            for cell in cells:
                if cell[NUMBER] == number and cell[LOOK] == instant_ns:
                    break
            else:
                continue
            end_ns = cell[END]
            next_ns = end_ns if end_ns > instant_ns else end_ns + lateness_ns
            if next_ns > instant_ns:
                self._look_again(key, cell, next_ns)
                table.set(key, cells)
            else:
                self._replace(key, [each for each in cells if each is not cell])
            if end_ns <= instant_ns and (cell[PENDING] or self._repeats(end_ns, instant_ns)):
                self._guarded(self._emit, key, cell)

    def _looks(self) -> InstantHeap:
        contents = self._table.contents().items()
        return InstantHeap([(cell[LOOK], cell[NUMBER], key) for key, cells in contents for cell in cells])

    def _replace(self, key: Any, cells: list[Cell]) -> None:
        if cells:
            self._table.set(key, cells)
        else:
            self._table.delete(key)

    def end_of_time(self) -> None:
        """See ``KeyedWindows``."""
        if not self._assigner.ends:
            self._heap = self._looks()
        self._end(None)
        for timers in (self._event_timers, self._clock_timers):
            for timer in timers.due(None):
                timers.take(timer)
        self._pass_results()

    def _repeats(self, end_ns: int, instant_ns: int) -> bool:
        """Returns whether a window emits at an instant what it has emitted before: once more at its end."""
        is_end = not self._assigner.ends or (instant_ns == end_ns and not self._step.has_passed(end_ns))
        return is_end and self._rules.emits_at_end and self._rules.accumulates

    def _emit(self, key: Any, cell: Cell) -> None:
        """Emits the result of a window. What raises is passed on later, as the present record is not to blame."""
        evictor, ends = self._evictor, self._assigner.ends
        if evictor is not None:
            cell[ACCUMULATOR] = evictor.rest_of(cell[ACCUMULATOR])
            if not ends:
                times = [time_ns for time_ns, _ in cell[ACCUMULATOR]]
                cell[START], cell[END] = min(times), max(times)
        window, end_ns = window_of(cell[START], cell[END]), cell[END]
        rows, failures = self._results.of(key, [cell[ACCUMULATOR]], window, routes=self._guard.routes)
        self._failures += failures
        cell[PENDING] = 0
        if not self._rules.accumulates:
            cell[ACCUMULATOR] = self._aggregation.create()
        self._rows += rows
        time_ns = result_time_ns(end_ns) if ends else max(end_ns, self._step.reached.entries.get(0, end_ns))
        self._row_times += repeat(time_ns, len(rows))

    def _pass_results(self) -> None:
        rows, times, failures = self._rows, self._row_times, self._failures
        self._rows, self._row_times, self._failures = [], [], []
        for error, record in failures:
            self._guard.caught(error, record)
        if rows:
            self._out.rows(rows, times if self._rules.has_times else None)

    def _guarded(self, function: Any, key: Any, *arguments: Any) -> None:
        """Calls code of the user outside of a record."""
        try:
            function(key, *arguments)
        except RAISED as error:
            self._guard.caught(error, None)


class ObjectSessions(ObjectWindows):
    """Sessions without a trigger and an evictor. Most records of a key with one session are within it."""

    def __init__(self, kind: ObjectWindowsKind, step: WindowedStep, assigner: SessionAssigner) -> None:
        super().__init__(kind, step)
        self._sessions = assigner

    def _consume(self, records: Iterator[Any], late: list[int]) -> None:
        reached_ns, length_max_ns = self._step.reached_ns, self._sessions.length_max_ns
        passed_ns = INSTANT_NS_MIN if reached_ns is None else reached_ns
        add = self._aggregation.add_or_keep if self._guard.routes else self._aggregation.add
        table, create, lateness_ns = self._table, self._aggregation.create, self._rules.lateness_ns
        entries, changed, gap_of = table.entries, table.changed, self._sessions.gap_of
        for number, key, (_, value), time_ns in records:
            end_ns = time_ns + gap_of(value)
            cells = entries.get(key)
            if cells is None and time_ns + lateness_ns > passed_ns:
                cell = new_cell((time_ns, end_ns), number, add(create(), value))
                self._look_again(key, cell, end_ns)
                table.set(key, [cell])
                continue
            if cells is not None and len(cells) == 1:
                (cell,) = cells
                start_ns, cell_end_ns = cell[START], cell[END]
                is_within = start_ns <= time_ns < cell_end_ns and cell_end_ns > passed_ns
                if is_within and (length_max_ns is None or end_ns - start_ns <= length_max_ns):
                    cell[ACCUMULATOR] = add(cell[ACCUMULATOR], value)
                    cell[PENDING] += 1
                    if end_ns > cell_end_ns:
                        cell[END] = end_ns
                    changed[key] = None
                    continue
            if not self._add(number, key, value, time_ns, [(time_ns, end_ns)]):
                late.append(number)


def _by_start(cell: Cell) -> tuple[int, int]:
    return cell[START], cell[NUMBER]


def _span_of(cell: Cell) -> Span:
    return cell[START], cell[END]
