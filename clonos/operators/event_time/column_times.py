"""Timestamps of a column as numpy integers: nanoseconds since the Unix epoch, as ``event_time_ns`` gives them.

Arrow and numpy convert all values at once. A value that may be none of a point in time is *doubtful*: only such values
become Python objects, and ``event_time_ns`` decides them. Only code that works on columns imports this module.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple, TypeAlias

import numpy
import pyarrow
import pyarrow.compute
from numpy.typing import NDArray

from clonos.core.model.watermark import INSTANT_NS_MIN
from clonos.expressions.functions.zones import TABLES_END_S
from clonos.kernels.record_batch import RecordBatch
from clonos.operators.event_time.local_times import LocalTimes
from clonos.operators.event_time.timestamps import (
    FIRST_PLAUSIBLE,
    LAST_PLAUSIBLE,
    LIMIT_NS,
    NANOSECONDS_PER,
    NANOSECONDS_PER_MICROSECOND,
    RANGE_TEXT,
    NoTimestampColumn,
    TimestampColumn,
    TimestampError,
    Unit,
    event_time_ns,
)

IntArray: TypeAlias = NDArray[numpy.int64]
BoolArray: TypeAlias = NDArray[numpy.bool_]

ISO_TEXT: Final = r"^[12]\d{3}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])[T ]([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d{1,6})?"
OFFSET_TEXT: Final = r"(Z|[+-]([01]\d|2[0-3]):[0-5]\d)"
"""Texts that Arrow reads as Python does; all others go to Python. Arrow refuses days such as February 30."""

MARGIN: Final = 1_000
"""Width of the zones around the limits of plausible numbers, in nanoseconds: Python divides there with rounding."""

_PER_SECOND: Final = 1_000_000_000


class ColumnTimes(NamedTuple):
    """Timestamps of a column. ``doubtful``: the rows whose timestamp Python has to decide; the others are right."""

    nanoseconds: IntArray
    doubtful: BoolArray


class FailedCell(NamedTuple):
    """Row without a timestamp, and why."""

    place: int
    error: TimestampError


def times_of(batch: RecordBatch, column: TimestampColumn) -> tuple[IntArray, list[FailedCell]]:
    """Returns the timestamps of a batch that has the column, and the rows without one, which get INSTANT_NS_MIN."""
    cells = batch.column(column.name)
    times, doubtful = _times_of(cells, column)
    failed: list[FailedCell] = []
    for index in numpy.flatnonzero(doubtful).tolist():
        try:
            times[index] = _decided(cells[index], column)
        except TimestampError as error:
            times[index] = INSTANT_NS_MIN
            failed.append(FailedCell(index, error))
    return times, failed


def without(batch: RecordBatch, times: IntArray, failed: Sequence[FailedCell]) -> tuple[Any, IntArray]:
    """Returns a batch and its timestamps without some rows."""
    has_time = numpy.ones(len(times), numpy.bool_)
    has_time[[each.place for each in failed]] = False
    return batch.filter(pyarrow.array(has_time)), times[has_time]


def time_array(step: str, batch: RecordBatch, column: TimestampColumn) -> IntArray:
    """Returns the timestamps of a batch all of whose rows have one.

    Raises: NoTimestampColumn: the column is missing. TimestampError: a timestamp is missing or wrong.
    """
    if column.name not in batch.schema.names:
        raise NoTimestampColumn(step, column.name)
    times, failed = times_of(batch, column)
    if failed:
        raise failed[0].error
    return times


def distances(first: IntArray, second: IntArray) -> NDArray[numpy.uint64]:
    """Returns how many nanoseconds lie between instants. The first and the last year are too far apart for int64."""
    later, earlier = numpy.maximum(first, second), numpy.minimum(first, second)
    found: NDArray[numpy.uint64] = later.view(numpy.uint64) - earlier.view(numpy.uint64)
    return found


def _decided(cell: Any, column: TimestampColumn) -> int:
    try:
        given = cell.as_py()
    except (OverflowError, ValueError):
        if not _TYPES.is_timestamp(cell.type) or cell.type.unit != "ns":
            raise TimestampError(f"the timestamp {_python(cell)} lies {RANGE_TEXT}") from None
        given = _without_nanoseconds(cell)  # Python has none, and without pandas pyarrow refuses them
    return event_time_ns(given, column.unit, column.local)


def _without_nanoseconds(cell: Any) -> datetime:
    microseconds = cell.cast(pyarrow.int64()).as_py() // NANOSECONDS_PER_MICROSECOND
    return datetime(1970, 1, 1, tzinfo=UTC if cell.type.tz else None) + timedelta(microseconds=microseconds)


def _python(cell: Any) -> Any:
    try:
        return cell.as_py()
    except (OverflowError, ValueError):
        return f"{cell.cast(pyarrow.int64()).as_py()} of {cell.type}" if _TYPES.is_temporal(cell.type) else repr(cell)


def _times_of(cells: Any, column: TimestampColumn) -> ColumnTimes:
    if pyarrow.types.is_dictionary(cells.type):
        cells = cells.dictionary_decode()
    for applies, convert in _CONVERSIONS:
        if applies(cells.type):
            return convert(cells, column)
    return _all_doubtful(cells)


def _all_doubtful(cells: Any) -> ColumnTimes:
    return ColumnTimes(numpy.zeros(len(cells), numpy.int64), numpy.ones(len(cells), numpy.bool_))


def _of_instants(cells: Any, column: TimestampColumn) -> ColumnTimes:
    if cells.type.tz is None:
        return _all_doubtful(cells) if column.local is None else _of_local_times(cells, column.local)
    return _of_utc(cells)


def _of_local_times(cells: Any, local: LocalTimes) -> ColumnTimes:
    """Times that come twice or never are doubtful, where Arrow's two readings differ, and those of the far future."""
    try:
        first, second = (
            pyarrow.compute.assume_timezone(cells, local.timezone, ambiguous=which, nonexistent=which)
            for which in ("earliest", "latest")
        )
    except pyarrow.ArrowInvalid:  # Arrow does not know the zone
        return _all_doubtful(cells)
    times, doubtful = _of_utc(first)
    return ColumnTimes(times, doubtful | (times != _of_utc(second).nanoseconds) | (times >= TABLES_END_S * _PER_SECOND))


