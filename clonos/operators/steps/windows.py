"""Windows in processing time: records of a key that arrive within one interval of the task's clock.

The clock is read once per step and recorded in the causal log, so a promoted standby assigns each record to the same
window. Each window has its own table, ``step/window/<start in ns>``, which is deleted when the window fires. Results of
windows that are due together are ordered by start, then by the first arrival of their keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from itertools import repeat
from typing import Any, Final, Generic, NamedTuple, TypeVar

from clonos.core.ports.recorder import Recorder
from clonos.core.values import register
from clonos.core.values.keys import key_of
from clonos.operators.event_time.timestamps import from_timestamp_ns
from clonos.operators.operator import DueTimer, Operator, Scope, Times
from clonos.operators.state.keyed_state import StateBackend, Table
from clonos.operators.steps.aggregates import WindowAggregate

K = TypeVar("K")
V = TypeVar("V")

WINDOW_NAME: Final = "window"


@register
class WindowResult(NamedTuple, Generic[K, V]):
    """Result of a window for one key.

    The window includes ``start`` and excludes ``end``, both aware datetimes in UTC.
    """

    key: K
    start: datetime
    end: datetime
    value: V


class Window(Operator):
    """Operator of tumbling windows over a keyed input."""

    has_timers = True

    def __init__(self, step: str, size_ns: int, aggregate: WindowAggregate) -> None:
        self._prefix = f"{step}/{WINDOW_NAME}/"
        self._size_ns = size_ns
        self._aggregate = aggregate
        self._open_windows: dict[int, Table] = {}

    def open(self, scope: Scope) -> None:
        self._state: StateBackend = scope.state
        self._recorder: Recorder = scope.context.recorder
        starts = sorted(int(name.removeprefix(self._prefix)) for name in self._state.restored(self._prefix))
        self._open_windows = {start_ns: self._state.table(self._name(start_ns)) for start_ns in starts}

    def rows(self, rows: list[Any], times: Times = None) -> None:
        self._aggregate.add(self._window_now(), rows, self.guard)

    def keys(self, keys: list[Any], times: Times = None) -> None:
        self._aggregate.add_keys(self._window_now(), keys, self.guard)

    def keyed_columns(self, batch: Any, column: str) -> None:
        self._aggregate.add_columns(self._window_now(), batch, column, self.guard)

    def next_timer_ns(self) -> int | None:
        return min(self._open_windows) + self._size_ns if self._open_windows else None

    def due(self, until_ns: int | None) -> list[DueTimer]:
        ends = sorted((start_ns + self._size_ns, start_ns) for start_ns in self._open_windows)
        return [DueTimer(end_ns, start_ns) for end_ns, start_ns in ends if until_ns is None or end_ns <= until_ns]

    def fire(self, due: Sequence[DueTimer]) -> None:
        for _, start_ns in due:
            entries = self._open_windows.pop(start_ns).contents()
            self._state.drop(self._name(start_ns))
            keys, values = self._aggregate.results(list(map(key_of, entries)), list(entries.values()), self.guard)
            start, end = from_timestamp_ns(start_ns), from_timestamp_ns(start_ns + self._size_ns)
            results = list(map(WindowResult, keys, repeat(start), repeat(end), values))
            if results:
                self.out.rows(results)

    def _window_now(self) -> Table:
        instant_ns = self._recorder.instant_ns(False)
        start_ns = instant_ns - instant_ns % self._size_ns
        found = self._open_windows.get(start_ns)
        if found is None:
            found = self._open_windows[start_ns] = self._state.table(self._name(start_ns))
        return found

    def _name(self, start_ns: int) -> str:
        return f"{self._prefix}{start_ns}"
