"""Windows over keyed columns whose form follows from the types of the columns in the first batch.

State is in columns where each aggregate can be made for the type of its column. Otherwise, for sums of decimals or the
smallest of texts for example, the windows are those over rows. They also take over where a column changes its type, or
where a sum might not fit 64 bits any more. The choice is part of the state.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final

from clonos.core.model.watermark import Activity, Watermark
from clonos.core.values.keys import state_keys
from clonos.operators.aggregates.aggregate import Aggregation, Named
from clonos.operators.columnar.partial_form import runs_of, schema_bytes_of, states_of
from clonos.operators.columnar.row_forms import SINGLE
from clonos.operators.operator import DueTimer, Operator, Scope, Times
from clonos.operators.windows.grid import Spans
from clonos.operators.windows.pane_windows import PaneWindows
from clonos.operators.windows.paned import PANE_NAME, WATERMARK_NAME, Paned
from clonos.operators.windows.window_aggregates import window_aggregate
from clonos.operators.windows.window_rules import WindowRules

if TYPE_CHECKING:
    from clonos.operators.columnar.column_windows import ColumnWindows

FORM_NAME: Final = "form"
"""Table with one entry: the schema of the key and of what the aggregates read, or ``ROWS``."""

ROWS: Final = b""


class WindowsByType(Operator):
    """Tumbling and sliding windows over keyed columns."""

    has_timers: ClassVar[bool] = True
    has_event_timers: ClassVar[bool] = True
    takes_columns = True

    def __init__(
        self,
        step: str,
        spans: Spans,
        aggregation: Aggregation[Any, Any],
        keys: tuple[str, ...],
        reads: tuple[str, ...],
        rules: WindowRules,
    ) -> None:
        """Creates the operator; ``keys`` are the columns of the key, and ``reads`` those that the aggregates read."""
        self._step, self._spans, self._rules = step, spans, rules
        self._aggregation, self._keys = aggregation, keys
        self._names = tuple(dict.fromkeys((*keys, *reads)))
        self._rows: PaneWindows | None = None
        self._columns: ColumnWindows | None = None
        self._schema: Any = None  # of ``_columns``

    def open(self, scope: Scope) -> None:
        self._scope = scope
        self._form = scope.state.table(f"{self._step}/{FORM_NAME}", is_small=True)
        self._reached = scope.state.table(f"{self._step}/{WATERMARK_NAME}", is_small=True)
        form = self._form.entries.get(0)
        if form is None and scope.state.restored(f"{self._step}/{PANE_NAME}/"):
            form = ROWS  # by a version of clonos without windows in columns
        if form == ROWS:
            self._open_rows()
        elif form is not None:
            self._open_columns(form)

    def _open_rows(self) -> PaneWindows:
        self._rows = PaneWindows(self._step, self._spans, window_aggregate(self._aggregation), self._rules)
        self._open(self._rows)
        return self._rows

    def _open_columns(self, form: bytes) -> ColumnWindows:
        import pyarrow

        from clonos.kernels.key_columns import key_types
        from clonos.operators.columnar.column_aggregates import column_aggregates
        from clonos.operators.columnar.column_windows import ColumnWindows

        self._schema = pyarrow.ipc.read_schema(pyarrow.py_buffer(form))
        aggregates = column_aggregates(self._aggregation, self._schema)
        assert aggregates is not None, "the state says that these types are columns"
        types = key_types([self._schema.field(name).type for name in self._keys])
        assert types is not None, "the state says that these types are keys"
        fields = list(map(pyarrow.field, self._keys, types))
        self._columns = ColumnWindows(self._step, self._spans, aggregates, fields, self._rules)
        self._open(self._columns)
        return self._columns

    def _open(self, windows: Paned[Any]) -> None:
        windows.out, windows.guard, windows.side_outputs = self.out, self.guard, self.side_outputs
        windows.timestamp_column = self.timestamp_column
        windows.open(self._scope)

    @property
    def _windows(self) -> Paned[Any] | None:
        return self._columns if self._rows is None else self._rows

    # --- records

    def rows(self, rows: list[Any], times: Times = None) -> None:
        (self._rows or self._take_over()).rows(rows, times)

    def keyed_columns(self, batch: Any, column: str) -> None:
        records = schema_bytes_of(batch)
        if records is not None:
            self._add_partials(batch, records)
            return
        if self._windows is None:
            self._choose(batch.schema)
        columns = self._columns
        if columns is not None and self._has_known_types(batch.schema) and columns.has_room_for(batch):
            columns.keyed_columns(batch, column)
        else:
            (self._rows or self._take_over()).keyed_columns(batch, column)

    def _add_partials(self, batch: Any, records: bytes) -> None:
        """Adds partial aggregates; ``records`` is the schema of the records that they are of."""
        import pyarrow

        schema = pyarrow.ipc.read_schema(pyarrow.py_buffer(records))
        if self._windows is None:
            self._choose(schema)
        columns = self._columns
        if columns is not None and self._has_known_types(schema) and columns.has_room_for_partials(batch):
            columns.add_partials(batch)
        else:
            self._add_partials_to(self._rows or self._take_over(), batch, schema)

    def _add_partials_to(self, rows: PaneWindows, batch: Any, schema: Any) -> None:
        from clonos.operators.columnar.column_aggregates import column_aggregates
        from clonos.operators.columnar.column_windows import accumulators_of, user_keys

        aggregates = column_aggregates(self._aggregation, schema)
        assert aggregates is not None, "there are partial aggregates of these types"
        for pane, part in runs_of(batch):
            keys = state_keys(user_keys([part.column(name) for name in self._keys]))
            parts = accumulators_of(aggregates, states_of(part), part.num_rows)
            rows.merge(pane, list(zip(keys, map(self._accumulator, parts), strict=True)))

    def _choose(self, schema: Any) -> None:
        import pyarrow

        from clonos.kernels.key_columns import key_types
        from clonos.operators.columnar.column_aggregates import column_aggregates

        types = key_types([schema.field(name).type for name in self._keys])
        if types is None or column_aggregates(self._aggregation, schema) is None:
            self._take_over()
            return
        form = pyarrow.schema([schema.field(name) for name in self._names]).serialize().to_pybytes()
        self._form.set(0, form)
        self._open_columns(form)

    def _has_known_types(self, schema: Any) -> bool:
        return all(each.name in schema.names and schema.field(each.name).type == each.type for each in self._schema)

    def _take_over(self) -> PaneWindows:
        """Opens the windows over rows, with the panes of those over columns if there are any."""
        self._form.set(0, ROWS)
        panes = {} if self._columns is None else self._columns.hand_over()
        self._columns = None
        rows = self._open_rows()
        for pane, accumulators in panes.items():
            values = [self._accumulator(parts) for parts in accumulators.values()]
            rows.fill(pane, dict(zip(state_keys(list(accumulators)), values, strict=True)))
        return rows

    def _accumulator(self, parts: dict[str, Any]) -> Any:
        return self._aggregation.joined(parts) if isinstance(self._aggregation, Named) else parts[SINGLE]

    # --- time

    def on_watermark(self, watermark: Watermark) -> None:
        if self._windows is not None:
            self._windows.on_watermark(watermark)
            return
        if self._rules.is_event_time and not isinstance(watermark, Activity):
            self._reached.set(0, watermark)
        self.out.on_watermark(watermark)

    def next_timer_ns(self) -> int | None:
        return None if self._windows is None else self._windows.next_timer_ns()

    def due(self, until_ns: int | None) -> list[DueTimer]:
        return [] if self._windows is None else self._windows.due(until_ns)

    def fire(self, due: Sequence[DueTimer]) -> None:
        if self._windows is not None:
            self._windows.fire(due)

    def next_event_ns(self) -> int | None:
        return None if self._windows is None else self._windows.next_event_ns()

    def due_events(self, until_ns: int | None) -> list[DueTimer]:
        return [] if self._windows is None else self._windows.due_events(until_ns)

    def fire_events(self, due: Sequence[DueTimer]) -> None:
        self.fire(due)
