"""Sums of floats over columns, as pairs of floats: their error is some 2**-100 of the largest sum on the way.

Sums over rows are exact. Those of a batch are exact here, too, but for the last bits of the smallest numbers: each
number is divided into parts that are multiples of one power of two, so that the sum of all parts needs no rounding. The
sum of a slot is a pair, a float and what is missing from it, to which the sums of batches are added. A sum that may be
beyond all floats is divided by ``2**SCALE`` and has its pair the other way round, so that it is infinite only as a
result, and no cut of the batches makes it so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy

from clonos.kernels import grouped
from clonos.kernels.arrays import arrow_of
from clonos.operators.aggregates.exact_numbers import Exact, exact, mean_of, plus, rounded
from clonos.operators.columnar.column_aggregates import OfColumn, Slots, State

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[numpy.float64]

MAGNITUDE_MAX: Final = 2.0**900
"""Bound of numbers whose sums and parts are surely no larger than any float."""

BITS: Final = 53
"""Bits of a float."""

LARGE: Final = 2.0**1022
"""Bound of sums that are not divided."""

SCALE: Final = 128
"""A large sum is divided by 2 to this power, which leaves room for those of more numbers than there are."""


class FloatSum(OfColumn):
    """Sum of floats; 0 without a number."""

    fields: ClassVar[tuple[str, ...]] = ("sum", "rest")

    def dtypes(self) -> dict[str, Any]:
        return dict.fromkeys(self._names[:2], numpy.float64)

    def _add(self, state: State, slots: Slots, numbers: Any) -> None:
        self.add_numbers(state, slots, numbers)

    def add_numbers(self, state: State, slots: Slots, numbers: Any) -> None:
        """Adds a float for each slot; a slot may be there several times."""
        is_finite = numpy.isfinite(numbers)
        if not is_finite.all():
            self._add_special(state, slots[~is_finite], numbers[~is_finite])
            slots, numbers = slots[is_finite], numbers[is_finite]
        if magnitude_of(numbers) >= MAGNITUDE_MAX:
            self._add_exactly(state, slots, numbers)
        elif len(slots):
            distinct, of_rows = grouped.distinct_slots(slots)
            self._add_pairs(state, distinct, *_sums(numbers, of_rows, len(distinct)))

    def _add_exactly(self, state: State, slots: Slots, numbers: Floats) -> None:
        """Adds numbers whose sums may be beyond all floats."""
        distinct = numpy.unique(slots)
        totals = dict(zip(distinct.tolist(), FloatSum.accumulators(self, state, distinct), strict=True))
        for slot, number in zip(slots.tolist(), numbers.tolist(), strict=True):
            totals[slot] = plus(totals[slot], exact(number))
        self._store(state, totals)

    def _store(self, state: State, totals: dict[int, Exact]) -> None:
        """Makes exact numbers the sums of slots."""
        sums, rests = state[self._names[0]], state[self._names[1]]
        for slot, total in totals.items():
            is_large = abs(rounded(total)) >= LARGE
            high, low = _pair_of((total[0], total[1] + SCALE) if is_large and isinstance(total, tuple) else total)
            sums[slot], rests[slot] = (low, high) if is_large and numpy.isfinite(high) else (high, low)

    def _add_special(self, state: State, slots: Slots, numbers: Floats) -> None:
        """Adds infinite numbers and nan, which absorb all others."""
        with numpy.errstate(invalid="ignore", over="ignore"):
            numpy.add.at(state[self._names[0]], slots, numbers)
        state[self._names[1]][slots] = 0.0

    def _add_pairs(self, state: State, slots: Slots, high: Floats, low: Floats) -> None:
        """Adds a pair to each slot; no slot is there twice."""
        sums, rests = state[self._names[0]], state[self._names[1]]
        own_high, own_low = sums[slots], rests[slots]
        with numpy.errstate(invalid="ignore", over="ignore"):
            plain = own_high + high
            total, rest = _pair(*_two_sum(own_high, high), *_two_sum(own_low, low))
        is_small = (numpy.abs(plain) < LARGE) & ~_is_divided(own_high, own_low) & ~_is_divided(high, low)
        if is_small.all():
            sums[slots], rests[slots] = total, rest
            return
        sums[slots], rests[slots] = numpy.where(is_small, total, plain), numpy.where(is_small, rest, 0.0)
        is_large = ~is_small & numpy.isfinite(own_high) & numpy.isfinite(high)
        pairs = (_exact(own_high[is_large], own_low[is_large]), _exact(high[is_large], low[is_large]))
        self._store(state, dict(zip(slots[is_large].tolist(), map(plus, *pairs), strict=True)))

    def merge(self, state: State, slots: Slots, other: State) -> None:
        self._add_pairs(state, slots, other[self._names[0]], other[self._names[1]])

    def _totals(self, state: State, slots: Slots) -> tuple[Floats, list[int], list[Exact]]:
        """Returns the sums, right but for those that are divided; then the places of these, and their exact sums."""
        high, low = state[self._names[0]][slots], state[self._names[1]][slots]
        is_divided = _is_divided(high, low)
        return high + low, numpy.flatnonzero(is_divided).tolist(), _exact(high[is_divided], low[is_divided])

    def results(self, state: State, slots: Slots) -> Any:
        totals, places, divided = self._totals(state, slots)
        totals[places] = [rounded(total) for total in divided]
        return arrow_of(totals)

    def accumulators(self, state: State, slots: Slots) -> list[Any]:
        return _exact(state[self._names[0]][slots], state[self._names[1]][slots])

    def is_infinite(self, state: State, slots: Slots) -> Any:
        """Returns which sums have an infinite number, as a mask."""
        return numpy.isinf(state[self._names[0]][slots])


class FloatMean(FloatSum):
    """Arithmetic mean of floats; null without a number."""

    fields: ClassVar[tuple[str, ...]] = ("sum", "rest", "n")

    def dtypes(self) -> dict[str, Any]:
        return {**super().dtypes(), self._names[2]: numpy.int64}

    def _add(self, state: State, slots: Slots, numbers: Any) -> None:
        super()._add(state, slots, numbers)
        numpy.add.at(state[self._names[2]], slots, 1)

    def merge(self, state: State, slots: Slots, other: State) -> None:
        super().merge(state, slots, other)
        state[self._names[2]][slots] += other[self._names[2]]

    def results(self, state: State, slots: Slots) -> Any:
        counts = state[self._names[2]][slots]
        is_empty = counts == 0
        totals, places, divided = self._totals(state, slots)
        means = totals / numpy.where(is_empty, 1, counts)
        means[places] = [mean_of(total, int(count)) for total, count in zip(divided, counts[places], strict=True)]
        return arrow_of(means, is_empty)

    def accumulators(self, state: State, slots: Slots) -> list[Any]:
        return list(zip(super().accumulators(state, slots), state[self._names[2]][slots].tolist(), strict=True))


def magnitude_of(numbers: Floats) -> float:
    """Returns the largest absolute value of the finite numbers."""
    if not len(numbers):
        return 0.0
    largest = max(float(numbers.max()), -float(numbers.min()))
    if numpy.isfinite(largest):
        return largest
    return float(numpy.abs(numbers[numpy.isfinite(numbers)]).max(initial=0.0))


def _is_divided(high: Floats, low: Floats) -> Any:
    """Returns which pairs are those of sums that are divided, as a mask."""
    return numpy.abs(low) > numpy.abs(high)


def _exact(high: Floats, low: Floats) -> list[Exact]:
    """Returns the exact numbers of pairs."""
    found = []
    for first, second in zip(high.tolist(), low.tolist(), strict=True):
        total: Exact = plus(exact(first), exact(second)) if first or second else 0
        found.append((total[0] << SCALE, total[1]) if abs(second) > abs(first) else total)
    return found


def _pair_of(number: Exact) -> tuple[float, float]:
    """Returns the pair of an exact number that is no larger than any float."""
    high = float(rounded(number))
    return high, float(rounded(plus(number, exact(-high)))) if numpy.isfinite(high) else 0.0


def _sums(numbers: Floats, of_rows: NDArray[Any], count: int) -> tuple[Floats, Floats]:
    """Returns the sums of finite numbers by slot, as pairs."""
    bits = len(numbers).bit_length() + 2
    _, exponent = numpy.frexp(magnitude_of(numbers))
    parts: list[Any] = []
    for _ in range(2):
        exponent = int(exponent) + bits
        step = numpy.ldexp(1.5, exponent - 1)  # adding it rounds to multiples of 2**(exponent - BITS)
        rounded = (numbers + step) - step
        numbers = numbers - rounded
        parts.append(numpy.bincount(of_rows, rounded, count))
        exponent -= BITS
    high, low = _two_sum(*parts)
    return _two_sum(high, low + numpy.bincount(of_rows, numbers, count))


def _two_sum(first: Floats, second: Floats) -> tuple[Floats, Floats]:
    """Returns the rounded sums, and what is missing from them."""
    total = first + second
    part = total - first
    return total, (first - (total - part)) + (second - part)


def _pair(high: Floats, rest: Floats, low: Floats, rest_of_low: Floats) -> tuple[Floats, Floats]:
    """Returns the sums of four floats as pairs; each is small beside the one before."""
    high, rest = _two_sum(high, rest + low)
    return _two_sum(high, rest + rest_of_low)
