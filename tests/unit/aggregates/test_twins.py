"""Every aggregate equals a simple function of the whole list, however the list is cut, merged and stored between."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clonos import agg
from clonos.agg import Aggregation
from clonos.core.values import decode_value, encode_value
from clonos.operators.aggregates.custom import Reduction


def no_values() -> list[Any]:
    """A new accumulator."""
    return []


NAN = float("nan")

ints = st.integers(-(10**30), 10**30) | st.integers(-3, 3)
floats = st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from([0.1, 0.2, -0.1, 1e16, -1e16, 1.0])
any_floats = st.floats() | st.sampled_from([math.inf, -math.inf, NAN, NAN])
decimals = st.decimals(-(10**20), 10**20, allow_nan=False, allow_infinity=False)
durations = st.timedeltas(timedelta(-1000), timedelta(1000))
numbers = ints | floats
scalars = st.one_of(st.none(), st.booleans(), ints, st.floats(), st.text(max_size=2), st.binary(max_size=2), decimals)
records = st.tuples(st.integers(0, 4), st.integers(0, 99)) | st.none()


def lists(values: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    return st.lists(st.none() | values, max_size=30)


def stored(accumulator: Any) -> Any:
    """An accumulator as a restore gives it back."""
    data = encode_value(accumulator)
    copied = decode_value(data)
    assert encode_value(copied) == data
    return copied


def folded(aggregation: Aggregation[Any, Any], values: list[Any], draw: Callable[[st.SearchStrategy[Any]], Any]) -> Any:
    """An accumulator of the values: added one by one, or merged from two parts that are folded in the same way."""
    way = draw(st.integers(0, 3)) if len(values) > 1 else 0
    if way < 2:
        accumulator = aggregation.create()
        for value in values:
            accumulator = aggregation.add(accumulator, value)
        return stored(accumulator) if way else accumulator
    cut = draw(st.integers(0, len(values)))
    left, right = folded(aggregation, values[:cut], draw), folded(aggregation, values[cut:], draw)
    before = encode_value(right)
    merged = aggregation.merge(left, right)
    if way == 3:  # records may follow a merge, and the other side is still that of its own records
        aggregation.add(aggregation.merge(merged, right), values[0])
        assert encode_value(right) == before
        left = folded(aggregation, values[:cut], draw)
        merged = aggregation.merge(left, right)
    assert encode_value(right) == before
    return merged


def same(left: Any, right: Any) -> bool:
    """Equal in type and value; nan equals nan, and -0.0 equals 0.0."""
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, float) and isinstance(right, float):
        return left == right or (math.isnan(left) and math.isnan(right))
    return type(left) is type(right) and left == right


def present(values: list[Any]) -> list[Any]:
    return [value for value in values if value is not None]


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


def exact_sum(values: list[Any]) -> Any:
    found = present(values)
    if any(isinstance(value, float) for value in found):
        return _nearest(sum(map(Fraction, found), Fraction(0)))
    return sum(found)


def _nearest(number: Fraction) -> float:
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf


def exact_mean(values: list[Any]) -> Any:
    found = present(values)
    return _nearest(sum(map(Fraction, found), Fraction(0)) / len(found)) if found else None


def exact_variance(values: list[Any], ddof: int = 1) -> Any:
    found = [Fraction(value) for value in present(values)]
    if len(found) <= ddof:
        return None
    mean = sum(found, Fraction(0)) / len(found)
    return _nearest(sum(((value - mean) ** 2 for value in found), Fraction(0)) / (len(found) - ddof))


def exact_stddev(values: list[Any]) -> Any:
    variance = exact_variance(values)
    return None if variance is None else math.sqrt(variance)


def smallest(values: list[Any]) -> Any:
    found = present(values)
    return min([value for value in found if not _is_nan(value)] or found, default=None, key=_place_of)


def largest(values: list[Any]) -> Any:
    found = present(values)
    return max([value for value in found if not _is_nan(value)] or found, default=None, key=_place_of)


def _place_of(value: Any) -> Any:
    """Of equal numbers a float is the smaller one, and of these -0.0."""
    return value, type(value) is not float, math.copysign(1, value) if type(value) is float else 0


def distinct_values(values: list[Any]) -> list[Any]:
    found: list[Any] = []
    for value in present(values):
        if not any(same(value, other) or (type(value) is Decimal and same(value, other)) for other in found):
            found.append(value)
    return found


def ranked(values: list[Any], k: int, is_top: bool) -> list[Any]:
    found = [value for value in values if value is not None and value[0] != 0]  # 0 stands for a rank of None
    return sorted(found, key=lambda value: value[0], reverse=is_top)[:k]  # sorting keeps the order of equal ranks


def _rank(value: Any) -> Any:
    return None if value is None or value[0] == 0 else value[0]


def lower_quantile(values: list[Any], q: float) -> Any:
    found = sorted(float(value) for value in present(values))
    return found[math.floor(Fraction(repr(q)) * (len(found) - 1))] if found else None


class Case(NamedTuple):
    name: str
    aggregation: Aggregation[Any, Any]
    values: st.SearchStrategy[list[Any]]
    twin: Callable[[list[Any]], Any]


CASES = [
    Case("count", agg.count(), lists(ints), len),
    Case("count_if", agg.count_if(lambda value: value), lists(ints), lambda values: sum(map(bool, values))),
    Case("sum of ints", agg.sum_(), lists(ints | st.booleans()), lambda values: sum(map(int, present(values)))),
    Case("sum of floats", agg.sum_(), lists(floats), exact_sum),
    Case("sum of ints and floats", agg.sum_(), lists(numbers), exact_sum),
    Case(
        "sum of any floats", agg.sum_(), st.lists(any_floats, min_size=1, max_size=9), lambda values: _special(values)
    ),
    Case("sum of decimals", agg.sum_(), lists(decimals | ints), lambda values: _decimal_sum(values)),
    Case("sum of durations", agg.sum_(), st.lists(durations, min_size=1), lambda values: sum(values, timedelta())),
    Case("mean", agg.mean(), lists(numbers), exact_mean),
    Case("mean of durations", agg.mean(), lists(durations), lambda values: _mean_duration(present(values))),
    Case("variance", agg.variance(), lists(numbers), exact_variance),
    Case("variance ddof 0", agg.variance(ddof=0), lists(numbers), lambda values: exact_variance(values, 0)),
    Case("stddev", agg.stddev(), lists(numbers), exact_stddev),
    Case("min", agg.min_(), lists(ints | any_floats), smallest),
    Case("max", agg.max_(), lists(ints | any_floats), largest),
    Case("min of str", agg.min_(), lists(st.text(max_size=2)), smallest),
    Case("first", agg.first(), lists(scalars), lambda values: next(iter(present(values)), None)),
    Case("last", agg.last(), lists(scalars), lambda values: next(iter(present(values)[::-1]), None)),
    Case("collect", agg.collect(), lists(scalars), present),
    Case("distinct", agg.distinct(), lists(scalars), distinct_values),
    Case("distinct of lists", agg.distinct(), lists(st.lists(st.integers(0, 1), max_size=2)), distinct_values),
    Case("count_distinct", agg.count_distinct(), lists(scalars), lambda values: len(distinct_values(values))),
    Case("approx_distinct", agg.approx_distinct(), lists(scalars), lambda values: len(distinct_values(values))),
    Case("quantile", agg.quantile(None, 0.9), lists(numbers), lambda values: lower_quantile(values, 0.9)),
    Case("top_k", agg.top_k(3, by=_rank), lists(records), lambda values: ranked(values, 3, True)),
    Case("bottom_k", agg.bottom_k(3, by=_rank), lists(records), lambda values: ranked(values, 3, False)),
    Case("top_k of values", agg.top_k(4), lists(ints), lambda values: sorted(present(values), reverse=True)[:4]),
    Case("aggregate", agg.aggregate(no_values, list.append, list.extend, len), lists(scalars), len),
    Case("aggregate that returns", agg.aggregate(tuple, lambda a, v: (*a, v), lambda a, b: a + b), lists(ints), tuple),
    Case("reduce", Reduction(lambda a, b: a + b), st.lists(st.text(max_size=1), min_size=1), "".join),
]


def _special(values: list[Any]) -> Any:
    total = exact_sum([value for value in values if math.isfinite(value)])
    specials = [value for value in values if not math.isfinite(value)]
    return sum(specials) if specials else float(total)


def _decimal_sum(values: list[Any]) -> Any:
    found = present(values)
    total = sum((Fraction(value) for value in found), Fraction(0))
    if all(isinstance(value, int) for value in found):
        return int(total)
    digits = max(-int(value.as_tuple().exponent) for value in found if isinstance(value, Decimal))
    return _Like(total, digits)


class _Like:
    """A decimal of this exact value."""

    def __init__(self, total: Fraction, digits: int) -> None:
        self.total = total

    def equals(self, other: Any) -> bool:
        return isinstance(other, Decimal) and Fraction(other) == self.total


def _mean_duration(found: list[timedelta]) -> Any:
    return sum(found, timedelta()) / len(found) if found else None


def agrees(result: Any, expected: Any) -> bool:
    return expected.equals(result) if isinstance(expected, _Like) else same(result, expected)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_an_aggregate_is_that_of_the_whole_list(case: Case) -> None:
    @settings(max_examples=60, deadline=None)
    @given(case.values, st.data())
    def check(values: list[Any], data: st.DataObject) -> None:
        accumulator = folded(case.aggregation, values, data.draw)
        before = encode_value(accumulator)
        result = case.aggregation.result(accumulator)
        assert agrees(result, case.twin(values)), (result, case.twin(values))
        if isinstance(result, list):
            result.clear()
        assert encode_value(accumulator) == before, "result() changed the accumulator"

    check()
