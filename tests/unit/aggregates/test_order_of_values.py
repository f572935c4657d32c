"""Aggregates at the ends of types: local times that repeat, zeros, infinities, durations. Order changes nothing."""

import itertools
import math
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import numpy
import pyarrow
import pytest

from clonos import agg
from clonos.core.values.ordering import is_smaller, ordered
from clonos.operators.columnar.column_aggregates import ExtremeColumn
from clonos.testing import Harness

NEW_YORK = ZoneInfo("America/New_York")
START = datetime(2026, 11, 1, 5, 30, tzinfo=UTC)  # 01:30 in New York, for the first time
REPEATED = [(START + timedelta(minutes=minutes)).astimezone(NEW_YORK) for minutes in (0, 70, 31, 69)]


def of(aggregation: Any, values: Any) -> Any:
    found = aggregation.create()
    for value in values:
        found = aggregation.insert(found, aggregation.term(value))
    return aggregation.result(found)


@pytest.mark.parametrize("values", [*itertools.permutations(REPEATED)])
def test_local_times_are_ordered_as_instants_when_clocks_repeat_an_hour(values: tuple[datetime, ...]) -> None:
    assert of(agg.min_(), values).astimezone(UTC) == START
    assert of(agg.max_(), values).astimezone(UTC) == START + timedelta(minutes=70)
    assert [each.astimezone(UTC) for each in of(agg.top_k(2), values)] == [
        START + timedelta(minutes=minutes) for minutes in (70, 69)
    ]
    assert of(agg.bottom_k(1), [(each, "text") for each in values])[0][0].astimezone(UTC) == START


def test_a_running_top_k_ranks_local_times_as_instants() -> None:
    with Harness(steps=lambda stream: stream.top_k(2, by=lambda value: value), key=lambda value: 1) as harness:
        ((_, found),) = harness.push(REPEATED)[-1:]
    assert [each.astimezone(UTC) for each in found] == [START + timedelta(minutes=minutes) for minutes in (70, 69)]


def test_local_times_at_the_ends_of_the_calendar_can_be_ordered() -> None:
    ends = [end.replace(tzinfo=NEW_YORK) for end in (datetime.min, datetime.max)]
    assert of(agg.min_(), ends) == ends[0]
    assert ordered([(ends[1], 1)])[0][0].utcoffset() == ends[1].utcoffset()


@pytest.mark.parametrize(
    ("least", "largest"),
    [
        (-0.0, 0.0),
        (Decimal("-0"), Decimal("0")),
        (Decimal("1.00"), Decimal("1.0")),
        (True, 1),
        (1.0, 1),
    ],
)
def test_of_equal_values_one_is_the_least_in_every_order(least: Any, largest: Any) -> None:
    for values in ((least, largest), (largest, least)):
        assert repr(of(agg.min_(), values)) == repr(least)
        assert repr(of(agg.max_(), values)) == repr(largest)
    assert is_smaller(least, largest)
    assert not is_smaller(largest, least)


@pytest.mark.parametrize("values", [*itertools.permutations([0.0, -0.0, math.nan, 1.0, -1.0], 3)])
def test_zeros_have_one_order_in_columns_and_in_rows(values: tuple[float, ...]) -> None:
    for is_largest, aggregation in ((False, agg.min_()), (True, agg.max_())):
        column = ExtremeColumn("x", "x", pyarrow.float64(), is_largest=is_largest)
        state = {name: numpy.zeros(1, dtype) for name, dtype in column.dtypes().items()}
        for part in (values[:1], values[1:]):
            column.add(state, numpy.zeros(len(part), numpy.int32), pyarrow.array(part))
        assert repr(column.results(state, numpy.array([0])).to_pylist()[0]) == repr(of(aggregation, values))


@pytest.mark.parametrize("values", [*itertools.permutations([timedelta.max, timedelta(days=2), -timedelta(days=3)])])
def test_only_the_sum_of_lengths_of_time_has_to_fit_and_not_each_one_on_the_way(values: tuple[timedelta, ...]) -> None:
    assert of(agg.sum_(), values) == timedelta.max - timedelta(days=1)
    assert of(agg.mean(), values) == (timedelta.max - timedelta(days=1)) / 3


