"""Lookup over columns: each record with the latest row of its key in a table that is a stream itself.

State: the rows in a row store, ``step/rows``, and which of them a key has in a table of columns, ``step/keys``.
"""

from __future__ import annotations

from typing import Any, Final

import numpy
import pyarrow

from clonos.kernels.record_batch import RecordBatch
from clonos.operators.columnar.joins.column_join import ColumnJoin
from clonos.operators.columnar.joins.join_results import MISSING, JoinResults, nulls, taken
from clonos.operators.columnar.joins.sides import NO_SLOT, slots_of
from clonos.operators.joins.match_rules import Keys
from clonos.operators.operator import InputSide, Scope
from clonos.operators.state.column_table import ColumnSpec

KEYS_NAME: Final = "keys"
ROWS_NAME: Final = "rows"
ROW: Final = "row"
"""Column of the table with the number of the row of a key."""


class ColumnLookup(ColumnJoin):
    """Join with the row of the key that came last. The order in which batches of both inputs come decides."""

    def __init__(self, step: str, keys: Keys, schemas: tuple[Any, Any], is_inner: bool) -> None:
        super().__init__(step, keys, schemas)
        self._is_inner = is_inner
        self._results = JoinResults(keys, (False, not is_inner), has_time=False)

    def open(self, scope: Scope) -> None:
        self._rows = scope.state.row_store(f"{self._step}/{ROWS_NAME}")
        spec = ColumnSpec(self.kinds, {ROW: numpy.int64}, {ROW: MISSING})
        self._table = scope.state.column_table(f"{self._step}/{KEYS_NAME}", spec)

    def take(self, is_left: bool, batch: RecordBatch, side: InputSide) -> None:
        columns = self._key_columns(is_left, batch)
        if not is_left:
            slots = slots_of(self._table.slots, columns)
            if (is_null := slots == NO_SLOT).any():
                batch, slots = batch.filter(pyarrow.array(~is_null)), slots[~is_null]
            if len(slots):
                self._rows.replace(self._table, ROW, slots, batch)
            return
        slots = slots_of(self._table.find, columns)
        numbers = numpy.full(len(slots), MISSING) if not len(self._table) else self._table.values[ROW][slots]
        has: Any = slots >= 0
        if self._is_inner:
            if not has.any():
                return
            if not has.all():
                batch, numbers = batch.filter(pyarrow.array(has)), numbers[has]
            has = None
        times = numpy.zeros(batch.num_rows, numpy.int64)
        for result in self._results.batches(batch, self._found(numbers, has), (None, has), times):
            self._give(result)

    def _found(self, numbers: Any, has: Any) -> Any:
        """Returns the rows with these numbers, of nulls where a record has none."""
        if has is not None and not has.any():
            return nulls(self.schemas[1], len(numbers))
        if has is None or has.all():
            rows = self._rows.take(numbers)
        else:
            rows = taken(self._rows.take(numbers[has]), numpy.where(has, numpy.cumsum(has) - 1, MISSING))
        return rows.replace_schema_metadata(self.schemas[1].metadata)
