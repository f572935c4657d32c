"""KeySpans of keys in columns.

State: a table ``step/spans/<number>`` for each stretch of time as long as a span, with the instants that opened spans
of keys in it. A key opens one span there at most, and a record belongs to none that opened in another stretch than its
own and the ones beside it. With last records the tables also have, for each span, its number in the order of opening,
the latest instant, and the number of its latest record in a row store, ``step/rows/<number>`` of each table.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy
import pyarrow

from clonos.core.model.watermark import INSTANT_NS_MIN
from clonos.kernels.packed_keys import KeyIndex
from clonos.kernels.record_batch import RecordBatch
from clonos.operators.columnar.choosing.first_places import Marks
from clonos.operators.columnar.row_forms import FORM_KEY, SPAN_TIME, RecordForm, form_of, metadata_of
from clonos.operators.columnar.window_columns import INSTANT
from clonos.operators.event_time.timestamps import LIMIT_NS, NANOSECONDS_PER_MICROSECOND
from clonos.operators.kinds.column_batch import ColumnBatch, filtered, plain_batch
from clonos.operators.operator import Operator
from clonos.operators.state.column_table import ColumnSpec, ColumnTable
from clonos.operators.state.declared_state import StepState
from clonos.operators.state.row_store import RowStore
from clonos.operators.state.state_spec import ANY, Numbers, StateKind, StateScope, StateSpec

if TYPE_CHECKING:
    from numpy.typing import NDArray

    IntArray = NDArray[Any]

OPENED: Final = "opened"
NUMBER: Final = "number"
LATEST: Final = "latest"
ROW: Final = "row"
NO_SLOT: Final = -1

SPANS: Final = StateSpec(f"spans/{ANY}", StateKind.COLUMNS, StateScope.KEYED)
SPAN_ROWS: Final = StateSpec(f"rows/{ANY}", StateKind.ROWS, StateScope.REFERRED, owner=SPANS.name)
LAST_SPANS: Final = replace(SPANS, numbers=(Numbers("opened", NUMBER), Numbers(SPAN_ROWS.name, ROW)))


class Stretches:
    """Tables of the open spans of each stretch of time."""

    def __init__(self, state: StepState, declared: StateSpec, columns: ColumnSpec, within_ns: int) -> None:
        self._state, self._declared, self._columns, self._within_ns = state, declared, columns, within_ns
        self._types = columns.keys
        self._marks = Marks()
        self._tables: dict[int, ColumnTable] = {}
        self._earliest: dict[int, int] = {}  # instant that opened the first span of each table
        for number in state.restored(declared):
            table = self._tables[number] = state.column_table(declared, columns, number)
            self._note_earliest(number, table)

    @property
    def earliest_ns(self) -> int | None:
        """Instant that opened the earliest span."""
        return min(self._earliest.values(), default=None)

    def _open(self, keys: list[Any], times: IntArray) -> None:
        """Opens spans of keys that differ."""
        numbers = times // self._within_ns
        for number in numpy.unique(numbers).tolist():
            is_here = numbers == number
            table = self._tables.get(number)
            if table is None:
                table = self._tables[number] = self._state.column_table(self._declared, self._columns, number)
            slots = table.slots(filtered(keys, is_here))
            table.touch(slots)
            table.values[OPENED][slots] = times[is_here]
            earliest = int(times[is_here].min())
            self._earliest[number] = min(earliest, self._earliest.get(number, earliest))

    def _note_earliest(self, number: int, table: ColumnTable) -> None:
        self._earliest[number] = int(table.values[OPENED][table.live()].min())


class ColumnSpans(Stretches):
    """Spans of each key."""

    def __init__(self, state: StepState, declared: StateSpec, types: tuple[Any, ...], within_ns: int) -> None:
        super().__init__(state, declared, ColumnSpec(types, {OPENED: numpy.int64}), within_ns)

    def choose(self, batch: ColumnBatch, instants: IntArray) -> NDArray[numpy.bool_]:
        """See ``KeySpans``."""
        keys = batch.keys
        found = numpy.zeros(len(instants), numpy.bool_)
        left, index = numpy.arange(len(instants)), KeyIndex(self._types)
        while True:
            is_new = ~self._is_duplicate(keys, instants[left])
            if not is_new.any():
                return found
            left, keys = left[is_new], filtered(keys, is_new)
            is_first = self._marks.first(index.add(keys), len(index))
            self._open(filtered(keys, is_first), instants[left[is_first]])
            found[left[is_first]] = True
            left, keys = left[~is_first], filtered(keys, ~is_first)

    def _is_duplicate(self, keys: list[Any], times: IntArray) -> NDArray[numpy.bool_]:
        """Returns which records belong to a span that is open."""
        found = numpy.zeros(len(times), numpy.bool_)
        numbers = times // self._within_ns
        for number in numpy.unique(numbers).tolist():
            is_here = numbers == number
            theirs = filtered(keys, is_here)
            for other in (number - 1, number, number + 1):
                table = self._tables.get(other)
                if table is None:
                    continue
                slots = table.find(theirs)
                distances = numpy.abs(times[is_here] - table.values[OPENED][slots])
                found[is_here] |= (slots >= 0) & (distances < self._within_ns)
        return found

    def end(self, opened_max_ns: int | None) -> None:
        """See ``KeySpans``."""
        for number, earliest_ns in list(self._earliest.items()):
            if opened_max_ns is not None and earliest_ns > opened_max_ns:
                continue
            table = self._tables[number]
            if opened_max_ns is not None:
                table.expire(OPENED, opened_max_ns + 1)
            if opened_max_ns is None or not table.live_count:
                self._state.drop(self._declared, number)
                del self._tables[number], self._earliest[number]
            else:
                self._note_earliest(number, table)


class ColumnLastSpans(Stretches):
    """Spans of each key with their last records. In event time results have another column, with their timestamps."""

    def __init__(
        self,
        state: StepState,
        declared: StateSpec,
        types: tuple[Any, ...],
        within_ns: int,
        has_times: bool,
        schema: Any,
    ) -> None:
        columns = dict.fromkeys((OPENED, NUMBER, LATEST, ROW), numpy.int64)
        super().__init__(state, declared, ColumnSpec(types, columns, {LATEST: INSTANT_NS_MIN, ROW: -1}), within_ns)
        self._has_times = has_times
        form = form_of(schema)
        self._form = {FORM_KEY: form} if form else None
        self._timed_form = metadata_of(RecordForm(tuple(schema.names), form))
        self._stores: dict[int, RowStore] = {}
        self._next_number = 0
        for number, table in self._tables.items():
            self._stores[number] = state.row_store(SPAN_ROWS, number)
            self._next_number = max(self._next_number, int(table.values[NUMBER][table.live()].max()) + 1)

    def openers(self, opened_max_ns: int | None) -> list[int]:
        """See ``LastSpans``."""
        opened = [table.values[OPENED][table.live()] for table in self._tables.values()]
        openers: list[int] = numpy.unique(numpy.concatenate((numpy.empty(0, numpy.int64), *opened))).tolist()
        return openers if opened_max_ns is None else [opener for opener in openers if opener <= opened_max_ns]

    def take(self, batch: ColumnBatch, instants: IntArray) -> None:
        """See ``LastSpans``."""
        keys = batch.keys
        stretches, slots = numpy.zeros(len(instants), numpy.int64), numpy.full(len(instants), NO_SLOT)
        left, index = numpy.arange(len(instants)), KeyIndex(self._types)
        while len(left):
            stretches[left], slots[left] = self._spans_of(keys, instants[left])
            is_new = slots[left] == NO_SLOT
            left, keys = left[is_new], filtered(keys, is_new)
            if len(left):
                is_first = self._marks.first(index.add(keys), len(index))
                self._open_as(filtered(keys, is_first), instants[left[is_first]], self._next_number + left[is_first])
        self._next_number += len(instants)
        for stretch in numpy.unique(stretches).tolist():
            rows = numpy.flatnonzero(stretches == stretch)
            self._keep_latest(stretch, slots[rows], instants[rows], rows, batch.batch)

    def end(self, opened_max_ns: int | None, out: Operator) -> None:
        """See ``LastSpans``."""
        for number in sorted(self._earliest):
            if opened_max_ns is not None and self._earliest[number] > opened_max_ns:
                continue
            table, store = self._tables[number], self._stores[number]
            live, opened = table.live(), table.values[OPENED]
            ended = live if opened_max_ns is None else live[opened[live] <= opened_max_ns]
            ended = ended[numpy.lexsort((table.values[NUMBER][ended], opened[ended]))]
            out.columns(self._results(store.take(table.values[ROW][ended]), opened[ended]))
            if len(ended) == len(live):
                self._state.drop(self._declared, number)
                self._state.drop(SPAN_ROWS, number)
                del self._tables[number], self._stores[number], self._earliest[number]
            else:
                store.discard(table, ROW, ended)
                table.remove(ended)
                self._note_earliest(number, table)

    def _spans_of(self, keys: list[Any], times: IntArray) -> tuple[IntArray, IntArray]:
        """Returns the table and the slot of the span of each record: of two, that which was opened first."""
        numbers = times // self._within_ns
        tables, slots = numbers.copy(), numpy.full(len(times), NO_SLOT)
        opened_as = numpy.full(len(times), numpy.iinfo(numpy.int64).max)
        for number in numpy.unique(numbers).tolist():
            here = numpy.flatnonzero(numbers == number)
            theirs = filtered(keys, numbers == number)
            for other in (number - 1, number, number + 1):
                table = self._tables.get(other)
                if table is None:
                    continue
                found, values = table.find(theirs), table.values
                is_near = numpy.abs(times[here] - values[OPENED][found]) < self._within_ns
                is_better = (found >= 0) & is_near & (values[NUMBER][found] < opened_as[here])
                better = here[is_better]
                tables[better], slots[better] = other, found[is_better]
                opened_as[better] = values[NUMBER][found[is_better]]
        return tables, slots

    def _open_as(self, keys: list[Any], times: IntArray, opened_as: IntArray) -> None:
        """Opens spans of keys that differ, with their numbers."""
        self._open(keys, times)
        numbers = times // self._within_ns
        for number in numpy.unique(numbers).tolist():
            is_here = numbers == number
            table = self._tables[number]
            table.values[NUMBER][table.find(filtered(keys, is_here))] = opened_as[is_here]

    def _keep_latest(self, number: int, slots: IntArray, times: IntArray, places: IntArray, batch: RecordBatch) -> None:
        """Keeps the latest records of spans of one table; ``places`` are those of the records in the batch."""
        table = self._tables[number]
        store = self._stores.get(number)
        if store is None:
            store = self._stores[number] = self._state.row_store(SPAN_ROWS, number)
        table.touch(slots)
        latest = table.values[LATEST]
        numpy.maximum.at(latest, slots, times)
        candidates = numpy.flatnonzero(latest[slots] == times)
        chosen = candidates[self._marks.last(slots[candidates], len(table))]
        if len(chosen):
            store.replace(table, ROW, slots[chosen], plain_batch(batch.take(pyarrow.array(places[chosen]))))

    def _results(self, batch: RecordBatch, opened: IntArray) -> RecordBatch:
        """Returns last records as they came, with the time at which their spans end if records have timestamps."""
        if not self._has_times:
            return batch.replace_schema_metadata(self._form)
        ends = numpy.minimum(opened, LIMIT_NS - self._within_ns) + self._within_ns  # in 64 bits
        microseconds = pyarrow.array((ends - 1) // NANOSECONDS_PER_MICROSECOND)
        return batch.append_column(SPAN_TIME, microseconds.view(INSTANT)).replace_schema_metadata(self._timed_form)


def schema_of_spans(schema: Any) -> Any | None:
    """Returns the columns of the results in event time; None if they are rows."""
    if SPAN_TIME in schema.names:
        return None
    form = RecordForm(tuple(schema.names), form_of(schema))
    return schema.append(pyarrow.field(SPAN_TIME, INSTANT)).with_metadata(metadata_of(form))
