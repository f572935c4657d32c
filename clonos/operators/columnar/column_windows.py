"""Tumbling and sliding windows over keyed columns, in event time or processing time, that emit at their end.

State: a table of columns per pane, ``step/pane/<number>``. A batch is added to the panes of its records in one pass per
pane, and a window merges its panes when it ends. A pane is forgotten when the lateness of its last window has passed,
and then records of it are late. The keys of records that come within the lateness are in ``step/late/<end>``, with the
aggregates of these records if further results have only them. Results are those of ``PaneWindows``, in the same order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy
import pyarrow

from clonos.kernels.record_batch import RecordBatch
from clonos.operators.columnar.column_aggregates import ColumnAggregate
from clonos.operators.columnar.column_form import ColumnOperator
from clonos.operators.columnar.logs.pane_table import PaneTable, log_names
from clonos.operators.columnar.logs.value_log import ValueLog
from clonos.operators.columnar.merged_columns import AnyTable, MergedColumns
from clonos.operators.columnar.partial_form import is_partial, runs_of, states_of
from clonos.operators.columnar.window_columns import WindowColumns, WindowKeys
from clonos.operators.operator import DueTimer, Scope
from clonos.operators.state.column_table import ColumnSpec, ColumnTable
from clonos.operators.windows.grid import Spans
from clonos.operators.windows.pane_windows import LATE_NAME
from clonos.operators.windows.paned import PANE_NAME, Paned
from clonos.operators.windows.window_rules import WindowRules

LOG_NAME: Final = "log"

WindowTable = ColumnTable | PaneTable


class ColumnWindows(Paned[WindowTable], ColumnOperator):
    """Operator of tumbling and sliding windows over columns."""

    def __init__(
        self,
        step: str,
        spans: Spans,
        aggregates: Sequence[ColumnAggregate],
        keys: Sequence[pyarrow.Field],
        rules: WindowRules,
    ) -> None:
        """Creates the operator for batches in which ``keys`` are the columns of the key."""
        super().__init__(step, spans, rules)
        self._aggregates, self._keys = tuple(aggregates), WindowKeys(keys)
        self._read = tuple(dict.fromkeys(each.of for each in aggregates if each.of is not None))
        dtypes = {name: dtype for each in aggregates for name, dtype in each.dtypes().items()}
        self._spec = ColumnSpec(self._keys.types, dtypes)
        self._reads_records = any(each.reads_records for each in aggregates)
        self._logs = log_names(aggregates)
        self._results = WindowColumns(self._keys, aggregates)
        self._merged = MergedColumns(self._spec, aggregates, spans, self._panes)
        self._late_spec = ColumnSpec(self._spec.keys) if rules.accumulates else self._spec
        self._late: dict[int, WindowTable] = {}
        self._emitted = self._late

    def open(self, scope: Scope) -> None:
        super().open(scope)
        for end in self._restored(LATE_NAME):
            self._late_table(end)

    def _new_table(self, kind: str, number: int) -> WindowTable:
        has_state = kind == PANE_NAME or not self._rules.accumulates
        table = self._state.column_table(self._name(kind, number), self._spec if has_state else self._late_spec)
        if not self._logs or not has_state:
            return table
        stores = [self._state.row_store(name) for name in self._log_names(kind, number)]
        return PaneTable(table, dict(zip(self._logs, map(ValueLog, stores), strict=True)))

    def _log_names(self, kind: str, number: int) -> list[str]:
        return [f"{self._name(LOG_NAME, kind)}/{number}/{name}" for name in self._logs]

    def _drop(self, kind: str, number: int) -> None:
        super()._drop(kind, number)
        if self._logs and (kind == PANE_NAME or not self._rules.accumulates):
            for name in self._log_names(kind, number):
                self._state.drop(name)

    def _restored_names(self, prefix: str) -> list[str]:
        return self._state.restored_columns(prefix)

    # --- records

    def keyed_columns(self, batch: RecordBatch, key: Any) -> None:
        if is_partial(batch):
            self.add_partials(batch)
        else:
            self.columns(batch)

    def columns(self, batch: RecordBatch) -> None:
        if not self._rules.is_event_time:
            self._add(self._pane_now(), batch)
            return
        times = self.time_array(batch)
        assert times is not None, "windows in event time are on streams with timestamps"
        panes = self._spans.grid.indexes_of(times)
        found = numpy.unique(panes).tolist()
        late = [pane for pane in found if self._is_late(pane)]
        if len(found) == 1 and not late:
            self._add(found[0], batch)
            self._add_again(dict.fromkeys(self._ended(found[0]), found), batch, panes)
            return
        names = list(dict.fromkeys((*self._keys.names, *self._read))) or [0]
        needed = batch if self._reads_records else batch.select(names)
        again: dict[int, list[int]] = {}
        for pane in found[len(late) :]:  # late panes are the earliest ones
            self._add(pane, needed.take(pyarrow.array(numpy.flatnonzero(panes == pane))))
            for end in self._ended(pane):
                again.setdefault(end, []).append(pane)
        self._add_again(again, needed, panes)
        if late:
            places = numpy.flatnonzero(panes <= late[-1])
            late_batch = batch.take(pyarrow.array(places))
            self._late_records.take_columns(late_batch, times[places], self._reached.entries[0])

    def _add(self, pane: int, batch: RecordBatch) -> None:
        self._merged.change(pane)
        self._add_to(self._pane_table(pane), batch)

    def _add_again(self, again: dict[int, list[int]], batch: RecordBatch, panes: Any) -> None:
        """Takes note of the records that windows get after their end; ``again`` has their panes by window."""
        for end, of_window in again.items():
            records = batch.take(pyarrow.array(numpy.flatnonzero(numpy.isin(panes, of_window))))
            self._add_to(self._late_table(end), records)

    def _add_to(self, table: WindowTable, batch: RecordBatch) -> None:
        slots = table.slots(self._keys.of(batch))
        values = table.values
        if not values:
            return
        table.touch(slots)
        for each in self._aggregates:
            each.add(values, slots, each.cells(batch))

    def add_partials(self, batch: RecordBatch) -> None:
        """Adds partial aggregates. Their panes are not late: the sender knew a later watermark than this task does."""
        for pane, part in runs_of(batch):
            number = self._pane_now() if pane is None else pane
            table = self._pane_table(number)
            slots = table.slots(self._keys.of(part))
            table.touch(slots)
            self._merged.change(number)
            states = states_of(part)
            for each in self._aggregates:
                each.add_states(table.values, slots, states)

    def _is_late(self, pane: int) -> bool:
        reached_ns, last_ns = self._reached_ns, self._spans.end_ns(self._spans.last_end_of(pane))
        return reached_ns is not None and last_ns + self._rules.lateness_ns <= reached_ns

    def _ended(self, pane: int) -> list[int]:
        """Returns the windows of a pane that have ended and still take records."""
        reached_ns, lateness_ns = self._reached_ns, self._rules.lateness_ns
        if reached_ns is None or not lateness_ns:
            return []
        ends = ((end, self._spans.end_ns(end)) for end in self._spans.ends_of(pane))
        return [end for end, end_ns in ends if end_ns <= reached_ns < end_ns + lateness_ns]

    def _late_table(self, end: int) -> WindowTable:
        found = self._late.get(end)
        if found is None:
            found = self._late[end] = self._new_table(LATE_NAME, end)
            self._agenda.add_window(end)
        return found

    # --- results

    @property
    def fires_in_spans(self) -> bool:
        """True: the windows that end at a watermark emit in common batches."""
        return True

    def fire(self, due: Sequence[DueTimer]) -> None:
        super().fire(due)
        self._emit_gathered()

    def _emit_gathered(self) -> None:
        for batch in self._results.gathered():
            self.out.columns(batch)

    def _emit(self, end: int) -> None:
        """Emits the results of a window at its end, or later those of keys that got late records."""
        late = self._late.pop(end, None)
        table: AnyTable = self._merged.window(end) if late is None else late
        slots: Any = numpy.arange(len(table))
        keys = table.all_keys() if late is None else late.keys(slots)
        if late is not None:
            if self._rules.accumulates:
                table = self._merged.of_panes(self._spans.panes_of(end))
                slots = table.find(keys)
            self._drop(LATE_NAME, end)
        self._results.gather(self.guard, keys, table.values, slots, self._spans.start_ns(end), self._spans.end_ns(end))
        if self._results.is_full:
            self._emit_gathered()
