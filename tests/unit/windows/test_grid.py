"""Panes at the ends of 64-bit time, and of days that lie far apart."""

from datetime import UTC, datetime, timedelta
from typing import Any

import numpy
import pytest

from clonos.core.model.watermark import INSTANT_NS_MIN
from clonos.operators.event_time.watermark_strategies import BoundedOutOfOrderness
from clonos.operators.windows.grid import NANOSECONDS_PER_DAY, Grid, UtcGrid, ZoneGrid

NOW_NS = 1_780_000_000 * 10**9
ENDS = [INSTANT_NS_MIN, INSTANT_NS_MIN + 1, -1, 0, 1, NOW_NS, NOW_NS + NANOSECONDS_PER_DAY, 2**63 - 1]


@pytest.mark.parametrize("pane_ns", [1_000, 36_500 * NANOSECONDS_PER_DAY])
@pytest.mark.parametrize("offset_ns", [0, 3, -3, 5 * NANOSECONDS_PER_DAY])
def test_panes_of_instants_at_the_ends_of_64_bits_do_not_wrap(pane_ns: int, offset_ns: int) -> None:
    grid = UtcGrid(pane_ns, offset_ns)
    assert grid.indexes_of(numpy.array(ENDS)).tolist() == [grid.index_of(instant) for instant in ENDS]


@pytest.mark.parametrize("grid", [ZoneGrid(1, 0, "Europe/Berlin"), ZoneGrid(7, 3 * 3600 * 10**9, "America/New_York")])
def test_panes_of_days_in_a_zone_are_those_of_each_instant(grid: Grid) -> None:
    change = datetime(2026, 3, 28, tzinfo=UTC)
    instants = [int((change + timedelta(hours=hour)).timestamp()) * 10**9 for hour in range(0, 72, 5)] + [0, -(10**18)]
    assert grid.indexes_of(numpy.array(instants)).tolist() == [grid.index_of(instant) for instant in instants]


def test_a_record_of_1970_among_those_of_today_adds_its_own_day_and_none_between() -> None:
    class Counting(ZoneGrid):
        starts = 0

        def start_of(self, index: int) -> int:
            type(self).starts += 1
            return super().start_of(index)

    grid: Any = Counting(1, 0, "Europe/Berlin")
    grid.indexes_of(numpy.array([0, NOW_NS]))
    assert grid.starts < 40


def test_a_watermark_before_64_bit_time_is_the_least_one() -> None:
    bound: Any = BoundedOutOfOrderness(10**19)
    assert bound.watermark(None, [1], [-(9 * 10**18)]) == bound.watermark(None, [1], numpy.array([0])) == INSTANT_NS_MIN
