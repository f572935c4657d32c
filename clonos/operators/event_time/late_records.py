"""Late records: each counts in the metrics of its task, and goes to a side output or is left out, with one warning."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from clonos.core.model.metric_series import LATE_RECORDS
from clonos.kernels.record_batch import RecordBatch
from clonos.operators.operator import Operator, Scope
from clonos.operators.warn_once import WarnOnce

WarningText = Callable[[str, str | None, int, int], str]
"""Text of the warning: from the step, its tag, and the first timestamp and the watermark in nanoseconds."""


class LateRecords:
    """Late records of one step. It warns once in its life, and not in a replay; the driver logs one task only."""

    __slots__ = ("_step", "_tag", "_recorder", "_operator", "_text", "_warning")

    def __init__(self, step: str, tag: str | None, scope: Scope, operator: Operator, text: WarningText) -> None:
        """Creates it for ``operator``, whose side output ``tag`` gets the records; None: they are only counted."""
        self._step, self._tag, self._operator, self._text = step, tag, operator, text
        self._recorder = scope.context.recorder
        self._warning = WarnOnce(step, self._recorder)

    def take(self, values: list[Any], times: Sequence[int], watermark_ns: int) -> None:
        """Takes the late records of a batch, never empty, without their keys."""
        side = self._side(len(values), times, watermark_ns)
        if side is None:
            return
        schema = self._operator.rows_schema
        if schema is None or not side.keeps_types or not _pass_with_schema(side, values, times, schema):
            side.rows(values, times)

    def take_columns(self, batch: RecordBatch, times: Any, watermark_ns: int) -> None:
        """Takes the late records of a batch of columns, never empty. Sinks of columns get them with their types."""
        side = self._side(len(times), times, watermark_ns)
        if side is not None:
            side.timed_columns(batch, times)

    @property
    def keeps_types(self) -> bool:
        """Whether late records go to sinks of columns."""
        side = None if self._tag is None else self._operator.side_outputs.get(self._tag)
        return side is not None and side.keeps_types

    def _side(self, count: int, times: Sequence[int], watermark_ns: int) -> Operator | None:
        """Counts late records; returns where they go, None if nowhere, which is warned of."""
        self._recorder.metric_table.cell(LATE_RECORDS, (self._step,))[0] += count
        side = None if self._tag is None else self._operator.side_outputs.get(self._tag)
        if side is None:
            self._warning.warn(lambda: self._text(self._step, self._tag, int(times[0]), watermark_ns))
        return side


def _pass_with_schema(side: Operator, rows: list[Any], times: Sequence[int], schema: Any) -> bool:
    """Passes rows on as columns of a schema; returns whether they fit."""
    import numpy
    import pyarrow

    try:
        batch = pyarrow.RecordBatch.from_pylist(rows, schema=schema.remove_metadata())
    except (pyarrow.ArrowException, TypeError, ValueError, OverflowError):
        return False
    side.timed_columns(batch, numpy.array(times, numpy.int64))
    return True
