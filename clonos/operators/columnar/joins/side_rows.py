"""Buffer of one side of a join over columns: its records, and the index that finds them.

State: a row store, whose rows have the columns of the side and the timestamp. The index is derived from it: the slots
of its keys are those of ``slots_of``, which both sides share.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

import numpy
import pyarrow

from clonos.kernels.record_batch import RecordBatch
from clonos.kernels.timed_runs import Run
from clonos.operators.columnar.joins.join_results import MISSING, taken
from clonos.operators.columnar.joins.sorted_runs import SortedRuns
from clonos.operators.state.row_store import RowStore

TIME_COLUMN: Final = "clonos.time"
"""Column of timestamps, the last one of the store."""


class Stored(NamedTuple):
    """Buffered records: a batch with the columns of the side, their timestamps, and their numbers."""

    rows: Any
    times: Any
    numbers: Any


class SideRows:
    """Buffered records of one side, by their numbers in the store."""

    def __init__(self, store: RowStore, schema: Any) -> None:
        """Creates it; ``schema`` has the form of the rows of the side."""
        self._store, self._schema = store, schema
        self.runs = SortedRuns()
        self._gone = numpy.zeros(0, numpy.bool_)  # removed records of the index, by number - first
        self._first = 0

    def __len__(self) -> int:
        return len(self._store)

    def add(self, slots: Any, batch: RecordBatch, times: Any) -> Any:
        """Adds records and returns their numbers. ``slots``: None keeps them out of the index."""
        columns = [*batch.columns, pyarrow.array(times)]
        names = [*batch.schema.names, TIME_COLUMN]
        numbers = self._store.append(pyarrow.RecordBatch.from_arrays(columns, names=names))
        if slots is not None:
            self.runs.add(slots, times, numbers)
        return numbers

    def discard(self, numbers: Any) -> None:
        """Removes records that are not in the index, by their distinct numbers."""
        self._store.remove(numbers)

    def take(self, numbers: Any) -> Any:
        """Returns records by their numbers, with nulls where a number is ``MISSING``."""
        has = numbers >= 0
        if has.all():
            return self._plain(self._store.take(numbers, len(self._schema)))
        rows = self._plain(self._store.take(numbers[has], len(self._schema)))
        return taken(rows, numpy.where(has, numpy.cumsum(has) - 1, MISSING))

    def times_at(self, numbers: Any) -> Any:
        """Returns the timestamps of records."""
        return self._store.take(numbers).column(TIME_COLUMN).to_numpy()

    def stored(self) -> Iterator[Stored]:
        """Yields all records, in the order of arrival."""
        for chunk in self._store.chunks:
            places, numbers = chunk.live_from(0)
            if len(places):
                batch = chunk.at(places)
                yield Stored(self._plain(batch), batch.column(TIME_COLUMN).to_numpy(), numbers)

    def remove(self, numbers: Any) -> None:
        """Removes records by their distinct numbers, which matches may have until the next ``forget``."""
        if not len(numbers):
            return
        self._store.remove(numbers)
        needed = int(numbers.max()) + 1 - self._first
        if needed > len(self._gone):
            gone = numpy.zeros(max(needed, 2 * len(self._gone)), numpy.bool_)
            gone[: len(self._gone)] = self._gone
            self._gone = gone
        self._gone[numbers - self._first] = True

    def is_gone(self, numbers: Any) -> Any:
        """Returns which records are removed."""
        gone = self._gone
        if not len(gone):
            return numpy.zeros(len(numbers), numpy.bool_)
        places = numbers - self._first
        return gone[numpy.minimum(places, len(gone) - 1)] & (places < len(gone))

    def forget(self, is_over: Callable[[Run], Any]) -> None:
        """Removes records; ``is_over`` tells which ones of a run, None for no one."""

        def gone_of(run: Run) -> Any:
            gone = is_over(run)
            if not len(self._gone):
                return gone
            removed = self.is_gone(run.numbers)
            return removed if gone is None else removed | gone

        numbers = self.runs.remove_where(gone_of)
        self._store.remove(numbers[~self.is_gone(numbers)])
        self._gone = numpy.zeros(0, numpy.bool_)
        least = self.runs.least_number
        self._first = self._store.next_number if least is None else least

    def clear(self) -> None:
        """Empties the index."""
        self.runs = SortedRuns()

    def _plain(self, rows: Any) -> Any:
        return pyarrow.RecordBatch.from_arrays(rows.columns[: len(self._schema)], schema=self._schema)
