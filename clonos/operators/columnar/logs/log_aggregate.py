"""Base of aggregates over columns whose state is a log of entries."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, Final

import numpy

from clonos.operators.columnar.column_aggregates import ColumnAggregate, Slots, State
from clonos.operators.columnar.logs.value_log import Places, ValueLog

COMPACTED_MIN: Final = 4_096
"""Entries below which a log is not compacted."""


class LogAggregate(ColumnAggregate):
    """Base of both: an entry for each value, which a compaction may drop or join with others of its slot."""

    compacted_min = COMPACTED_MIN

    @property
    def log(self) -> str:
        """Name of the log among the columns of state."""
        return f"{self.name}.log"

    @property
    def logs(self) -> tuple[str, ...]:
        return (self.log,)

    def dtypes(self) -> dict[str, Any]:
        return {}

    @abstractmethod
    def _entries(self, slots: Slots, cells: Any) -> tuple[Slots, Sequence[Any]]:
        """Returns the entries of cells."""

    @abstractmethod
    def _compacted(self, slots: Slots, columns: list[Any]) -> tuple[Slots, Sequence[Any]] | None:
        """Returns fewer entries that have the same results, None if there are none."""

    @abstractmethod
    def _results(self, columns: list[Any], places: Places) -> Any:
        """Returns the results of slots from their entries, as ``ValueLog.of`` returns them."""

    @abstractmethod
    def _nothing(self, count: int) -> Any:
        """Returns the results of slots without entries."""

    def add(self, state: State, slots: Slots, cells: Any) -> None:
        log: ValueLog = state[self.log]
        log.append(*self._entries(slots, cells))
        self._compact(log)

    def merge(self, state: State, slots: Slots, other: State) -> None:
        log, others = state[self.log], other[self.log]
        if len(others):
            of_others, columns = others.entries()
            log.append(slots[of_others], columns)
            self._compact(log)

    def _compact(self, log: ValueLog) -> None:
        if len(log) > 2 * log.least + self.compacted_min:
            found = self._compacted(*log.entries())
            if found is None:
                log.least = len(log)
            else:
                log.replace(*found)

    def results(self, state: State, slots: Slots) -> Any:
        log: ValueLog = state[self.log]
        return self._results(*log.of(slots)) if len(log) else self._nothing(len(slots))


def without_nulls(slots: Slots, cells: Any) -> tuple[Slots, Any]:
    """Returns the cells that are not null, with their slots."""
    if not cells.null_count:
        return slots, cells
    return slots[cells.is_valid().to_numpy(zero_copy_only=False)], cells.drop_null()


def order_in_slots(slots: Slots, *keys: Any) -> Any:
    """Returns the order of entries by slot, then by keys, then by arrival."""
    return numpy.lexsort((*reversed(keys), slots))
