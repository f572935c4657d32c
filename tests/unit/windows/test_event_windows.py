"""Tumbling and sliding windows in event time against a dumb twin that keeps all records."""

from __future__ import annotations

from itertools import groupby
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clonos.agg import bottom_k
from clonos.api.emission import at_end
from clonos.api.windows import Cumulative, Sliding, Tumbling, WindowKind
from clonos.operators.chain import InputShape
from clonos.operators.event_time.timestamps import from_timestamp_ns
from clonos.operators.tags import Tag
from tests.unit.windows.stepping import Stepping, cut, stepping
from tests.unit.windows.window_twins import CumulativeTwin, SlidingTwin

MS = 1_000_000
LATE = Tag[Any]("late")

KINDS: list[tuple[int, int, int]] = [(5, 5, 0), (5, 5, 2), (6, 2, 0), (6, 4, 1), (7, 3, 0)]
"""Size, slide and offset in ms."""
GROWING = [(6, 2, 0), (8, 8, 0), (9, 1, 4)]
"""The same of cumulative windows."""


def absolute(steps: list[Any]) -> list[Any]:
    """Turns records by their distance from the watermark, and rises of it, into times in ms."""
    found: list[Any] = []
    reached = 0
    for step in steps:
        if isinstance(step, tuple):
            found.append((step[0], reached + step[1]))
        elif isinstance(step, int):
            reached += step
            found.append(reached)
        else:
            found.append(step)
    return found


entries = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["a", "b"]), st.integers(-15, 15)),  # a record: key, and time behind the watermark
        st.tuples(st.sampled_from(["a", True, 1]), st.integers(-6, 4)),
        st.integers(1, 9),  # a rise of the watermark
        st.sampled_from(["restore", "snapshot"]),
    ),
    min_size=10,
    max_size=40,
).map(absolute)


def kind_of(size: int, every: int, offset: int, grows: bool = False) -> WindowKind:
    moved = offset / 1000 if offset else None
    if grows:
        return Cumulative(size / 1000, every=every / 1000, offset=moved)
    if size == every:
        return Tumbling(size / 1000, offset=moved)
    return Sliding(size / 1000, every=every / 1000, offset=moved)


def shown(results: list[Any]) -> list[Any]:
    """Results as the twin has them, after a look at their timestamps."""
    found = []
    for result, time_ns in results:
        start, end = (round(each.timestamp() * 1000) for each in (result.start, result.end))
        assert time_ns == end * MS - 1
        value = result.value["found"] if isinstance(result.value, dict) else result.value
        found.append((repr(result.key), start, end, value))
    return found


def play(step: Stepping, twin: Any, given_entries: list[Any], widths: list[int]) -> None:
    """Gives both the same: records in batches that end at a watermark, and restores that the twin does not need."""
    batch: list[Any] = []

    def flush() -> None:
        for part in cut(batch, widths):
            step.rows(part)
        batch.clear()

    reached = None
    for number, entry in enumerate(given_entries):
        if isinstance(entry, tuple):
            key, time = entry
            batch.append(((key, number), time * MS))
            twin.record(repr(key), number, time)  # True and 1 are two keys
        elif isinstance(entry, int):
            if reached is None or entry > reached:
                flush()
                reached = entry
                step.watermark(entry * MS)
                twin.reach(entry)
                assert len(step.results) == len(twin.results), "a result leaves at another watermark"
        else:
            flush()
            (step.restore if entry == "restore" else lambda: step.snapshot(full=False))()
    flush()
    step.end()
    twin.reach(None)


@pytest.mark.slow
@settings(max_examples=120, deadline=None)
@given(
    st.sampled_from([(*kind, False) for kind in KINDS] + [(*kind, True) for kind in GROWING]),
    st.sampled_from([0, 3, 10]),
    st.booleans(),
    entries,
    st.lists(st.integers(1, 5), max_size=3),
    st.sampled_from(["gathered", "merged", "bounded", "bounded", "counted"]),
)
def test_windows_equal_those_of_the_twin_whatever_is_late_and_wherever_batches_are_cut(
    lengths: tuple[int, int, int, bool],
    lateness: int,
    accumulates: bool,
    given_entries: list[Any],
    widths: list[int],
    aggregate: str,
) -> None:
    size, every, offset, grows = lengths
    twin = (CumulativeTwin if grows else SlidingTwin)(size, every, offset, lateness, accumulates)

    def build(keyed: Any) -> Any:
        windows = keyed.window(
            kind_of(*lengths), lateness=lateness / 1000 if lateness else None, late=LATE, accumulate=accumulates
        )
        if aggregate == "counted":
            return windows.count()
        if aggregate == "bounded":  # of equal ranks the values are in the order in which they are merged
            return windows.aggregate(found=bottom_k(1_000, by=lambda value: 0))
        return windows.aggregate(list, list.append, merge=list.extend if aggregate == "merged" else None)

    step = stepping(build)
    play(step, twin, given_entries, widths)
    is_count = aggregate == "counted"
    wanted = [(*window, len(values)) for *window, values in twin.results] if is_count else twin.results
    assert shown(step.results) == wanted
    assert step.late == [(value, time * MS) for value, time in twin.late]
    assert step.late_count == len(twin.late)
    assert not [name for name in step.state() if "watermark" not in name], "state is left after the end"


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(KINDS), st.sampled_from([0, 3]), st.booleans(), entries, st.lists(st.integers(1, 5), max_size=3))
def test_records_that_are_their_own_keys_are_counted_like_others(
    lengths: tuple[int, int, int], lateness: int, accumulates: bool, given_entries: list[Any], widths: list[int]
) -> None:
    kind = kind_of(*lengths)
    seconds = lateness / 1000 if lateness else None

    def build(keyed: Any) -> Any:
        return keyed.window(kind, lateness=seconds, late=LATE, accumulate=accumulates).count()

    bare, paired = stepping(build, form=InputShape.KEYS), stepping(build)
    for is_record, group in groupby(given_entries, key=lambda each: isinstance(each, tuple)):
        if is_record:
            for batch in cut(list(group), widths):
                bare.rows([(key, time * MS) for key, time in batch])
                paired.rows([((key, key), time * MS) for key, time in batch])
            continue
        for each in group:
            for step in (bare, paired):
                step.watermark(each * MS) if isinstance(each, int) else step.restore()
    for step in (bare, paired):
        step.end()
    assert (bare.results, bare.late) == (paired.results, paired.late)


