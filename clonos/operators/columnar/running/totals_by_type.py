"""Aggregates of keyed columns over the whole input, whose form follows from the types of columns in the first batch.

State is in columns where each aggregate can be made for the type of its column. Otherwise the operator over rows does
the work. It also takes over, with the state, where a column changes its type, or where a sum might not fit 64 bits any
more. The choice is part of the state.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from clonos.core.values.keys import key_of
from clonos.operators.aggregates.aggregate import Named
from clonos.operators.operator import Operator, Scope, Times
from clonos.operators.state.keyed_state import Table

if TYPE_CHECKING:
    from clonos.operators.columnar.running.column_totals import ColumnTotals

FORM_NAME: Final = "form"
"""Table with one entry: the schema of the key and of what the aggregates read, or ``ROWS``."""

STATE_NAME: Final = "state"
"""Table of the operators over rows."""

ROWS: Final = b""


class TotalsByType(Operator):
    """Aggregates of keyed columns that emit after each record, per batch, or at the end."""

    takes_columns = True

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
    ) -> None:
        """Creates the operator.

        ``reads``: the columns that the aggregates read. ``emits``: the name of a member of ``Emits``. ``make_rows``
        makes the operator over rows, which has ``fill``. ``is_count``: the only aggregate is that of ``count()``.
        """
        self._step, self._is_count = step, is_count
        self._aggregation, self._keys = aggregation, keys
        self._reads, self._emits, self._make_rows = reads, emits, make_rows
        self._in_rows: Operator | None = None
        self._in_columns: ColumnTotals | None = None
        self._schema: Any = None  # of ``_in_columns``
        self._before: Table | None = None  # counts of a version of clonos without a count in columns

    def open(self, scope: Scope) -> None:
        self._scope = scope
        self._form = scope.state.table(f"{self._step}/{FORM_NAME}", is_small=True)
        form = self._form.entries.get(0)
        if form is None and scope.state.restored(f"{self._step}/{STATE_NAME}"):
            if self._is_count:
                self._before = scope.state.table(f"{self._step}/{STATE_NAME}")
            else:
                form = ROWS  # by a version of clonos without these aggregates in columns
        if form == ROWS:
            self._open_rows()
        elif form is not None:
            self._open_columns(form)

    def _open_rows(self) -> Operator:
        self._in_rows = self._make_rows()
        self._open(self._in_rows)
        return self._in_rows

    def _open_columns(self, form: bytes) -> ColumnTotals:
        import pyarrow

        from clonos.operators.columnar.column_aggregates import column_aggregates
        from clonos.operators.columnar.running.column_totals import ColumnTotals, Emits

        self._schema = pyarrow.ipc.read_schema(pyarrow.py_buffer(form))
        aggregates = column_aggregates(self._aggregation, self._schema)
        assert aggregates is not None, "the state says that these types are columns"
        fields = [self._schema.field(name) for name in self._keys]
        columns = ColumnTotals(self._step, aggregates, fields, Emits[self._emits], self._is_count)
        self._in_columns = columns
        self._open(columns)
        return columns

    def _open(self, operator: Operator) -> None:
        operator.out, operator.guard, operator.timestamp_column = self.out, self.guard, self.timestamp_column
        operator.open(self._scope)

    # --- records

    def rows(self, rows: list[Any], times: Times = None) -> None:
        (self._in_rows or self._take_over()).rows(rows, times)

    def keyed_columns(self, batch: Any, key: Any) -> None:
        if self._in_rows is None and self._in_columns is None:
            self._choose(batch.schema)
        columns = self._in_columns
        if columns is not None and self._has_known_types(batch.schema) and columns.has_room_for(batch):
            columns.keyed_columns(batch, key)
        else:
            (self._in_rows or self._take_over()).keyed_columns(batch, key)

    def _choose(self, schema: Any) -> None:
        from clonos.operators.columnar.column_aggregates import column_aggregates
        from clonos.operators.columnar.running.stored_keys import are_keys, as_columns, plain

        if not are_keys(schema, self._keys) or column_aggregates(self._aggregation, schema) is None:
            self._take_over()
            return
        chosen = plain(schema, tuple(dict.fromkeys((*self._keys, *self._reads))))
        before = {} if self._before is None else self._before.contents()
        found = as_columns(list(map(key_of, before)), [chosen.field(name).type for name in self._keys])
        if found is None:
            self._take_over()
            return
        form = chosen.serialize().to_pybytes()
        self._form.set(0, form)
        columns = self._open_columns(form)
        if self._before is not None:
            columns.fill(found, list(before.values()))
            self._scope.state.drop(f"{self._step}/{STATE_NAME}")
            self._before = None

    def _has_known_types(self, schema: Any) -> bool:
        from clonos.operators.columnar.running.stored_keys import has_types

        return has_types(schema, self._schema)

    def _take_over(self) -> Operator:
        """Opens the operator over rows, with the state of that over columns if there is any."""
        self._form.set(0, ROWS)
        found = {} if self._in_columns is None else self._in_columns.hand_over()
        self._in_columns = None
        rows: Any = self._open_rows()
        if found:
            rows.fill({key: self._accumulator(parts) for key, parts in found.items()})
        return rows  # type: ignore[no-any-return]

    def _accumulator(self, parts: dict[str, Any]) -> Any:
        return next(iter(parts.values())) if self._is_count else self._aggregation.joined(parts)

    # --- the end

    def end_of_time(self) -> None:
        for operator in (self._in_columns, self._in_rows):
            if operator is not None:
                operator.end_of_time()

    def prepare(self, checkpoint: int) -> None:
        if self._in_rows is not None:
            self._in_rows.prepare(checkpoint)
