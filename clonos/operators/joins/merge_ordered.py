"""Merge of streams in the order of their timestamps."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Any, ClassVar, Final

from clonos.core.model.watermark import Activity, Watermark
from clonos.core.values.copying import copied
from clonos.operators.joins.buffered_join import NUMBERS_NAME, WATERMARK_NAME
from clonos.operators.joins.late_batch import LateBatch
from clonos.operators.operator import Operator, Scope, Times

ROWS_NAME: Final = "rows"


class NumberInput(Operator):
    """Mark of one input of a merge: rows (number of the input, row)."""

    is_per_record = True
    is_one_to_one = True
    changes_rows = False

    def __init__(self, number: int) -> None:
        self._number = number

    def rows(self, rows: list[Any], times: Times = None) -> None:
        number = self._number
        self.out.rows([(number, row) for row in rows], times)


class MergeOrdered(Operator):
    """Merge of marked rows: a row leaves when the watermark has passed it, by (timestamp, input, arrival)."""

    breaks_order = True
    holds_watermarks: ClassVar[bool] = True

    def __init__(self, step: str, late: str | None) -> None:
        self._step, self._late_tag = step, late

    def open(self, scope: Scope) -> None:
        state, step = scope.state, self._step
        self._reached = state.table(f"{step}/{WATERMARK_NAME}", is_small=True)
        self._numbers = state.table(f"{step}/{NUMBERS_NAME}", is_small=True)
        self._next_number: int = self._numbers.entries.get(0, 0)
        self._table = state.table(f"{step}/{ROWS_NAME}")  # number -> (timestamp in ns, input, row)
        self._waiting: list[tuple[int, int, int, Any]] = [
            (timestamp_ns, place, number, row) for number, (timestamp_ns, place, row) in self._table.contents().items()
        ]
        heapify(self._waiting)
        self._late = LateBatch(step, self._late_tag, self, scope)

    def prepare(self, checkpoint: int) -> None:
        if self._numbers.entries.get(0, 0) != self._next_number:
            self._numbers.set(0, self._next_number)

    def rows(self, rows: list[Any], times: Times = None) -> None:
        assert times is not None, "an ordered merge reads streams with timestamps"
        reached_ns: int | None = self._reached.entries.get(0)
        for (place, row), timestamp_ns in zip(rows, times, strict=True):
            if reached_ns is not None and timestamp_ns < reached_ns:
                self._late.add(row, timestamp_ns)
                continue
            self._table.set(self._next_number, (timestamp_ns, place, row))
            heappush(self._waiting, (timestamp_ns, place, self._next_number, row))
            self._next_number += 1
        self._late.emit(reached_ns)

    def on_watermark(self, watermark: Watermark) -> None:
        if not isinstance(watermark, Activity):
            self._reached.set(0, watermark)
            self._emit_before(watermark)
        self.pass_watermark(watermark)

    def end_of_time(self) -> None:
        self._emit_before(None)

    def _emit_before(self, timestamp_ns: int | None) -> None:
        """Emits the rows that are earlier (None: all) in their order."""
        rows: list[Any] = []
        times: list[int] = []
        while self._waiting and (timestamp_ns is None or self._waiting[0][0] < timestamp_ns):
            at_ns, _, number, row = heappop(self._waiting)
            self._table.delete(number)
            rows.append(copied(row))
            times.append(at_ns)
        if rows:
            self.out.rows(rows, times)