def _of_utc(cells: Any) -> ColumnTimes:
    given, missing = _numbers(cells.cast(pyarrow.int64()))
    factor = NANOSECONDS_PER[Unit(cells.type.unit)]
    times, beyond = _scaled(given, factor)
    if factor == 1:
        times = times // NANOSECONDS_PER_MICROSECOND * NANOSECONDS_PER_MICROSECOND
    return ColumnTimes(times, missing | beyond)


def _of_ints(cells: Any, column: TimestampColumn) -> ColumnTimes:
    unit = column.unit
    given, doubtful = _numbers(cells)
    if given.dtype == numpy.uint64:
        doubtful = doubtful | (given >= LIMIT_NS)
    numbers = given.astype(numpy.int64)
    factor = NANOSECONDS_PER[unit]
    times, too_large = _scaled(numbers, factor)
    seconds = numbers // (_PER_SECOND // factor)
    plausible = (seconds >= FIRST_PLAUSIBLE) & (seconds < LAST_PLAUSIBLE)
    return ColumnTimes(times, doubtful | too_large | (~plausible & _may_mean_another(numbers, unit)))


def _of_floats(cells: Any, column: TimestampColumn) -> ColumnTimes:
    unit = column.unit
    given = cells.to_numpy(zero_copy_only=False).astype(numpy.float64)  # NaN for null
    with numpy.errstate(all="ignore"):
        rounded = numpy.rint(given * NANOSECONDS_PER[unit] / NANOSECONDS_PER_MICROSECOND)
        doubtful = ~(numpy.abs(rounded) < (LIMIT_NS // NANOSECONDS_PER_MICROSECOND) - MARGIN)
        doubtful |= ~(numpy.abs(given) < LIMIT_NS)
        microseconds = numpy.where(doubtful, 0.0, rounded).astype(numpy.int64)
        plausible = (microseconds >= FIRST_PLAUSIBLE * 1_000_000) & (microseconds < LAST_PLAUSIBLE * 1_000_000)
        doubtful |= ~plausible & _may_mean_another(given, unit)
    return ColumnTimes(microseconds * NANOSECONDS_PER_MICROSECOND, doubtful)


def _of_texts(cells: Any, column: TimestampColumn) -> ColumnTimes:
    found = _of_utc(_read(cells, ISO_TEXT + OFFSET_TEXT + "$", "UTC"))
    if column.local is None or not found.doubtful.any():
        return found
    times, doubtful = _of_local_times(_read(cells, ISO_TEXT + "$", None), column.local)
    return ColumnTimes(numpy.where(found.doubtful, times, found.nanoseconds), found.doubtful & doubtful)


def _read(cells: Any, usual: str, zone: str | None) -> Any:
    """Returns texts as instants, those that are not usual as null; all if a month does not have one of the days."""
    is_usual = pyarrow.compute.match_substring_regex(cells, usual).fill_null(False)
    type_ = pyarrow.timestamp("us", zone)
    try:
        return pyarrow.compute.if_else(is_usual, cells, pyarrow.scalar(None, cells.type)).cast(type_)
    except pyarrow.ArrowInvalid:
        return pyarrow.nulls(len(cells), type_)


def _numbers(cells: Any) -> tuple[NDArray[Any], BoolArray]:
    """Returns the integers of a column, 0 for null, and which ones are null."""
    if not cells.null_count:
        return cells.to_numpy(zero_copy_only=False), numpy.zeros(len(cells), numpy.bool_)
    filled = cells.fill_null(pyarrow.scalar(0, cells.type)).to_numpy(zero_copy_only=False)
    return filled, cells.is_null().to_numpy(zero_copy_only=False)


def _scaled(numbers: IntArray, factor: int) -> tuple[IntArray, BoolArray]:
    """Returns numbers times a factor, and for which ones the product is no instant of 64 bits."""
    limit = (LIMIT_NS - 1) // factor
    beyond = (numbers > limit) | (numbers < -limit)
    return numpy.where(beyond, 0, numbers) * factor, beyond


def _may_mean_another(numbers: NDArray[Any], unit: Unit) -> BoolArray:
    """Returns which numbers lie from 2001 to 2100 in another unit, or so near that Python's rounding decides."""
    may: BoolArray = numpy.zeros(len(numbers), numpy.bool_)
    for other, factor in NANOSECONDS_PER.items():
        if other is not unit:
            first = (FIRST_PLAUSIBLE * _PER_SECOND - MARGIN) // factor - 1
            last = (LAST_PLAUSIBLE * _PER_SECOND + MARGIN) // factor + 1
            may |= (numbers >= first) & (numbers <= last)
    return may


_TYPES: Final = pyarrow.types
_CONVERSIONS: Final[tuple[tuple[Callable[[Any], bool], Callable[[Any, TimestampColumn], ColumnTimes]], ...]] = (
    (_TYPES.is_timestamp, _of_instants),
    (_TYPES.is_integer, _of_ints),
    (_TYPES.is_floating, _of_floats),
    (lambda kind: _TYPES.is_string(kind) or _TYPES.is_large_string(kind), _of_texts),
)
