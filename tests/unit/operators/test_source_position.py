"""Positions of a source that are dealt again, because its width has changed."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from clonos.operators.event_time.source_watermarks import SourceWatermarks
from clonos.operators.source_position import (
    SourcePosition,
    SplitPosition,
    dealt_position,
    decode_position,
    encode_position,
)


def position(task: int, width: int, listed: int, found: int, times: bytes = b"") -> SourcePosition:
    """Position of a task that has read as many records of each split as its number says."""
    numbers = list(range(task, listed, width))
    found_numbers = range((numbers[-1] if numbers else task - width) + width, 1_000, width)[:found]
    return SourcePosition(
        tuple(SplitPosition(number, b"m", number, number % 5 == 4, b"") for number in numbers)
        + tuple(SplitPosition(number, b"m", number, False, b"found %d" % number) for number in found_numbers),
        times=times,
    )


def dealt(before: list[SourcePosition], listed: int, width: int) -> list[SourcePosition]:
    encoded = [encode_position(each) for each in before]
    return [decode_position(dealt_position(encoded, listed, index, width)) for index in range(width)]


@given(st.lists(st.integers(0, 4), min_size=1, max_size=5), st.integers(0, 12), st.integers(1, 6))
def test_each_split_is_dealt_to_one_task_at_its_position(found: list[int], listed: int, width: int) -> None:
    before = [position(task, len(found), listed, count) for task, count in enumerate(found)]
    after = dealt(before, listed, width)
    content = sorted((s.found or b"%d" % s.split, s.mark, s.skip, s.is_done) for each in before for s in each.splits)
    assert (
        sorted((s.found or b"%d" % s.split, s.mark, s.skip, s.is_done) for each in after for s in each.splits)
        == content
    )
    every = {split.found for each in before for split in each.splits if split.found}
    for index, each in enumerate(after):
        # Numbers are those that a task gives itself: it has the listed splits of its index, and found ones after them.
        own = [split.split for split in each.splits]
        assert own == sorted({*range(index, listed, width), *own})
        assert own == list(range(index, index + width * len(own), width))
        assert {split.found for split in each.splits if split.found} | {*each.elsewhere} == every
    assert dealt(dealt(after, listed, len(found)), listed, width) == after


def times(splits: list[int], reads: dict[int, int], idle_after_ns: int = 0) -> bytes:
    made = SourceWatermarks(splits, 1, idle_after_ns)
    for split, reached_ns in reads.items():
        made.begin(split)
        made.reach(split, reached_ns)
    return made.state()


def test_watermarks_go_with_their_splits_and_what_was_sent_is_the_least_of_all_tasks() -> None:
    before = [
        position(0, 2, 4, 0, times([0, 2], {0: 50, 2: 40})),
        position(1, 2, 4, 0, times([1, 3], {1: 70, 3: 60})),
    ]
    for each, lowest in zip(dealt(before, 4, 4), (50, 70, 40, 60), strict=True):
        made = SourceWatermarks([], 1, 0)
        made.restore(each.times)
        assert made.lowest_ns() == lowest
        (split,) = each.splits
        assert made.reach(split.split, 90) == [90]
        assert made.reach(split.split, 90) == []


def test_a_task_is_idle_after_a_change_of_the_width_if_all_were() -> None:
    def idle(splits: list[int]) -> bytes:
        made = SourceWatermarks(splits, 1, 10)
        made.check(0)
        made.check(10)
        return made.state()

    for second, is_idle in ((idle([1]), True), (times([1], {}, 10), False)):
        after = dealt([position(0, 2, 2, 0, idle([0])), position(1, 2, 2, 0, second)], 2, 1)
        made = SourceWatermarks([], 1, 10)
        made.restore(after[0].times)
        assert (made.begin(0) != []) == is_idle  # it says that it is active again only if it had said that it is idle


def test_a_source_that_no_task_had_begun_begins_in_all_tasks() -> None:
    assert dealt_position([b"", b""], listed=3, index=0, width=1) == b""
