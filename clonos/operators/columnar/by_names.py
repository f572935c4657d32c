"""Records by the names of their columns, for the steps that name columns: in front of such a step, the form is dropped.

Windows, aggregates and joins over columns give records that are no dicts in rows. A step that names a column finds it
in both forms, if its records are dicts by the names of columns wherever it needs rows.
"""

from __future__ import annotations

from typing import Any

from clonos.kernels.record_batch import RecordBatch
from clonos.operators.columnar.row_forms import ColumnsLost, without_form
from clonos.operators.operator import Operator, Times


class ByNames(Operator):
    """Batches of columns whose rows are dicts by the names of the columns."""

    takes_columns = True
    changes_rows = False

    def rows(self, rows: list[Any], times: Times = None) -> None:
        """Passes dicts on. Raises: ColumnsLost: the step in front gives rows of another form."""
        if any(isinstance(row, tuple) for row in rows):
            raise ColumnsLost(self.guard.step)
        self.out.rows(rows, times)

    def columns(self, batch: RecordBatch) -> None:
        self.out.columns(without_form(batch))

    def keyed_columns(self, batch: RecordBatch, key: Any) -> None:
        self.out.keyed_columns(without_form(batch), key)
