"""Late records: they go to the side output of the step, or are counted, with one warning."""

from __future__ import annotations

import logging
from typing import Any

from clonos.core.ports.recorder import Recorder
from clonos.core.wire.control_messages import ONCE_PER_STEP
from clonos.operators.event_time.timestamps import from_timestamp_ns
from clonos.operators.operator import Operator


class LateRecords:
    """Late records of one step. It warns once in its life, and not in a replay; the driver logs one task only."""

    __slots__ = ("_step", "_tag", "_recorder", "_operator", "count")

    def __init__(self, step: str, tag: str | None, recorder: Recorder, operator: Operator) -> None:
        """Creates it for ``operator``, whose side output ``tag`` gets the records; None: they are only counted."""
        self._step, self._tag, self._recorder, self._operator = step, tag, recorder, operator
        self.count = 0
        """Number of records that no side output got."""

    def take(self, values: list[Any], times: list[int], watermark_ns: int) -> None:
        """Takes the late records of a batch, never empty, without their keys."""
        side = None if self._tag is None else self._operator.side_outputs.get(self._tag)
        if side is not None:
            side.rows(values, times)
            return
        if not self.count and self._recorder.live:
            logging.getLogger(f"{ONCE_PER_STEP}{self._step}").warning(
                "%s", _text(self._step, self._tag, times[0], watermark_ns)
            )
        self.count += len(values)


def _text(step: str, tag: str | None, time_ns: int, watermark_ns: int) -> str:
    timestamp, watermark = from_timestamp_ns(time_ns).isoformat(), from_timestamp_ns(watermark_ns).isoformat()
    advice = (
        'Give the window late=Tag("late") and read side_output(Tag("late"))'
        if tag is None
        else f"Read them by side_output(Tag({tag!r}))"
    )
    return (
        f"the step {step} leaves out records that are too late: the first has the timestamp {timestamp}, and the"
        f" watermark is at {watermark}. {advice}, or give lateness= or a greater out_of_order=."
    )
