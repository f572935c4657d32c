"""Windows in panes over Python objects: a table per pane with the accumulator of each key.

A window merges its panes when it ends, by ``MergedPanes`` if accumulators have a bounded size.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, TypeVar

from clonos.core.ports.operator_chain import StepFailed
from clonos.kernels.record_batch import RecordBatch
from clonos.operators.event_time.timestamps import result_time_ns
from clonos.operators.kinds.object_pane_batch import PaneKeys, PaneRecords, PaneRows, moved
from clonos.operators.kinds.pane_kind import PanedStep
from clonos.operators.operator import Operator, Times
from clonos.operators.state.keyed_state import Table
from clonos.operators.state.state_spec import ANY, StateSpec, keyed
from clonos.operators.windows.merged_panes import MergedPanes
from clonos.operators.windows.window_aggregates import WindowAggregate, WindowCount
from clonos.operators.windows.window_results import counted, window_of
from clonos.operators.windows.window_rules import ApplyFunction, Results, WindowRules

PANES_ADDED_MAX: Final = 64
"""Panes of a window whose counts are added for each result. Of more panes the sums are kept from one to the next."""

ValueT = TypeVar("ValueT")


@dataclass(frozen=True, slots=True)
class ObjectPanesKind:
    """Windows in panes of Python objects."""

    is_keyed: bool
    aggregate: WindowAggregate
    apply: ApplyFunction | None

    takes_columns: ClassVar[bool] = False
    fires_in_spans: ClassVar[bool] = False
    pane_spec: ClassVar[StateSpec] = keyed(f"pane/{ANY}")
    late_spec: ClassVar[StateSpec] = keyed(f"late/{ANY}")

    def state_specs(self, rules: WindowRules) -> tuple[StateSpec, ...]:
        """See ``PanesKind``."""
        return self.pane_spec, self.late_spec

    def of_rows(self, operator: Operator, rows: list[Any], times: Times) -> PaneRows:
        """See ``PanesKind``."""
        pairs = rows if self.is_keyed else [(None, row) for row in rows]
        return PaneRows(self.aggregate.add, operator.guard, pairs, times)

    def of_keys(self, operator: Operator, keys: list[Any], times: Times) -> PaneRows:
        """See ``PanesKind``."""
        return PaneKeys(self.aggregate.add_keys, operator.guard, keys, times)

    def of_columns(self, operator: Operator, batch: RecordBatch, key: Any) -> PaneRows:
        """See ``PanesKind``."""
        return PaneRecords(self.aggregate, operator, batch, key)

    def panes(self, step: PanedStep) -> ObjectPanes:
        """See ``PanesKind``."""
        return ObjectPanes(self, step)


class ObjectPanes:
    """Tables of the accumulators."""

    def __init__(self, kind: ObjectPanesKind, step: PanedStep) -> None:
        self._step, self._spans, self._aggregate = step, step.spans, kind.aggregate
        self._guard, self._panes = step.operator.guard, step.panes
        aggregation, is_one_pane = kind.aggregate.aggregation, step.spans.panes == 1
        self._results = Results(aggregation, kind.apply)
        self._counts: WindowCount | None = None
        if isinstance(kind.aggregate, WindowCount) and kind.apply is None and step.spans.panes <= PANES_ADDED_MAX:
            self._counts = kind.aggregate
        has_overlap = self._counts is None and not is_one_pane and aggregation.has_bounded_size
        self._merged = MergedPanes(aggregation, step.spans, step.panes) if has_overlap else None

    def new(self, spec: StateSpec, number: int) -> Table:
        """See ``PaneTables``."""
        return self._step.state.table(spec, number)

    def drop(self, spec: StateSpec, number: int) -> None:
        """See ``PaneTables``."""
        self._step.state.drop(spec, number)

    # --- records

    def add(self, batch: PaneRows, pane: int) -> None:
        """See ``PaneTables``."""
        batch.add(pane, self._panes[pane])

    def add_behind(self, batch: PaneRows, ended: Mapping[int, Sequence[int]]) -> None:
        """See ``PaneTables``."""
        # In the order of arrival, so that the order of further results does not depend on where batches are cut.
        for pane, places, rows in batch.runs(ended):
            try:
                self._add(pane, rows, [self._step.late[end] for end in ended[pane]])
            except StepFailed as failed:
                raise moved(failed, places) from failed.__cause__

    def _add(self, pane: int, rows: list[Any], late: list[Table]) -> None:
        table, accumulates = self._panes[pane], self._step.rules.accumulates
        if not late and self._merged is None:
            self._aggregate.add(table, rows, self._guard)
            return
        keys = self._aggregate.add_to_each([table] if accumulates else [table, *late], rows, self._guard)
        for each in late if accumulates else ():
            each.update(dict.fromkeys(keys))
        if self._merged is not None:
            self._merged.change(pane, keys)

    # --- results

    def emit(self, end: int, late: Table | None) -> None:
        """See ``PaneTables``."""
        end_ns = self._spans.end_ns(end)
        window, routes = window_of(self._spans.start_ns(end), end_ns), self._guard.routes
        rows: list[Any] = []
        if self._counts is not None:
            rows = counted(_those_of(late, self._counts.totals(self._tables_of(end, late))), window)
        for stored, parts in self._parts_of(end, late) if self._counts is None else ():
            results, failures = self._results.of(stored, parts, window, routes=routes)
            rows += results
            for error, record in failures:
                self._guard.caught(error, record)
        if rows:
            times = [result_time_ns(end_ns)] * len(rows) if self._step.rules.is_event_time else None
            self._step.operator.out.rows(rows, times)

    def pass_results(self) -> None:
        """See ``PaneTables``: each window passes them on itself."""

    def _parts_of(self, end: int, late: Table | None) -> Iterable[tuple[Any, list[Any]]]:
        """Returns the keys of a window, each with its accumulators, to be merged in their order."""
        if late is None and self._merged is not None:
            return self._merged.window(end)
        found: dict[Any, list[Any]] = {}
        for table in self._tables_of(end, late):
            for stored, accumulator in table.contents().items():
                found.setdefault(stored, []).append(accumulator)
        return _those_of(late, found).items()

    def _tables_of(self, end: int, late: Table | None) -> list[Table]:
        """Returns the tables of a result."""
        if late is not None and not self._step.rules.accumulates:
            return [late]
        return [self._panes[pane] for pane in self._spans.panes_of(end) if pane in self._panes]


def _those_of(late: Table | None, found: dict[Any, ValueT]) -> dict[Any, ValueT]:
    """Returns what was found for the keys of late records, in their order; all of it where there are none."""
    return found if late is None else {stored: found[stored] for stored in late.contents() if stored in found}
