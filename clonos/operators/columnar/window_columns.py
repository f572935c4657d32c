"""Columns of the results of windows, from the state of keys and aggregates."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Final, NamedTuple

import numpy
import pyarrow

from clonos.core.values.column_keys import values_of
from clonos.kernels.record_batch import RecordBatch
from clonos.operators.columnar.column_aggregates import ColumnAggregate
from clonos.operators.columnar.refused_results import fitting_results
from clonos.operators.columnar.row_forms import END, START, TIME, WindowForm, metadata_of
from clonos.operators.event_time.timestamps import (
    LIMIT_NS,
    NANOSECONDS_PER_MICROSECOND,
    from_timestamp_ns,
    result_time_ns,
)
from clonos.operators.user_errors import Guard

RESULTS_MAX: Final = 1 << 16
"""Results that leave in one batch."""

INSTANT: Final = pyarrow.timestamp("us", "UTC")


class WindowKeys:
    """Keys of windows in the columns of batches and of state. Without keys state has the one key 0."""

    def __init__(self, fields: Sequence[pyarrow.Field]) -> None:
        """Creates it for columns of the key; none of a stream without keys."""
        self.names = tuple(field.name for field in fields)
        self.types = tuple(field.type for field in fields) or (pyarrow.int8(),)

    def of(self, batch: RecordBatch) -> list[Any]:
        """Returns the columns of the key that state has for the records of a batch."""
        if not self.names:
            return [pyarrow.array(numpy.zeros(batch.num_rows, numpy.int8))]
        return [batch.column(name) for name in self.names]

    def shown(self, columns: list[Any]) -> list[Any]:
        """Returns the columns of the key that results have; ``columns`` are those of state."""
        return columns[: len(self.names)]

    def in_rows(self, columns: list[Any]) -> list[Any]:
        """Returns keys as they are in rows; ``columns`` are those of state."""
        return values_of(columns[: len(self.names)]) if self.names else [None] * len(columns[0])


class _Window(NamedTuple):
    """Results of one window: ``rows`` of them in the columns of the key and of the aggregates."""

    start_ns: int
    end_ns: int
    rows: int
    columns: list[Any]


class WindowColumns:
    """Maker of batches of results: the columns of the key, of the window, and one for each aggregate."""

    gathered_min: ClassVar[int] = 1 << 14
    """Results that are enough for a batch."""

    def __init__(self, keys: WindowKeys, aggregates: Sequence[ColumnAggregate]) -> None:
        self._aggregates, self._keys = tuple(aggregates), keys
        self._values = tuple(each.name for each in aggregates)
        self._metadata = metadata_of(WindowForm(keys.names, self._values))
        self._windows: list[_Window] = []
        self._count = 0

    @property
    def is_full(self) -> bool:
        """Returns whether the gathered results are enough for a batch."""
        return self._count >= self.gathered_min

    def gather(self, guard: Guard, keys: list[Any], values: Any, slots: Any, start_ns: int, end_ns: int) -> None:
        """Copies the results of the ``slots`` of one window; ``keys`` are the columns that state has for their keys."""

        def refuse(place: int, error: Exception) -> None:
            guard.refused(error, self._record(keys, place, start_ns, end_ns), None)

        if (fits := fitting_results(self._aggregates, values, slots, refuse)) is not None:
            keys, slots = [column.filter(pyarrow.array(fits)) for column in keys], slots[fits]
        columns = [*self._keys.shown(keys), *(each.results(values, slots) for each in self._aggregates)]
        self._windows.append(_Window(start_ns, end_ns, len(slots), columns))
        self._count += len(slots)

    def _record(self, keys: list[Any], place: int, start_ns: int, end_ns: int) -> dict[str, Any]:
        """Returns what an error has of a window: its key, start and end."""
        key = (column[place].as_py() for column in self._keys.shown(keys))
        instants = map(from_timestamp_ns, (start_ns, end_ns))
        return dict(zip((*self._keys.names, START, END), (*key, *instants), strict=True))

    def gathered(self) -> Iterator[Any]:
        """Yields the results that were gathered, in their order, and forgets them."""
        windows, self._windows, self._count = [each for each in self._windows if each.rows], [], 0
        if not windows:
            return
        counts = [each.rows for each in windows]
        bounds = zip(*((each.start_ns, each.end_ns, result_time_ns(each.end_ns)) for each in windows), strict=True)
        instants = [_column([each // NANOSECONDS_PER_MICROSECOND for each in column], counts) for column in bounds]
        parts = zip(*(each.columns for each in windows), strict=True)
        columns = [part[0] if len(part) == 1 else pyarrow.concat_arrays(part) for part in parts]
        names = len(self._keys.names)
        batch = self._named([*columns[:names], *instants, *columns[names:]])
        for first in range(0, batch.num_rows, RESULTS_MAX):
            yield batch.slice(first, RESULTS_MAX)

    def batches(self, guard: Guard, keys: Any, values: Any, slots: Any, start_ns: Any, end_ns: Any) -> Iterator[Any]:
        """Yields the results of windows of ``slots``, in this order, each of which has a start and an end.

        ``keys`` returns the columns that state has for the key of slots; ``values`` has the state.
        """

        def refuse(place: int, error: Exception) -> None:
            span = int(start_ns[place]), int(end_ns[place])
            guard.refused(error, self._record(keys(slots[place : place + 1]), 0, *span), None)

        if (fits := fitting_results(self._aggregates, values, slots, refuse)) is not None:
            slots, start_ns, end_ns = slots[fits], start_ns[fits], end_ns[fits]
        bounds = start_ns, end_ns, numpy.minimum(end_ns, LIMIT_NS) - 1
        for first in range(0, len(slots), RESULTS_MAX):
            part = slice(first, first + RESULTS_MAX)
            instants = [_instants(each[part]) for each in bounds]
            yield self._batch(self._keys.shown(keys(slots[part])), values, slots[part], instants)

    def _batch(self, keys: list[Any], values: Any, slots: Any, instants: list[Any]) -> Any:
        return self._named([*keys, *instants, *(each.results(values, slots) for each in self._aggregates)])

    def _named(self, columns: list[Any]) -> Any:
        names = [*self._keys.names, START, END, TIME, *self._values]
        fields = [pyarrow.field(name, column.type) for name, column in zip(names, columns, strict=True)]
        return pyarrow.RecordBatch.from_arrays(columns, schema=pyarrow.schema(fields, self._metadata))


def _instants(nanoseconds: Any) -> Any:
    return pyarrow.array(nanoseconds // NANOSECONDS_PER_MICROSECOND).view(INSTANT)


def _column(microseconds: Sequence[int], counts: Sequence[int]) -> Any:
    """Returns a column of instants that has each of them as often as ``counts`` tells."""
    return pyarrow.array(numpy.repeat(numpy.array(microseconds, numpy.int64), counts)).view(INSTANT)
