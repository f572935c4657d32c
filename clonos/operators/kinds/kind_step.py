"""Step that takes batches of its kind of records, whatever the records come as."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Generic

from clonos.kernels.record_batch import RecordBatch
from clonos.operators.kinds.kind import RecordKind, TakenT
from clonos.operators.operator import Operator, Times


class KindStep(Operator, Generic[TakenT]):
    """Base of operators that serve records of any kind."""

    _kind: RecordKind[TakenT]

    def rows(self, rows: list[Any], times: Times = None) -> None:
        batch = self._kind.of_rows(self, rows, times)
        if batch is not None:
            self._take(batch)

    def columns(self, batch: RecordBatch) -> None:
        if self.takes_columns:
            self._take_columns(batch, None)
        else:
            super().columns(batch)

    def keyed_columns(self, batch: RecordBatch, key: Any) -> None:
        if self.takes_columns:
            self._take_columns(batch, key)
        else:
            super().keyed_columns(batch, key)

    def _take_columns(self, batch: RecordBatch, key: Any) -> None:
        found = self._kind.of_columns(self, batch, key)
        if found is not None:
            self._take(found)

    @abstractmethod
    def _take(self, batch: TakenT) -> None:
        """Takes a batch, which has records."""
