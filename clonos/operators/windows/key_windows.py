"""Windows whose state is per key: sessions, count and global windows, and all windows with a trigger or an evictor.

A window emits at its end, and what comes later within its lateness leaves at the next watermark. A record is late if
the lateness of each window that it would be in has passed. A session that it joins may end later than its own would.

The operator serves records of any kind, rows and columns: see ``clonos.operators.kinds``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

from clonos.core.model.watermark import Activity, Watermark
from clonos.operators.event_time.late_records import LateRecords
from clonos.operators.kinds.kind import BatchT
from clonos.operators.kinds.kind_step import KindStep
from clonos.operators.kinds.window_kind import WindowedStep, WindowsKind
from clonos.operators.operator import DueTimer, Scope
from clonos.operators.warn_once import WarnOnce
from clonos.operators.windows.late_text import late_text, torn_session_text
from clonos.operators.windows.paned import WATERMARK_NAME
from clonos.operators.windows.window_rules import WindowRules

ARRIVALS_NAME: Final = "arrivals"
"""Table with one entry, the number of records that have come."""


class KeyWindows(KindStep[BatchT]):
    """Operator of windows whose state is per key."""

    keeps_times = False
    has_timers: ClassVar[bool] = True
    has_event_timers: ClassVar[bool] = True

    _kind: WindowsKind[BatchT]

    def __init__(self, step: str, kind: WindowsKind[BatchT], rules: WindowRules) -> None:
        self._step, self._kind, self._rules = step, kind, rules
        self.takes_columns = kind.takes_columns

    def open(self, scope: Scope) -> None:
        self._recorder = scope.context.recorder
        self._late_records = LateRecords(self._step, self._rules.late_tag, scope, self, late_text)
        self._torn_session = WarnOnce(self._step, self._recorder)
        self._reached = scope.state.table(f"{self._step}/{WATERMARK_NAME}", is_small=True)
        self._arrivals = scope.state.table(f"{self._step}/{ARRIVALS_NAME}", is_small=True)
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

    @property
    def fires_in_spans(self) -> bool:
        return self._kind.fires_in_spans

    def on_watermark(self, watermark: Watermark) -> None:
        if not isinstance(watermark, Activity):
            self._reached.set(0, watermark)
        self.out.on_watermark(watermark)

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
