"""Sketches over columns: estimates of quantiles and of the number of distinct values, as over rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy
import pyarrow
from pyarrow import types
from xxhash import xxh3_64_intdigest

from clonos.core.values import encode_value
from clonos.operators.aggregates.distinct import HASH_BITS, HASHES_MAX, ApproxDistinct, canonical, estimate
from clonos.operators.aggregates.quantiles import EXACT_MAX, EXPONENT_MIN, INFINITE, Quantile, middle_of
from clonos.operators.columnar.column_aggregates import Slots, numbers_of
from clonos.operators.columnar.logs.listed_values import has_codes
from clonos.operators.columnar.logs.log_aggregate import LogAggregate, order_in_slots, without_nulls
from clonos.operators.columnar.logs.value_log import Places, first_of_pairs, slot_of_entries
from clonos.operators.columnar.running.stored_keys import plain_type

WORD: Final = 32


class QuantileColumn(LogAggregate):
    """Quantile of numbers. An entry is a number and 0; of many numbers, a bucket and how many are in it."""

    def __init__(self, name: str, aggregation: Quantile, of: str) -> None:
        super().__init__(name, of)
        self._aggregation = aggregation

    def _entries(self, slots: Slots, cells: Any) -> tuple[Slots, Sequence[Any]]:
        slots, cells = without_nulls(slots, cells)
        numbers = numbers_of(cells, numpy.float64)
        is_number = ~numpy.isnan(numbers)
        numbers = numbers[is_number] + 0.0  # -0.0 is 0.0, as over rows
        return slots[is_number], [pyarrow.array(numbers), pyarrow.array(numpy.zeros(len(numbers), numpy.int64))]

    def _compacted(self, slots: Slots, columns: list[Any]) -> tuple[Slots, Sequence[Any]] | None:
        numbers, counts = (column.to_numpy() for column in columns)
        size = numpy.bincount(slots, numpy.maximum(counts, 1))
        is_large = (size > EXACT_MAX)[slots]
        if not is_large.any():
            return None
        large, buckets, sums = self._buckets(slots[is_large], numbers[is_large], counts[is_large])
        rest = ~is_large
        return numpy.concatenate((large, slots[rest])), [
            pyarrow.array(numpy.concatenate((buckets.astype(numpy.float64), numbers[rest]))),
            pyarrow.array(numpy.concatenate((sums, counts[rest]))),
        ]

    def _buckets(self, slots: Slots, numbers: Any, counts: Any) -> tuple[Slots, Any, Any]:
        """Returns the buckets of entries by slot and bucket, and how many numbers are in each."""
        buckets = numpy.where(counts > 0, numbers, 0.0).astype(numpy.int64)
        is_one = counts == 0
        buckets[is_one] = _buckets_of(numbers[is_one], self._aggregation.bits)
        order = order_in_slots(slots, buckets)
        slots, buckets, counts = slots[order], buckets[order], numpy.maximum(counts[order], 1)
        is_first = numpy.concatenate(([True], (slots[1:] != slots[:-1]) | (buckets[1:] != buckets[:-1])))
        begins = numpy.flatnonzero(is_first[: len(order)])
        return slots[begins], buckets[begins], numpy.add.reduceat(counts, begins) if len(begins) else counts

    def _results(self, columns: list[Any], places: Places) -> Any:
        numbers, counts = (column.to_numpy() for column in columns)
        slots, count = slot_of_entries(places), len(places) - 1
        size = numpy.bincount(slots, numpy.maximum(counts, 1), count).astype(numpy.int64)
        ranks = numpy.array([self._aggregation.rank(each) if each else 0 for each in size.tolist()], numpy.int64)
        found, is_large = numpy.zeros(count), size > EXACT_MAX
        small = ~is_large[slots]
        order = numpy.flatnonzero(small)[order_in_slots(slots[small], numbers[small])]
        is_exact = ~is_large & (size > 0)
        begins = numpy.searchsorted(slots[order], numpy.flatnonzero(is_exact))
        found[is_exact] = numbers[order[begins + ranks[is_exact]]]
        if is_large.any():
            large, buckets, sums = self._buckets(slots[~small], numbers[~small], counts[~small])
            below = numpy.cumsum(sums)
            before = numpy.concatenate(([0], below))[numpy.searchsorted(large, numpy.flatnonzero(is_large))]
            chosen = buckets[numpy.searchsorted(below, before + ranks[is_large], "right")]
            found[is_large] = [middle_of(bucket, self._aggregation.bits) for bucket in chosen.tolist()]
        return pyarrow.array(found, mask=size == 0)

    def _nothing(self, count: int) -> Any:
        return pyarrow.nulls(count, pyarrow.float64())


class ApproxNumber(LogAggregate):
    """Estimate of the number of distinct values.

    An entry is the hash of a value and 0; of many values, the number of a register and its rank.
    """

    def __init__(self, name: str, aggregation: ApproxDistinct, of: str) -> None:
        super().__init__(name, of)
        self._aggregation = aggregation
        self._rest_bits = HASH_BITS - aggregation.index_bits

    def _entries(self, slots: Slots, cells: Any) -> tuple[Slots, Sequence[Any]]:
        slots, cells = without_nulls(slots, cells)
        coded = cells if types.is_dictionary(cells.type) else cells.dictionary_encode()
        codes = coded.indices.to_numpy()
        first = first_of_pairs(slots, codes)
        digests = [xxh3_64_intdigest(encode_value(canonical(value))) for value in coded.dictionary.to_pylist()]
        hashes = numpy.array(digests, numpy.uint64)[codes[first]]
        return slots[first], [pyarrow.array(hashes), pyarrow.array(numpy.zeros(len(first), numpy.uint8))]

    def _compacted(self, slots: Slots, columns: list[Any]) -> tuple[Slots, Sequence[Any]]:
        hashes, ranks = (column.to_numpy() for column in columns)
        slots, hashes, ranks = _distinct(slots, hashes, ranks)
        is_hash = ranks == 0
        count = int(slots.max(initial=-1)) + 1
        has_registers = numpy.bincount(slots[is_hash], minlength=count) > HASHES_MAX
        has_registers[slots[~is_hash]] = True
        is_large = has_registers[slots]
        registers, values = self._registers(hashes[is_large], ranks[is_large])
        large, registers, values = _distinct(slots[is_large], registers, values, largest=True)
        rest = ~is_large
        return numpy.concatenate((large, slots[rest])), [
            pyarrow.array(numpy.concatenate((registers, hashes[rest]))),
            pyarrow.array(numpy.concatenate((values, ranks[rest]))),
        ]

    def _registers(self, hashes: Any, ranks: Any) -> tuple[Any, Any]:
        """Returns the registers of entries, and their ranks."""
        rest = hashes & numpy.uint64((1 << self._rest_bits) - 1)
        lengths = numpy.where(rest >> WORD, WORD + _bit_length(rest >> WORD), _bit_length(rest))
        is_hash = ranks == 0
        return (
            numpy.where(is_hash, hashes >> self._rest_bits, hashes),
            numpy.where(is_hash, self._rest_bits - lengths + 1, ranks).astype(numpy.uint8),
        )

    def _results(self, columns: list[Any], places: Places) -> Any:
        slots, entries = self._compacted(slot_of_entries(places), columns)
        registers, ranks = (column.to_numpy() for column in entries)
        is_hash = ranks == 0
        count = len(places) - 1
        found = numpy.bincount(slots[is_hash], minlength=count).astype(numpy.int64)
        large = numpy.flatnonzero(~is_hash)
        bounds = numpy.searchsorted(slots[large], numpy.arange(count + 1))
        for slot in numpy.unique(slots[large]).tolist():
            of_slot = large[bounds[slot] : bounds[slot + 1]]
            found[slot] = round(estimate(self._sketch(registers[of_slot], ranks[of_slot])))
        return pyarrow.array(found)

    def _sketch(self, registers: Any, ranks: Any) -> bytes:
        sketch = numpy.zeros(1 << self._aggregation.index_bits, numpy.uint8)
        numpy.maximum.at(sketch, registers.astype(numpy.int64), ranks)
        return sketch.tobytes()

    def _nothing(self, count: int) -> Any:
        return pyarrow.array(numpy.zeros(count, numpy.int64))


def sketched(name: str, aggregation: Any, of: str, type_: Any) -> LogAggregate | None:
    """Makes the sketch of an aggregation; None if there is none for the type of the column."""
    if type(aggregation) is ApproxDistinct:
        return ApproxNumber(name, aggregation, of) if has_codes(type_) else None
    is_number = types.is_integer(type_) or types.is_float32(type_) or types.is_float64(type_) or types.is_boolean(type_)
    return QuantileColumn(name, aggregation, of) if is_number and not types.is_uint64(plain_type(type_)) else None


def _distinct(slots: Slots, numbers: Any, ranks: Any, *, largest: bool = False) -> tuple[Slots, Any, Any]:
    """Returns the distinct entries by slot; ``largest``: of those of one number that with the largest rank."""
    order = numpy.lexsort((ranks, numbers, slots))
    slots, numbers, ranks = slots[order], numbers[order], ranks[order]
    differs = (slots[1:] != slots[:-1]) | (numbers[1:] != numbers[:-1])
    if not largest:
        differs |= ranks[1:] != ranks[:-1]
    is_last = numpy.concatenate((differs, [True]))[: len(order)]
    return slots[is_last], numbers[is_last], ranks[is_last]


def _bit_length(numbers: Any) -> Any:
    """Returns the number of bits of the lower words."""
    return numpy.frexp((numbers & numpy.uint64((1 << WORD) - 1)).astype(numpy.float64))[1]


def _buckets_of(numbers: Any, bits: int) -> Any:
    """Returns the buckets of numbers without nan, as ``bucket_of`` does."""
    is_finite = numpy.isfinite(numbers)
    mantissa, exponent = numpy.frexp(numpy.abs(numpy.where(is_finite, numbers, 1.0)))
    place = numpy.ldexp(mantissa - 0.5, bits + 1).astype(numpy.int64)
    buckets = ((exponent.astype(numpy.int64) - EXPONENT_MIN) << bits) + place + 1
    buckets = numpy.where(is_finite, numpy.where(numbers == 0, 0, buckets), INFINITE)
    return numpy.where(numbers < 0, -buckets, buckets)
