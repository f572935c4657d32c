"""What an aggregate takes of a record, several by name, and records that raise."""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal, getcontext, localcontext
from itertools import permutations
from typing import Any, NamedTuple

import numpy
import pytest

from clonos import agg
from clonos.agg import Aggregation
from clonos.core.values import encode_value
from clonos.operators.aggregates.aggregate import Named
from clonos.operators.aggregates.arguments import BadAggregate
from clonos.operators.row_errors import FieldMissing


class Bid(NamedTuple):
    bidder: str
    price: int


@dataclass
class Reading:
    price: float


def result_of(aggregation: Aggregation[Any, Any], *records: Any) -> Any:
    accumulator = aggregation.create()
    for record in records:
        accumulator = aggregation.add(accumulator, record)
    return aggregation.result(accumulator)


def test_a_field_is_a_key_of_a_dict_or_an_attribute() -> None:
    records = ({"price": 1}, Bid("ann", 2), Reading(4.5))
    assert result_of(agg.sum_("price"), *records) == 7.5
    assert result_of(agg.sum_(lambda bid: bid.price * 2), Bid("ann", 2), Bid("bob", 3)) == 10
    assert result_of(agg.top_k(1, by="price"), *records) == [Reading(4.5)]


def test_a_missing_field_is_named_with_those_that_are_there() -> None:
    with pytest.raises(FieldMissing, match=r"has no field .prise.; it has item, price\. Correct the name"):
        result_of(agg.sum_("prise"), {"item": "pen", "price": 2})
    with pytest.raises(AttributeError, match="'Bid' object has no attribute 'prise'"):
        result_of(agg.sum_("prise"), Bid("ann", 2))


@pytest.mark.parametrize("aggregation", [agg.sum_(), agg.mean(), agg.stddev(), agg.quantile(None, 0.5)], ids=repr)
def test_a_number_that_is_text_is_an_error(aggregation: Aggregation[Any, Any]) -> None:
    with pytest.raises(TypeError, match=r"'12\.5' is a str, not a number: convert it with"):
        result_of(aggregation, "12.5")


def test_decimals_and_floats_are_not_added() -> None:
    with pytest.raises(TypeError, match="a Decimal and a float cannot be added: convert all to one type"):
        result_of(agg.sum_(), Decimal(1), 0.5)
    with pytest.raises(TypeError, match="a float and a Decimal cannot be added"):
        result_of(agg.mean(), 0.5, Decimal(1))
    with pytest.raises(TypeError, match="cannot be added"):
        result_of(agg.sum_(), float("inf"), Decimal(1))


def test_sums_of_decimals_do_not_depend_on_the_decimal_context() -> None:
    prices = [Decimal("0.1"), Decimal("1e30"), Decimal("-1e30"), Decimal("0.02")]
    with localcontext() as context:
        context.prec = 3
        assert result_of(agg.sum_(), *prices) == Decimal("0.12")
        assert result_of(agg.mean(), Decimal(1), Decimal(1), Decimal(2)) == Decimal("1.333333333333333333333333333")
        assert result_of(agg.stddev(), Decimal(1), Decimal(3)) == Decimal("1.414213562373095048801688724")
    assert getcontext().prec == 28


def test_a_sum_of_decimals_that_is_too_long_is_an_error() -> None:
    with pytest.raises(ArithmeticError, match="the exact sum of decimals has more than 10000 digits"):
        result_of(agg.sum_(), Decimal("1E+9000"), Decimal("1E-9000"))


def test_scalars_of_numpy_are_numbers() -> None:
    assert result_of(agg.sum_(), numpy.int32(2), numpy.float32(0.5), numpy.bool_(True)) == 3.5
    assert type(result_of(agg.sum_(), numpy.int64(2))) is int
    assert result_of(agg.distinct(), numpy.int64(2), 2) == [2]


def test_a_sum_beyond_all_floats_is_infinite_and_comes_back() -> None:
    assert result_of(agg.sum_(), 1.7e308, 1.7e308) == float("inf")
    assert result_of(agg.sum_(), 1.7e308, 1.7e308, -1.7e308) == 1.7e308
    assert result_of(agg.mean(), 1.7e308, 1.7e308) == 1.7e308


def test_equal_values_of_other_forms_are_one_distinct_value() -> None:
    values = (Decimal("1.0"), Decimal("1.00"), 0.0, -0.0, float("nan"), float("nan"), 1, True, 1.0)
    assert repr(result_of(agg.distinct(), *values)) == "[Decimal('1.0'), 0.0, nan, 1, True, 1.0]"
    assert result_of(agg.approx_distinct(), *values) == 6


def test_a_result_is_no_part_of_the_state() -> None:
    record = {"price": 1, "tags": ["a"]}
    for aggregation in (agg.first(), agg.last(), agg.collect(), agg.distinct(), agg.top_k(2, by="price")):
        accumulator = aggregation.add(aggregation.create(), record)
        before = encode_value(accumulator)
        result = aggregation.result(accumulator)
        (result[0] if isinstance(result, list) else result)["tags"].append("b")
        assert encode_value(accumulator) == before, aggregation


def test_a_nan_is_the_smallest_and_largest_value_only_if_there_is_nothing_else() -> None:
    nan = float("nan")
    for aggregation in (agg.min_(), agg.max_()):
        assert result_of(aggregation, nan, 2.0) == result_of(aggregation, 2.0, nan) == 2.0
        assert math.isnan(result_of(aggregation, nan, nan))


