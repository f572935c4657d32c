"""Late records of a step: those behind the watermark, which the step cannot take any more."""

from __future__ import annotations

import logging
from typing import Any

from clonos.core.ports.recorder import Recorder
from clonos.core.wire.control_messages import ONCE_PER_STEP
from clonos.operators.event_time.timestamps import from_timestamp_ns
from clonos.operators.operator import Operator, Scope


class LateRecords:
    """Way of late records to a side output; without a reader of it, the first one of a task is warned of."""

    __slots__ = ("_operator", "_recorder", "_step", "_tag", "_times", "_rows", "_has_warned")

    def __init__(self, step: str, tag: str | None, operator: Operator, scope: Scope) -> None:
        self._step, self._tag, self._operator = step, tag, operator
        self._recorder: Recorder = scope.context.recorder
        self._rows: list[Any] = []
        self._times: list[int] = []
        self._has_warned = False

    def add(self, row: Any, timestamp_ns: int) -> None:
        """Adds a late record of the present batch."""
        self._rows.append(row)
        self._times.append(timestamp_ns)

    def emit(self, watermark_ns: int | None) -> None:
        """Emits the late records of a batch, after its results. ``watermark_ns`` is that of the step."""
        if not self._rows:
            return
        assert watermark_ns is not None, "a record is late behind a watermark"
        rows, times, self._rows, self._times = self._rows, self._times, [], []
        if self._tag is not None and self._tag in self._operator.side_outputs:
            self._operator.side_outputs[self._tag].rows(rows, times)
        elif not self._has_warned and self._recorder.live:
            self._has_warned = True
            logging.getLogger(f"{ONCE_PER_STEP}{self._step}").warning(
                "%s", _text(self._step, self._tag, times[0], watermark_ns)
            )


def _text(step: str, tag: str | None, timestamp_ns: int, watermark_ns: int) -> str:
    advice = (
        f"Read them by side_output of the tag {tag!r}"
        if tag is not None
        else 'Give late=Tag("late") and read them by side_output(Tag("late"))'
    )
    return (
        f"the step {step} leaves out late records: the first one has the timestamp"
        f" {from_timestamp_ns(timestamp_ns).isoformat()}, and the watermark is"
        f" {from_timestamp_ns(watermark_ns).isoformat()}. {advice}, or raise out_of_order in Timestamps."
    )
