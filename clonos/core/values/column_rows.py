"""Rows of columns as Python has them: what ``to_pylist`` of Arrow gives, in a tenth of its time for instants.

Arrow takes 1 to 3 us for each instant, 0.8 for a date and 1.1 for a text of a dictionary.
"""

from __future__ import annotations

from datetime import date
from itertools import compress, count
from typing import Any, Final

UNITS_US: Final = {"s": 1_000_000, "ms": 1_000, "us": 1}
"""Microseconds of a unit of instants. Those of nanoseconds are left to Arrow."""

EPOCH_DAY: Final = date(1970, 1, 1).toordinal()
LAST_DAY: Final = date.max.toordinal()


def rows_of_columns(batch: Any) -> list[dict[str, Any]]:
    """Returns the rows of a ``pyarrow.RecordBatch`` as dicts by the names of its columns."""
    from clonos.kernels.records import dicts

    return dicts(batch.schema.names, [*map(values_of_column, batch.columns)], batch.num_rows)


def values_of_column(column: Any) -> list[Any]:
    """Returns the values of a ``pyarrow.Array`` as Python objects, None for nulls.

    Raises: OverflowError, if an instant or a date is not in the years 1 to 9999. ValueError, if a time has nanoseconds.
    """
    import pyarrow

    kind, types = column.type, pyarrow.types
    if types.is_timestamp(kind) and kind.unit in UNITS_US:
        return _instants(column)
    if types.is_date32(kind):
        return _dates(column)
    if types.is_dictionary(kind):
        values = values_of_column(column.dictionary)
        return [None if index is None else values[index] for index in column.indices.to_pylist()]
    if types.is_time64(kind) and kind.unit == "ns":
        column = column.cast(pyarrow.time64("us"))  # an ArrowInvalid, a ValueError, where digits would be lost
    return column.to_pylist()  # type: ignore[no-any-return]


def _instants(column: Any) -> list[Any]:
    import numpy
    import pyarrow

    from clonos.kernels.arrays import fixed_values
    from clonos.kernels.records import END_US, FIRST_US, datetimes

    scale = UNITS_US[column.type.unit]
    numbers, is_null = _valid(column, fixed_values(column, numpy.dtype(numpy.int64)))
    if len(numbers) and not (FIRST_US // scale <= numbers.min() and numbers.max() < END_US // scale):
        raise OverflowError("date value out of range")
    us, zone = numbers * scale, column.type.tz and pyarrow.lib.string_to_tzinfo(column.type.tz)
    if not zone:
        return _with_nulls(datetimes(us, None), is_null)
    offset = zone.utcoffset(None)
    if offset is not None:
        return _with_nulls(datetimes(us + offset // offset.resolution, zone), is_null)
    return _with_nulls([*map(zone.fromutc, datetimes(us, zone))], is_null)


def _dates(column: Any) -> list[Any]:
    import numpy

    from clonos.kernels.arrays import fixed_values

    numbers, is_null = _valid(column, fixed_values(column, numpy.dtype(numpy.int32)))
    days = numbers.astype(numpy.int64) + EPOCH_DAY
    if len(days) and not (days.min() >= 1 and days.max() <= LAST_DAY):
        raise OverflowError("date value out of range")
    return _with_nulls([*map(date.fromordinal, days.tolist())], is_null)


def _valid(column: Any, numbers: Any) -> tuple[Any, Any]:
    """Returns the numbers with 0 for nulls, whose own are arbitrary, and which are null; None if none is."""
    import numpy

    if not column.null_count:
        return numbers, None
    is_null = column.is_null().to_numpy(zero_copy_only=False)
    return numpy.where(is_null, 0, numbers), is_null


def _with_nulls(values: list[Any], is_null: Any) -> list[Any]:
    for index in () if is_null is None else compress(count(), is_null.tolist()):
        values[index] = None
    return values
