"""Base of operators over keyed columns whose form follows from the types of the columns in the first batch.

State is in columns where there is a form for these types. Otherwise the operator over rows does the work. It also takes
over, with the state, where a column changes its type. The choice is part of the state.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Final

from clonos.core.model.watermark import Watermark
from clonos.operators.operator import DueTimer, Operator, Scope, Times

FORM_NAME: Final = "form"
"""Table with one entry: the schema for which the state is in columns, or ``ROWS``."""

ROWS: Final = b""


class ColumnForm(Operator, ABC):
    """Base of the operators with state in columns."""

    takes_columns = True

    @abstractmethod
    def hand_over(self, rows: Any) -> None:
        """Gives the state to the operator over rows, which is open and empty, and drops it."""


class ByType(Operator, ABC):
    """Operator over keyed columns that works on columns or on rows."""

    has_timers: ClassVar[bool] = True
    has_event_timers: ClassVar[bool] = True
    takes_columns = True

    def __init__(self, step: str, keys: tuple[str, ...], make_rows: Callable[[], Operator]) -> None:
        """Creates the operator; ``keys`` are the columns of the key, and ``make_rows`` makes the operator over rows."""
        self._step, self._keys, self._make_rows = step, keys, make_rows
        self._rows: Operator | None = None
        self._columns: ColumnForm | None = None
        self._schema: Any = None  # of ``_columns``

    @abstractmethod
    def _schema_of(self, schema: Any) -> Any:
        """Returns the part of a batch's schema that the state depends on; None if it has no form in columns."""

    @abstractmethod
    def _column_form(self, schema: Any) -> ColumnForm:
        """Makes the operator with state in columns for what ``_schema_of`` has returned."""

    def open(self, scope: Scope) -> None:
        self._scope = scope
        self._form = scope.state.table(f"{self._step}/{FORM_NAME}", is_small=True)
        form = self._form.entries.get(0)
        if form is None and scope.state.restored(f"{self._step}/"):
            form = ROWS  # by a version of clonos without this step in columns
        if form == ROWS:
            self._open_rows()
        elif form is not None:
            self._open_columns(form)

    def _open_rows(self) -> Operator:
        self._rows = self._make_rows()
        self._open(self._rows)
        return self._rows

    def _open_columns(self, form: bytes) -> None:
        import pyarrow

        self._schema = pyarrow.ipc.read_schema(pyarrow.py_buffer(form))
        self._columns = self._column_form(self._schema)
        self._open(self._columns)

    def _open(self, operator: Operator) -> None:
        operator.out, operator.guard, operator.side_outputs = self.out, self.guard, self.side_outputs
        operator.timestamp_column = self.timestamp_column
        operator.open(self._scope)

    @property
    def _chosen(self) -> Operator | None:
        return self._columns if self._rows is None else self._rows

    # --- records

    def rows(self, rows: list[Any], times: Times = None) -> None:
        (self._rows or self._take_over()).rows(rows, times)

    def keyed_columns(self, batch: Any, key: Any) -> None:
        if self._rows is not None:
            self._rows.keyed_columns(batch, key)
            return
        schema = self._schema_of(batch.schema)
        if self._columns is None and schema is not None:
            form = schema.serialize().to_pybytes()
            self._form.set(0, form)
            self._open_columns(form)
        if self._columns is not None and schema is not None and schema.equals(self._schema):
            self._columns.keyed_columns(batch, key)
        else:
            self._take_over().keyed_columns(batch, key)

    def _take_over(self) -> Operator:
        """Opens the operator over rows, with the state of that over columns if there is any."""
        self._form.set(0, ROWS)
        columns, self._columns = self._columns, None
        rows = self._open_rows()
        if columns is not None:
            columns.hand_over(rows)
        return rows

    # --- time

    def on_watermark(self, watermark: Watermark) -> None:
        (self.out if self._chosen is None else self._chosen).on_watermark(watermark)

    def next_timer_ns(self) -> int | None:
        return None if self._chosen is None else self._chosen.next_timer_ns()

    def due(self, until_ns: int | None) -> list[DueTimer]:
        return [] if self._chosen is None else self._chosen.due(until_ns)

    def fire(self, due: Sequence[DueTimer]) -> None:
        if self._chosen is not None:
            self._chosen.fire(due)

    def next_event_ns(self) -> int | None:
        return None if self._chosen is None else self._chosen.next_event_ns()

    def due_events(self, until_ns: int | None) -> list[DueTimer]:
        return [] if self._chosen is None else self._chosen.due_events(until_ns)

    def fire_events(self, due: Sequence[DueTimer]) -> None:
        if self._chosen is not None:
            self._chosen.fire_events(due)
