"""The highest rows of each key: in a batch, and so far."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy

from clonos.kernels import choice

if TYPE_CHECKING:
    from numpy.typing import NDArray

NO_ROW: Final = -1
"""Number in place of a row that is not there."""


def highest_rows(numbers: NDArray[numpy.int32], ranks: NDArray[Any], k: int, count: int) -> NDArray[numpy.bool_]:
    """Returns which rows are among the ``k`` highest of their number, of equal ranks the earlier, or higher than all
    rows of it before them. So the first row of a number above any limit is returned, if there is one.

    ``numbers`` are below ``count``; ``ranks`` are int64.

    Raises: IndexError, if a number is not.
    """
    if choice.native is not None:
        chosen = numpy.empty(len(numbers), numpy.bool_)
        choice.native.highest_rows(
            numpy.ascontiguousarray(numbers, numpy.int32), numpy.ascontiguousarray(ranks), k, count, chosen
        )
        return chosen
    if len(numbers) and not (numbers.min() >= 0 and numbers.max() < count):
        raise IndexError(f"numbers from {numbers.min()} to {numbers.max()} were given, and 0 to {count - 1} exist")
    sizes = numpy.bincount(numbers, minlength=count)
    nth = numpy.arange(len(numbers)) - numpy.repeat(
        numpy.cumsum(sizes) - sizes, sizes
    )  # within the number, when sorted
    chosen = numpy.zeros(len(numbers), numpy.bool_)
    chosen[numpy.lexsort((~ranks, numbers))[nth < k]] = True
    arrived = numpy.argsort(numbers, kind="stable")
    _, places = numpy.unique(ranks, return_inverse=True)
    heights = numbers[arrived].astype(numpy.int64) * len(numbers) + places[arrived]
    chosen[arrived[(nth == 0) | (heights > numpy.maximum.accumulate(numpy.concatenate(([-1], heights)))[:-1])]] = True
    return chosen


class Inserted(NamedTuple):
    """Outcome for each candidate.

    - ``above``: how many ranks of its key were above; k if it was not inserted. ``size``: how many its key had then; 0
      if it was not inserted.
    - ``left``: the number that has left its key for it, ``NO_ROW`` for none.
    - ``lists``: the numbers of its key then, highest first, one list after the other; empty if nobody asked for it.
    """

    above: NDArray[numpy.int64]
    size: NDArray[numpy.int64]
    left: NDArray[numpy.int64]
    lists: NDArray[numpy.int64]


def insert_highest(
    ranks: NDArray[numpy.int64],
    numbers: NDArray[numpy.int64],
    counts: NDArray[numpy.int64],
    slots: NDArray[Any],
    candidates: NDArray[numpy.int64],
    *,
    has_lists: bool,
) -> Inserted:
    """Inserts candidates, in their order, into the highest ranks of their slots, of equal ranks after the earlier one.

    ``ranks`` and ``numbers`` have a row of k for each slot, highest first, of which ``counts`` are in use. Candidate n
    gets the number ``NO_ROW - 1 - n``.

    Raises: IndexError: there is no such slot.
    """
    k, rows = ranks.shape[1], len(slots)
    above, size, left = (numpy.empty(rows, numpy.int64) for _ in range(3))
    lists = numpy.empty(rows * k if has_lists else 0, numpy.int64)
    slots, candidates = numpy.ascontiguousarray(slots, numpy.int32), numpy.ascontiguousarray(candidates)
    if choice.native is not None:
        choice.native.insert_highest(k, ranks, numbers, counts, slots, candidates, above, size, left, lists)
        return Inserted(above, size, left, lists[: size.sum()])
    if rows and not (slots.min() >= 0 and slots.max() < len(counts)):
        raise IndexError(f"slots from {slots.min()} to {slots.max()} were given, and 0 to {len(counts) - 1} exist")
    above[:], size[:], left[:], listed = k, 0, NO_ROW, [lists[:0]]
    for row, (slot, rank) in enumerate(zip(slots.tolist(), candidates, strict=True)):
        count = counts[slot]
        place = count - numpy.searchsorted(ranks[slot, :count][::-1], rank)
        if place == k:
            continue
        if count == k:
            left[row] = numbers[slot, -1]
        for cells, value in ((ranks[slot], rank), (numbers[slot], NO_ROW - 1 - row)):
            cells[place + 1 :], cells[place] = cells[place:-1].copy(), value
        above[row], size[row] = place, min(count + 1, k)
        counts[slot] = size[row]
        if has_lists:
            listed.append(numbers[slot, : size[row]].copy())
    return Inserted(above, size, left, numpy.concatenate(listed))
