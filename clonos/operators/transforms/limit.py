"""limit: the first records of a step.

In the chain of a source, ``OperatorChain.poll`` reads no more records than the limit leaves, and then ends the source:
the position of the source is after the last record that the limit needed, unless a step between gives several results
per record. In another task it is noted, and the coordinator ends the sources in front of it.
"""

from __future__ import annotations

from typing import Any, Final

from clonos.kernels.record_batch import RecordBatch
from clonos.operators.operator import Operator, Scope, Times
from clonos.operators.state.state_spec import StateScope, StateSpec, small

TAKEN: Final = small("taken", StateScope.SUM).fixed("it counts the records that it passes on, in one task")
"""Table with one entry, the number of records passed on."""


class Limit(Operator):
    """Passes on the first ``count`` records and drops the others."""

    state = ()
    is_one_to_one = True
    selects_rows = True
    passes_records = True
    passes_columns = True
    changes_rows = False

    def __init__(self, step: str, count: int) -> None:
        self._step = step
        self._count = count

    @property
    def state_specs(self) -> tuple[StateSpec, ...]:
        return (TAKEN,)

    def open(self, scope: Scope) -> None:
        self._taken = scope.state.table(TAKEN)
        self._collector = scope.context.collector
        self._note()

    @property
    def room(self) -> int:
        """Number of records that it still passes on; 0 too if it had a higher count before a resume."""
        taken: int = self._taken.entries.get(0, 0)
        return max(0, self._count - taken)

    def rows(self, rows: list[Any], times: Times = None) -> None:
        room = self.room
        if len(rows) > room:
            rows, times = rows[:room], None if times is None else times[:room]
        if rows:
            self._take(len(rows))
            self.out.rows(rows, times)

    def columns(self, batch: RecordBatch) -> None:
        room = self.room
        if batch.num_rows > room:
            batch = batch.slice(0, room)
        if batch.num_rows:
            self._take(batch.num_rows)
            self.out.columns(batch)

    def _take(self, records: int) -> None:
        self._taken.set(0, self._count - self.room + records)
        self._note()

    def _note(self) -> None:
        if not self.room:
            self._collector.reach_limit()
