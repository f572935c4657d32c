"""Sessions of one batch: what its records are per key, before they join the open sessions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy

from clonos.kernels import grouped
from clonos.operators.event_time.column_times import distances

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Numbers = NDArray[numpy.int64]


class BatchSessions(NamedTuple):
    """Sessions of a batch. Those of one key do not overlap.

    ``of_rows``: the session of each row. Of each session: its key, start, end and first row, and whether its key has
    others in the batch.
    """

    of_rows: NDArray[Any]
    keys: Numbers
    starts: Numbers
    ends: Numbers
    rows: Numbers
    has_others: NDArray[numpy.bool_]


def sessions_of(keys: Numbers, times: Numbers, gap_ns: int) -> BatchSessions:
    """Returns the sessions of the rows of a batch, never empty, from their keys and times."""
    of_rows: NDArray[Any]
    distinct, of_rows = grouped.distinct_slots(keys)
    first, last = _bounds(of_rows, times, len(distinct))
    has_others = distances(first, last) >= gap_ns
    if has_others.any():
        of_rows, distinct = _divided(of_rows, distinct, times, has_others, gap_ns)
        has_others = numpy.isin(distinct, distinct[: len(has_others)][has_others])
        first, last = _bounds(of_rows, times, len(distinct))
    rows = numpy.empty(len(distinct), numpy.int64)
    rows[of_rows[::-1]] = numpy.arange(len(times))[::-1]  # of equal places the last one assigned stays
    return BatchSessions(of_rows, distinct, first, last + gap_ns, rows, has_others)


def _bounds(of_rows: NDArray[Any], times: Numbers, count: int) -> tuple[Numbers, Numbers]:
    first = numpy.full(count, numpy.iinfo(numpy.int64).max)
    last = numpy.full(count, numpy.iinfo(numpy.int64).min)
    numpy.minimum.at(first, of_rows, times)
    numpy.maximum.at(last, of_rows, times)
    return first, last


def _divided(
    of_rows: NDArray[Any], distinct: Numbers, times: Numbers, is_wide: NDArray[numpy.bool_], gap_ns: int
) -> tuple[Numbers, Numbers]:
    """Divides keys whose rows are a gap or more apart: returns the session of each row, and the key of each."""
    rows = numpy.flatnonzero(is_wide[of_rows])
    rows = rows[numpy.lexsort((times[rows], of_rows[rows]))]
    numbers, ordered = of_rows[rows], times[rows]
    goes_on = numbers[1:] == numbers[:-1]
    begins = numpy.flatnonzero(goes_on & (distances(ordered[1:], ordered[:-1]) >= gap_ns)) + 1
    marks = numpy.concatenate(([0], numpy.flatnonzero(~goes_on) + 1, begins))
    sessions = numpy.concatenate(
        (numbers[marks[: len(marks) - len(begins)]], len(distinct) + numpy.arange(len(begins)))
    )
    order = numpy.argsort(marks)
    lengths = numpy.diff(numpy.append(marks[order], len(rows)))
    divided = of_rows.astype(numpy.int64)
    divided[rows] = numpy.repeat(sessions[order], lengths)
    return divided, numpy.concatenate((distinct, distinct[numbers[begins]]))
