"""Base of windows over columns, keyed or not, whose form follows from the types of the columns in the first batch.

State is in columns where each aggregate can be made for the type of its column. Otherwise, such as for the smallest of
texts, the windows are those over rows.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Final

from clonos.core.model.watermark import Activity, Watermark
from clonos.kernels.record_batch import RecordBatch
from clonos.operators.aggregates.aggregate import Aggregation, Named
from clonos.operators.columnar.by_type import ByType, ByTypeColumns
from clonos.operators.columnar.row_forms import FORM_KEY, SINGLE
from clonos.operators.columnar.support import reads_records
from clonos.operators.operator import Operator, Scope
from clonos.operators.windows.window_rules import WindowRules

if TYPE_CHECKING:
    from clonos.operators.columnar.column_aggregates import ColumnAggregate

WATERMARK_NAME: Final = "watermark"


class ColumnWindowing(ByTypeColumns):
    """Base of windows over columns of known types, keyed or not."""

    def keyed_columns(self, batch: RecordBatch, key: Any) -> None:
        self.columns(batch)


class WindowedByType(ByType):
    """Operator of windows, by an operator over columns or one over rows."""

    has_logs: ClassVar[bool] = True
    """Whether aggregates over columns may have logs."""

    def __init__(
        self,
        step: str,
        aggregation: Aggregation[Any, Any],
        keys: tuple[str, ...],
        reads: tuple[str, ...],
        rules: WindowRules,
        make_rows: Callable[[], Operator],
    ) -> None:
        """Creates the operator; ``reads`` are the columns that the aggregates read."""
        super().__init__(step, keys, make_rows)
        self._rules, self._aggregation = rules, aggregation
        self._reads_records = reads_records(aggregation)
        self._names = tuple(dict.fromkeys((*keys, *reads)))

    @abstractmethod
    def _new_windows(self, aggregates: list[ColumnAggregate], keys: list[Any]) -> ColumnWindowing:
        """Creates the operator over columns; ``keys`` are the fields of the key."""

    def open(self, scope: Scope) -> None:
        self._reached = scope.state.table(f"{self._step}/{WATERMARK_NAME}", is_small=True)
        super().open(scope)

    def _schema_of(self, schema: Any) -> Any:
        import pyarrow

        from clonos.kernels.packed_keys import check_key_types
        from clonos.operators.columnar.aggregate_maker import column_aggregates

        try:
            if self._keys:
                check_key_types([_plain(schema.field(name)).type for name in self._keys])
        except TypeError:
            return None
        if column_aggregates(self._aggregation, schema, has_logs=self.has_logs) is None:
            return None
        if self._reads_records:
            metadata = schema.metadata or {}
            return None if FORM_KEY in metadata else schema.remove_metadata()
        return pyarrow.schema([schema.field(name) for name in self._names])

    def _has_known_types(self, schema: Any) -> bool:
        if self._reads_records and (schema.names != self._schema.names or FORM_KEY in (schema.metadata or {})):
            return False
        return all(each.name in schema.names and schema.field(each.name).type == each.type for each in self._schema)

    def _new_columns(self, schema: Any) -> ColumnWindowing:
        from clonos.operators.columnar.aggregate_maker import column_aggregates

        aggregates = column_aggregates(self._aggregation, schema, has_logs=self.has_logs)
        assert aggregates is not None, "the state says that these types are columns"
        return self._new_windows(aggregates, [_plain(schema.field(name)) for name in self._keys])

    def _accumulator(self, parts: dict[str, Any]) -> Any:
        """Returns the accumulator of the aggregation from those of its parts by name."""
        return self._aggregation.joined(parts) if isinstance(self._aggregation, Named) else parts[SINGLE]

    def on_watermark(self, watermark: Watermark) -> None:
        if self._operator is None and self._rules.is_event_time and not isinstance(watermark, Activity):
            self._reached.set(0, watermark)
        super().on_watermark(watermark)


def _plain(field: Any) -> Any:
    """Returns a field of a key, of which state has the values and no dictionary."""
    import pyarrow

    return field.with_type(field.type.value_type) if pyarrow.types.is_dictionary(field.type) else field
