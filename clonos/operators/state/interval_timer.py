"""Timer of a step at multiples of an interval by the task's clock, set while something waits for it."""

from __future__ import annotations

from clonos.core.ports.recorder import Recorder
from clonos.operators.operator import DueTimer
from clonos.operators.state.keyed_state import Table


class IntervalTimer:
    """Timer of one step. ``table`` has at most one entry, its time in nanoseconds since the Unix epoch."""

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
