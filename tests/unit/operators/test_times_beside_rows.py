"""Timestamps beside rows: read from records at once, and timed by steps that leave records out or add some."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from fractions import Fraction
from typing import Any, NamedTuple, cast

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clonos.core.model.watermark import END_OF_TIME_NS
from clonos.operators.event_time.timestamp_assigner import TimestampAssigner
from clonos.operators.event_time.timestamps import TimestampError, Unit, event_time_ns
from clonos.operators.event_time.watermark_strategies import BoundedOutOfOrderness
from clonos.operators.operator import Operator, Times
from clonos.operators.steps.stateless import Filter, FlatMap
from clonos.operators.user_errors import Guard

NOW_NS = 1_700_000_000_000_000_000
DAY_NS = 86_400_000_000_000


class Routes:
    """Collector of what goes to the error output."""

    def __init__(self) -> None:
        self.errors: list[tuple[Any, str]] = []

    def routed_error(self, message: bytes) -> bool:
        return True

    def rows(self, port: int, rows: list[Any]) -> None:
        self.errors += [(row.record, row.error) for row in rows]


class Clock:
    def instant_ns(self, is_cached: bool) -> int:
        return NOW_NS


NUMBERS = st.one_of(
    st.integers(-5, 5),
    st.sampled_from([10**9, 10**9 - 1, 4_102_444_799, 4_102_444_800, 1 << 63, NOW_NS, NOW_NS + DAY_NS + 1]),
    st.integers(0, 1 << 64),
    st.integers(NOW_NS - 10**18, NOW_NS + 2 * DAY_NS),
    st.floats(),
    st.floats(1e9, 5e9),
    st.floats(1e18, 5e18),
    st.booleans(),
)
DATETIMES = st.datetimes(
    datetime(1600, 1, 1), datetime(2500, 1, 1), timezones=st.sampled_from([None, UTC, timezone(timedelta(hours=2))])
)
OTHERS = st.sampled_from([None, "2024-01-01T00:00:00+00:00", "soon", b"x", numpy.int64(NOW_NS), Fraction(3)])


def expected(value: Any, unit: Unit, future_max_ns: int | None) -> int | str:
    """The timestamp, or the beginning of the error."""
    try:
        found = event_time_ns(value, unit)
    except TimestampError as error:
        return f"TimestampError: {error}, in split 3"
    limit_ns = END_OF_TIME_NS if future_max_ns is None else NOW_NS + future_max_ns
    return found if found <= limit_ns else "TimestampError: the timestamp "


@settings(max_examples=400, deadline=None)
@given(
    st.lists(st.one_of(NUMBERS, DATETIMES, OTHERS), max_size=6), st.sampled_from(Unit), st.sampled_from([None, DAY_NS])
)
def test_timestamps_of_a_batch_are_those_of_each_record_with_the_same_errors(
    values: list[Any], unit: Unit, future_max_ns: int | None
) -> None:
    routes = Routes()
    assigner = TimestampAssigner(lambda row: row[1], unit, BoundedOutOfOrderness(0), 1, 0, future_max_ns)
    rows = list(enumerate(values))
    guard = Guard("given", True, cast(Any, routes), 1)
    timed, times = assigner.assign(rows, guard, cast(Any, Clock()), ", in split 3")
    assert all(type(each) is int for each in times)
    found: dict[int, int | str] = {row[0]: time for row, time in zip(timed, times, strict=True)}
    assert [row for row, _ in timed] == sorted(row for row, _ in timed)
    errors = [error for _, error in routes.errors]
    for number, value in rows:
        wanted = expected(value, unit, future_max_ns)
        if isinstance(wanted, int):
            assert found.pop(number) == wanted
        else:
            assert errors.pop(0).startswith(wanted)
    assert not found
    assert not errors


class Click(NamedTuple):
    at: int


@dataclass
class Reading:
    at: int


class Slow:
    @property
    def at(self) -> int:
        raise AttributeError("not measured")


def test_a_field_is_read_from_records_of_any_class_in_one_batch() -> None:
    routes = Routes()
    assigner = TimestampAssigner("at", Unit.NANOSECONDS, BoundedOutOfOrderness(0), 1, 0, None)
    guard = Guard("given", True, cast(Any, routes), 1)
    rows: list[Any] = [
        *({"at": NOW_NS}, Click(NOW_NS + 1), Reading(NOW_NS + 2), Click(NOW_NS + 3), {"to": 1}, Slow(), 7),
        *(Reading(NOW_NS + 4), {"at": NOW_NS + 5}, Slow()),
    ]
    del rows[7].at
    timed, times = assigner.assign([*rows, Reading(NOW_NS + 6)], guard, cast(Any, Clock()), "")
    assert times == [NOW_NS, NOW_NS + 1, NOW_NS + 2, NOW_NS + 3, NOW_NS + 5, NOW_NS + 6]
    assert len(timed) == len(times)
    assert [error.partition(":")[0] for _, error in routes.errors] == ["TimestampError"] * 5
    assert all("no field 'at'" in error for _, error in routes.errors)


def test_the_function_of_a_timestamp_is_called_once_per_record() -> None:
    called: list[int] = []

    def at(row: int) -> Any:
        called.append(row)
        return None if row == 1 else NOW_NS

    assigner = TimestampAssigner(at, Unit.NANOSECONDS, BoundedOutOfOrderness(0), 1, 0, None)
    assigner.assign([0, 1, 2], Guard("given", True, cast(Any, Routes()), 1), cast(Any, Clock()), "")
    assert called == [0, 1, 2]


# ------------------------------------------------------------------ steps


class Seen(Operator):
    """What a step passes on."""

    def __init__(self) -> None:
        self.records: list[tuple[Any, int]] = []

    def rows(self, rows: list[Any], times: Times = None) -> None:
        assert rows
        assert times is not None
        self.records += zip(rows, times, strict=True)


def passed(step: Operator, rows: list[int], times: list[int], routes: Routes | None) -> list[tuple[Any, int]]:
    seen = Seen()
    step.out, step.guard = seen, Guard("step", True, cast(Any, routes), None if routes is None else 1)
    step.rows(rows, times)
    return seen.records


def some_items(number: int) -> Iterable[int]:
    """As many items as the number has ones in it, and an error in the middle for multiples of 5."""
    for item in range(number.bit_count()):
        if number % 5 == 0 and item == 1:
            raise ValueError(number)
        yield item


def list_of_items(number: int) -> list[int]:
    return list(some_items(number))


ROWS = st.lists(st.integers(0, 40), min_size=1, max_size=12)


def fails(function: Callable[[int], Any], number: int) -> bool:
    try:
        list(function(number))
    except ValueError:
        return True
    return False


@settings(max_examples=100, deadline=None)
@given(ROWS, st.sampled_from([some_items, list_of_items]))
def test_each_result_of_flat_map_has_the_timestamp_of_its_record(
    rows: list[int], function: Callable[[int], Iterable[int]]
) -> None:
    times, routes = [NOW_NS + place for place in range(len(rows))], Routes()
    records = [(row, time) for row, time in zip(rows, times, strict=True) if not fails(function, row)]
    assert passed(FlatMap(function), rows, times, routes) == [
        (item, time) for row, time in records for item in function(row)
    ]
    assert [record for record, _ in routes.errors] == [row for row in rows if fails(function, row)]
    whole = [row for row, _ in records]
    found = passed(FlatMap(function), whole, [NOW_NS] * len(whole), None) if whole else []
    assert found == [(item, NOW_NS) for row in whole for item in function(row)]


def is_chosen(number: int) -> Any:
    if number % 5 == 0:
        raise ValueError(number)
    return [] if number % 2 else ["true"]


@settings(max_examples=100, deadline=None)
@given(ROWS)
def test_each_record_that_a_filter_chooses_keeps_its_timestamp(rows: list[int]) -> None:
    times, routes = [NOW_NS + place for place in range(len(rows))], Routes()
    records = [(row, time) for row, time in zip(rows, times, strict=True) if row % 5 and not row % 2]
    assert passed(Filter(is_chosen), rows, times, routes) == records
    assert [record for record, _ in routes.errors] == [row for row in rows if not row % 5]
    whole = [(row, time) for row, time in zip(rows, times, strict=True) if row % 5]
    if whole:
        assert passed(Filter(is_chosen), [row for row, _ in whole], [time for _, time in whole], None) == records


class Undecided:
    def __bool__(self) -> bool:
        raise ValueError("neither")


@pytest.mark.parametrize("rows", [[1, 2], [2, 1]])
def test_a_predicate_whose_result_has_no_truth_is_an_error_of_its_record(rows: list[int]) -> None:
    routes = Routes()
    step = Filter(lambda row: Undecided() if row == 1 else True)
    assert passed(step, rows, [NOW_NS, NOW_NS], routes) == [(2, NOW_NS)]
    assert routes.errors == [(1, "ValueError: neither")]