def test_the_result_of_own_functions_shares_nothing_with_the_accumulator_and_neither_does_a_merge() -> None:
    rows: Aggregation[Any, Any] = agg.aggregate(list, list.append, list.extend)
    left, right = rows.add(rows.create(), ["a"]), rows.add(rows.create(), ["b"])
    rows.result(left)[0].append("changed")
    assert left == [["a"]]
    merged = rows.merge(left, right)
    merged[1].append("changed")
    assert right == [["b"]]


def named(**aggregations: Aggregation[Any, Any]) -> Named[Any]:
    return Named(aggregations)


def test_named_aggregates_have_the_order_of_their_names() -> None:
    everything = named(
        who=agg.distinct("bidder"), total=agg.sum_("price"), own=agg.aggregate(list, list.append), n=agg.count()
    )
    bids = [Bid("bob", 3), Bid("ann", 4), Bid("bob", 1)]
    assert result_of(everything, *bids) == {"who": ["bob", "ann"], "total": 8, "own": bids, "n": 3}
    assert list(result_of(everything)) == ["who", "total", "own", "n"]
    assert repr(everything) == "who=distinct('bidder'), total=sum_('price'), own=aggregate(functions), n=count()"


def test_named_aggregates_merge() -> None:
    everything = named(who=agg.distinct(), total=agg.sum_(), n=agg.count())
    left, right = everything.create(), everything.create()
    for number in (1, 2, 2):
        left = everything.add(left, number)
    right = everything.add(everything.add(right, 5), 2)
    assert everything.result(everything.merge(left, right)) == {"who": [1, 2, 5], "total": 12, "n": 5}
    assert everything.result(right) == {"who": [5, 2], "total": 7, "n": 2}


def test_a_record_that_raises_in_one_aggregate_is_in_none() -> None:
    def refuse(total: int, record: Any) -> int:
        if record == "boom":
            raise ValueError
        return total + 1

    by_length = agg.quantile(len, 0.5)
    everything = named(
        all=agg.collect(), who=agg.distinct(), length=by_length, own=agg.aggregate(int, refuse), n=agg.count(),
        top=agg.top_k(2), least=agg.min_(),
    )  # fmt: skip
    accumulator = everything.add(everything.create(), "good")
    before = encode_value(accumulator)
    for record in ("boom", 3, [1], None):
        with pytest.raises((ValueError, TypeError)):
            everything.add(accumulator, record)
        assert encode_value(accumulator) == before


def test_named_aggregates_ignore_order_and_merge_if_all_of_them_do() -> None:
    assert named(n=agg.count(), total=agg.sum_()).ignores_order
    assert not named(n=agg.count(), first=agg.first()).ignores_order
    assert named(n=agg.count(), own=agg.aggregate(list, list.append, list.extend)).can_merge
    assert not named(n=agg.count(), own=agg.aggregate(list, list.append)).can_merge


def test_a_wrong_argument_is_one_sentence() -> None:
    wrong: list[tuple[Any, str]] = [
        (lambda: agg.sum_(3), "sum_() gets of=3. Give it a function of the record, or the name of a field."),  # type: ignore[call-overload]
        (lambda: agg.count_if(True), "count_if() gets condition=True. Give it a function."),  # type: ignore[arg-type]
        (lambda: agg.quantile("price", 95), "quantile() gets q=95. Give a number from 0 to 1."),
        (lambda: agg.top_k(0), "top_k() gets k=0. Give an int from 1 to 10000."),
        (lambda: agg.top_k(2.0), "top_k() gets k=2.0. Give an int from 1 to 10000."),  # type: ignore[call-overload]
        (lambda: agg.approx_distinct(error=0), "approx_distinct() gets error=0. Give a number from 0.0021 to 0.26."),
        (lambda: agg.stddev(ddof=2), "stddev() gets ddof=2. Give an int from 0 to 1."),
        (lambda: agg.aggregate([], list.append), "aggregate() gets create=[]. Give it a function."),  # type: ignore[call-overload]
    ]
    for make, sentence in wrong:
        with pytest.raises(BadAggregate) as raised:
            make()
        assert str(raised.value) == sentence


NANS: dict[str, tuple[Any, Any, Any]] = {
    "float": (float("nan"), 1.0, 2.0),
    "numpy float64": (numpy.float64("nan"), numpy.float64(1), numpy.float64(2)),
    "numpy float32": (numpy.float32("nan"), numpy.float32(1), numpy.float32(2)),
    "Decimal": (Decimal("NaN"), Decimal(1), Decimal(2)),
    "a mix of both": (numpy.float64("nan"), 1, 2.0),
}


@pytest.mark.parametrize("name", NANS)
def test_a_nan_of_any_type_is_ignored_by_extremes_and_ranks(name: str) -> None:
    nan, low, high = NANS[name]
    for values in permutations((nan, low, high)):
        found: dict[str, Any] = {}
        for aggregation in (agg.min_(), agg.max_(), agg.top_k(3), agg.bottom_k(3)):
            accumulator = aggregation.create()
            for value in values:
                accumulator = aggregation.add(accumulator, value)
            merged = aggregation.merge(aggregation.add(aggregation.create(), nan), accumulator)
            assert aggregation.result(merged) == aggregation.result(accumulator)
            found[repr(aggregation)[:3]] = aggregation.result(accumulator)
        assert found == {"min": low, "max": high, "top": [high, low], "bot": [low, high]}
    for extreme in (agg.min_(), agg.max_()):
        only = extreme.result(extreme.add(extreme.create(), nan))
        assert only != only
