"""Comparison of the rows that the sinks of a task are given in a replay with the digests of the live ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from clonos.core.ports.task_snapshot import SINK_DIGEST_BYTES, SinkRows
from clonos.core.values.column_rows import NoPythonValue, rows_of_columns
from clonos.kernels.record_batch import RecordBatch
from clonos.operators.operator import Operator
from clonos.operators.sink_digests import NO_DIGEST, WatchedSink, digest_of_row


class RowsOfRecords(NamedTuple):
    """Rows of a sink, one after the other. ``first``, ``last``: numbers of the records that may have made them.
    ``is_equal``: to the digests; None where the record has none."""

    first: int
    last: int
    is_equal: bool | None


class OtherRow(NamedTuple):
    """Row that differs from the live one. ``is_further``: the live task gave the sink no row there."""

    first: int
    last: int
    row: Any
    is_further: bool


class ComparedSink(WatchedSink):
    """Sink of a replay. ``output``: as in ``Made``. ``equal``, ``unknown``: rows; ``other``: the first that differs."""

    def __init__(
        self, operator: Operator, output: str, expected: SinkRows, records_of: Callable[[int], tuple[int, int, bool]]
    ) -> None:
        """``records_of``: returns for a number of rows the records that may have made them; whether each made one."""
        super().__init__(expected.step, operator)
        self.output, self.expected = output, expected
        self.equal = self.unknown = self.differing = 0
        self.other: OtherRow | None = None
        self.spans: list[RowsOfRecords] = []
        self._records_of = records_of

    @property
    def lacking(self) -> int:
        """How many rows the live task has given to the sink after the last one of the replay."""
        return max(0, self.expected.rows - self.count)

    def take_rows(self, rows: list[Any]) -> None:
        first, last, is_one_to_one = self._records_of(len(rows))
        for index, row in enumerate(rows):
            self._compare(row, digest_of_row, *((first + index, first + index) if is_one_to_one else (first, last)))

    def take_columns(self, batch: RecordBatch) -> None:
        try:
            self.take_rows(rows_of_columns(batch))
        except NoPythonValue:
            first, last, _ = self._records_of(batch.num_rows)
            for _ in range(batch.num_rows):
                self._compare(None, lambda row: NO_DIGEST, first, last)

    def _compare(self, row: Any, digest_of: Callable[[Any], bytes], first: int, last: int) -> None:
        at = self.count * SINK_DIGEST_BYTES
        live = self.expected.digests[at : at + SINK_DIGEST_BYTES]
        is_further = self.count >= self.expected.rows
        self.count += 1
        is_equal: bool | None = None
        if is_further:
            is_equal = False
        elif live and live != NO_DIGEST:
            is_equal = digest_of(row) == live
        self.equal += is_equal is True
        self.unknown += is_equal is None
        self.differing += is_equal is False
        if is_equal is False and self.other is None:
            self.other = OtherRow(first, last, row, is_further)
        if self.spans and self.spans[-1].is_equal is is_equal:
            self.spans[-1] = self.spans[-1]._replace(last=max(last, self.spans[-1].last))
        else:
            self.spans.append(RowsOfRecords(first, last, is_equal))
