"""Base of joins by key, and the simplest of them, the lookup.

Their records may be of any kind, rows or columns: see ``clonos.operators.kinds``.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Final, Generic

from clonos.kernels.record_batch import RecordBatch
from clonos.operators.kinds.join_kind import BatchT, JoinKind
from clonos.operators.operator import InputSide, Scope, Times, TwoInputOperator
from clonos.operators.state.state_spec import StateScope, StateSpec, small

WATERMARK: Final = small("watermark", StateScope.EQUAL)


class Join(TwoInputOperator, Generic[BatchT]):
    """Join of two keyed streams."""

    def __init__(self, step: str, kind: JoinKind[BatchT]) -> None:
        self._step, self._kind = step, kind

    def open(self, scope: Scope) -> None:
        self._sides = self._kind.sides(self, self._step, scope)

    def first(self, rows: list[Any], times: Times = None) -> None:
        self._take(True, self._sides.of_rows(True, rows, times))

    def second(self, rows: list[Any], times: Times = None) -> None:
        self._take(False, self._sides.of_rows(False, rows, times))

    def first_columns(self, batch: RecordBatch, key: Any, side: InputSide) -> None:
        self._take_columns(True, batch, key, side)

    def second_columns(self, batch: RecordBatch, key: Any, side: InputSide) -> None:
        self._take_columns(False, batch, key, side)

    def _take_columns(self, is_left: bool, batch: RecordBatch, key: Any, side: InputSide) -> None:
        found = self._sides.of_columns(is_left, batch, key, side)
        if found is not None:
            self._take(is_left, found)

    @abstractmethod
    def _take(self, is_left: bool, batch: BatchT) -> None:
        """Takes a batch of a side, which has records."""


class Lookup(Join[BatchT]):
    """Left records with the row of their key that came last: the order in which records of both sides come counts."""

    state = ()
    takes_untimed = True

    def __init__(self, step: str, kind: JoinKind[BatchT], is_inner: bool) -> None:
        super().__init__(step, kind)
        self._is_inner = is_inner

    @property
    def state_specs(self) -> tuple[StateSpec, ...]:
        return self._kind.latest_specs

    def open(self, scope: Scope) -> None:
        super().open(scope)
        self._latest = self._sides.latest()

    def _take(self, is_left: bool, batch: BatchT) -> None:
        if is_left:
            self._sides.emit(batch, self._latest.find(batch), self._is_inner)
        else:
            self._latest.add(batch.keyed())
