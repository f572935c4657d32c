"""Forms of joins over columns: what the plan asks, and what makes their operators.

State is in columns where the keys of both sides have types whose values are equal as those of rows are. For floats and
decimals, for example, the join is that over rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from clonos.operators.columnar.column_form import ColumnForm, Schemas
from clonos.operators.event_time.timestamps import TimestampColumn
from clonos.operators.joins.match_rules import Keys
from clonos.operators.kinds.object_results import Select
from clonos.operators.operator import TwoInputOperator

if TYPE_CHECKING:
    from clonos.operators.kinds.column_sides import ColumnJoinKind

MakeJoin = Callable[[str, "ColumnJoinKind"], TwoInputOperator]
"""Makes a join for the name of its step and the kind of its records."""


@dataclass(frozen=True)
class JoinForm(ColumnForm):
    """Form of a join over columns.

    ``has_left``: its state has left records. ``select``: a function for each pair, which has its timestamp in the
    column ``pair_times``. ``may_lack``: a result may be without the left or the right side; None: it has the left side
    alone. ``has_join_time``: results have the later timestamp of both sides, else that of the left one.
    """

    keys: Keys
    make: MakeJoin
    has_left: bool = True
    select: Select | None = None
    pair_times: TimestampColumn | None = None
    may_lack: tuple[bool, bool] | None = None
    has_join_time: bool = False

    @property
    def keeps_records(self) -> bool:
        """See ``ColumnForm``."""
        return True

    @property
    def has_mixed_rows(self) -> bool:
        """See ``ColumnForm``."""
        return self.may_lack == (True, True)  # each record with a null key says which side it is of

    @property
    def keeps_key(self) -> bool:
        """See ``ColumnForm``."""
        return self.may_lack is None or not self.may_lack[0]

    def row_reason(self, schemas: Schemas) -> str:
        """See ``ColumnForm``."""
        from clonos.operators.columnar.joins.sides import rows_reason

        return rows_reason(schemas, self.keys)

    def stored(self, schemas: Schemas) -> Schemas:
        """See ``ColumnForm``."""
        from clonos.operators.columnar.running.stored_keys import plain, plain_records

        left, right = schemas
        return plain_records(left) if self.has_left else plain(left, self.keys[0]), plain_records(right)

    @property
    def emits_columns(self) -> bool:
        """See ``ColumnForm``."""
        return self.select is None

    def results(self, schemas: Schemas) -> Any:
        """See ``ColumnForm``."""
        from clonos.operators.columnar.joins.join_results import schema_of_results

        left, right = schemas
        return schema_of_results((left, right), self.keys, self.may_lack, self.has_join_time)

    def operator(self, step: str, schemas: Schemas) -> TwoInputOperator:
        """See ``ColumnForm``."""
        from clonos.operators.kinds.column_results import JoinPlan
        from clonos.operators.kinds.column_sides import ColumnJoinKind

        left, right = schemas
        plan = JoinPlan(self.keys, (left, right), self.select, self.pair_times, self.may_lack, self.has_join_time)
        return self.make(step, ColumnJoinKind(plan))
