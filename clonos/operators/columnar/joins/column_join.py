"""Base of joins over columns."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from clonos.kernels.record_batch import RecordBatch
from clonos.operators.columnar.joins.sides import key_columns, key_kinds, plain, widened
from clonos.operators.columnar.row_forms import rows_of
from clonos.operators.event_time.column_times import time_array
from clonos.operators.event_time.late_batch import LateBatch
from clonos.operators.event_time.timestamps import TimestampColumn
from clonos.operators.joins.buffered_join import Select
from clonos.operators.joins.match_rules import Keys
from clonos.operators.operator import InputSide, TwoInputOperator, without


class ColumnJoin(TwoInputOperator):
    """Join of batches with the columns of the plan. ``schemas``: see ``JoinForm.stored``."""

    select: Select | None = None
    """Function for each pair, if results are not the pairs themselves, which stay in columns."""

    pair_times: TimestampColumn | None = None
    """Column with the timestamps of the pairs that ``select`` gets."""

    def __init__(self, step: str, keys: Keys, schemas: tuple[Any, Any]) -> None:
        self._step, self.keys_of, self.schemas = step, keys, schemas
        self.kinds = key_kinds(schemas[0], keys[0])
        """Types to which the keys of both sides are cast."""

    @abstractmethod
    def take(self, is_left: bool, batch: RecordBatch, side: InputSide) -> None:
        """Processes a batch of a side."""

    def first_columns(self, batch: RecordBatch, key: Any, side: InputSide) -> None:
        self.take(True, plain(batch), side)

    def second_columns(self, batch: RecordBatch, key: Any, side: InputSide) -> None:
        self.take(False, plain(batch), side)

    def _add_late(self, late: LateBatch, batch: RecordBatch, times: Any) -> None:
        """Adds late records. Those of both sides have the columns of both if they go to a sink of columns."""
        wide = widened(batch, self.schemas) if late.keeps_types else None
        if wide is not None:
            late.add_columns(wide, times)
            return
        for row, timestamp_ns in zip(rows_of(batch), times.tolist(), strict=True):
            late.add(row, timestamp_ns)

    def _give(self, pairs: RecordBatch) -> None:
        """Emits pairs, or what ``select`` makes of them."""
        if (select := self.select) is None:
            self.out.columns(pairs)
            return
        rows, pairs = self.python_rows(pairs)
        if rows:
            times = None if self.pair_times is None else time_array(self._step, pairs, self.pair_times).tolist()
            results, failed = self.guard.each(lambda pair: select(*pair), rows)
            if results:
                self.out.rows(results, without(times, failed) if times and failed else times)

    def _key_columns(self, is_left: bool, batch: RecordBatch) -> list[Any]:
        return key_columns(batch, self.keys_of[not is_left], self.kinds)
