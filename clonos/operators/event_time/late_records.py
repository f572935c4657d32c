"""Late records: each is counted, and goes to the side output of the step or is left out, with one warning."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from clonos.operators.operator import Operator, Scope
from clonos.operators.warn_once import WarnOnce

WarningText = Callable[[str, str | None, int, int], str]
"""Text of the warning: from the step, its tag, and the first timestamp and the watermark in nanoseconds."""


class LateRecords:
    """Late records of one step. It warns once in its life, and not in a replay; the driver logs one task only."""

    __slots__ = ("_step", "_tag", "_collector", "_operator", "_text", "_warning")

    def __init__(self, step: str, tag: str | None, scope: Scope, operator: Operator, text: WarningText) -> None:
        """Creates it for ``operator``, whose side output ``tag`` gets the records; None: they are only counted."""
        self._step, self._tag, self._operator, self._text = step, tag, operator, text
        self._collector = scope.context.collector
        self._warning = WarnOnce(step, scope.context.recorder)

    def take(self, values: list[Any], times: Sequence[int], watermark_ns: int) -> None:
        """Takes the late records of a batch, never empty, without their keys."""
        self._collector.count_late(self._step, len(values))
        side = None if self._tag is None else self._operator.side_outputs.get(self._tag)
        if side is not None:
            side.rows(values, times)
        else:
            self._warning.warn(lambda: self._text(self._step, self._tag, times[0], watermark_ns))
