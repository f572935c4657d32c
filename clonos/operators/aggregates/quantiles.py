"""Quantiles by a histogram whose buckets have a fixed relative width.

A bucket is a float's exponent and the first bits of its mantissa, as in HdrHistogram, so the bucket of a number is the
same on every machine. Sketches merge by adding the counts of buckets, so neither order nor merges change the result.
"""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from fractions import Fraction
from math import frexp, inf, isinf, ldexp
from typing import Any, Final

from clonos.operators.aggregates.aggregate import Insertion
from clonos.operators.aggregates.terms import Of, text_of
from clonos.operators.aggregates.values import OfValues

EXACT_MAX: Final = 64
"""Numbers up to which a quantile is exact."""

ERROR_MIN: Final = 0.0001
ERROR_MAX: Final = 0.25

EXPONENT_MIN: Final = -1073
"""Exponent of the smallest float, as ``frexp`` returns it."""

INFINITE: Final = 1 << 60
"""Bucket of inf."""


class Quantile(OfValues):
    """Quantile ``q`` of numbers, as a float; None without a number. A nan does not count.

    It is the number of rank floor(q * (n - 1)), counted from 0; above ``EXACT_MAX`` numbers, a number that differs from
    it by at most ``error``, relatively. The accumulator is a list of numbers; then a dict from the numbers of buckets
    to their counts.
    """

    insertion = Insertion.IN_PLACE
    ignores_order = True

    def __init__(self, of: Of, q: float, error: float) -> None:
        super().__init__(of)
        self._q, self._error = q, error
        self._share = Fraction(repr(q))
        self.bits = mantissa_bits(error)

    def create(self) -> Any:
        return []

    def term(self, value: Any) -> Any:
        term = self._read(value)
        if term is None:
            return None
        number = _number(term)
        return None if number != number else number

    def insert(self, accumulator: Any, term: Any) -> Any:
        if term is None:
            return accumulator
        if type(accumulator) is list:
            accumulator.append(term)
            return accumulator if len(accumulator) <= EXACT_MAX else self._buckets(accumulator)
        bucket = bucket_of(term, self.bits)
        accumulator[bucket] = accumulator.get(bucket, 0) + 1
        return accumulator

    def merge(self, accumulator: Any, other: Any) -> Any:
        if type(accumulator) is list and type(other) is list:
            accumulator.extend(other)
            return accumulator if len(accumulator) <= EXACT_MAX else self._buckets(accumulator)
        merged = self._buckets(accumulator) if type(accumulator) is list else accumulator
        for bucket, count in (self._buckets(other) if type(other) is list else other).items():
            merged[bucket] = merged.get(bucket, 0) + count
        return merged

    def result(self, accumulator: Any) -> float | None:
        if type(accumulator) is list:
            return sorted(accumulator)[self.rank(len(accumulator))] if accumulator else None
        rank = self.rank(sum(accumulator.values()))
        for bucket in sorted(accumulator):
            rank -= accumulator[bucket]
            if rank < 0:
                return middle_of(bucket, self.bits)
        raise AssertionError("the rank is below the number of numbers")

    def __repr__(self) -> str:
        return f"quantile({text_of(self.of) or 'None'}, {self._q!r}, error={self._error!r})"

    def rank(self, count: int) -> int:
        """Returns floor(q * (count - 1)) for the decimal digits of q, which a float has only nearly."""
        return self._share.numerator * (count - 1) // self._share.denominator

    def _buckets(self, numbers: list[float]) -> dict[int, int]:
        buckets: dict[int, int] = {}
        for number in numbers:
            bucket = bucket_of(number, self.bits)
            buckets[bucket] = buckets.get(bucket, 0) + 1
        return buckets


def _number(term: Any) -> float:
    """Returns a term as a float. Raises: TypeError, OverflowError: it is none."""
    kind = type(term).__name__
    if isinstance(term, timedelta):
        raise TypeError(f"{term!r} is a timedelta, not a number: convert it with .total_seconds()")
    if isinstance(term, (str, bytes)) or not (hasattr(term, "__float__") or hasattr(term, "__index__")):
        raise TypeError(f"{term!r:.100} is a {kind}, not a number: convert it with float()")
    try:
        return float("nan") if isinstance(term, Decimal) and term.is_snan() else float(term) + 0.0  # 0.0 for -0.0
    except OverflowError:  # too many digits may be left for Python to show
        raise OverflowError(f"a quantile is a float, and this {kind} is larger than any: divide it") from None


def mantissa_bits(error: float) -> int:
    """Returns the bits of the mantissa that tell buckets apart, for a relative error of their middle."""
    bits = 0
    while 0.5 ** (bits + 1) > error:
        bits += 1
    return bits


def bucket_of(number: float, bits: int) -> int:
    """Returns the bucket of a number. Buckets of larger numbers are larger; that of 0 is 0."""
    if number == 0:
        return 0
    if isinf(number):
        return INFINITE if number > 0 else -INFINITE
    mantissa, exponent = frexp(abs(number))  # 0.5 <= mantissa < 1
    bucket = ((exponent - EXPONENT_MIN) << bits) + int(ldexp(mantissa - 0.5, bits + 1)) + 1
    return bucket if number > 0 else -bucket


def middle_of(bucket: int, bits: int) -> float:
    """Returns the number in the middle of a bucket."""
    if bucket < 0:
        return -middle_of(-bucket, bits)
    if bucket in (0, INFINITE):
        return inf if bucket else 0.0
    exponent, place = divmod(bucket - 1, 1 << bits)
    return ldexp(0.5 + ldexp(place + 0.5, -bits - 1), exponent + EXPONENT_MIN)