def test_a_sum_of_lengths_of_time_that_no_timedelta_holds_is_an_error_with_its_size() -> None:
    with pytest.raises(OverflowError, match="the sum, 1000000001 days, is longer than a timedelta can be"):
        of(agg.sum_(), [timedelta.max, timedelta(days=2)])
    assert of(agg.mean(), [timedelta.max, timedelta.max]) == timedelta.max
    with pytest.raises(TypeError, match=r"a length of time has no square: convert it with \.total_seconds\(\)"):
        of(agg.variance(), [timedelta(1)])


INFINITE = Decimal("Infinity")


@pytest.mark.parametrize("values", [[INFINITE, -INFINITE], [Decimal("sNaN"), Decimal(1)], [INFINITE, Decimal("NaN")]])
def test_infinities_of_decimals_are_added_as_those_of_floats(values: list[Decimal]) -> None:
    for aggregation in (agg.sum_(), agg.mean(), agg.variance(), agg.stddev()):
        assert of(aggregation, values).is_nan()
    assert of(agg.sum_(), [INFINITE, Decimal(1)]) == of(agg.mean(), [1, INFINITE]) == INFINITE
    assert of(agg.variance(), [INFINITE, Decimal(1)]).is_nan()


@pytest.mark.parametrize(
    ("value", "error", "reason"),
    [
        ((1, 2), TypeError, r"\(1, 2\) is a tuple, not a number"),
        (timedelta(1), TypeError, r"is a timedelta, not a number: convert it with \.total_seconds\(\)"),
        (10**400, OverflowError, "a quantile is a float, and this int is larger than any"),
    ],
)
def test_a_quantile_names_the_value_that_is_not_a_number_to_it(value: Any, error: type[Exception], reason: str) -> None:
    with pytest.raises(error, match=reason):
        of(agg.quantile("x", 0.5), [{"x": value}])
    assert of(agg.quantile("x", 0.5), [{"x": Decimal("sNaN")}, {"x": 3}]) == 3.0


def test_an_int_that_python_does_not_print_is_an_error_that_can_be_read() -> None:
    with pytest.raises(OverflowError, match=r"^a quantile is a float, and this int is larger than any: divide it$"):
        of(agg.quantile("x", 0.5), [{"x": -(10**9_000)}])


def test_a_quantile_of_zeros_does_not_depend_on_their_order() -> None:
    for values in itertools.permutations((0.0, -0.0, -0.0)):
        assert repr(of(agg.quantile(None, 0.5), values)) == "0.0"


def test_a_decimal_whose_square_has_no_exponent_is_an_error() -> None:
    with pytest.raises(ArithmeticError, match=r"the exact square of decimals has .*, or an exponent beyond 999999"):
        of(agg.variance(), [Decimal("1E+600000")])


def test_equal_decimals_are_one_distinct_value_however_long_they_are() -> None:
    forms = ("0", "-0", "0.00", "sNaN", "NaN7", "-NaN", "1E+2000000", "10E+1999999", "Infinity")
    values = [*map(Decimal, forms), Decimal(10**12_000), Decimal(10**12_000 + 1)]
    for counting in (agg.count_distinct(), agg.approx_distinct()):
        assert of(counting, values) == 6


class Nanoseconds(timedelta):
    """A length of time as pandas has it."""

    nanoseconds = 7


def test_a_length_of_time_with_nanoseconds_is_an_error_and_not_cut() -> None:
    with pytest.raises(ValueError, match="has nanoseconds, which a timedelta cannot have: round it to microseconds"):
        of(agg.sum_(), [Nanoseconds(1)])


class Seen(NamedTuple):
    """A rank with a name for each part."""

    at: datetime
    number: int


def test_a_named_tuple_is_ordered_by_its_instants() -> None:
    early, late = (
        Seen(datetime(2026, 11, 1, 1, minute, fold=fold, tzinfo=NEW_YORK), 1) for fold, minute in ((0, 40), (1, 5))
    )
    assert of(agg.top_k(1), [early, late])[0].at.fold == 1
    assert of(agg.min_(), [late, early]).at.fold == 0