LATENESSES = st.sampled_from([0, 2, 8])

behind = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["a", "b"]), st.integers(-7, 3)),
        st.tuples(st.sampled_from(["a", "b"]), st.integers(-3, 0)),
        st.integers(1, 3),
        st.sampled_from([1, 1, "restore"]),
    ),
    min_size=30,
    max_size=60,
).map(absolute)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from([(6, 2, 0, False), (7, 3, 0, False), (12, 1, 0, False), (12, 3, 1, True)]), LATENESSES, behind)
def test_merged_panes_equal_the_twin_when_records_come_after_windows_that_had_them(
    lengths: tuple[int, int, int, bool], lateness: int, given_entries: list[Any]
) -> None:
    size, every, offset, grows = lengths
    step = stepping(
        lambda keyed: keyed.window(
            kind_of(*lengths), lateness=lateness / 1000 if lateness else None, late=LATE
        ).aggregate(found=bottom_k(1_000, by=lambda value: 0))
    )
    twin = (CumulativeTwin if grows else SlidingTwin)(size, every, offset, lateness)
    play(step, twin, given_entries, [3])
    assert shown(step.results) == twin.results


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(KINDS), entries, st.lists(st.integers(1, 5), max_size=3))
def test_on_time_and_late_records_are_the_input(
    lengths: tuple[int, int, int], given_entries: list[Any], widths: list[int]
) -> None:
    step = stepping(lambda keyed: keyed.window(kind_of(*lengths), late=LATE).aggregate(list, list.append))
    play(step, SlidingTwin(*lengths), given_entries, widths)
    on_time = {value for result, _ in step.results for value in result.value}
    late = [value for value, _ in step.late]
    wanted = [number for number, entry in enumerate(given_entries) if isinstance(entry, tuple)]
    assert sorted([*on_time, *late]) == wanted


def test_a_window_includes_its_start_and_excludes_its_end() -> None:
    step = stepping(lambda keyed: keyed.window(Tumbling("10ms")).count())
    step.rows([(("a", 1), 0), (("a", 2), 10 * MS - 1), (("a", 3), 10 * MS)])
    step.watermark(10 * MS - 1)
    assert step.results == []
    step.watermark(10 * MS)
    ((result, time_ns),) = step.results
    assert (result.start, result.end, result.value) == (from_timestamp_ns(0), from_timestamp_ns(10 * MS), 2)
    assert time_ns == 10 * MS - 1


def test_further_results_are_in_the_order_of_arrival_wherever_batches_are_cut() -> None:
    records = [(("a", 1), MS), (("b", 2), -MS), (("a", 3), -MS), (("a", 4), MS), (("c", 5), MS)]
    for width in (1, 2, 5):
        kind = Sliding("6ms", every="2ms")
        step = stepping(
            lambda keyed: keyed.window(kind, lateness="9ms", accumulate=False).aggregate(list, list.append)  # noqa: B023
        )
        step.watermark(2 * MS)
        for batch in cut(records, [width]):
            step.rows(batch)
        step.watermark(3 * MS)
        found = [(result.key, result.value) for result, _ in step.results if result.end == from_timestamp_ns(2 * MS)]
        assert found == [("a", [1, 3, 4]), ("b", [2]), ("c", [5])], width


def test_a_cumulative_window_has_a_result_at_each_end_from_the_first_record_on() -> None:
    step = stepping(lambda keyed: keyed.window(Cumulative("8ms", every="2ms")).count())
    step.rows([(("a", 1), 3 * MS), (("b", 1), 7 * MS), (("a", 2), 8 * MS)])
    step.watermark(10 * MS)
    step.end()
    first = [("'a'", 0, 4, 1), ("'a'", 0, 6, 1), ("'a'", 0, 8, 1), ("'b'", 0, 8, 1)]
    assert shown(step.results) == [*first, *(("'a'", 8, end, 1) for end in (10, 12, 14, 16))]


def test_cumulative_windows_that_begin_together_are_apart_for_a_trigger() -> None:
    step = stepping(lambda keyed: keyed.window(Cumulative("8ms", every="2ms"), trigger=at_end()).count())
    step.rows([(("a", 1), 5 * MS), (("a", 2), MS), (("a", 3), 7 * MS)])
    step.end()
    assert shown(step.results) == [("'a'", 0, end, count) for end, count in ((2, 1), (4, 1), (6, 2), (8, 3))]
