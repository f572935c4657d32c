"""The slewed clock: never backwards, never still, towards the wall clock by at most a tenth."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clonos.io.system.wall_clock import SlewedClock, utc_datetime

SECOND_NS = 1_000_000_000
HOUR_NS = 3_600 * SECOND_NS
NOON_NS = 1_700_000_000 * SECOND_NS


class Clocks:
    """A monotonic and a wall clock that stand where they are put."""

    def __init__(self) -> None:
        self.monotonic_ns = 5
        self.wall_ns = NOON_NS

    def pass_time(self, elapsed_ns: int) -> None:
        self.monotonic_ns += elapsed_ns
        self.wall_ns += elapsed_ns

    def slewed(self, not_before_ns: int = 0) -> SlewedClock:
        return SlewedClock(lambda: self.monotonic_ns, lambda: self.wall_ns, not_before_ns)


def test_the_slewed_clock_equals_a_wall_clock_that_is_never_set() -> None:
    clocks = Clocks()
    clock = clocks.slewed()
    for _ in range(5):
        clocks.pass_time(SECOND_NS)
        assert clock.now_ns() == clocks.wall_ns


@pytest.mark.parametrize(("step_ns", "seconds_per_ten"), [(-HOUR_NS, 9), (HOUR_NS, 11)])
def test_after_an_hours_step_the_slewed_clock_changes_its_rate_by_a_tenth_until_they_agree(
    step_ns: int, seconds_per_ten: int
) -> None:
    clocks = Clocks()
    clock = clocks.slewed()
    before_ns = clock.now_ns()
    clocks.wall_ns += step_ns
    assert clock.now_ns() == before_ns
    clocks.pass_time(10 * SECOND_NS)
    assert clock.now_ns() == before_ns + seconds_per_ten * SECOND_NS
    for _ in range(10 * 3_600 // 10 - 2):
        clocks.pass_time(10 * SECOND_NS)
        assert clock.now_ns() != clocks.wall_ns
    clocks.pass_time(10 * SECOND_NS)
    assert clock.now_ns() == clocks.wall_ns


def test_the_slewed_clock_starts_at_the_last_timestamp_of_the_previous_incarnation() -> None:
    clocks = Clocks()
    clock = clocks.slewed(not_before_ns=NOON_NS + HOUR_NS)
    assert clock.now_ns() == NOON_NS + HOUR_NS
    assert clocks.slewed(not_before_ns=NOON_NS - HOUR_NS).now_ns() == NOON_NS


def test_a_tasks_timestamp_raises_the_slewed_clock_and_never_lowers_it() -> None:
    clocks = Clocks()
    clock = clocks.slewed()
    clock.advance_to(NOON_NS + HOUR_NS)
    clock.advance_to(NOON_NS)
    assert clock.now_ns() == NOON_NS + HOUR_NS


@given(st.lists(st.tuples(st.integers(0, 10 * SECOND_NS), st.integers(-HOUR_NS, HOUR_NS)), max_size=30))
def test_the_slewed_clock_runs_within_a_tenth_of_real_time_for_every_wall_clock(moves: list[tuple[int, int]]) -> None:
    clocks = Clocks()
    clock = clocks.slewed()
    last_ns = clock.now_ns()
    for elapsed_ns, step_ns in moves:
        clocks.pass_time(elapsed_ns)
        clocks.wall_ns += step_ns
        now_ns = clock.now_ns()
        assert abs(now_ns - last_ns - elapsed_ns) <= elapsed_ns // 10
        last_ns = now_ns


def test_the_system_clocks_do_not_run_backwards() -> None:
    clock = SlewedClock()
    readings = [clock.now_ns() for _ in range(100)]
    assert readings == sorted(readings)


def test_a_datetime_is_exact_to_the_microsecond() -> None:
    assert utc_datetime(1_700_000_000_123_456_789) == datetime(2023, 11, 14, 22, 13, 20, 123_456, tzinfo=UTC)
    assert utc_datetime(-1_000) == datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)
