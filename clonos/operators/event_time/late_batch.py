"""Late records of a step: those of a batch leave together, after its results."""

from __future__ import annotations

from typing import Any

from clonos.kernels.record_batch import RecordBatch
from clonos.operators.event_time.late_records import LateRecords
from clonos.operators.event_time.timestamps import from_timestamp_ns
from clonos.operators.operator import Operator, Scope


class LateBatch:
    """Late records of the present batch, on their way to a side output or to the warning."""

    __slots__ = ("_columns", "_late", "_times", "_rows")

    def __init__(self, step: str, tag: str | None, operator: Operator, scope: Scope) -> None:
        self._late = LateRecords(step, tag, scope, operator, _text)
        self._rows: list[Any] = []
        self._times: list[int] = []
        self._columns: tuple[Any, Any] | None = None

    def add(self, row: Any, timestamp_ns: int) -> None:
        """Adds a late record of the present batch."""
        self._rows.append(row)
        self._times.append(timestamp_ns)

    @property
    def keeps_types(self) -> bool:
        """Whether late records go to sinks of columns."""
        return self._late.keeps_types

    def add_columns(self, batch: RecordBatch, times: Any) -> None:
        """Adds all late records of the present batch, as columns."""
        self._columns = batch, times

    def emit(self, watermark_ns: int | None) -> None:
        """Emits the late records of a batch, after its results. ``watermark_ns`` is that of the step."""
        if (columns := self._columns) is not None:
            assert watermark_ns is not None, "a record is late behind a watermark"
            self._columns = None
            self._late.take_columns(*columns, watermark_ns)
        if not self._rows:
            return
        assert watermark_ns is not None, "a record is late behind a watermark"
        rows, times, self._rows, self._times = self._rows, self._times, [], []
        self._late.take(rows, times, watermark_ns)


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
