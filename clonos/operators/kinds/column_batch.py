"""Batch of records that are typed columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy
import pyarrow

from clonos.kernels.record_batch import RecordBatch
from clonos.operators.event_time.late_records import LateRecords
from clonos.operators.operator import Operator, Times

if TYPE_CHECKING:
    from numpy.typing import NDArray

    IntArray = NDArray[Any]


class KindOfColumns:
    """Base of kinds of columns."""

    takes_columns = True

    def of_rows(self, operator: Operator, rows: list[Any], times: Times) -> Any:
        """See ``RecordKind``."""
        raise AssertionError("the plan says that records are columns")


class ColumnBatch:
    """Batch of columns with those that are compared, without dictionaries."""

    __slots__ = ("_operator", "batch", "keys")

    def __init__(self, operator: Operator, batch: RecordBatch, keys: list[Any]) -> None:
        self._operator, self.batch, self.keys = operator, batch, keys

    @property
    def times(self) -> IntArray:
        """See ``KeyedBatch``."""
        times = self._operator.time_array(self.batch)
        assert times is not None, "the plan says that records have timestamps"
        return times

    def at(self, instant_ns: int) -> IntArray:
        """See ``KeyedBatch``."""
        return numpy.full(self.batch.num_rows, instant_ns, numpy.int64)

    def emit(self, out: Operator, places: NDArray[numpy.bool_]) -> None:
        """Passes on the records where ``places`` is set."""
        if places.all():
            out.columns(self.batch)
        elif places.any():
            out.columns(self.batch.filter(pyarrow.array(places)))

    def pass_late(self, late_records: LateRecords, places: IntArray, times: IntArray, watermark_ns: int) -> None:
        """See ``KeyedBatch``."""
        late_records.take_columns(self.batch.take(pyarrow.array(places)), times[places], watermark_ns)


def plain_batch(batch: RecordBatch) -> Any:
    """Returns the same columns with fields that may be null and nothing else in the schema."""
    return pyarrow.RecordBatch.from_arrays(batch.columns, names=batch.schema.names)


def filtered(columns: list[Any], is_wanted: NDArray[numpy.bool_]) -> list[Any]:
    """Returns the rows of columns that are wanted."""
    return columns if is_wanted.all() else [column.filter(pyarrow.array(is_wanted)) for column in columns]
