"""Table of the keys of a pane, with logs beside its columns of state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from clonos.operators.columnar.logs.value_log import ValueLog
from clonos.operators.state.column_table import ColumnTable


class PaneTable:
    """Column table, and the logs of its slots by the names that they have among the columns of state."""

    __slots__ = ("_logs", "_table", "all_keys", "find", "keys", "slots", "touch")

    def __init__(self, table: ColumnTable, logs: dict[str, ValueLog]) -> None:
        self._table, self._logs = table, logs
        self.find, self.keys, self.slots, self.touch = table.find, table.keys, table.slots, table.touch
        self.all_keys = table.all_keys

    def __len__(self) -> int:
        return len(self._table)

    @property
    def values(self) -> dict[str, Any]:
        """Columns of state and logs by name. Read it again after ``slots``."""
        return {**self._table.values, **self._logs}


def part_of(values: Any, count: int) -> dict[str, Any]:
    """Returns the columns of state of the first ``count`` slots, and all logs."""
    return {name: each if isinstance(each, ValueLog) else each[:count] for name, each in values.items()}


def log_names(aggregates: Sequence[Any]) -> list[str]:
    """Returns the names of the logs of aggregates."""
    return [name for each in aggregates for name in each.logs]
