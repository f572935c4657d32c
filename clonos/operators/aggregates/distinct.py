"""Distinct values: all of them, and an estimate of their number by HyperLogLog.

Values are identified by their encoded bytes, as keys are: 1, 1.0 and True are three values, and so a value need not be
hashable. Equal decimals are one value, and so are 0.0 and -0.0, and all nan. A value None does not count.

The sketch is that of Flajolet et al. (2007) with 64-bit hashes; the estimator is that of Ertl, "New cardinality
estimation algorithms for HyperLogLog sketches" (2017), which has no bias at any size.
"""

from __future__ import annotations

from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal
from math import inf, log, sqrt
from typing import Any, Final

from xxhash import xxh3_64_intdigest

from clonos.core.values import encode_value
from clonos.core.values.numpy_scalars import python_scalar
from clonos.operators.aggregates.aggregate import Insertion
from clonos.operators.aggregates.exact_numbers import NOT_A_NUMBER
from clonos.operators.aggregates.terms import Of, text_of
from clonos.operators.aggregates.values import OfValues

HASHES_MAX: Final = 256
"""Distinct values up to which the count is exact, but for equal hashes."""

HASH_BITS: Final = 64
INDEX_BITS_MIN: Final = 4
INDEX_BITS_MAX: Final = 18
ERROR_MIN: Final = 0.0021
ERROR_MAX: Final = 0.26

ANY_DECIMAL: Final = Context(prec=MAX_PREC, Emin=MIN_EMIN, Emax=MAX_EMAX, traps=[])
"""Context that changes no decimal, however long it is."""

ZERO: Final = Decimal(0)

PLAIN: Final = frozenset({str, int})
"""Types whose values represent themselves: no two of them are equal."""


class Distinct(OfValues):
    """List of the distinct values, by first arrival.

    The accumulator is a dict from the identity of each value to the value, or to None if that is the identity itself.
    """

    name = "distinct"
    insertion = Insertion.IN_PLACE

    def create(self) -> Any:
        return {}

    def term(self, value: Any) -> Any:
        term = self._read(value)
        return None if term is None else identified(term)

    def insert(self, accumulator: Any, term: Any) -> Any:
        if term is not None:
            accumulator.setdefault(*term)
        return accumulator

    def merge(self, accumulator: Any, other: Any) -> Any:
        for identity, value in other.items():
            accumulator.setdefault(identity, value)
        return accumulator

    def result(self, accumulator: Any) -> list[Any]:
        return super().result([key if value is None else value for key, value in accumulator.items()])  # type: ignore[no-any-return]


class CountDistinct(Distinct):
    """Number of the distinct values. The accumulator is a dict with the identity of each value."""

    name = "count_distinct"
    ignores_order = True

    def term(self, value: Any) -> Any:
        term = self._read(value)
        return None if term is None else (identified(term)[0], None)

    def result(self, accumulator: Any) -> Any:
        return len(accumulator)


class ApproxDistinct(OfValues):
    """Estimate of the number of distinct values.

    The accumulator is a dict with the hashes of up to ``HASHES_MAX`` values; then bytes, one for each register.
    """

    name = "approx_distinct"
    insertion = Insertion.IN_PLACE
    ignores_order = True

    def __init__(self, of: Of, error: float) -> None:
        super().__init__(of)
        self._error = error
        self.index_bits = index_bits(error)

    def create(self) -> Any:
        return {}

    def term(self, value: Any) -> Any:
        term = self._read(value)
        return None if term is None else xxh3_64_intdigest(encode_value(canonical(python_scalar(term))))

    def insert(self, accumulator: Any, term: Any) -> Any:
        if term is None:
            return accumulator
        if type(accumulator) is dict:
            accumulator[term] = None
            return accumulator if len(accumulator) <= HASHES_MAX else self._registers(accumulator)
        index, rank = self._register(term)
        if rank <= accumulator[index]:
            return accumulator
        return b"".join((accumulator[:index], bytes((rank,)), accumulator[index + 1 :]))

    def merge(self, accumulator: Any, other: Any) -> Any:
        if type(accumulator) is dict and type(other) is dict:
            accumulator.update(other)
            return accumulator if len(accumulator) <= HASHES_MAX else self._registers(accumulator)
        import numpy  # loaded only if there are sketches to merge

        sides = [self._registers(side) if type(side) is dict else side for side in (accumulator, other)]
        return numpy.maximum(*(numpy.frombuffer(side, numpy.uint8) for side in sides)).tobytes()

    def result(self, accumulator: Any) -> int:
        return len(accumulator) if type(accumulator) is dict else round(estimate(accumulator))

    def __repr__(self) -> str:
        return f"{self.name}({', '.join(filter(None, (text_of(self.of), f'error={self._error!r}')))})"

    def _register(self, digest: int) -> tuple[int, int]:
        """Returns the index of a hash's register, and the position of the first 1 bit in the rest of the hash."""
        rest_bits = HASH_BITS - self.index_bits
        return digest >> rest_bits, rest_bits - (digest & ((1 << rest_bits) - 1)).bit_length() + 1

    def _registers(self, hashes: dict[int, None]) -> bytes:
        registers = bytearray(1 << self.index_bits)
        for digest in hashes:
            index, rank = self._register(digest)
            registers[index] = max(registers[index], rank)
        return bytes(registers)


def identified(term: Any) -> tuple[Any, Any]:
    """Returns the identity of a value, and the value, or None if that is the identity itself."""
    if type(term) in PLAIN:
        return term, None
    term = python_scalar(term)
    return (term, None) if type(term) in PLAIN else (encode_value(canonical(term)), term)


def index_bits(error: float) -> int:
    """Returns the bits of a register's index for a relative standard error."""
    return next(bits for bits in range(INDEX_BITS_MIN, INDEX_BITS_MAX + 1) if 1.04 / sqrt(1 << bits) <= error)


def estimate(registers: bytes) -> float:
    """Returns the estimate of the number of distinct hashes: Ertl (2017), algorithm 6."""
    size = len(registers)
    rank_max = HASH_BITS - (size.bit_length() - 1)
    import numpy  # loaded only if there are sketches

    counts = numpy.bincount(numpy.frombuffer(registers, numpy.uint8), minlength=rank_max + 2).tolist()
    total = size * _tau(1 - counts[rank_max + 1] / size)
    for count in reversed(counts[1 : rank_max + 1]):
        total = 0.5 * (total + count)
    total += size * _sigma(counts[0] / size)
    return size * size / (2 * log(2) * total)


def _sigma(share: float) -> float:
    if share == 1:
        return inf
    weight, total, before = 1.0, share, -1.0
    while total != before:
        share *= share
        before = total
        total += share * weight
        weight += weight
    return total


def _tau(share: float) -> float:
    if share in (0, 1):
        return 0.0
    weight, total, before = 1.0, 1 - share, -1.0
    while total != before:
        share = sqrt(share)
        before = total
        weight *= 0.5
        total -= (1 - share) ** 2 * weight
    return total / 3


def canonical(term: Any) -> Any:
    """Returns the value that stands for all values equal to ``term``."""
    if type(term) is float:
        return term + 0.0
    if not isinstance(term, Decimal):
        return term
    if term.is_nan():
        return NOT_A_NUMBER
    return ANY_DECIMAL.normalize(term) if term else ZERO
