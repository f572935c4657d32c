"""Windows of each key with a trigger, over Python objects: what it emits beside the results at their ends.

State beside the cells: the timers of triggers, each of which means that those of the windows of a key are due.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from clonos.core.values.copying import copied
from clonos.core.values.keys import key_of, state_key
from clonos.operators.kinds.object_windows import ObjectWindows, ObjectWindowsKind
from clonos.operators.kinds.window_kind import WindowedStep
from clonos.operators.operator import DueTimer
from clonos.operators.state.timers import Timers
from clonos.operators.windows.triggers import Trigger, TriggerContext, trigger_of_task
from clonos.operators.windows.window_cells import CLOCK_TIMER, EVENT_TIMER, PENDING, STATE, Cell


@dataclass(frozen=True, slots=True)
class TriggeredWindowsKind(ObjectWindowsKind):
    """Windows of Python objects with a trigger."""

    trigger: Trigger

    fires_in_spans: ClassVar[bool] = False

    def windows(self, step: WindowedStep) -> TriggeredWindows:
        """See ``WindowsKind``."""
        return TriggeredWindows(self, step, self.trigger)


class TriggeredWindows(ObjectWindows):
    """Windows that emit when their trigger tells."""

    def __init__(self, kind: ObjectWindowsKind, step: WindowedStep, trigger: Trigger) -> None:
        super().__init__(kind, step)
        self._trigger = trigger_of_task(trigger, step.name)
        self._recorder, state = step.scope.context.recorder, step.scope.state
        self._event_timers = Timers(f"{step.name}/event timers", state)
        self._clock_timers = Timers(f"{step.name}/timers", state)

    # --- records

    def _merged_state(self, first: Any, second: Any) -> Any:
        return self._trigger.merged_state(first, second)

    def _ask(self, cells: list[Cell], value: Any, time_ns: int) -> list[tuple[bool, bool]]:
        """Returns for each window whether it emits, and whether it has set a timer."""
        answers = []
        for cell in cells:
            if self._guard.routes:
                cell[STATE] = copied(cell[STATE])
            context = self._context(cell, time_ns)
            emits = self._trigger.on_record(value, context)
            answers.append((emits, context.has_set_timer))
        return answers

    def _heed(self, key: Any, cells: list[Cell], answers: list[tuple[bool, bool]]) -> None:
        for cell, (_, has_set_timer) in zip(cells, answers, strict=True):
            if has_set_timer:
                self._set_timers(key, cell)
        for cell, (emits, _) in zip(cells, answers, strict=True):
            if emits:
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

    # --- timers

    def next_ns(self, is_event: bool) -> int | None:
        instants = (super().next_ns(is_event), self._timers(is_event).next_ns())
        return min((instant_ns for instant_ns in instants if instant_ns is not None), default=None)

    def due(self, is_event: bool, until_ns: int) -> list[DueTimer]:
        timers: dict[int, list[DueTimer]] = {instant_ns: [] for instant_ns in self._ends(is_event, until_ns)}
        for timer in self._timers(is_event).due(until_ns):
            timers.setdefault(timer.instant_ns, []).append(timer)
        return [DueTimer(instant_ns, timers[instant_ns]) for instant_ns in sorted(timers)]

    def fire(self, is_event: bool, due: Sequence[DueTimer]) -> None:
        """Fires by instant: timers of triggers by registration, and then the ends of windows."""
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

    def end_of_time(self) -> None:
        super().end_of_time()
        for timers in (self._event_timers, self._clock_timers):
            for timer in timers.due(None):
                timers.take(timer)

    def _timers(self, is_event: bool) -> Timers:
        return self._event_timers if is_event else self._clock_timers

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
