"""Records of typed columns: numbers, texts, binaries, bools, dates and instants, compared by their values in Arrow.

Each is a kind of key of its own in ``clonos.kernels.packed_keys``. Records leave as they came, with the metadata of
their schema. Results are those of objects, in the same order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy
import pyarrow

from clonos.core.model.watermark import INSTANT_NS_MIN
from clonos.kernels.packed_keys import KeyIndex
from clonos.kernels.record_batch import RecordBatch
from clonos.operators.columnar.choosing.first_places import Marks
from clonos.operators.kinds.column_batch import ColumnBatch, KindOfColumns
from clonos.operators.kinds.column_highest import HIGHEST, HIGHEST_ROWS, ColumnHighest
from clonos.operators.kinds.column_spans import LAST_SPANS, SPAN_ROWS, SPANS, ColumnLastSpans, ColumnSpans
from clonos.operators.kinds.kind import By
from clonos.operators.operator import Operator
from clonos.operators.state.column_table import ColumnSpec, ColumnTable
from clonos.operators.state.declared_state import StepState
from clonos.operators.state.state_spec import StateKind, StateScope, StateSpec

if TYPE_CHECKING:
    from numpy.typing import NDArray

    IntArray = NDArray[Any]

KEYS: Final = StateSpec("keys", StateKind.COLUMNS, StateScope.KEYED)


class ColumnKind(KindOfColumns):
    """Kind of columns of a schema, of which ``names`` are compared."""

    changes_rows = True

    def __init__(self, schema: Any, names: Sequence[str], key_columns: int | None = None) -> None:
        """``key_columns``: how many of them are the key of the stream, None for all."""
        self._schema, self._names, self._key_columns = schema, tuple(names), key_columns
        self._types = tuple(schema.field(name).type for name in names)

    def of_columns(self, operator: Operator, batch: RecordBatch, key: Any) -> ColumnBatch:
        """See ``Kind``."""
        return ColumnBatch(operator, batch, [_plain(batch.column(name)) for name in self._names])

    @property
    def key_specs(self) -> tuple[StateSpec, ...]:
        """See ``Kind``."""
        return (self._declared(KEYS),)

    @property
    def span_specs(self) -> tuple[StateSpec, ...]:
        """See ``Kind``."""
        return (self._declared(SPANS),)

    @property
    def last_span_specs(self) -> tuple[StateSpec, ...]:
        """See ``Kind``."""
        return self._declared(LAST_SPANS), SPAN_ROWS

    @property
    def highest_specs(self) -> tuple[StateSpec, ...]:
        """See ``Kind``."""
        return HIGHEST, HIGHEST_ROWS

    def _declared(self, spec: StateSpec) -> StateSpec:
        return replace(spec, key_columns=self._key_columns)

    def firsts(self, state: StepState) -> ColumnFirsts:
        """See ``Kind``."""
        return ColumnFirsts(state.column_table(self._declared(KEYS), ColumnSpec(self._types)))

    def lasts(self, state: StepState, has_times: bool) -> ColumnLasts:
        """See ``Kind``."""
        spec = ColumnSpec(self._types, {"latest": numpy.int64}, {"latest": INSTANT_NS_MIN})
        return ColumnLasts(self._types, state.column_table(self._declared(KEYS), spec) if has_times else None)

    def spans(self, state: StepState, within_ns: int) -> ColumnSpans:
        """See ``Kind``."""
        return ColumnSpans(state, self._declared(SPANS), self._types, within_ns)

    def last_spans(self, state: StepState, within_ns: int, has_times: bool) -> ColumnLastSpans:
        """See ``Kind``."""
        return ColumnLastSpans(state, self._declared(LAST_SPANS), self._types, within_ns, has_times, self._schema)

    def highest(self, state: StepState, by: By, k: int) -> ColumnHighest:
        """See ``Kind``."""
        assert isinstance(by, str), "the plan has columns where ranks are in a column"
        return ColumnHighest(state, dict(zip(self._names, self._types, strict=True)), by, k)


class ColumnFirsts:
    """First record of each key: a key has a slot of the table from then on."""

    def __init__(self, table: ColumnTable) -> None:
        self._table = table

    def choose(self, batch: ColumnBatch) -> NDArray[numpy.bool_]:
        """See ``KeyChoice``."""
        before = len(self._table)
        slots = self._table.slots(batch.keys)
        highest = numpy.maximum.accumulate(slots)  # new slots are given in the order of the first records
        is_first: NDArray[numpy.bool_] = slots >= before
        is_first[1:] &= slots[1:] > highest[:-1]
        return is_first


class ColumnLasts:
    """Last record of each key so far. The table has the latest instant of each key; it needs timestamps."""

    def __init__(self, types: tuple[Any, ...], table: ColumnTable | None) -> None:
        self._types, self._table = types, table
        self._marks = Marks()

    def choose(self, batch: ColumnBatch) -> NDArray[numpy.bool_]:
        """See ``KeyChoice``."""
        table = self._table
        if table is None:
            index = KeyIndex(self._types)
            return self._marks.last(index.add(batch.keys), len(index))
        times = batch.times
        slots = table.slots(batch.keys)
        table.touch(slots)
        latest = table.values["latest"]
        numpy.maximum.at(latest, slots, times)
        places = numpy.flatnonzero(latest[slots] == times)
        found = numpy.zeros(len(slots), numpy.bool_)
        found[places[self._marks.last(slots[places], len(table))]] = True
        return found


def _plain(column: Any) -> Any:
    return column.dictionary_decode() if pyarrow.types.is_dictionary(column.type) else column
