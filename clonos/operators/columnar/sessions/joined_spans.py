"""Joins of the sessions of a batch with the open sessions of their keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Numbers = NDArray[numpy.int64]


class OpenSpans(NamedTuple):
    """Open sessions: their keys, starts, ends and slots. Those of one key do not overlap."""

    keys: Numbers
    starts: Numbers
    ends: Numbers
    slots: Numbers


class JoinedSpans(NamedTuple):
    """Sessions of a batch, joined with open ones.

    ``slots``: the slot of each, -1 for none. ``targets``: the open sessions that are joined,
    with their new ``starts`` and ``ends``. ``extras``: open sessions that become part of an earlier one, which
    ``extra_targets`` has; those of one target are in the order of their starts.
    """

    slots: Numbers
    targets: Numbers
    starts: Numbers
    ends: Numbers
    extras: Numbers
    extra_targets: Numbers


def joined_spans(opened: OpenSpans, keys: Numbers, starts: Numbers, ends: Numbers) -> JoinedSpans:
    """Joins the sessions of a batch, given by key, start and end; those of one key do not overlap."""
    count = len(opened.keys)
    all_keys = numpy.concatenate((opened.keys, keys))
    all_starts, all_ends = numpy.concatenate((opened.starts, starts)), numpy.concatenate((opened.ends, ends))
    order = numpy.lexsort((all_starts, all_keys))
    key, start, end, is_open = all_keys[order], all_starts[order], all_ends[order], order < count
    begins_key = numpy.concatenate(([True], key[1:] != key[:-1]))
    reached = numpy.maximum(_reached(end, is_open, begins_key), _reached(end, ~is_open, begins_key))
    begins = numpy.flatnonzero(begins_key | (start >= reached))
    lengths = numpy.diff(numpy.append(begins, len(order)))
    group = numpy.repeat(numpy.arange(len(begins)), lengths)

    opens = numpy.flatnonzero(is_open)
    target_of = numpy.full(len(begins), -1)
    target_of[group[opens[::-1]]] = opened.slots[order[opens[::-1]]]  # of equal places the last one assigned stays
    slots = numpy.empty(len(keys), numpy.int64)
    slots[order[~is_open] - count] = target_of[group[~is_open]]
    is_joined = (target_of >= 0) & (numpy.add.reduceat(~is_open, begins, dtype=numpy.int64) > 0)
    slots_of_opens = opened.slots[order[opens]]
    is_extra = slots_of_opens != target_of[group[opens]]
    return JoinedSpans(
        slots,
        target_of[is_joined],
        start[begins][is_joined],
        numpy.maximum.reduceat(end, begins)[is_joined],
        slots_of_opens[is_extra],
        target_of[group[opens[is_extra]]],
    )


def _reached(end: Numbers, is_one: NDArray[numpy.bool_], begins_key: NDArray[numpy.bool_]) -> Numbers:
    """Returns for each span the end of the last one of a kind in front of it, with its key; the ends of a kind rise."""
    places = numpy.arange(len(end))
    last = numpy.maximum.accumulate(numpy.where(is_one, places, -1))
    before = numpy.concatenate(([-1], last[:-1]))
    first = numpy.maximum.accumulate(numpy.where(begins_key, places, 0))
    return numpy.where(before >= first, end[before], numpy.iinfo(numpy.int64).min)
