"""Forms of joins over columns: what the plan asks, and what makes their operators.

State is in columns where the keys of both sides have types whose values are equal as those of rows are. For floats and
decimals, for example, the join is that over rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from clonos.operators.event_time.timestamps import TimestampColumn
from clonos.operators.joins.as_of import Direction
from clonos.operators.joins.buffered_join import Select
from clonos.operators.joins.match_rules import How, Keys, MatchRule
from clonos.operators.operator import TwoInputOperator

if TYPE_CHECKING:
    from clonos.operators.columnar.joins.column_join import ColumnJoin

MakeJoin = Callable[[str, Keys, tuple[Any, Any]], "ColumnJoin"]
"""Makes a join for the name of its step, its keys, and the schemas of both sides."""


@dataclass(frozen=True)
class JoinForm:
    """Form of a join over columns.

    ``has_left``: its state has left records. ``select``: a function for each pair, which has its timestamp in the
    column ``pair_times``.
    """

    keys: Keys
    make: MakeJoin
    has_left: bool = True
    select: Select | None = None
    pair_times: TimestampColumn | None = None

    @property
    def keeps_records(self) -> bool:
        """Returns whether the state has whole records."""
        return True

    def row_reason(self, left: Any, right: Any) -> str:
        """Returns why the join works on rows for columns of these schemas; "" if it works on columns."""
        from clonos.operators.columnar.joins.sides import rows_reason

        return rows_reason((left, right), self.keys)

    def stored(self, left: Any, right: Any) -> tuple[Any, Any]:
        """Returns the columns of both sides that the operator and its state depend on."""
        from clonos.operators.columnar.running.stored_keys import plain, plain_records

        return plain_records(left) if self.has_left else plain(left, self.keys[0]), plain_records(right)

    def operator(self, step: str, left: Any, right: Any) -> TwoInputOperator:
        """Creates the operator over columns, of which ``stored`` has returned the schemas."""
        join = self.make(step, self.keys, (left, right))
        join.select, join.pair_times = self.select, self.pair_times
        return join


def column_lookup(step: str, keys: Keys, schemas: tuple[Any, Any], is_inner: bool) -> ColumnJoin:
    """Returns a lookup over columns."""
    from clonos.operators.columnar.joins.column_lookup import ColumnLookup

    return ColumnLookup(step, keys, schemas, is_inner)


def event_columns(
    step: str, keys: Keys, schemas: tuple[Any, Any], rule: MatchRule, how: How, late: str | None
) -> ColumnJoin:
    """Returns a join over columns by timestamps."""
    from clonos.operators.columnar.joins.timed_columns import EventColumns

    return EventColumns(step, keys, schemas, rule, how, late)


def clock_columns(step: str, keys: Keys, schemas: tuple[Any, Any], rule: MatchRule, how: How) -> ColumnJoin:
    """Returns a join over columns by the clock."""
    from clonos.operators.columnar.joins.timed_columns import ClockColumns

    return ClockColumns(step, keys, schemas, rule, how)


def as_of_columns(
    step: str,
    keys: Keys,
    schemas: tuple[Any, Any],
    direction: Direction,
    tolerance_ns: int | None,
    is_inner: bool,
    late: str | None,
) -> ColumnJoin:
    """Returns an as-of join over columns."""
    from clonos.operators.columnar.joins.column_as_of import ColumnAsOf

    return ColumnAsOf(step, keys, schemas, direction, tolerance_ns, is_inner, late)
