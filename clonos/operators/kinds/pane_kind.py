"""Protocols of the kinds of records below windows in panes: what ``PaneWindows`` asks of them.

The operator has the rules: which pane a record is in, which windows have ended, which records are late, and when a
window emits. A kind has the batch by panes, and a table per pane with the accumulators of its keys: the entries of a
table (``object_panes``), or slots of a table in columns (``column_panes``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

from clonos.kernels.record_batch import RecordBatch
from clonos.operators.event_time.late_records import LateRecords
from clonos.operators.kinds.window_kind import WindowRecordKind
from clonos.operators.operator import Operator, Times
from clonos.operators.state.declared_state import StepState
from clonos.operators.state.state_spec import StateSpec
from clonos.operators.windows.grid import Grid, Spans
from clonos.operators.windows.window_rules import WindowRules


class PanedStep(NamedTuple):
    """Step of windows in panes: its operator, state, windows and rules, and its tables.

    ``panes`` has a table for each pane, ``late`` one for each window that owes a result for late records.
    """

    operator: Operator
    state: StepState
    spans: Spans
    rules: WindowRules
    panes: dict[int, Any]
    late: dict[int, Any]


class PaneBatch(Protocol):
    """Records of a batch by panes."""

    def split(self, grid: Grid) -> Iterable[int]:
        """Divides records by their timestamps, and returns their panes."""

    def whole(self, pane: int) -> None:
        """Puts all records into one pane."""

    def pass_late(self, late_records: LateRecords, panes: Sequence[int], watermark_ns: int) -> None:
        """Passes the records of some panes to those that are late, in their order."""


PaneBatchT = TypeVar("PaneBatchT", bound=PaneBatch)
GivenBatchT = TypeVar("GivenBatchT", bound=PaneBatch, contravariant=True)


class PaneTables(Protocol[GivenBatchT]):
    """Tables of panes, and of windows with late records."""

    def new(self, spec: StateSpec, number: int) -> Any:
        """Returns the table of a pane or window with its restored entries, or a new one."""

    def drop(self, spec: StateSpec, number: int) -> None:
        """Forgets the table of a pane or window."""

    def add(self, batch: GivenBatchT, pane: int) -> None:
        """Adds the records of a pane, none of whose windows has emitted."""

    def add_behind(self, batch: GivenBatchT, ended: Mapping[int, Sequence[int]]) -> None:
        """Adds the records of panes with a window that has emitted. ``ended`` has for each pane those of its windows
        that have ended and still take records: these owe a further result."""

    def emit(self, end: int, late: Any | None) -> None:
        """Emits the results of a window at its end, or later those of the keys that ``late`` has."""

    def pass_results(self) -> None:
        """Passes on the results of windows that were not passed on yet."""


class PanesKind(WindowRecordKind[PaneBatchT], Protocol[PaneBatchT]):
    """Kind of the records of windows in panes."""

    @property
    def pane_spec(self) -> StateSpec:
        """Declaration of the tables of panes."""

    @property
    def late_spec(self) -> StateSpec:
        """Declaration of the tables of the late records of windows that have ended."""

    def of_columns(self, operator: Operator, batch: RecordBatch, key: Any) -> PaneBatchT:
        """See ``RecordKind``."""

    def of_keys(self, operator: Operator, keys: list[Any], times: Times) -> PaneBatchT:
        """Returns a batch of keys, which stand for records that have no other value."""

    def panes(self, step: PanedStep) -> PaneTables[PaneBatchT]:
        """Returns the tables of a step."""
