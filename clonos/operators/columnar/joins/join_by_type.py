"""Joins over keyed columns whose form follows from the columns of the first batches.

State is in columns where the keys of both sides have types whose values are equal as those of rows are. Otherwise, for
floats and decimals for example, or where a side changes its columns, the join is that over rows, which then takes over
the state. The choice, and the columns of both sides, are part of the state.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from clonos.core.model.watermark import Watermark
from clonos.kernels.record_batch import RecordBatch
from clonos.operators.event_time.timestamps import TimestampColumn
from clonos.operators.joins.as_of import Direction
from clonos.operators.joins.buffered_join import Select
from clonos.operators.joins.match_rules import How, MatchRule
from clonos.operators.operator import DueTimer, InputSide, Scope, Times, TwoInputOperator

if TYPE_CHECKING:
    from clonos.operators.columnar.joins.column_join import ColumnJoin, Keys

FORM_NAME: Final = "form"
"""Table with one entry: the schemas of both sides as far as they are known, b"" for others; or ``ROWS``."""

ROWS: Final = b""


class JoinByType(TwoInputOperator):
    """Join of two streams of columns."""

    def __init__(
        self,
        step: str,
        make_rows: Callable[[str], TwoInputOperator],
        make_columns: Callable[[str], ColumnJoin],
        expected: tuple[bytes, bytes],
        row_tables: tuple[str, ...],
        select: Select | None = None,
        pair_times: TimestampColumn | None = None,
    ) -> None:
        """Creates the join.

        ``expected``: the schemas that the plan knows, b"" for others. ``row_tables``: tables of the join over rows.
        ``select``: a function for each pair, which has its timestamp in the column ``pair_times``.
        """
        self._select, self._pair_times = select, pair_times
        self._step, self._make_columns = step, make_columns
        self._rows = make_rows(step)
        self._expected, self._row_tables = expected, row_tables
        self._columns: ColumnJoin | None = None
        self.has_timers, self.holds_watermarks = self._rows.has_timers, self._rows.holds_watermarks  # type: ignore[misc]

    def open(self, scope: Scope) -> None:
        self._scope = scope
        self._form = scope.state.table(f"{self._step}/{FORM_NAME}", is_small=True)
        form = self._form.entries.get(0)
        names = [f"{self._step}/{name}" for name in self._row_tables]
        if form is None and any(name in scope.state.restored(name) for name in names):
            form = ROWS  # by a version of clonos without joins over columns
        if form == ROWS:
            self._open(self._rows)
            return
        self._columns = self._make_columns(self._step)
        self._open(self._columns)
        if self._select is not None:
            from clonos.operators.columnar.joins.selected_pairs import SelectedPairs

            self._columns.out = SelectedPairs(self._select, self._pair_times, self.guard, self.out)
        self._columns.expect(_schemas(self._expected))
        if form is not None:
            self._columns.know(_schemas(form))

    def _open(self, join: TwoInputOperator) -> None:
        join.out, join.guard, join.side_outputs = self.out, self.guard, self.side_outputs
        if self.holds_watermarks:
            join.pass_watermark = self.pass_watermark
        join.open(self._scope)

    @property
    def _join(self) -> TwoInputOperator:
        return self._rows if self._columns is None else self._columns

    # --- records

    def first(self, rows: list[Any], times: Times = None) -> None:
        self._take_over().first(rows, times)

    def second(self, rows: list[Any], times: Times = None) -> None:
        self._take_over().second(rows, times)

    def first_columns(self, batch: RecordBatch, key: Any, side: InputSide) -> None:
        self._fitting(0, batch).first_columns(batch, key, side)

    def second_columns(self, batch: RecordBatch, key: Any, side: InputSide) -> None:
        self._fitting(1, batch).second_columns(batch, key, side)

    def _fitting(self, place: int, batch: RecordBatch) -> TwoInputOperator:
        """Returns the join that takes a batch of a side."""
        if self._columns is None:
            return self._rows
        from clonos.operators.columnar.joins.sides import key_kinds, plain

        columns, schema = self._columns, plain(batch.slice(0, 0)).schema
        known = columns.schemas[place]
        if known is not None:
            return columns if known.equals(schema, check_metadata=True) else self._take_over()
        self._check_keys(place, schema)
        kinds = key_kinds(schema, columns.keys_of[place])
        if kinds is None or columns.kinds not in (None, kinds):
            return self._take_over()
        schemas = [schema if each == place else columns.schemas[each] for each in (0, 1)]
        self._form.set(0, tuple(b"" if each is None else each.serialize().to_pybytes() for each in schemas))
        columns.know(schemas)
        return columns

    def _check_keys(self, place: int, schema: Any) -> None:
        """Raises: JoinKeysDiffer: the keys of both sides are never equal."""
        from clonos.operators.columnar.joins.key_classes import JoinKeysDiffer, unequal

        assert self._columns is not None, "the join works on columns"
        schemas = [schema if each == place else known for each, known in enumerate(self._columns.schemas)]
        if all(each is not None for each in schemas) and (problem := unequal(schemas, self._columns.keys_of)):
            raise JoinKeysDiffer(self._step, problem)

    def _take_over(self) -> TwoInputOperator:
        """Lets the join over rows go on."""
        if self._columns is not None:
            self._form.set(0, ROWS)
            self._columns.hand_over()
            self._columns = None
            self._open(self._rows)
        return self._rows

    # --- time

    def on_watermark(self, watermark: Watermark) -> None:
        self._join.on_watermark(watermark)

    def end_of_time(self) -> None:
        self._join.end_of_time()

    def next_timer_ns(self) -> int | None:
        return self._join.next_timer_ns()

    def due(self, until_ns: int | None) -> list[DueTimer]:
        return self._join.due(until_ns)

    def fire(self, due: Sequence[DueTimer]) -> None:
        self._join.fire(due)

    def prepare(self, checkpoint: int) -> None:
        self._join.prepare(checkpoint)


def column_lookup(step: str, keys: Keys, is_inner: bool) -> ColumnJoin:
    """Returns a lookup over columns."""
    from clonos.operators.columnar.joins.column_lookup import ColumnLookup

    return ColumnLookup(step, keys, is_inner)


def event_columns(step: str, keys: Keys, rule: MatchRule, how: How, late: str | None) -> ColumnJoin:
    """Returns a join over columns by timestamps."""
    from clonos.operators.columnar.joins.timed_columns import EventColumns

    return EventColumns(step, keys, rule, how, late)


def clock_columns(step: str, keys: Keys, rule: MatchRule, how: How) -> ColumnJoin:
    """Returns a join over columns by the clock."""
    from clonos.operators.columnar.joins.timed_columns import ClockColumns

    return ClockColumns(step, keys, rule, how)


def as_of_columns(
    step: str, keys: Keys, direction: Direction, tolerance_ns: int | None, is_inner: bool, late: str | None
) -> ColumnJoin:
    """Returns an as-of join over columns."""
    from clonos.operators.columnar.joins.column_as_of import ColumnAsOf

    return ColumnAsOf(step, keys, direction, tolerance_ns, is_inner, late)


def _schemas(encoded: Sequence[bytes]) -> list[Any]:
    import pyarrow

    return [pyarrow.ipc.read_schema(pyarrow.py_buffer(each)) if each else None for each in encoded]
