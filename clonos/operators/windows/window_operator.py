"""Base of the operators of windows, which serve records of any kind: see ``clonos.operators.kinds``."""

from __future__ import annotations

from typing import ClassVar, Final

from clonos.core.model.watermark import Activity, Watermark
from clonos.operators.event_time.late_records import LateRecords
from clonos.operators.kinds.kind import TakenT
from clonos.operators.kinds.kind_step import KindStep
from clonos.operators.kinds.window_kind import WindowRecordKind
from clonos.operators.operator import Scope
from clonos.operators.state.state_spec import StateScope, StateSpec, small
from clonos.operators.windows.late_text import late_text
from clonos.operators.windows.window_rules import WindowRules

WATERMARK: Final = small("watermark", StateScope.EQUAL)
"""Table with one entry, the watermark of the step; of windows in panes in processing time the end of the last one."""


class WindowOperator(KindStep[TakenT]):
    """Base: its watermark, and what it does with late records."""

    keeps_times = False
    has_timers: ClassVar[bool] = True
    has_event_timers: ClassVar[bool] = True

    _kind: WindowRecordKind[TakenT]

    _notes_watermark = True
    _watermark_spec = WATERMARK

    def __init__(self, step: str, kind: WindowRecordKind[TakenT], rules: WindowRules) -> None:
        self._step, self._kind, self._rules = step, kind, rules
        self.takes_columns = kind.takes_columns

    @property
    def state_specs(self) -> tuple[StateSpec, ...]:
        specs = self._watermark_spec, *self._kind.state_specs(self._rules)
        return tuple(spec.by_key(self._rules.is_keyed) for spec in specs)

    def open(self, scope: Scope) -> None:
        self._recorder = scope.context.recorder
        self._late_records = LateRecords(self._step, self._rules.late_tag, scope, self, late_text)
        self._reached = scope.state.table(WATERMARK)

    @property
    def fires_in_spans(self) -> bool:
        return self._kind.fires_in_spans

    def on_watermark(self, watermark: Watermark) -> None:
        if self._notes_watermark and not isinstance(watermark, Activity):
            self._reached.set(0, watermark)
        self.out.on_watermark(watermark)
