"""Results of a function for each pair of a join over columns, whose state stays in columns."""

from __future__ import annotations

from typing import Any, ClassVar

from clonos.operators.event_time.timestamps import TimestampColumn
from clonos.operators.joins.buffered_join import Select
from clonos.operators.operator import Operator, Times, without
from clonos.operators.user_errors import Guard


class SelectedPairs(Operator):
    """Output of a join over columns: calls ``select`` with both records of each pair."""

    takes_columns: ClassVar[bool] = True  # type: ignore[misc]

    def __init__(self, select: Select, times: TimestampColumn | None, guard: Guard, out: Operator) -> None:
        """Creates the output; ``times`` is the column of the pairs that has their timestamps."""
        self._select = select
        self.timestamp_column, self.guard, self.out = times, guard, out

    def rows(self, rows: list[Any], times: Times = None) -> None:
        select = self._select
        results, failed = self.guard.each(lambda pair: select(*pair), rows)
        if results:
            self.out.rows(results, without(times, failed) if times and failed else times)
