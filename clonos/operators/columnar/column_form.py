"""Form of a step over columns: what it needs of its input, which the plan knows before the job runs.

The plan asks it once: for columns that it can work on it makes the operator over columns, for others, and where columns
are not known, the plan takes the operator over rows. ``JoinForm`` is that of steps with two inputs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from clonos.kernels.record_batch import RecordBatch
from clonos.operators.operator import Operator


class ColumnForm(ABC):
    """Form of a step over the columns of one input. ``keeps_records``: its state has whole records that it emits."""

    @property
    def keeps_records(self) -> bool:
        return False

    @abstractmethod
    def row_reason(self, schema: Any) -> str:
        """Returns why the step works on rows for columns of this schema; "" if it works on columns."""

    @abstractmethod
    def stored(self, schema: Any) -> Any:
        """Returns the part of a schema without ``row_reason`` that the operator and its state depend on."""

    @abstractmethod
    def operator(self, step: str, schema: Any) -> Operator:
        """Creates the operator over columns; ``schema`` is what ``stored`` has returned."""


class ColumnOperator(Operator):
    """Base of the operators with state in columns."""

    takes_columns = True

    def keyed_columns(self, batch: RecordBatch, key: Any) -> None:
        self.columns(batch)
