"""Base of tumbling and sliding windows: a table of state per pane, and the agenda of windows and panes."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Container, Sequence
from typing import ClassVar, Final, Generic, TypeVar

from clonos.core.model.watermark import Activity, Watermark
from clonos.core.ports.recorder import Recorder
from clonos.operators.event_time.late_records import LateRecords
from clonos.operators.operator import DueTimer, Operator, Scope
from clonos.operators.state.keyed_state import StateBackend
from clonos.operators.windows.grid import Spans
from clonos.operators.windows.late_text import late_text
from clonos.operators.windows.pane_agenda import EMITS, PaneAgenda
from clonos.operators.windows.window_rules import WindowRules

PANE_NAME: Final = "pane"
WATERMARK_NAME: Final = "watermark"
"""Table with one entry, the watermark of the step; in processing time the end of the last window."""

TableT = TypeVar("TableT")


class Paned(Operator, Generic[TableT]):
    """Windows over panes. State: ``step/pane/<number>``, which is dropped as a whole."""

    keeps_times = False
    has_timers: ClassVar[bool] = True
    has_event_timers: ClassVar[bool] = True

    _emitted: Container[int] = ()
    """Ends of windows that have emitted, and emit again because of late records."""

    def __init__(self, step: str, spans: Spans, rules: WindowRules) -> None:
        self._step, self._spans, self._rules = step, spans, rules
        self._panes: dict[int, TableT] = {}
        self._agenda = PaneAgenda(spans, rules.lateness_ns, self._panes)

    def open(self, scope: Scope) -> None:
        self._state: StateBackend = scope.state
        self._recorder: Recorder = scope.context.recorder
        self._late_records = LateRecords(self._step, self._rules.late_tag, scope, self, late_text)
        self._reached = scope.state.table(f"{self._step}/{WATERMARK_NAME}", is_small=True)
        for pane in self._restored(PANE_NAME):
            self._pane_table(pane)

    @abstractmethod
    def _new_table(self, kind: str, number: int) -> TableT:
        """Returns the table of a pane or window with its restored entries, or a new one."""

    @abstractmethod
    def _emit(self, end: int) -> None:
        """Emits the results of a window."""

    @property
    def _reached_ns(self) -> int | None:
        found: int | None = self._reached.entries.get(0)
        return found

    def _pane_now(self) -> int:
        """Returns the pane of the clock."""
        return self._spans.grid.index_of(self._recorder.instant_ns(False))

    def _pane_table(self, pane: int) -> TableT:
        found = self._panes.get(pane)
        if found is None:
            found = self._panes[pane] = self._new_table(PANE_NAME, pane)
            self._agenda.add_pane(pane, self._reached_ns)
        return found

    def _restored(self, kind: str) -> list[int]:
        prefix = self._name(kind, "")
        return sorted(int(name.removeprefix(prefix)) for name in self._restored_names(prefix))

    def _restored_names(self, prefix: str) -> list[str]:
        """Returns the names of restored tables with this prefix."""
        return self._state.restored(prefix)

    def _drop(self, kind: str, number: int) -> None:
        """Forgets the table of a pane or window."""
        self._state.drop(self._name(kind, number))

    def _name(self, kind: str, number: int | str) -> str:
        return f"{self._step}/{kind}/{number}"

    # --- time

    def on_watermark(self, watermark: Watermark) -> None:
        if self._rules.is_event_time and not isinstance(watermark, Activity):
            self._reached.set(0, watermark)
        self.out.on_watermark(watermark)

    def next_timer_ns(self) -> int | None:
        return None if self._rules.is_event_time else self._agenda.next_ns()

    def due(self, until_ns: int | None) -> list[DueTimer]:
        return [] if self._rules.is_event_time else self._agenda.due(until_ns)

    def next_event_ns(self) -> int | None:
        return self._agenda.next_ns() if self._rules.is_event_time else None

    def due_events(self, until_ns: int | None) -> list[DueTimer]:
        return self._agenda.due(until_ns, self._emitted) if self._rules.is_event_time else []

    def fire(self, due: Sequence[DueTimer]) -> None:
        for timer in due:
            kind, number = self._agenda.fired(timer)
            if kind == EMITS:
                if not self._rules.is_event_time:
                    self._reached.set(0, self._spans.end_ns(number))
                self._emit(number)
            else:
                self._drop(PANE_NAME, number)
                del self._panes[number]

    def fire_events(self, due: Sequence[DueTimer]) -> None:
        self.fire(due)
