"""The highest rows of each key in a batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy

from clonos.kernels import choice

if TYPE_CHECKING:
    from numpy.typing import NDArray


def highest_rows(numbers: NDArray[numpy.int32], ranks: NDArray[Any], k: int, count: int) -> NDArray[numpy.bool_]:
    """Returns which rows are among the ``k`` highest of their number, of equal ranks the earlier, or higher than all
    rows of it before them. So the first row of a number above any limit is returned, if there is one.

    ``numbers`` are below ``count``; ``ranks`` are int64 or float64 without nan.

    Raises: IndexError, if a number is not.
    """
    if ranks.dtype == numpy.float64:
        ranks = _as_integers(ranks)
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


def _as_integers(ranks: NDArray[numpy.float64]) -> NDArray[numpy.int64]:
    """Returns integers in the same order as floats, of which -0.0 and 0.0 are equal."""
    bits = (ranks + 0.0).view(numpy.int64)
    return bits ^ ((bits >> 63) & 0x7FFFFFFFFFFFFFFF)
