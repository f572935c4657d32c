"""Base of windows over keyed columns whose form follows from the types of the columns in the first batch.

State is in columns where each aggregate can be made for the type of its column. Otherwise, such as for the smallest of
texts, the windows are those over rows. They also take over where a column changes its type, or where a sum might not
fit its column any more. The choice is part of the state.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final

from clonos.core.model.watermark import Activity, Watermark
from clonos.operators.aggregates.aggregate import Aggregation, Named
from clonos.operators.columnar.row_forms import SINGLE
from clonos.operators.operator import DueTimer, Operator, Scope, Times
from clonos.operators.windows.window_rules import WindowRules

if TYPE_CHECKING:
    from clonos.operators.columnar.column_aggregates import ColumnAggregate

FORM_NAME: Final = "form"
"""Table with one entry: the schema of the key and of what the aggregates read, or ``ROWS``."""

WATERMARK_NAME: Final = "watermark"

ROWS: Final = b""


class ColumnOperator(Operator):
    """Base of windows over columns of known types, keyed or not."""

    takes_columns = True

    def keyed_columns(self, batch: Any, key: Any) -> None:
        self.columns(batch)

    @abstractmethod
    def has_room_for(self, batch: Any) -> bool:
        """Returns whether no sum can become too large for its column by this batch; call it for each batch."""


class ByType(Operator):
    """Operator of windows over keyed columns, by an operator over columns or one over rows."""

    has_timers: ClassVar[bool] = True
    has_event_timers: ClassVar[bool] = True
    takes_columns = True

    def __init__(
        self,
        step: str,
        aggregation: Aggregation[Any, Any],
        keys: tuple[str, ...],
        reads: tuple[str, ...],
        rules: WindowRules,
    ) -> None:
        """Creates the operator; ``keys`` are the columns of the key, and ``reads`` those that the aggregates read."""
        self._step, self._rules = step, rules
        self._aggregation, self._keys = aggregation, keys
        self._names = tuple(dict.fromkeys((*keys, *reads)))
        self._in_rows: Operator | None = None
        self._in_columns: ColumnOperator | None = None
        self._schema: Any = None  # of ``_in_columns``

    @abstractmethod
    def _new_rows(self) -> Operator:
        """Creates the operator over rows."""

    @abstractmethod
    def _new_columns(self, aggregates: list[ColumnAggregate], keys: list[Any]) -> ColumnOperator:
        """Creates the operator over columns; ``keys`` are the fields of the key."""

    @abstractmethod
    def _hand_over(self, columns: Any, rows: Any) -> None:
        """Moves the state of the opened operator over columns to that over rows; ``columns`` None: there is none."""

    @abstractmethod
    def _has_rows(self, scope: Scope) -> bool:
        """Returns whether the restored state is that of an operator over rows."""

    def open(self, scope: Scope) -> None:
        self._scope = scope
        self._form = scope.state.table(f"{self._step}/{FORM_NAME}", is_small=True)
        self._reached = scope.state.table(f"{self._step}/{WATERMARK_NAME}", is_small=True)
        form = self._form.entries.get(0)
        if form is None and self._has_rows(scope):
            form = ROWS  # by a version of clonos without such windows in columns
        if form == ROWS:
            self._in_rows = self._opened(self._new_rows())
        elif form is not None:
            self._open_columns(form)

    def _open_columns(self, form: bytes) -> None:
        import pyarrow

        from clonos.operators.columnar.column_aggregates import column_aggregates

        self._schema = pyarrow.ipc.read_schema(pyarrow.py_buffer(form))
        aggregates = column_aggregates(self._aggregation, self._schema)
        assert aggregates is not None, "the state says that these types are columns"
        fields = [_plain(self._schema.field(name)) for name in self._keys]
        columns = self._new_columns(aggregates, fields)
        self._in_columns = columns
        self._opened(columns)

    def _opened(self, operator: Operator) -> Operator:
        operator.out, operator.guard, operator.side_outputs = self.out, self.guard, self.side_outputs
        operator.timestamp_column = self.timestamp_column
        operator.open(self._scope)
        return operator

    @property
    def _operator(self) -> Operator | None:
        return self._in_columns if self._in_rows is None else self._in_rows

    # --- records

    def rows(self, rows: list[Any], times: Times = None) -> None:
        (self._in_rows or self._take_over()).rows(rows, times)

    def keyed_columns(self, batch: Any, key: Any) -> None:
        self._chosen(batch).keyed_columns(batch, key)

    def columns(self, batch: Any) -> None:
        self._chosen(batch).columns(batch)

    def _chosen(self, batch: Any) -> Operator:
        """Returns the operator that takes a batch."""
        if self._operator is None:
            self._choose(batch.schema)
        columns = self._in_columns
        if columns is not None and self._has_known_types(batch.schema) and columns.has_room_for(batch):
            return columns
        return self._in_rows or self._take_over()

    def _choose(self, schema: Any) -> None:
        import pyarrow

        from clonos.kernels.key_columns import check_key_types
        from clonos.operators.columnar.column_aggregates import column_aggregates

        try:
            if self._keys:
                check_key_types([_plain(schema.field(name)).type for name in self._keys])
        except TypeError:
            self._take_over()
            return
        if column_aggregates(self._aggregation, schema) is None:
            self._take_over()
            return
        form = pyarrow.schema([schema.field(name) for name in self._names]).serialize().to_pybytes()
        self._form.set(0, form)
        self._open_columns(form)

    def _has_known_types(self, schema: Any) -> bool:
        return all(each.name in schema.names and schema.field(each.name).type == each.type for each in self._schema)

    def _take_over(self) -> Operator:
        """Opens the operator over rows, with the state of that over columns if there is one."""
        self._form.set(0, ROWS)
        columns, self._in_columns = self._in_columns, None
        if columns is not None:
            columns.prepare(0)  # its small tables are those of the operator over rows
        self._in_rows = rows = self._new_rows()
        self._opened(rows)
        self._hand_over(columns, rows)
        return rows

    def _accumulator(self, parts: dict[str, Any]) -> Any:
        """Returns the accumulator of the aggregation from those of its parts by name."""
        return self._aggregation.joined(parts) if isinstance(self._aggregation, Named) else parts[SINGLE]

    # --- time

    @property
    def fires_in_spans(self) -> bool:
        found = self._operator
        return found is not None and found.fires_in_spans

    def on_watermark(self, watermark: Watermark) -> None:
        if (found := self._operator) is not None:
            found.on_watermark(watermark)
            return
        if self._rules.is_event_time and not isinstance(watermark, Activity):
            self._reached.set(0, watermark)
        self.out.on_watermark(watermark)

    def next_timer_ns(self) -> int | None:
        return None if (found := self._operator) is None else found.next_timer_ns()

    def due(self, until_ns: int | None) -> list[DueTimer]:
        return [] if (found := self._operator) is None else found.due(until_ns)

    def fire(self, due: Sequence[DueTimer]) -> None:
        if (found := self._operator) is not None:
            found.fire(due)

    def next_event_ns(self) -> int | None:
        return None if (found := self._operator) is None else found.next_event_ns()

    def due_events(self, until_ns: int | None) -> list[DueTimer]:
        return [] if (found := self._operator) is None else found.due_events(until_ns)

    def fire_events(self, due: Sequence[DueTimer]) -> None:
        if (found := self._operator) is not None:
            found.fire_events(due)

    def end_of_time(self) -> None:
        if (found := self._operator) is not None:
            found.end_of_time()

    def prepare(self, checkpoint: int) -> None:
        if (found := self._operator) is not None:
            found.prepare(checkpoint)


def _plain(field: Any) -> Any:
    """Returns a field of a key, of which state has the values and no dictionary."""
    import pyarrow

    return field.with_type(field.type.value_type) if pyarrow.types.is_dictionary(field.type) else field
