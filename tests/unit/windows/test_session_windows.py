"""Sessions against dumb twins: the first takes the same records and watermarks, the second looks at all records."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from clonos.api.windows import Session
from tests.unit.operators.driver import START_NS
from tests.unit.windows.stepping import NEVER, stepping
from tests.unit.windows.test_event_windows import LATE, MS, entries, play, shown
from tests.unit.windows.window_twins import SessionTwin


@settings(max_examples=80, deadline=None)
@given(
    st.sampled_from([(3, None), (5, None), (5, 12), (4, 4)]),
    st.sampled_from([0, 3, 10]),
    st.booleans(),
    entries,
    st.lists(st.integers(1, 5), max_size=3),
    st.booleans(),
)
def test_sessions_equal_those_of_the_twin_whatever_is_late_and_wherever_batches_are_cut(
    lengths: tuple[int, int | None],
    lateness: int,
    accumulates: bool,
    given_entries: list[Any],
    widths: list[int],
    merges: bool,
) -> None:
    gap, length_max = lengths
    twin = SessionTwin(gap, length_max, lateness, accumulates)

    def build(keyed: Any) -> Any:
        windows = keyed.window(
            Session(gap / 1000, max_length=None if length_max is None else length_max / 1000),
            lateness=lateness / 1000 if lateness else None,
            late=LATE,
            accumulate=accumulates,
        )
        return windows.aggregate(list, list.append, merge=list.extend if merges else None)

    step = stepping(build)
    play(step, twin, given_entries, widths)
    assert shown(step.results) == twin.results
    assert step.late == [(value, time * MS) for value, time in twin.late]
    assert not [name for name in step.state() if not name.endswith(("watermark", "arrivals"))]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 60)), max_size=30),
    st.integers(1, 9),
    st.integers(0, 30),
)
def test_sessions_of_records_out_of_order_are_those_of_the_sorted_records(
    records: list[tuple[str, int]], gap: int, disorder: int
) -> None:
    """A watermark that lags by the disorder follows each record, so none is late."""
    step = stepping(lambda keyed: keyed.window(Session(gap / 1000), late=LATE).aggregate(list, list.append))
    arrived = sorted(records, key=lambda record: record[1] + (record[1] * 37 + ord(record[0])) % (disorder + 1))
    latest = 0
    for number, (key, time) in enumerate(arrived):
        step.rows([((key, number), time * MS)])
        if time > latest:
            latest = time
            step.watermark((time - disorder) * MS)
    step.watermark(NEVER)
    wanted = set()
    for key in "ab":
        times = sorted(time for each, time in records if each == key)
        starts = [
            time for before, time in zip([None, *times], times, strict=False) if before is None or time - before >= gap
        ]
        for start, following in zip(starts, [*starts[1:], 1_000], strict=False):
            inside = [time for time in times if start <= time < following]
            wanted.add((key, start, inside[-1] + gap, len(inside)))
    found = {
        (result.key, round(result.start.timestamp() * 1000), round(result.end.timestamp() * 1000), len(result.value))
        for result, _ in step.results
    }
    assert found == wanted
    assert step.late == []


def test_a_record_that_comes_a_gap_later_begins_another_session() -> None:
    step = stepping(lambda keyed: keyed.window(Session("5ms")).count())
    step.rows([(("a", 0), 0), (("a", 1), 5 * MS - 1), (("a", 2), 10 * MS - 1)])
    step.watermark(NEVER)
    assert [result.value for result, _ in step.results] == [2, 1]


def test_the_gap_may_be_a_function_of_the_record() -> None:
    step = stepping(lambda keyed: keyed.window(Session(gap=lambda row: row[1])).count())
    step.rows([(("a", ("a", "9ms")), 0), (("a", ("a", "2ms")), 8 * MS), (("a", ("a", "2ms")), 11 * MS)])
    step.watermark(NEVER)
    assert [result.value for result, _ in step.results] == [2, 1]


def test_a_session_is_no_longer_than_its_limit() -> None:
    step = stepping(lambda keyed: keyed.window(Session("5ms", max_length="12ms")).aggregate(list, list.append))
    step.rows([(("a", time), time * MS) for time in range(0, 40, 3)])
    step.watermark(NEVER)
    assert [result.value for result, _ in step.results] == [
        [0, 3, 6],
        [9, 12, 15],
        [18, 21, 24],
        [27, 30, 33],
        [36, 39],
    ]


def test_sessions_in_processing_time_end_a_gap_after_the_last_record() -> None:
    second = 1_000_000_000
    step = stepping(lambda keyed: keyed.window(Session("5s")).count(), has_times=False)
    for at in (0, 4, 8):
        step.pass_time(START_NS + at * second)
        step.rows([("a", at)])
        step.restore()
    step.pass_time(START_NS + 12 * second)
    assert step.results == []
    step.pass_time(START_NS + 13 * second)
    assert [(result.value, (result.end - result.start).total_seconds(), time) for result, time in step.results] == [
        (3, 13.0, None)
    ]


def test_a_late_record_that_lengthens_an_ended_session_gives_its_result_at_the_new_end() -> None:
    step = stepping(lambda keyed: keyed.window(Session("3ms"), lateness="10ms").aggregate(list, list.append))
    found = []
    for number, (time, watermark) in enumerate([(0, 3), (2, 5), (3, 7)]):
        step.rows([(("a", number), time * MS)])
        step.restore()
        step.watermark(watermark * MS)
        found.append(len(step.results))
    assert found == [1, 2, 3]
    assert [result.value for result, _ in step.results] == [[0], [0, 1], [0, 1, 2]]
