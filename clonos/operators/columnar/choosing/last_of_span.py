"""deduplicate(keep="last", within=...) over columns: the last record of each span of a key, when the span has ended.

State: the tables of ``FirstOfSpan``. Here they also have, for each span, its number in the order of opening, the latest
instant, and the number of its latest record in a row store, ``step/rows/<number>`` of each table. Results are those of
``LastWithin``, in the same order. In event time they have another column, with their timestamps.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy
import pyarrow

from clonos.core.model.watermark import Watermark
from clonos.kernels.packed_keys import KeyIndex
from clonos.kernels.record_batch import RecordBatch
from clonos.operators.columnar.choosing.column_deduplicate import INSTANT_NS_MIN, FirstOfSpan, filtered
from clonos.operators.columnar.choosing.column_top_k import plain_batch
from clonos.operators.columnar.row_forms import FORM_KEY, SPAN_TIME, RecordForm, form_of, metadata_of
from clonos.operators.columnar.window_columns import INSTANT
from clonos.operators.event_time.timestamps import LIMIT_NS, NANOSECONDS_PER_MICROSECOND
from clonos.operators.operator import DueTimer, Scope
from clonos.operators.state.column_table import ColumnSpec
from clonos.operators.state.row_store import RowStore

if TYPE_CHECKING:
    from numpy.typing import NDArray

    IntArray = NDArray[Any]

ROWS_NAME: Final = "rows"
OPENED: Final = "opened"
NUMBER: Final = "number"
LATEST: Final = "latest"
ROW: Final = "row"
NO_SLOT: Final = -1


class LastOfSpan(FirstOfSpan):
    """Operator of the last record of each span."""

    has_event_timers: ClassVar[bool] = True

    def __init__(self, step: str, schema: Any, names: tuple[str, ...], has_times: bool, within_ns: int) -> None:
        """Creates the operator for batches of a schema, of which ``names`` are the columns of what is compared."""
        compared = pyarrow.schema([schema.field(name) for name in names])
        super().__init__(step, compared, has_times, within_ns)
        columns = dict.fromkeys((OPENED, NUMBER, LATEST, ROW), numpy.int64)
        self._spec = ColumnSpec(self._types, columns, {LATEST: INSTANT_NS_MIN, ROW: -1})
        form = form_of(schema)
        self._form = {FORM_KEY: form} if form else None
        self._timed_form = metadata_of(RecordForm(tuple(schema.names), form))
        self._stores: dict[int, RowStore] = {}
        self._next_number = 0

    def open(self, scope: Scope) -> None:
        super().open(scope)
        for number, table in self._tables.items():
            self._stores[number] = scope.state.row_store(self._rows_name(number))
            self._next_number = max(self._next_number, int(table.values[NUMBER][table.live()].max()) + 1)

    def _rows_name(self, number: int) -> str:
        return f"{self._step}/{ROWS_NAME}/{number}"

    # --- records

    def keyed_columns(self, batch: RecordBatch, key: Any) -> None:
        keys, times = self._keys_of(batch), self._times(batch)
        stretches, slots = numpy.zeros(len(times), numpy.int64), numpy.full(len(times), NO_SLOT)
        left, index = numpy.arange(len(times)), KeyIndex(self._types)
        while len(left):
            stretches[left], slots[left] = self._spans_of(keys, times[left])
            is_new = slots[left] == NO_SLOT
            left, keys = left[is_new], filtered(keys, is_new)
            if len(left):
                is_first = self._marks.first(index.add(keys), len(index))
                self._open_spans(filtered(keys, is_first), times[left[is_first]], self._next_number + left[is_first])
        self._next_number += len(times)
        for stretch in numpy.unique(stretches).tolist():
            rows = numpy.flatnonzero(stretches == stretch)
            self._keep_latest(stretch, slots[rows], times[rows], rows, batch)

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

    def _open_spans(self, keys: list[Any], times: IntArray, opened_as: IntArray | None = None) -> None:
        assert opened_as is not None, "spans are numbered"
        super()._open_spans(keys, times)
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
            store = self._stores[number] = self._state.row_store(self._rows_name(number))
        table.touch(slots)
        latest = table.values[LATEST]
        numpy.maximum.at(latest, slots, times)
        candidates = numpy.flatnonzero(latest[slots] == times)
        chosen = candidates[self._marks.last(slots[candidates], len(table))]
        if len(chosen):
            store.replace(table, ROW, slots[chosen], plain_batch(batch.take(pyarrow.array(places[chosen]))))

    def _drop(self, number: int) -> None:
        self._state.drop(self._name(number))
        self._state.drop(self._rows_name(number))

    # --- time

    @property
    def fires_in_spans(self) -> bool:
        return True

    def on_watermark(self, watermark: Watermark) -> None:
        self.out.on_watermark(watermark)

    def due(self, until_ns: int | None) -> list[DueTimer]:
        return [] if self._has_times else [DueTimer(end_ns, end_ns) for end_ns in self._ends(until_ns)]

    def _ends(self, until_ns: int | None) -> list[int]:
        """Returns the instants at which spans end, up to ``until_ns``."""
        opened = [table.values[OPENED][table.live()] for table in self._tables.values()]
        openers = numpy.unique(numpy.concatenate((numpy.empty(0, numpy.int64), *opened))).tolist()
        ends = [opener_ns + self._within_ns for opener_ns in openers]
        return ends if until_ns is None else [end_ns for end_ns in ends if end_ns <= until_ns]

    def next_event_ns(self) -> int | None:
        return min(self._earliest.values()) + self._within_ns if self._has_times and self._earliest else None

    def due_events(self, until_ns: int | None) -> list[DueTimer]:
        next_ns = self.next_event_ns()
        is_due = next_ns is not None and (until_ns is None or next_ns <= until_ns)
        return [DueTimer(next_ns, until_ns)] if next_ns is not None and is_due else []

    def fire_events(self, due: Sequence[DueTimer]) -> None:
        self.fire(due)

    def _end(self, until_ns: int | None) -> None:
        """Emits the latest records of the spans that have ended at an instant, or of all, and forgets these spans."""
        for number in sorted(self._earliest):
            if until_ns is not None and self._earliest[number] + self._within_ns > until_ns:
                continue
            table, store = self._tables[number], self._stores[number]
            live, opened = table.live(), table.values[OPENED]
            ended = live if until_ns is None else live[opened[live] <= until_ns - self._within_ns]
            ended = ended[numpy.lexsort((table.values[NUMBER][ended], opened[ended]))]
            self._emit(store.take(table.values[ROW][ended]), opened[ended])
            if len(ended) == len(live):
                self._drop(number)
                del self._tables[number], self._stores[number], self._earliest[number]
            else:
                store.discard(table, ROW, ended)
                table.remove(ended)
                self._note_earliest(number, table)

    def _emit(self, batch: RecordBatch, opened: IntArray) -> None:
        if self._has_times:
            ends = numpy.minimum(opened, LIMIT_NS - self._within_ns) + self._within_ns  # in 64 bits
            microseconds = pyarrow.array((ends - 1) // NANOSECONDS_PER_MICROSECOND)
            batch = batch.append_column(SPAN_TIME, microseconds.view(INSTANT))
        self.out.columns(batch.replace_schema_metadata(self._timed_form if self._has_times else self._form))


def schema_of_spans(schema: Any) -> Any | None:
    """Returns the columns of the results in event time; None if they are rows."""
    if SPAN_TIME in schema.names:
        return None
    form = RecordForm(tuple(schema.names), form_of(schema))
    return schema.append(pyarrow.field(SPAN_TIME, INSTANT)).with_metadata(metadata_of(form))
