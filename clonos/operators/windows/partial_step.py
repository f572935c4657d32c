"""Partial aggregates in front of an exchange: a batch is aggregated by key and pane before it leaves.

The step after the exchange merges them, windows as they merge panes. Each batch is aggregated for itself and passed on
at once, so nothing waits here for a watermark or a barrier, and a replay, which has the same batches, makes the same.
A small batch says nothing of the next one, so that no batch decides for another.

Records of panes behind the watermark of this task pass as they are: the windows decide which of them are late. So do
batches that would hardly become smaller, and all batches of a task that has been idle: the watermark of the windows may
be ahead of its own then.

State: the watermark, and whether the task has been idle.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import ClassVar, Final

from clonos.core.model.watermark import IDLE, Activity, Watermark
from clonos.operators.operator import Operator, Scope
from clonos.operators.state.state_spec import StateScope, StateSpec, small
from clonos.operators.windows.grid import Spans

WATERMARK: Final = small("partial/watermark", StateScope.MAX)
"""Table with the watermark, of which the windows must not know a later one, and whether the task has been idle."""

HAS_BEEN_IDLE: Final = 1
"""Key of the state that says so; the watermark has 0."""


class PartialStep(Operator):
    """Base of partial aggregates: whether a batch is aggregated, and which of its panes."""

    rows_min: ClassVar[int] = 16
    """Rows of a batch below which it passes as it is."""

    gain_min: ClassVar[float] = 2
    """Records for each partial aggregate below which a batch passes as it is."""

    def __init__(self, step: str, spans: Spans | None, is_event_time: bool) -> None:
        """Creates the operator for the step ``step`` after the exchange; ``spans``: its windows, None without them."""
        self.state_step, self._spans, self._is_event_time = step, spans, is_event_time

    @property
    def state_specs(self) -> tuple[StateSpec, ...]:
        return (WATERMARK,)

    def open(self, scope: Scope) -> None:
        self._reached = scope.state.table(WATERMARK)

    def on_watermark(self, watermark: Watermark) -> None:
        if self._is_event_time:
            if not isinstance(watermark, Activity):
                self._reached.set(0, watermark)
            elif watermark is IDLE:
                self._reached.set(HAS_BEEN_IDLE, True)
        self.out.on_watermark(watermark)

    @property
    def _reached_ns(self) -> int | None:
        """The watermark; None if the windows may know a later one."""
        return None if HAS_BEEN_IDLE in self._reached.entries else self._reached.entries.get(0)

    def _first_open(self, low: int, high: int, reached_ns: int) -> int:
        """Returns the first pane from ``low`` on that a window has which has not ended; at most ``high`` + 1."""
        spans = self._spans
        assert spans is not None, "panes are those of windows"
        # A record of 1970 is billions of panes behind the others, so they are not looked at one by one.
        return low + bisect_right(
            range(low, high + 1), reached_ns, key=lambda pane: spans.end_ns(spans.last_end_of(pane))
        )
