"""Late records: they go to the side output of the step, or are counted, with one warning."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from clonos.core.ports.recorder import Recorder
from clonos.core.wire.control_messages import ONCE_PER_STEP
from clonos.operators.operator import Operator

WarningText = Callable[[str, str | None, int, int], str]
"""Text of the warning: from the step, its tag, and the first timestamp and the watermark in nanoseconds."""


class LateRecords:
    """Late records of one step. It warns once in its life, and not in a replay; the driver logs one task only."""

    __slots__ = ("_step", "_tag", "_recorder", "_operator", "_text", "count")

    def __init__(self, step: str, tag: str | None, recorder: Recorder, operator: Operator, text: WarningText) -> None:
        """Creates it for ``operator``, whose side output ``tag`` gets the records; None: they are only counted."""
        self._step, self._tag, self._recorder, self._operator = step, tag, recorder, operator
        self._text = text
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
                "%s", self._text(self._step, self._tag, times[0], watermark_ns)
            )
        self.count += len(values)
