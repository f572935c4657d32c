"""Operator of select, with_columns, filter, drop and rename.

Steps that follow one another run in one pass over a batch. A batch with a record that cannot be computed runs step by
step, so that each record fails in its own step, wherever batches are cut; so does a batch that somebody looks at.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from clonos.expressions.expression_errors import InvalidExpression, NotComputable
from clonos.expressions.stages import Stage
from clonos.kernels.record_batch import RecordBatch
from clonos.operators.columnar.python_rows import record_at
from clonos.operators.columnar.row_forms import ColumnsLost
from clonos.operators.facts import Facts, KnownInputs, facts_of
from clonos.operators.operator import Operator, Scope, Times

if TYPE_CHECKING:
    from clonos.expressions.program import Program

SCHEMAS_MAX: Final = 8
"""Schemas for which a step keeps its compiled form."""


class Programs:
    """Programs of the same stages by the schema of the batches."""

    def __init__(self, stages: Sequence[Stage]) -> None:
        self._stages = tuple(stages)
        self._compiled: list[tuple[Any, Program]] = []  # the last one used first

    def run(self, batch: RecordBatch) -> RecordBatch | None:
        """Returns the resulting batch, None if no record is left.

        Raises: InvalidExpression: the columns do not fit. NotComputable: a record cannot be computed.
        """
        from clonos.expressions.program import Program  # loads pyarrow

        schema = batch.schema
        compiled = self._compiled
        for place, (known, program) in enumerate(compiled):
            if known.equals(schema):
                if place:
                    compiled.insert(0, compiled.pop(place))
                return program.run(batch)
        program = Program(self._stages, schema)
        compiled[:] = [(schema, program), *compiled[: SCHEMAS_MAX - 1]]
        return program.run(batch)


class ColumnStep(Operator):
    """One of these steps, and the run of those after it."""

    runs_user_code = True
    is_per_record = True
    requires_columns = True
    keeps_times = False
    emits_columns = True
    takes_columns = True
    changes_rows = False

    @classmethod
    def facts(cls, given: KnownInputs, stage: Stage) -> Facts:
        """Returns those of a step ``stage``. Timestamps stay if it does not leave out their column."""
        stage = replace(stage, step=given.step)
        column = given.timestamp_column if given.has_times else None
        name = None if column is None else stage.renamed(column.name)
        return replace(
            facts_of(partial(cls, stage), given),
            selects_rows=stage.kind == "filter",
            has_times=name is not None,
            timestamp_column=None if column is None or name is None else column._replace(name=name),
            stage=stage,
        )

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._own = Programs([stage])

    def open(self, scope: Scope) -> None:
        self._members = [self]
        while type(follower := self._members[-1].out) is ColumnStep:
            self._members.append(follower)
        self._all = Programs([member._stage for member in self._members])

    def rows(self, rows: list[Any], times: Times = None) -> None:
        raise ColumnsLost(self.guard.step)

    def columns(self, batch: RecordBatch) -> None:
        members = self._members
        if len(members) == 1 or not self._is_whole():
            self._alone(batch)
            return
        try:
            result = self._all.run(batch)
        except (InvalidExpression, NotComputable):
            self._alone(batch)
            return
        if result is not None:
            members[-1].out.columns(result)

    def _is_whole(self) -> bool:
        """Returns whether the members follow one another; a tap stands after a step that somebody looks at."""
        members = self._members
        return all(member.out is follower for member, follower in pairwise(members))

    def _alone(self, batch: RecordBatch) -> None:
        """Passes on what this step makes of a batch."""
        for result in self._results(batch):
            self.out.columns(result)

    def _results(self, batch: RecordBatch) -> list[RecordBatch]:
        try:
            result = self._own.run(batch)
        except InvalidExpression as error:
            raise self.guard.failed() from error
        except NotComputable as error:
            if batch.num_rows == 1:
                self.guard.caught(error, record_at(batch, 0))
                return []
            half = batch.num_rows // 2
            return [*self._results(batch.slice(0, half)), *self._results(batch.slice(half))]
        return [] if result is None else [result]
