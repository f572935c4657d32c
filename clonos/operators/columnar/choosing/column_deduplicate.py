"""deduplicate and distinct over columns: one record of each key, of all time or within a length of time.

Records leave as they came, with the metadata of their schema. Results are those of the operators over rows in
``clonos.operators.transforms.deduplicate``, in the same order.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy
import pyarrow

from clonos.core.model.watermark import Activity, Watermark
from clonos.kernels.packed_keys import KeyIndex
from clonos.kernels.record_batch import RecordBatch
from clonos.operators.columnar.choosing.first_places import Marks
from clonos.operators.columnar.column_form import ColumnOperator
from clonos.operators.operator import DueTimer, Scope
from clonos.operators.state.column_table import ColumnSpec, ColumnTable

if TYPE_CHECKING:
    from numpy.typing import NDArray

    IntArray = NDArray[Any]

KEYS_NAME: Final = "keys"
SPANS_NAME: Final = "spans"
INSTANT_NS_MIN: Final = -(1 << 63)


class ColumnDeduplicate(ColumnOperator):
    """Base of operators that pass on some of the records of each key."""

    def __init__(self, step: str, schema: Any) -> None:
        """Creates the operator; the columns of ``schema`` are compared."""
        self._step = step
        self._keys: tuple[str, ...] = tuple(schema.names)
        self._types = tuple(field.type for field in schema)
        self._marks = Marks()

    def keyed_columns(self, batch: RecordBatch, key: Any) -> None:
        is_chosen = self._choose(batch, self._keys_of(batch))
        if is_chosen.all():
            self.out.columns(batch)
        elif is_chosen.any():
            self.out.columns(batch.filter(pyarrow.array(is_chosen)))

    def _keys_of(self, batch: RecordBatch) -> list[Any]:
        """Returns the columns of the keys of records."""
        return [_plain(batch.column(name)) for name in self._keys]

    @abstractmethod
    def _choose(self, batch: RecordBatch, keys: list[Any]) -> NDArray[numpy.bool_]:
        """Returns which records of a batch to pass on; ``keys`` are the columns of their keys."""


class FirstOfKey(ColumnDeduplicate):
    """First record of each key of all time."""

    def open(self, scope: Scope) -> None:
        self._table = scope.state.column_table(f"{self._step}/{KEYS_NAME}", ColumnSpec(self._types))

    def _choose(self, batch: RecordBatch, keys: list[Any]) -> NDArray[numpy.bool_]:
        before = len(self._table)
        slots = self._table.slots(keys)
        highest = numpy.maximum.accumulate(slots)  # new slots are given in the order of the first records
        is_first: NDArray[numpy.bool_] = slots >= before
        is_first[1:] &= slots[1:] > highest[:-1]
        return is_first


class LastOfKey(ColumnDeduplicate):
    """Last record of each key so far, once a batch. The state is the latest instant of each key."""

    def __init__(self, step: str, schema: Any, has_times: bool) -> None:
        super().__init__(step, schema)
        self._has_times = has_times

    def open(self, scope: Scope) -> None:
        spec = ColumnSpec(self._types, {"latest": numpy.int64}, {"latest": INSTANT_NS_MIN})
        self._table = scope.state.column_table(f"{self._step}/{KEYS_NAME}", spec) if self._has_times else None

    def _choose(self, batch: RecordBatch, keys: list[Any]) -> NDArray[numpy.bool_]:
        table = self._table
        if table is None:
            index = KeyIndex(self._types)
            return self._marks.last(index.add(keys), len(index))
        times = self.time_array(batch)
        assert times is not None, "the plan says that records have timestamps"
        slots = table.slots(keys)
        table.touch(slots)
        latest = table.values["latest"]
        numpy.maximum.at(latest, slots, times)
        places = numpy.flatnonzero(latest[slots] == times)
        found = numpy.zeros(len(slots), numpy.bool_)
        found[places[self._marks.last(slots[places], len(table))]] = True
        return found


class FirstOfSpan(ColumnDeduplicate):
    """First record of each span of a key.

    State: a table ``step/spans/<number>`` for each stretch of time as long as a span, with the instants that opened
    spans of keys in it. A key opens one span there at most, and a record belongs to none that opened in another stretch
    than its own and the ones beside it.
    """

    has_timers: ClassVar[bool] = True

    def __init__(self, step: str, schema: Any, has_times: bool, within_ns: int) -> None:
        super().__init__(step, schema)
        self._within_ns, self._has_times = within_ns, has_times
        self._spec = ColumnSpec(self._types, {"opened": numpy.int64})
        self._tables: dict[int, ColumnTable] = {}
        self._earliest: dict[int, int] = {}  # instant that opened the first span of each table

    def open(self, scope: Scope) -> None:
        self._state = scope.state
        self._recorder = scope.context.recorder
        prefix = self._name("")
        for number in sorted(int(name.removeprefix(prefix)) for name in scope.state.restored_columns(prefix)):
            table = self._tables[number] = scope.state.column_table(self._name(number), self._spec)
            self._note_earliest(number, table)

    def _name(self, number: int | str) -> str:
        return f"{self._step}/{SPANS_NAME}/{number}"

    def _choose(self, batch: RecordBatch, keys: list[Any]) -> NDArray[numpy.bool_]:
        times = self._times(batch)
        found = numpy.zeros(len(times), numpy.bool_)
        left, index = numpy.arange(len(times)), KeyIndex(self._types)
        while True:
            is_new = ~self._is_duplicate(keys, times[left])
            if not is_new.any():
                return found
            left, keys = left[is_new], filtered(keys, is_new)
            is_first = self._marks.first(index.add(keys), len(index))
            self._open_spans(filtered(keys, is_first), times[left[is_first]])
            found[left[is_first]] = True
            left, keys = left[~is_first], filtered(keys, ~is_first)

    def _times(self, batch: RecordBatch) -> IntArray:
        """Returns the instants of records, by the clock without timestamps."""
        times: IntArray | None = self.time_array(batch) if self._has_times else None
        return numpy.full(batch.num_rows, self._recorder.instant_ns(False), numpy.int64) if times is None else times

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
                distances = numpy.abs(times[is_here] - table.values["opened"][slots])
                found[is_here] |= (slots >= 0) & (distances < self._within_ns)
        return found

    def _open_spans(self, keys: list[Any], times: IntArray) -> None:
        """Opens spans of keys that differ."""
        numbers = times // self._within_ns
        for number in numpy.unique(numbers).tolist():
            is_here = numbers == number
            table = self._tables.get(number)
            if table is None:
                table = self._tables[number] = self._state.column_table(self._name(number), self._spec)
            slots = table.slots(filtered(keys, is_here))
            table.touch(slots)
            table.values["opened"][slots] = times[is_here]
            earliest = int(times[is_here].min())
            self._earliest[number] = min(earliest, self._earliest.get(number, earliest))

    # --- time

    def on_watermark(self, watermark: Watermark) -> None:
        if self._has_times and not isinstance(watermark, Activity):
            self._end(watermark)
        self.out.on_watermark(watermark)

    def next_timer_ns(self) -> int | None:
        if self._has_times or not self._earliest:
            return None
        return min(self._earliest.values()) + self._within_ns

    def due(self, until_ns: int | None) -> list[DueTimer]:
        next_ns = self.next_timer_ns()
        return [] if next_ns is None or (until_ns is not None and until_ns < next_ns) else [DueTimer(next_ns, until_ns)]

    def fire(self, due: Sequence[DueTimer]) -> None:
        for timer in due:
            self._end(timer.token)

    def _end(self, until_ns: int | None) -> None:
        """Forgets the spans that have ended at an instant, or all."""
        for number, earliest in list(self._earliest.items()):
            if until_ns is not None and earliest + self._within_ns > until_ns:
                continue
            table = self._tables[number]
            if until_ns is not None:
                table.expire("opened", until_ns - self._within_ns + 1)
            if until_ns is None or not table.live_count:
                self._state.drop(self._name(number))
                del self._tables[number], self._earliest[number]
            else:
                self._note_earliest(number, table)

    def _note_earliest(self, number: int, table: ColumnTable) -> None:
        self._earliest[number] = int(table.values["opened"][table.live()].min())


def filtered(columns: list[Any], is_wanted: NDArray[numpy.bool_]) -> list[Any]:
    """Returns the rows of columns that are wanted."""
    return columns if is_wanted.all() else [column.filter(pyarrow.array(is_wanted)) for column in columns]


def _plain(column: Any) -> Any:
    return column.dictionary_decode() if pyarrow.types.is_dictionary(column.type) else column
