"""Windows whose state is per key: sessions, count and global windows, and all windows with a trigger or an evictor.

A window emits at its end, and what comes later within its lateness leaves at the next watermark. A record is late if
the lateness of each window that it would be in has passed. A session that it joins may end later than its own would.

The operator serves records of any kind, rows and columns: see ``clonos.operators.kinds``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from clonos.operators.kinds.kind import BatchT
from clonos.operators.kinds.window_kind import WindowedStep, WindowsKind
from clonos.operators.operator import DueTimer, Scope
from clonos.operators.state.state_spec import StateScope, StateSpec, small
from clonos.operators.warn_once import WarnOnce
from clonos.operators.windows.late_text import torn_session_text
from clonos.operators.windows.window_operator import WindowOperator

ARRIVALS: Final = small("arrivals", StateScope.NEXT, "arrival")
"""Table with one entry, the number of records that have come."""


class KeyWindows(WindowOperator[BatchT]):
    """Operator of windows whose state is per key."""

    _kind: WindowsKind[BatchT]

    @property
    def state_specs(self) -> tuple[StateSpec, ...]:
        return (*super().state_specs, ARRIVALS.by_key(self._rules.is_keyed))

    def open(self, scope: Scope) -> None:
        super().open(scope)
        self._torn_session = WarnOnce(self._step, self._recorder)
        self._arrivals = scope.state.table(ARRIVALS)
        self._next_number: int = self._arrivals.entries.get(0, 0)
        self._windows = self._kind.windows(WindowedStep(self._step, self, scope, self._rules, self._reached))

    def prepare(self, checkpoint: int) -> None:
        self._arrivals.set(0, self._next_number)

    # --- records

    def _take(self, batch: BatchT) -> None:
        instants = batch.times if self._rules.has_times else batch.at(self._recorder.instant_ns(False))
        late, torn_ns = self._windows.take(batch, instants, self._next_number)
        self._next_number += len(instants)
        if torn_ns is not None:
            self._torn_session.warn(lambda: torn_session_text(self._step, torn_ns, self._reached.entries[0]))
        if len(late):
            batch.pass_late(self._late_records, late, instants, self._reached.entries[0])

    # --- time

    def next_timer_ns(self) -> int | None:
        return self._windows.next_ns(False)

    def due(self, until_ns: int | None) -> list[DueTimer]:
        """Returns the timers that are due; none at the end of the input, see ``end_of_time``."""
        return [] if until_ns is None else self._windows.due(False, until_ns)

    def fire(self, due: Sequence[DueTimer]) -> None:
        self._windows.fire(False, due)

    def next_event_ns(self) -> int | None:
        return self._windows.next_ns(True)

    def due_events(self, until_ns: int | None) -> list[DueTimer]:
        """See ``due``."""
        return [] if until_ns is None else self._windows.due(True, until_ns)

    def fire_events(self, due: Sequence[DueTimer]) -> None:
        self._windows.fire(True, due)

    def end_of_time(self) -> None:
        self._windows.end_of_time()
