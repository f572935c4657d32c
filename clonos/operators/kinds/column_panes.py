"""Windows in panes over columns: a table of columns per pane, to which a batch is added in one pass.

The keys of records that come after the end of a window are in a table without other columns, or with the aggregates of
these records if further results have only them. Results are those of objects, in the same order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy
import pyarrow

from clonos.kernels.record_batch import RecordBatch
from clonos.operators.columnar.column_aggregates import ColumnAggregate
from clonos.operators.columnar.logs.pane_table import PaneTable, log_names
from clonos.operators.columnar.logs.value_log import SLOT, ValueLog
from clonos.operators.columnar.merged_columns import AnyTable, MergedColumns
from clonos.operators.columnar.partial_form import is_partial, runs_of, states_of
from clonos.operators.columnar.window_columns import WindowColumns, WindowKeys
from clonos.operators.event_time.late_records import LateRecords
from clonos.operators.kinds.column_batch import KindOfColumns
from clonos.operators.kinds.pane_kind import PanedStep
from clonos.operators.operator import Operator
from clonos.operators.state.column_table import ColumnSpec, ColumnTable
from clonos.operators.state.state_spec import ANY, Numbers, StateKind, StateScope, StateSpec
from clonos.operators.windows.grid import Grid
from clonos.operators.windows.window_rules import WindowRules

WindowTable = ColumnTable | PaneTable


class ColumnPanesKind(KindOfColumns):
    """Windows in panes of columns."""

    pane_spec: Final = StateSpec(f"pane/{ANY}", StateKind.COLUMNS, StateScope.KEYED)
    late_spec: Final = StateSpec(f"late/{ANY}", StateKind.COLUMNS, StateScope.KEYED)
    fires_in_spans = True  # the windows that end at a watermark emit in common batches

    def __init__(self, aggregates: Sequence[ColumnAggregate], keys: Sequence[pyarrow.Field]) -> None:
        """Creates it for batches in which ``keys`` are the columns of the key."""
        self.aggregates, self.keys = tuple(aggregates), WindowKeys(keys)
        read = dict.fromkeys(each.of for each in aggregates if each.of is not None)
        self._needed = list(dict.fromkeys((*self.keys.names, *read))) or [0]
        self._reads_records = any(each.reads_records for each in aggregates)

    def log_specs(self, spec: StateSpec, rules: WindowRules) -> dict[str, StateSpec]:
        """Returns the declarations of the logs beside tables, by their names; none if these have keys alone."""
        if spec is self.late_spec and rules.accumulates:
            return {}
        log = StateSpec(
            f"log/{spec.name}",
            StateKind.ROWS,
            StateScope.REFERRING,
            owner=spec.name,
            numbers=(Numbers(spec.name, SLOT),),
        )
        return {name: replace(log, name=f"{log.name}/{name}") for name in log_names(self.aggregates)}

    def state_specs(self, rules: WindowRules) -> tuple[StateSpec, ...]:
        """See ``PanesKind``."""
        tables = self.pane_spec, self.late_spec
        return (*tables, *(log for spec in tables for log in self.log_specs(spec, rules).values()))

    def needed(self, batch: RecordBatch) -> RecordBatch:
        """Returns the columns that are needed to add records."""
        return batch if self._reads_records else batch.select(self._needed)

    of_keys = KindOfColumns.of_rows

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
        self._step, self._spans, self._kind = step, step.spans, kind
        dtypes = {name: dtype for each in kind.aggregates for name, dtype in each.dtypes().items()}
        self._spec = ColumnSpec(kind.keys.types, dtypes)
        self._late_spec = ColumnSpec(self._spec.keys) if step.rules.accumulates else self._spec
        self._logs = {spec.name: kind.log_specs(spec, step.rules) for spec in (kind.pane_spec, kind.late_spec)}
        self._results = WindowColumns(kind.keys, kind.aggregates)
        self._merged = MergedColumns(self._spec, kind.aggregates, step.spans, step.panes)

    def new(self, spec: StateSpec, number: int) -> WindowTable:
        """See ``PaneTables``."""
        state = self._step.state
        table = state.column_table(spec, self._late_spec if spec is self._kind.late_spec else self._spec, number)
        logs = self._logs[spec.name]
        if not logs:
            return table
        return PaneTable(table, {name: ValueLog(state.row_store(log, number)) for name, log in logs.items()})

    def drop(self, spec: StateSpec, number: int) -> None:
        """See ``PaneTables``."""
        for each in (spec, *self._logs[spec.name].values()):
            self._step.state.drop(each, number)

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
