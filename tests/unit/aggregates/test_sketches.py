"""Sketches keep within their error, and neither the order of records nor merges change them."""

from __future__ import annotations

import math
from random import Random
from typing import Any

import numpy
import pytest

from clonos import agg
from clonos.agg import Aggregation
from clonos.operators.aggregates.distinct import HASHES_MAX, estimate, index_bits
from clonos.operators.aggregates.quantiles import EXACT_MAX, bucket_of, mantissa_bits, middle_of


def added(aggregation: Aggregation[Any, Any], values: Any) -> Any:
    accumulator = aggregation.create()
    for value in values:
        accumulator = aggregation.add(accumulator, value)
    return accumulator


def merged(aggregation: Aggregation[Any, Any], values: list[Any], rng: Random) -> Any:
    """An accumulator of the values in another order, merged from parts of many sizes."""
    shuffled = rng.sample(values, len(values))
    accumulator = aggregation.create()
    while shuffled:
        size = rng.choice((1, 7, 60, 300, 2_000))
        part, shuffled = shuffled[:size], shuffled[size:]
        if rng.random() < 0.5:
            accumulator = aggregation.merge(accumulator, added(aggregation, part))
        else:
            accumulator = aggregation.merge(added(aggregation, part), accumulator)
    return accumulator


@pytest.mark.parametrize("size", [0, 1, HASHES_MAX, HASHES_MAX + 1, 1_000, 10_000, 60_000])
@pytest.mark.parametrize("error", [0.01, 0.05])
def test_approx_distinct_is_within_four_standard_errors(size: int, error: float) -> None:
    aggregation = agg.approx_distinct(error=error)
    accumulator = added(aggregation, (f"user {number % (size or 1)}" for number in range(size + size // 3)))
    allowed = 0 if size <= HASHES_MAX else 4 * error * size
    assert abs(aggregation.result(accumulator) - size) <= allowed


def test_approx_distinct_has_no_bias_where_the_registers_fill() -> None:
    aggregation = agg.approx_distinct(error=0.05)
    errors = []
    for sample in range(40):
        accumulator = added(aggregation, ((sample, number) for number in range(1_500)))
        errors.append(aggregation.result(accumulator) / 1_500 - 1)
    assert abs(sum(errors) / len(errors)) < 3 * 0.046 / math.sqrt(len(errors))


@pytest.mark.parametrize("size", [HASHES_MAX - 1, HASHES_MAX + 1, 5_000])
def test_approx_distinct_has_the_same_bytes_in_any_order_and_cut(size: int) -> None:
    aggregation, values, rng = agg.approx_distinct(), list(range(size)), Random(size)
    whole = added(aggregation, values)
    for _ in range(5):
        assert merged(aggregation, values + values[: size // 2], rng) == whole


def test_registers_that_are_full_count_as_the_published_series() -> None:
    # tau(x) = (1 - x - sum over k of (1 - x ** 2 ** -k) ** 2 * 2 ** -k) / 3: Ertl (2017), equation 17
    for full in (1, 8, 15):
        share = 1 - full / 16
        tau = (1 - share - sum((1 - share**2.0**-k) ** 2 * 2.0**-k for k in range(1, 60))) / 3
        rank_max = 60
        registers = bytes([rank_max + 1] * full + [rank_max] * (16 - full))
        total = 0.5 * (16 * tau + 16 - full) / 2.0 ** (rank_max - 1)
        assert estimate(registers) == pytest.approx(16 * 16 / (2 * math.log(2) * total), rel=1e-9)


def test_the_error_of_approx_distinct_decides_its_size() -> None:
    assert {error: index_bits(error) for error in (0.26, 0.05, 0.01, 0.0082, 0.0021)} == {
        0.26: 4,
        0.05: 9,
        0.01: 14,
        0.0082: 14,
        0.0021: 18,
    }


QUANTILES = (0.0, 0.01, 0.5, 0.95, 0.999, 1.0)


@pytest.mark.parametrize("q", QUANTILES)
@pytest.mark.parametrize("error", [0.05, 0.01, 0.001])
def test_a_quantile_is_within_its_error(q: float, error: float) -> None:
    rng = Random(int(q * 1000))
    samples = {
        "latencies": [rng.lognormvariate(0, 2) for _ in range(5_000)],
        "both signs": [rng.gauss(0, 1e9) for _ in range(5_000)],
        "few values": [rng.choice((-1.5, 0, 3, 1e300)) for _ in range(EXACT_MAX + 1)],
    }
    aggregation = agg.quantile(None, q, error=error)
    for values in samples.values():
        expected = sorted(values)[math.floor(q * (len(values) - 1))]
        result = aggregation.result(added(aggregation, values))
        assert result is not None
        assert abs(result - expected) <= error * abs(expected)


def test_a_quantile_has_the_same_buckets_in_any_order_and_cut() -> None:
    rng = Random(1)
    values = [rng.lognormvariate(0, 3) * rng.choice((-1, 1)) for _ in range(3_000)]
    aggregation = agg.quantile(None, 0.5)
    whole = added(aggregation, values)
    for _ in range(5):
        assert merged(aggregation, values, rng) == whole


def test_every_bucket_has_its_middle_and_larger_numbers_have_larger_buckets() -> None:
    rng, bits = Random(2), mantissa_bits(0.01)
    numbers = [math.ldexp(rng.random() + 0.5, rng.randrange(-1000, 1000)) for _ in range(2_000)]
    numbers += [1.0, 2.0, math.nextafter(2.0, 0), 0.0, math.inf, -math.inf, 5e-324, 1.7976931348623157e308]
    numbers += [-number for number in numbers]
    buckets = [bucket_of(number, bits) for number in sorted(numbers)]
    assert buckets == sorted(buckets)
    for number in numbers:
        assert bucket_of(middle_of(bucket_of(number, bits), bits), bits) == bucket_of(number, bits)
    assert middle_of(bucket_of(-math.inf, bits), bits) == -math.inf
    assert middle_of(0, bits) == 0.0


def test_the_rank_of_a_quantile_follows_from_its_decimal_digits() -> None:
    for percent in range(101):
        found = agg.quantile(None, percent / 100)
        for size in range(1, EXACT_MAX + 1):
            ranked = found.result([float(number) for number in range(size)])
            assert ranked == percent * (size - 1) // 100, (percent, size)


def test_the_rank_above_the_exact_ones_follows_from_its_decimal_digits_too() -> None:
    found = agg.quantile(None, 0.29, error=0.0001)  # 0.29 * 100 is 28.999999999999996
    assert round(found.result(added(found, range(101))) or 0, 1) == 29


def test_distinct_values_of_numpy_are_those_of_python() -> None:
    values = [numpy.int64(1), 1, numpy.float64(-0.0), 0.0, numpy.float64("nan"), float("nan"), numpy.str_("a"), "a"]
    assert agg.approx_distinct().result(added(agg.approx_distinct(), values)) == 4
    assert len(agg.distinct().result(added(agg.distinct(), values))) == 4
