"""Base of operators over keyed columns whose form follows from the types of the columns in the first batch.

State is in columns where there is a form for these types. Otherwise the operator over rows does the work. It also takes
over, with the state, where a column changes its type. The choice is part of the state.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Final

from clonos.core.model.watermark import Watermark
from clonos.kernels.record_batch import RecordBatch
from clonos.operators.operator import DueTimer, Operator, Scope, Times

FORM_NAME: Final = "form"
"""Table with one entry: the schema for which the state is in columns, or ``ROWS``."""

ROWS: Final = b""


class ByTypeColumns(Operator):
    """Base of the operators with state in columns, for batches of known types."""

    takes_columns = True


class ByType(Operator, ABC):
    """Operator over columns that works on columns or on rows."""

    has_timers: ClassVar[bool] = True
    has_event_timers: ClassVar[bool] = True
    takes_columns = True

    def __init__(self, step: str, keys: tuple[str, ...], make_rows: Callable[[], Operator]) -> None:
        """Creates the operator; ``keys`` are the columns of the key, and ``make_rows`` makes the operator over rows."""
        self._step, self._keys, self._make_rows = step, keys, make_rows
        self._in_rows: Operator | None = None
        self._in_columns: ByTypeColumns | None = None
        self._schema: Any = None  # of ``_in_columns``

    @abstractmethod
    def _schema_of(self, schema: Any) -> Any:
        """Returns the part of a batch's schema that the state depends on; None if it has no form in columns."""

    @abstractmethod
    def _new_columns(self, schema: Any) -> ByTypeColumns:
        """Creates the operator with state in columns for what ``_schema_of`` has returned."""

    @abstractmethod
    def _hand_over(self, columns: Any, rows: Any) -> None:
        """Moves the state of the operator over columns to that over rows. Both are open."""

    def _has_rows(self, scope: Scope) -> bool:
        """Returns whether a restored state without a choice is that of an operator over rows."""
        return bool(scope.state.restored(f"{self._step}/"))

    def open(self, scope: Scope) -> None:
        self._scope = scope
        self._form = scope.state.table(f"{self._step}/{FORM_NAME}", is_small=True)
        form = self._form.entries.get(0)
        if form is None and self._has_rows(scope):
            form = ROWS  # by a version of clonos without this step in columns
        if form == ROWS:
            self._open_rows()
        elif form is not None:
            self._open_columns(form)

    def _open_rows(self) -> Operator:
        self._in_rows = self._make_rows()
        self._open(self._in_rows)
        return self._in_rows

    def _open_columns(self, form: bytes) -> ByTypeColumns:
        import pyarrow

        self._schema = pyarrow.ipc.read_schema(pyarrow.py_buffer(form))
        self._in_columns = self._new_columns(self._schema)
        self._open(self._in_columns)
        return self._in_columns

    def _open(self, operator: Operator) -> None:
        operator.out, operator.guard, operator.side_outputs = self.out, self.guard, self.side_outputs
        operator.timestamp_column = self.timestamp_column
        operator.open(self._scope)

    @property
    def _operator(self) -> Operator | None:
        return self._in_columns if self._in_rows is None else self._in_rows

    # --- records

    def rows(self, rows: list[Any], times: Times = None) -> None:
        (self._in_rows or self._take_over()).rows(rows, times)

    def keyed_columns(self, batch: RecordBatch, key: Any) -> None:
        self._chosen(batch).keyed_columns(batch, key)

    def columns(self, batch: RecordBatch) -> None:
        self._chosen(batch).columns(batch)

    def _chosen(self, batch: RecordBatch) -> Operator:
        """Returns the operator that takes a batch."""
        if self._operator is None:
            self._choose(batch.schema)
        columns = self._in_columns
        if columns is not None and self._has_known_types(batch.schema):
            return columns
        return self._in_rows or self._take_over()

    def _choose(self, schema: Any) -> None:
        """Chooses the operator for batches of a schema."""
        chosen = self._schema_of(schema)
        if chosen is None:
            self._take_over()
        else:
            self._choose_columns(chosen)

    def _choose_columns(self, chosen: Any) -> ByTypeColumns:
        form = chosen.serialize().to_pybytes()
        self._form.set(0, form)
        return self._open_columns(form)

    def _has_known_types(self, schema: Any) -> bool:
        """Returns whether batches of a schema have the form for which the state is in columns."""
        found = self._schema_of(schema)
        return found is not None and bool(found.equals(self._schema))

    def _take_over(self) -> Operator:
        """Opens the operator over rows, with the state of that over columns if there is any."""
        self._form.set(0, ROWS)
        columns, self._in_columns = self._in_columns, None
        if columns is not None:
            columns.prepare(0)  # its small tables may be those of the operator over rows
        rows = self._open_rows()
        if columns is not None:
            self._hand_over(columns, rows)
        return rows

    # --- time

    @property
    def fires_in_spans(self) -> bool:
        return (found := self._operator) is not None and found.fires_in_spans

    def on_watermark(self, watermark: Watermark) -> None:
        (self._operator or self.out).on_watermark(watermark)

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
