"""Aggregates of keyed columns over the whole input, whose form follows from the types of columns in the first batch.

State is in columns where each aggregate can be made for the type of its column.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Final

from clonos.core.values.keys import key_of
from clonos.operators.aggregates.aggregate import Named
from clonos.operators.columnar.by_type import ByType
from clonos.operators.operator import Operator, Scope
from clonos.operators.state.keyed_state import Table

if TYPE_CHECKING:
    from clonos.operators.columnar.running.column_totals import ColumnTotals

Pace = tuple[int | None, int | None]
"""Number of records and length of time in nanoseconds after which keys are emitted; one of them is None."""

STATE_NAME: Final = "state"
"""Table of the operators over rows."""


class TotalsByType(ByType):
    """Aggregates of keyed columns that emit after each record, per batch, or at the end."""

    has_timers: ClassVar[bool] = False
    has_event_timers: ClassVar[bool] = False

    def __init__(
        self,
        step: str,
        aggregation: Named[Any],
        keys: tuple[str, ...],
        reads: tuple[str, ...],
        emits: str,
        make_rows: Callable[[], Operator],
        *,
        is_count: bool = False,
        pace: Pace | None = None,
    ) -> None:
        """Creates the operator.

        ``reads``: the columns that the aggregates read. ``emits``: the name of a member of ``Emits``. ``make_rows``
        makes the operator over rows, which has ``fill``. ``is_count``: the only aggregate is that of ``count()``.
        ``pace``: when it emits, in place of ``emits``.
        """
        super().__init__(step, keys, make_rows)
        self._aggregation, self._is_count, self._emits = aggregation, is_count, emits
        self._columns_read = tuple(dict.fromkeys((*keys, *reads)))
        self._pace = pace
        self.has_timers = pace is not None  # type: ignore[misc]
        self._before: Table | None = None  # counts of a version of clonos without a count in columns

    def _has_rows(self, scope: Scope) -> bool:
        if not scope.state.restored(f"{self._step}/{STATE_NAME}"):
            return False
        if self._is_count:
            self._before = scope.state.table(f"{self._step}/{STATE_NAME}")
        return not self._is_count

    def _schema_of(self, schema: Any) -> Any:
        from clonos.operators.columnar.aggregate_maker import column_aggregates
        from clonos.operators.columnar.running.stored_keys import are_keys, plain

        if not are_keys(schema, self._keys) or column_aggregates(self._aggregation, schema, has_tables=True) is None:
            return None
        return plain(schema, self._columns_read)

    def _new_columns(self, schema: Any) -> ColumnTotals:
        from clonos.operators.columnar.aggregate_maker import column_aggregates
        from clonos.operators.columnar.running.column_totals import ColumnTotals, Emits
        from clonos.operators.columnar.running.paced_totals import PacedTotals

        aggregates = column_aggregates(self._aggregation, schema, has_tables=True)
        assert aggregates is not None, "the state says that these types are columns"
        fields = [schema.field(name) for name in self._keys]
        if self._pace is not None:
            return PacedTotals(self._step, aggregates, fields, *self._pace)
        return ColumnTotals(self._step, aggregates, fields, Emits[self._emits], self._is_count)

    def _choose(self, schema: Any) -> None:
        if self._before is None:
            super()._choose(schema)
            return
        from clonos.operators.columnar.running.stored_keys import as_columns

        chosen, before = self._schema_of(schema), self._before.contents()
        found = None
        if chosen is not None:
            found = as_columns(list(map(key_of, before)), [chosen.field(name).type for name in self._keys])
        if found is None:
            self._take_over()
            return
        columns: Any = self._choose_columns(chosen)
        columns.fill(found, list(before.values()))
        self._scope.state.drop(f"{self._step}/{STATE_NAME}")
        self._before = None

    def _has_known_types(self, schema: Any) -> bool:
        from clonos.operators.columnar.running.stored_keys import has_types

        return has_types(schema, self._schema)

    def _hand_over(self, columns: Any, rows: Any) -> None:
        waiting = columns.waiting() if self._pace is not None else None
        if found := columns.hand_over():
            rows.fill({key: self._accumulator(parts) for key, parts in found.items()})
        if waiting:
            rows.fill_waiting(waiting)

    def _accumulator(self, parts: dict[str, Any]) -> Any:
        return next(iter(parts.values())) if self._is_count else self._aggregation.joined(parts)


class FinalByType(TotalsByType):
    """Aggregates of all records that emit a row at the end: the results, or accumulators to be merged elsewhere."""

    def __init__(
        self, step: str, aggregation: Named[Any], reads: tuple[str, ...], make_rows: Any, is_part: bool
    ) -> None:
        """Creates the operator; ``is_part``: it emits accumulators, none without a record."""
        super().__init__(step, aggregation, (), reads, "END", make_rows)
        self._is_part = is_part

    def end_of_time(self) -> None:
        columns: Any = self._in_columns
        if self._operator is None and not self._is_part:
            self._take_over()  # which emits the result of no records
        if columns is None:
            super().end_of_time()
            return
        found = [self._accumulator(parts) for parts in columns.take_all().values()]
        if found:
            self.out.rows(found if self._is_part else list(map(self._aggregation.result, found)))
