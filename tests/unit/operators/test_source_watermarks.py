"""Watermark of a source's task by itself: it rises, and what is held back or idle is sent in time."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from clonos.core.model.watermark import ACTIVE, IDLE, Watermark
from clonos.operators.event_time.source_watermarks import SourceWatermarks


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(-20, 20)), max_size=40))
def test_the_watermarks_of_a_source_rise_and_no_split_is_ahead_of_them(reads: list[tuple[int, int]]) -> None:
    times, sent, reached = SourceWatermarks(range(3), 1, 0), list[Any](), dict[int, int]()
    for split, instant in reads:
        assert times.begin(split) == []
        reached[split] = max(instant, reached.get(split, instant))
        sent += times.reach(split, instant)
        expected = min(reached.values()) if len(reached) == 3 else None
        assert (sent[-1] if sent else None) == expected
    assert sent == sorted(set(sent))


def test_a_source_without_reads_is_idle_at_its_second_check_and_active_at_its_next_read() -> None:
    times = SourceWatermarks([0], 1, 5)
    assert times.check(0) == []
    assert times.check(5) == [IDLE]
    assert times.begin(0) == [ACTIVE]


def test_splits_that_become_idle_at_one_check_leave_the_latest_watermark() -> None:
    times = SourceWatermarks([0, 1], 1, 5)
    for split, instant_ns in ((0, 100), (1, 50)):
        times.begin(split)
        times.reach(split, instant_ns)
    assert times.check(0) == []
    assert times.check(5) == []  # both were read
    assert times.check(10) == [100, IDLE]


def test_a_small_rise_is_sent_when_no_split_has_a_record_and_not_too_often() -> None:
    times = SourceWatermarks([0, 1], 200, 0)

    def read(instant_ns: int) -> list[Watermark]:
        return [each for split in (0, 1) for each in (*times.begin(split), *times.reach(split, instant_ns))]

    def find_empty() -> int | None:
        for split in (0, 1):
            times.found_empty(split)
        return times.next_check_ns()

    assert read(1_000) == [1_000]
    assert find_empty() is None, "nothing is held back"
    assert read(1_100) == []
    assert times.next_check_ns() is None, "a split may have records"
    assert find_empty() == 0
    restored = SourceWatermarks([0, 1], 200, 0)
    restored.restore(times.state())
    assert times.check(7_000) == restored.check(7_000) == [1_100]
    assert read(1_150) == []
    assert find_empty() == 7_200
