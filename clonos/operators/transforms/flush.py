"""Rows in front of a sink with ``flush``: they wait in the state of the task, then go to the sink together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Final

from clonos.core.values.copying import copied_rows
from clonos.operators.operator import DueTimer, Operator, Scope, Times
from clonos.operators.state.interval_timer import IntervalTimer

WAITING_NAME: Final = "waiting"
"""Table of the rows that wait: number from 0 on -> row."""

DUE_NAME: Final = "due"
"""Table with at most one entry, the time of the next flush in nanoseconds since the Unix epoch."""

ROWS_MAX: Final = 1 << 12
"""Rows that leave in one batch."""


class Flush(Operator):
    """Passes rows on by groups of ``count``, or at multiples of an interval if any wait; the rest at the end.

    Rows of a keyed input leave without their keys.
    """

    has_timers: ClassVar[bool] = True

    def __init__(self, step: str, *, is_keyed: bool, count: int | None, interval_ns: int | None) -> None:
        self._step, self._is_keyed = step, is_keyed
        self._count, self._interval_ns = count, interval_ns

    def open(self, scope: Scope) -> None:
        self._waiting = scope.state.table(f"{self._step}/{WAITING_NAME}")
        due = scope.state.table(f"{self._step}/{DUE_NAME}", is_small=True)
        self._timer = IntervalTimer(due, self._interval_ns, scope.context.recorder)
        self._size = len(self._waiting.contents())

    def rows(self, rows: list[Any], times: Times = None) -> None:
        if self._is_keyed:
            rows = [value for _, value in rows]
        if self._count is not None and self._size + len(rows) >= self._count:
            whole = (self._size + len(rows)) // self._count * self._count - self._size
            self._flush(rows[:whole])
            rows = rows[whole:]
        self._wait(rows)

    def _wait(self, rows: list[Any]) -> None:
        if not rows:
            return
        self._waiting.update(dict(enumerate(copied_rows(rows), self._size)))
        self._size += len(rows)
        self._timer.start()

    def _flush(self, more: list[Any]) -> None:
        """Passes on the rows that wait, and ``more``."""
        entries = self._waiting.entries
        rows = [entries[number] for number in range(self._size)] + more
        for number in range(self._size):
            self._waiting.delete(number)
        self._size = 0
        self._timer.stop()
        for first in range(0, len(rows), ROWS_MAX):
            self.out.rows(rows[first : first + ROWS_MAX])

    def next_timer_ns(self) -> int | None:
        return self._timer.next_ns()

    def due(self, until_ns: int | None) -> list[DueTimer]:
        return self._timer.due(until_ns)

    def fire(self, due: Sequence[DueTimer]) -> None:
        if due:
            self._flush([])

    def end_of_time(self) -> None:
        self._flush([])
