"""Forms over columns of windows, keyed or not: which ones they have, for the types of the columns that they read."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Final

from clonos.core.model.watermark import END_OF_TIME_NS
from clonos.operators.aggregates.aggregate import Aggregation
from clonos.operators.columnar.column_form import ColumnForm, Schemas
from clonos.operators.columnar.partial_aggregates import PartialAggregates
from clonos.operators.columnar.partial_form import can_be_partial
from clonos.operators.columnar.row_forms import FORM_KEY
from clonos.operators.columnar.support import columns_read, reads_records
from clonos.operators.event_time.timestamps import LIMIT_NS
from clonos.operators.operator import Operator
from clonos.operators.windows.grid import Spans
from clonos.operators.windows.key_windows import KeyWindows
from clonos.operators.windows.pane_windows import PaneWindows
from clonos.operators.windows.window_rules import WindowRules

SESSION_NS_MAX: Final = END_OF_TIME_NS - LIMIT_NS
"""Gap and lateness together for which each session ends, and is forgotten, within 64 bits: a hundred days."""


@dataclass(frozen=True)
class WindowedForm(ColumnForm):
    """Base. ``keys`` are the columns of the key, none of a stream without keys."""

    has_logs: ClassVar[bool] = True
    """Whether aggregates may have logs: see ``column_aggregates``."""

    aggregation: Aggregation[Any, Any]
    keys: tuple[str, ...]
    rules: WindowRules

    def row_reason(self, schemas: Schemas) -> str:
        """See ``ColumnForm``."""
        (schema,) = schemas
        from clonos.operators.columnar.aggregate_maker import aggregate_reason
        from clonos.operators.columnar.key_reasons import packed_key_reason
        from clonos.operators.columnar.running.stored_keys import plain

        if reason := packed_key_reason(self.keys, schema):
            return reason
        if reads_records(self.aggregation) and FORM_KEY in (schema.metadata or {}):
            return "it keeps results as they came"
        return aggregate_reason(self.aggregation, plain(schema, schema.names), has_logs=self.has_logs)

    def stored(self, schemas: Schemas) -> Schemas:
        """See ``ColumnForm``."""
        (schema,) = schemas
        from clonos.operators.columnar.running.stored_keys import plain

        if reads_records(self.aggregation):
            return (plain(schema, schema.names),)
        reads = columns_read(self.aggregation, has_logs=self.has_logs)
        assert reads is not None, "an aggregation with a form over columns reads columns"
        return (plain(schema, tuple(dict.fromkeys((*self.keys, *reads)))),)

    def results(self, schemas: Schemas) -> Any:
        """See ``ColumnForm``."""
        from clonos.operators.columnar.result_schemas import schema_of_windows

        return schema_of_windows(self.aggregation, self.keys, *schemas, has_logs=self.has_logs)

    def operator(self, step: str, schemas: Schemas) -> Operator:
        """See ``ColumnForm``."""
        (schema,) = schemas
        from clonos.operators.columnar.aggregate_maker import column_aggregates

        aggregates = column_aggregates(self.aggregation, schema, has_logs=self.has_logs)
        assert aggregates is not None, "these columns have no reason to be rows"
        return self._windows(step, aggregates, [schema.field(name) for name in self.keys])

    @abstractmethod
    def _windows(self, step: str, aggregates: list[Any], keys: list[Any]) -> Operator:
        """Creates the operator; ``keys`` are the fields of the key."""


@dataclass(frozen=True)
class SpansForm(WindowedForm):
    """Tumbling and sliding windows."""

    spans: Spans
    is_split: bool = False

    def row_reason(self, schemas: Schemas) -> str:
        """See ``ColumnForm``."""
        if (reason := super().row_reason(schemas)) or not self.is_split:
            return reason
        (schema,) = schemas
        from clonos.operators.columnar.aggregate_maker import split_reason
        from clonos.operators.columnar.running.stored_keys import plain

        if self._has_ended_in_open_panes:
            return "with split_hot_keys=True sliding windows with lateness work on rows"
        return split_reason(self.aggregation, plain(schema, schema.names))

    @property
    def _has_ended_in_open_panes(self) -> bool:
        """Whether an open pane may have windows that have ended."""
        return self.spans.panes > 1 and self.rules.lateness_ns > 0

    def before_exchange(self, step: str) -> Callable[[], Operator] | None:
        """See ``ColumnForm``."""
        reads = columns_read(self.aggregation, has_logs=True)
        if not self.keys or self._has_ended_in_open_panes or reads is None or not can_be_partial(self.aggregation):
            return None
        is_event_time = self.rules.is_event_time
        return partial(PartialAggregates, step, self.spans, self.aggregation, self.keys, reads, is_event_time)

    def _windows(self, step: str, aggregates: list[Any], keys: list[Any]) -> Operator:
        from clonos.operators.kinds.column_panes import ColumnPanesKind

        return PaneWindows(step, ColumnPanesKind(aggregates, keys), self.spans, self.rules)


@dataclass(frozen=True)
class SessionsForm(WindowedForm):
    """Session windows with a fixed gap in event time."""

    has_logs: ClassVar[bool] = False

    gap_ns: int

    def row_reason(self, schemas: Schemas) -> str:
        """See ``ColumnForm``."""
        if self.gap_ns + self.rules.lateness_ns > SESSION_NS_MAX:
            return "sessions whose gap and lateness are more than a hundred days work on rows"
        return super().row_reason(schemas)

    def _windows(self, step: str, aggregates: list[Any], keys: list[Any]) -> Operator:
        from clonos.operators.kinds.column_sessions import ColumnSessionsKind

        return KeyWindows(step, ColumnSessionsKind(self.gap_ns, aggregates, keys), self.rules)
