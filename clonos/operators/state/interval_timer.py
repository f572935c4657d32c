"""Timer of a step at multiples of an interval by the task's clock, set while something waits for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

from clonos.core.ports.recorder import Recorder
from clonos.operators.operator import DueTimer, Operator, Scope
from clonos.operators.state.keyed_state import Table
from clonos.operators.state.state_spec import StateScope, StateSpec, small

DUE: Final = small("due", StateScope.MIN)
"""Table with at most one entry, the time of the timer in nanoseconds since the Unix epoch."""


class IntervalTimer:
    """Timer of one step, kept in a table of its own (``DUE``)."""

    __slots__ = ("_table", "_interval_ns", "_recorder")

    def __init__(self, table: Table, interval_ns: int | None, recorder: Recorder) -> None:
        """Creates the timer; without an interval it is never set."""
        self._table, self._interval_ns, self._recorder = table, interval_ns, recorder

    def start(self) -> None:
        """Sets the timer to the next multiple of the interval, unless it is set."""
        if self._interval_ns is not None and not self._table.entries:
            now_ns = self._recorder.instant_ns(False)
            self._table.set(0, now_ns - now_ns % self._interval_ns + self._interval_ns)

    def stop(self) -> None:
        """Deletes the timer."""
        self._table.delete(0)

    def next_ns(self) -> int | None:
        """Returns the time of the timer, None if it is not set."""
        return self._table.entries.get(0)

    def due(self, until_ns: int | None) -> list[DueTimer]:
        """Returns the timer if it is due at ``until_ns``; at the end of the input (None) it is not."""
        due_ns = self.next_ns()
        return [] if due_ns is None or until_ns is None or due_ns > until_ns else [DueTimer(due_ns, None)]


class LeavesAtIntervals(Operator):
    """Base of steps in which something waits until a multiple of an interval; ``end_of_time`` lets it leave."""

    has_timers: ClassVar[bool] = True

    @property
    def state_specs(self) -> tuple[StateSpec, ...]:
        return (*super().state_specs, DUE)

    def open_timer(self, interval_ns: int | None, scope: Scope) -> None:
        """Opens the timer of the step; without an interval it is never set."""
        self._timer = IntervalTimer(scope.state.table(DUE), interval_ns, scope.context.recorder)

    def next_timer_ns(self) -> int | None:
        return self._timer.next_ns()

    def due(self, until_ns: int | None) -> list[DueTimer]:
        return self._timer.due(until_ns)

    def fire(self, due: Sequence[DueTimer]) -> None:
        if due:
            self.end_of_time()
