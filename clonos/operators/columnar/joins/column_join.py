"""Base of joins over columns."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

from clonos.kernels.record_batch import RecordBatch
from clonos.operators.columnar.joins.sides import key_columns, key_kinds, plain, widened
from clonos.operators.columnar.row_forms import rows_of
from clonos.operators.joins.late_batch import LateBatch
from clonos.operators.operator import InputSide, TwoInputOperator

Keys = tuple[tuple[str, ...], tuple[str, ...]]
"""Key columns of the left and of the right side."""


class ColumnJoin(TwoInputOperator):
    """Join whose sides each have one schema, which its owner tells it before the first batch of a side."""

    keys_of: Keys

    def __init__(self, step: str, keys: Keys) -> None:
        self._step, self.keys_of = step, keys
        self.schemas: list[Any] = [None, None]
        self.expected: Sequence[Any] = (None, None)
        self.kinds: tuple[Any, ...] | None = None
        """Types to which the keys of both sides are cast."""

    def know(self, schemas: Sequence[Any]) -> None:
        """Takes the schemas of both sides; None: it is not known yet."""
        self.schemas = list(schemas)
        place = 0 if schemas[0] is not None else 1
        self.kinds = key_kinds(schemas[place], self.keys_of[place])

    def expect(self, schemas: Sequence[Any]) -> None:
        """Takes schemas that sides will probably have, for nulls in place of rows of a side that has sent none."""
        self.expected = schemas

    @abstractmethod
    def take(self, is_left: bool, batch: RecordBatch, side: InputSide) -> None:
        """Processes a batch of a side, with the schema of the side."""

    @abstractmethod
    def hand_over(self) -> None:
        """Turns the state into that of the join over rows, which is opened next."""

    def first_columns(self, batch: RecordBatch, key: Any, side: InputSide) -> None:
        self.take(True, plain(batch), side)

    def second_columns(self, batch: RecordBatch, key: Any, side: InputSide) -> None:
        self.take(False, plain(batch), side)

    def _add_late(self, late: LateBatch, batch: RecordBatch, times: Any) -> None:
        """Adds late records. Those of both sides have the columns of both if they go to a sink of columns."""
        schemas = [known or expected for known, expected in zip(self.schemas, self.expected, strict=True)]
        wide = widened(batch, schemas) if late.keeps_types else None
        if wide is not None:
            late.add_columns(wide, times)
            return
        for row, timestamp_ns in zip(rows_of(batch), times.tolist(), strict=True):
            late.add(row, timestamp_ns)

    def _key_columns(self, is_left: bool, batch: RecordBatch) -> list[Any]:
        assert self.kinds is not None, "a batch comes when the columns of its side are known"
        return key_columns(batch, self.keys_of[not is_left], self.kinds)
