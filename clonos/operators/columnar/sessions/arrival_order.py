"""Order of arrival in sessions: the parts of a batch that give first and last values what records one by one give.

A record joins the open sessions that it overlaps, merged by their starts, and comes after their records. Which
sessions meet first decides what a first or last value is. So the records of a key are cut into parts in each of which
every record overlaps what is before it, and only the first one may join sessions that were open.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy

from clonos.operators.columnar.sessions.joined_spans import OpenSpans
from clonos.operators.event_time.column_times import distances

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Numbers = NDArray[numpy.int64]


def parts_by_arrival(
    keys: Numbers, times: Numbers, gap_ns: int, open_spans: Callable[[Numbers], OpenSpans]
) -> Iterator[Numbers]:
    """Yields the rows of each part of a batch, in which a key has one session; add it before the next one is made.

    ``open_spans`` returns the open sessions of distinct keys.
    """
    order = numpy.argsort(keys, kind="stable")
    ordered, ordered_times = keys[order], times[order]
    begins_key = numpy.concatenate(([True], ordered[1:] != ordered[:-1]))
    is_apart = numpy.concatenate(([True], distances(ordered_times[1:], ordered_times[:-1]) >= gap_ns))
    for rows in _by_number(order, _numbers(begins_key, begins_key | is_apart)):
        is_met_later = _meets_later(keys[rows], times[rows], gap_ns, open_spans)
        if not is_met_later.any():
            yield rows
            continue
        if not is_met_later.all():
            yield rows[~is_met_later]
        single = rows[is_met_later]
        by_key = single[numpy.argsort(keys[single], kind="stable")]
        begins = numpy.concatenate(([True], keys[by_key][1:] != keys[by_key][:-1]))
        yield from _by_number(by_key, _numbers(begins, numpy.ones(len(by_key), numpy.bool_)))


def _numbers(begins_key: NDArray[numpy.bool_], begins_part: NDArray[numpy.bool_]) -> Numbers:
    """Returns the number of the part of each row within its key."""
    parts = numpy.cumsum(begins_part)
    return parts - parts[numpy.maximum.accumulate(numpy.where(begins_key, numpy.arange(len(parts)), 0))]


def _by_number(rows: Numbers, numbers: Numbers) -> Iterator[Numbers]:
    """Yields the rows of each number, by arrival."""
    if not numbers.any():
        yield numpy.sort(rows)
        return
    order = numpy.lexsort((rows, numbers))
    yield from numpy.split(rows[order], numpy.flatnonzero(numpy.diff(numbers[order])) + 1)


def _meets_later(
    keys: Numbers, times: Numbers, gap_ns: int, open_spans: Callable[[Numbers], OpenSpans]
) -> NDArray[numpy.bool_]:
    """Returns which rows belong to a key whose first row misses an open session that a later one joins."""
    distinct, first, of_rows = numpy.unique(keys, return_index=True, return_inverse=True)
    opened = open_spans(distinct)
    places = numpy.searchsorted(distinct, opened.keys)
    lowest = numpy.full(len(distinct), numpy.iinfo(numpy.int64).max)
    highest = numpy.full(len(distinct), numpy.iinfo(numpy.int64).min)
    numpy.minimum.at(lowest, of_rows, times)
    numpy.maximum.at(highest, of_rows, times)

    def meets(begins: Any, ends: Any) -> NDArray[numpy.bool_]:
        found: NDArray[numpy.bool_] = (begins[places] < opened.ends) & (opened.starts < ends[places] + gap_ns)
        return found

    is_later = numpy.zeros(len(distinct), numpy.bool_)
    is_later[places[meets(lowest, highest) & ~meets(times[first], times[first])]] = True
    return is_later[of_rows]
