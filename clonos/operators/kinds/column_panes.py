"""Windows in panes over columns: a table of columns per pane, to which a batch is added in one pass.

The keys of records that come after the end of a window are in a table without other columns, or with the aggregates of
these records if further results have only them. Results are those of objects, in the same order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import numpy
import pyarrow

from clonos.kernels.record_batch import RecordBatch
from clonos.operators.columnar.column_aggregates import ColumnAggregate
from clonos.operators.columnar.logs.pane_table import PaneTable, log_names
from clonos.operators.columnar.logs.value_log import ValueLog
from clonos.operators.columnar.merged_columns import AnyTable, MergedColumns
from clonos.operators.columnar.partial_form import is_partial, runs_of, states_of
from clonos.operators.columnar.window_columns import WindowColumns, WindowKeys
from clonos.operators.event_time.late_records import LateRecords
from clonos.operators.kinds.pane_kind import PANE_NAME, PanedStep
from clonos.operators.operator import Operator, Times
from clonos.operators.state.column_table import ColumnSpec, ColumnTable
from clonos.operators.windows.grid import Grid

LOG_NAME: Final = "log"

WindowTable = ColumnTable | PaneTable


class ColumnPanesKind:
    """Windows in panes of columns."""

    takes_columns = True
    fires_in_spans = True  # the windows that end at a watermark emit in common batches

    def __init__(self, aggregates: Sequence[ColumnAggregate], keys: Sequence[pyarrow.Field]) -> None:
        """Creates it for batches in which ``keys`` are the columns of the key."""
        self.aggregates, self.keys = tuple(aggregates), WindowKeys(keys)
        read = dict.fromkeys(each.of for each in aggregates if each.of is not None)
        self._needed = list(dict.fromkeys((*self.keys.names, *read))) or [0]
        self._reads_records = any(each.reads_records for each in aggregates)

    def needed(self, batch: RecordBatch) -> RecordBatch:
        """Returns the columns that are needed to add records."""
        return batch if self._reads_records else batch.select(self._needed)

    def of_rows(self, operator: Operator, rows: list[Any], times: Times) -> PaneColumns:
        """See ``PanesKind``."""
        raise AssertionError("the plan says that records are columns")

    def of_keys(self, operator: Operator, keys: list[Any], times: Times) -> PaneColumns:
        """See ``PanesKind``."""
        raise AssertionError("the plan says that records are columns")

    def of_columns(self, operator: Operator, batch: RecordBatch, key: Any) -> PaneColumns:
        """See ``PanesKind``."""
        return (PanePartials if is_partial(batch) else PaneColumns)(self, operator, batch)

    def panes(self, step: PanedStep) -> ColumnPanes:
        """See ``PanesKind``."""
        return ColumnPanes(self, step)


class PaneColumns:
    """Records of a batch of columns."""

    def __init__(self, kind: ColumnPanesKind, operator: Operator, batch: RecordBatch) -> None:
        self._kind, self._operator, self._batch = kind, operator, batch
        self._needed: RecordBatch | None = None  # None if all records are in one pane

    def split(self, grid: Grid) -> Iterable[int]:
        """See ``PaneBatch``: panes ascend."""
        times = self._operator.time_array(self._batch)
        assert times is not None, "windows in event time are on streams with timestamps"
        self._times, self._panes = times, grid.indexes_of(times)
        found: list[int] = numpy.unique(self._panes).tolist()
        if len(found) > 1:
            self._needed = self._kind.needed(self._batch)
        return found

    def whole(self, pane: int) -> None:
        """See ``PaneBatch``."""

    def add(self, panes: Sequence[int], table: WindowTable) -> None:
        """Adds the records of some panes to a table, in their order."""
        batch = self._batch if self._needed is None else self._needed.take(pyarrow.array(self._places(panes)))
        slots = table.slots(self._kind.keys.of(batch))
        values = table.values
        if not values:
            return
        table.touch(slots)
        for each in self._kind.aggregates:
            each.add(values, slots, each.cells(batch))

    def pass_late(self, late_records: LateRecords, panes: Sequence[int], watermark_ns: int) -> None:
        """See ``PaneBatch``."""
        places = self._places(panes)
        late_records.take_columns(self._batch.take(pyarrow.array(places)), self._times[places], watermark_ns)

    def _places(self, panes: Sequence[int]) -> Any:
        is_here = self._panes == panes[0] if len(panes) == 1 else numpy.isin(self._panes, panes)
        return numpy.flatnonzero(is_here)


class PanePartials(PaneColumns):
    """Partial aggregates. Their panes are not late: the sender knew a later watermark than this task does."""

    def split(self, grid: Grid) -> Iterable[int]:
        """See ``PaneBatch``."""
        self._parts: dict[int, list[Any]] = {}
        for pane, part in runs_of(self._batch):
            assert pane is not None, "windows in event time get panes"
            self._parts.setdefault(pane, []).append(part)
        return self._parts

    def whole(self, pane: int) -> None:
        """See ``PaneBatch``."""
        self._parts = {pane: [self._batch]}

    def add(self, panes: Sequence[int], table: WindowTable) -> None:
        """See ``PaneColumns``."""
        for part in (part for pane in panes for part in self._parts[pane]):
            slots = table.slots(self._kind.keys.of(part))
            table.touch(slots)
            states = states_of(part)
            for each in self._kind.aggregates:
                each.add_states(table.values, slots, states)

    def pass_late(self, late_records: LateRecords, panes: Sequence[int], watermark_ns: int) -> None:
        """See ``PaneBatch``."""
        raise AssertionError(f"the sender of the panes {panes} knew a later watermark than this task does")


class ColumnPanes:
    """Tables of columns."""

    def __init__(self, kind: ColumnPanesKind, step: PanedStep) -> None:
        self._step, self._spans, self.restored = step, step.spans, step.state.restored_columns
        dtypes = {name: dtype for each in kind.aggregates for name, dtype in each.dtypes().items()}
        self._spec = ColumnSpec(kind.keys.types, dtypes)
        self._late_spec = ColumnSpec(self._spec.keys) if step.rules.accumulates else self._spec
        self._logs = log_names(kind.aggregates)
        self._results = WindowColumns(kind.keys, kind.aggregates)
        self._merged = MergedColumns(self._spec, kind.aggregates, step.spans, step.panes)

    def new(self, kind: str, number: int) -> WindowTable:
        """See ``PaneTables``."""
        spec, state = self._spec if kind == PANE_NAME else self._late_spec, self._step.state
        table = state.column_table(self._step.name_of(kind, number), spec)
        if not (names := self._log_names(kind, number)):
            return table
        logs = map(ValueLog, map(state.row_store, names))
        return PaneTable(table, dict(zip(self._logs, logs, strict=True)))

    def drop(self, kind: str, number: int) -> None:
        """See ``PaneTables``."""
        for name in (self._step.name_of(kind, number), *self._log_names(kind, number)):
            self._step.state.drop(name)

    def _log_names(self, kind: str, number: int) -> list[str]:
        """Returns the names of the logs of a table."""
        if kind != PANE_NAME and self._step.rules.accumulates:
            return []
        return [f"{self._step.name_of(LOG_NAME, kind)}/{number}/{name}" for name in self._logs]

    # --- records

    def add(self, batch: PaneColumns, pane: int) -> None:
        """See ``PaneTables``."""
        self._merged.change(pane)
        batch.add((pane,), self._step.panes[pane])

    def add_behind(self, batch: PaneColumns, ended: Mapping[int, Sequence[int]]) -> None:
        """See ``PaneTables``."""
        again: dict[int, list[int]] = {}
        for pane, ends in ended.items():
            self.add(batch, pane)
            for end in ends:
                again.setdefault(end, []).append(pane)
        for end, panes in again.items():
            batch.add(panes, self._step.late[end])

    # --- results

    def emit(self, end: int, late: WindowTable | None) -> None:
        """See ``PaneTables``."""
        table: AnyTable = self._merged.window(end) if late is None else late
        slots: Any = numpy.arange(len(table))
        keys = table.all_keys() if late is None else late.keys(slots)
        if late is not None and self._step.rules.accumulates:
            table = self._merged.of_panes(self._spans.panes_of(end))
            slots = table.find(keys)
        bounds = self._spans.start_ns(end), self._spans.end_ns(end)
        self._results.gather(self._step.operator.guard, keys, table.values, slots, *bounds)
        if self._results.is_full:
            self.pass_results()

    def pass_results(self) -> None:
        """See ``PaneTables``."""
        for batch in self._results.gathered():
            self._step.operator.out.columns(batch)
