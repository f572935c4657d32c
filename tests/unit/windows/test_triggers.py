"""Count and global windows, triggers and evictors: by example, and against plain loops."""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clonos.agg import count, sum_
from clonos.api.emission import at_end, each, every
from clonos.api.graph import JobGraph
from clonos.api.graph_errors import InvalidJob
from clonos.api.window_step import every_event_time, last_values, newest_values
from clonos.api.windows import CountSliding, CountTumbling, Global, Session, Sliding, Tumbling
from clonos.operators.tags import Tag
from clonos.operators.windows.triggers import Trigger, TriggerContext
from tests.unit.operators.driver import START_NS, Given
from tests.unit.windows.stepping import NEVER, Stepping, cut, stepping

SECOND = 1_000_000_000


class Remembering(Trigger):
    """Trigger of the user with state."""

    def on_record(self, value: Any, context: TriggerContext) -> bool:
        context.state = 7
        return False


def values_of(step: Stepping) -> list[Any]:
    return [result.value for result, _ in step.results]


def gathered(*arguments: Any, **options: Any) -> Callable[[Any], Any]:
    return lambda keyed: keyed.window(*arguments, **options).aggregate(list, list.append)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.sampled_from("ab"), max_size=30),
    st.integers(1, 6),
    st.integers(1, 6),
    st.lists(st.integers(1, 5), max_size=3),
    st.booleans(),
)
def test_count_windows_are_runs_of_the_records_of_a_key(
    keys: list[str], size: int, every_nth: int, widths: list[int], has_times: bool
) -> None:
    every_nth = min(size, every_nth)
    for kind in (CountTumbling(size), CountSliding(size, every=every_nth)):
        step = stepping(gathered(kind), has_times=has_times)
        records = list(zip(keys, range(len(keys)), strict=True))
        for number, batch in enumerate(cut(records, widths)):
            step.rows([(record, record[1]) for record in batch] if has_times else batch)
            if number % 2:
                step.restore()
        step.end()
        for key in "ab":
            numbers = [number for each_key, number in records if each_key == key]
            if isinstance(kind, CountTumbling):
                wanted = [numbers[start : start + size] for start in range(0, len(numbers), size)]
            else:
                ends = [*range(every_nth, len(numbers), every_nth), len(numbers)] if numbers else []
                wanted = [numbers[max(0, end - size) : end] for end in ends]
            assert [result.value for result, _ in step.results if result.key == key] == wanted
        assert not [name for name in step.state() if not name.endswith(("watermark", "arrivals"))]


def test_the_result_of_a_count_window_has_the_times_of_its_records_and_is_not_late() -> None:
    step = stepping(gathered(CountTumbling(2)))
    step.rows([(("a", 1), 7 * SECOND), (("b", 9), 8 * SECOND)])
    step.watermark(20 * SECOND)
    step.rows([(("a", 2), 3 * SECOND)])
    step.end()
    (first, first_ns), (second, second_ns) = step.results
    assert (first.start.timestamp(), first.end.timestamp(), first.value) == (3.0, 7.0, [1, 2])
    assert (second.start.timestamp(), second.end.timestamp(), second.value) == (8.0, 8.0, [9])
    assert first_ns == second_ns == 20 * SECOND


def test_a_global_window_emits_at_the_end_of_the_input() -> None:
    step = stepping(lambda keyed: keyed.window(Global()).aggregate(n=count(), total=sum_(lambda value: value)))
    step.rows([(("a", 1), 0), (("b", 2), 1), (("a", 3), 2)])
    step.watermark(NEVER)
    assert step.results == []
    step.end()
    assert values_of(step) == [{"n": 2, "total": 4}, {"n": 1, "total": 2}]


@pytest.mark.parametrize(
    ("accumulates", "wanted"), [(True, [[0, 1], [0, 1, 2, 3], [0, 1, 2, 3, 4]]), (False, [[0, 1], [2, 3], [4]])]
)
def test_a_trigger_on_the_count_emits_and_the_rest_leaves_at_the_end(accumulates: bool, wanted: list[Any]) -> None:
    for kind in (Global(), Tumbling("5s"), Session("5s")):
        step = stepping(gathered(kind, trigger=each(2), accumulate=accumulates))
        for number in range(5):
            step.rows([(("a", number), number)])
            step.restore()
        step.end()
        assert values_of(step) == wanted, kind


def test_each_1_emits_on_every_record() -> None:
    step = stepping(lambda keyed: keyed.window(Tumbling("5s"), trigger=each(1)).count())
    step.rows([(("a", number), number) for number in range(3)])
    assert values_of(step) == [1, 2, 3]
    step.watermark(NEVER)
    assert values_of(step) == [1, 2, 3]


def test_early_results_come_besides_the_one_at_the_end() -> None:
    for accumulates, wanted in ((True, [2, 4, 4]), (False, [2, 2])):
        step = stepping(lambda keyed: keyed.window(Tumbling("5s"), early=each(2), accumulate=accumulates).count())  # noqa: B023
        step.rows([(("a", number), number) for number in range(4)])
        step.watermark(NEVER)
        assert values_of(step) == wanted
        assert {time_ns for _, time_ns in step.results} == {5 * SECOND - 1}


def test_early_results_by_the_clock_come_only_if_there_are_further_records() -> None:
    step = stepping(lambda keyed: keyed.window(Tumbling("1h"), early=every("2s")).count())
    step.rows([(("a", 1), 0)])
    step.pass_time(START_NS + 2 * SECOND)
    step.restore()
    step.pass_time(START_NS + 4 * SECOND)
    assert values_of(step) == [1]
    step.rows([(("a", 1), 1)])
    step.pass_time(START_NS + 6 * SECOND)
    step.watermark(NEVER)
    assert values_of(step) == [1, 2, 2]


def test_results_by_event_time_come_at_its_multiples() -> None:
    step = stepping(lambda keyed: keyed.window(Tumbling("1h"), trigger=every_event_time("10s")).count())
    step.rows([(("a", 1), 3 * SECOND), (("a", 1), 4 * SECOND)])
    step.watermark(9 * SECOND)
    assert values_of(step) == []
    step.restore()
    step.watermark(10 * SECOND)
    assert values_of(step) == [2]
    step.watermark(40 * SECOND)
    step.rows([(("a", 1), 41 * SECOND)])
    step.watermark(50 * SECOND)
    assert values_of(step) == [2, 3]


@pytest.mark.parametrize("before", [every("5s"), every_event_time("1000s"), Remembering()])
@pytest.mark.parametrize("after", [every("5s"), every_event_time("5s")])
def test_a_trigger_that_takes_over_sets_its_own_timers(before: Any, after: Any) -> None:
    def counted(trigger: Any) -> Any:
        return lambda keyed: keyed.window(Global(), trigger=trigger).count()

    step = stepping(counted(before))
    step.rows([(("a", 1), 1 * SECOND)])
    step.resume(counted(after))
    for second in range(2, 5):
        step.rows([(("a", 1), second * SECOND)])
    step.pass_time(START_NS + 5 * SECOND)
    step.watermark(5 * SECOND)
    assert values_of(step) == [4]


def test_windows_with_a_trigger_at_the_end_emit_once() -> None:
    step = stepping(lambda keyed: keyed.window(Tumbling("5s"), trigger=at_end()).count())
    step.rows([(("a", 1), 0), (("a", 1), 1)])
    step.watermark(NEVER)
    assert values_of(step) == [2]


class OnAlarm(Trigger):
    """Emits at an alarm, and three seconds of event time after a warning."""

    def on_record(self, value: Any, context: TriggerContext) -> bool:
        if value == "warning":
            context.set_event_timer(context.timestamp + timedelta(seconds=3))
        context.state = (context.state or 0) + 1
        return bool(value == "alarm" and context.state > 1)

    def on_event_timer(self, context: TriggerContext) -> bool:
        return (context.window.end - context.window.start).total_seconds() == 60 and context.count > 0


def test_a_trigger_of_the_user_decides() -> None:
    step = stepping(gathered(Tumbling("1min", offset="1s"), trigger=OnAlarm()))
    start = START_NS // (60 * SECOND) * 60 * SECOND + SECOND
    for number, text in enumerate(["alarm", "fine", "alarm", "warning"]):
        step.rows([(("a", text), start + number * SECOND)])
        step.restore()
    assert values_of(step) == [["alarm", "fine", "alarm"]]
    step.watermark(start + 5 * SECOND)
    assert len(values_of(step)) == 1
    step.watermark(start + 6 * SECOND)
    assert values_of(step)[1:] == [["alarm", "fine", "alarm", "warning"]]


def test_late_records_of_windows_with_a_trigger_are_not_lost() -> None:
    late = Tag[Any]("late")
    step = stepping(gathered(Tumbling("5s"), trigger=each(2), lateness="5s", late=late))
    step.rows([(("a", 1), 0)])
    step.watermark(5 * SECOND)
    step.rows([(("a", 2), 1)])
    step.watermark(9 * SECOND)
    step.rows([(("a", 3), 2)])
    step.watermark(10 * SECOND)
    step.rows([(("a", 4), 3)])
    assert values_of(step) == [[1], [1, 2], [1, 2, 3]]
    assert step.late == [(4, 3)]
    assert step.late_count == 1


def test_an_evictor_leaves_the_last_or_the_newest_values() -> None:
    for evictor, wanted in ((last_values(2), [[3, 4]]), (newest_values("2s"), [[1, 4]])):
        step = stepping(gathered(Tumbling("10s"), evictor=evictor))
        step.rows([(("a", 1), 8 * SECOND), (("a", 2), 7 * SECOND), (("a", 3), SECOND), (("a", 4), 9 * SECOND)])
        step.watermark(NEVER)
        assert values_of(step) == wanted


@pytest.mark.parametrize("kind", [CountSliding(2, every=1), Global()])
def test_the_times_of_a_window_with_an_evictor_are_those_of_the_values_that_are_left(kind: Any) -> None:
    options = {"trigger": each(1), "evictor": last_values(2)} if isinstance(kind, Global) else {}
    step = stepping(gathered(kind, **options))
    for second in (10, 1, 2, 3):
        step.rows([(("a", second), second * SECOND)])
    found = [(result.start.timestamp(), result.end.timestamp(), result.value) for result, _ in step.results]
    assert found == [(10, 10, [10]), (1, 10, [10, 1]), (1, 2, [1, 2]), (2, 3, [2, 3])]


def test_apply_of_windows_with_an_evictor_gets_values_without_times() -> None:
    step = stepping(
        lambda keyed: keyed.window(Tumbling("10s"), evictor=last_values(2)).apply(lambda *given: [given[2]])
    )
    step.rows([(("a", 1), 8), (("a", 2), 7), (("a", 3), 1)])
    step.watermark(NEVER)
    assert [row for row, _ in step.results] == [[2, 3]]


@pytest.mark.parametrize("accumulates", [False, True])
def test_sliding_windows_with_a_trigger_have_each_record_in_each_window(accumulates: bool) -> None:
    step = stepping(gathered(Sliding("4s", every="2s"), early=each(2), accumulate=accumulates))
    step.rows([(("a", number), number * SECOND) for number in range(4)])
    step.watermark(NEVER)
    found = sorted((result.start.timestamp(), result.value) for result, _ in step.results)
    rest = [] if not accumulates else [(-2.0, [0, 1]), (0.0, [0, 1, 2, 3]), (2.0, [2, 3])]
    middle = [0, 1, 2, 3] if accumulates else [2, 3]
    assert found == sorted([(-2.0, [0, 1]), (0.0, [0, 1]), (0.0, middle), (2.0, [2, 3]), *rest])


def test_a_user_error_in_an_aggregate_of_sessions_goes_to_the_error_output() -> None:
    from tests.unit.operators.driver import Outbox, run

    def add(total: int, value: tuple[str, int]) -> int:
        if value[1] == 3:
            raise ValueError("three")
        return total + value[1]

    graph = JobGraph("job", errors=Outbox())
    keyed = graph.source(Given([("a", n) for n in range(5)]), timestamps=lambda row: START_NS / 1e9 + row[1]).key_by(
        lambda row: row[0]
    )
    keyed.window(Session("2s")).aggregate(int, add, merge=int.__add__).sink(Outbox(), name="sums")
    written = run(graph, 1).written
    (results,) = [rows for name, rows in written.items() if name.endswith("sums")]
    assert [result.value for result in results] == [3, 4]
    assert [error.record for error in written["errors"]] == [("a", 3)]


REFUSED: dict[str, tuple[Callable[[Any], Any], str]] = {
    "no gap": (lambda keyed: Session(0), "0 is not a length of time"),
    "a limit below the gap": (
        lambda keyed: Session("5s", max_length="3s"),
        "the step window gets max_length='3s', which is less than the gap. Give at least '5s'.",
    ),
    "no records": (
        lambda keyed: CountTumbling(0),
        "the step window gets CountTumbling of 0 records. Give an int of at least 1.",
    ),
    "a slide of more records": (
        lambda keyed: CountSliding(2, every=3),
        "gets CountSliding(2, every=3), which leaves records out. Let every= be at most the count.",
    ),
    "a trigger and early results": (
        lambda keyed: keyed.window(Tumbling("5s"), trigger=each(1), early=each(2)),
        "the step window gets trigger= and early=. A trigger decides alone: leave early= out.",
    ),
    "a trigger of count windows": (
        lambda keyed: keyed.window(CountTumbling(5), trigger=each(1)),
        "the step window gets a trigger for CountTumbling 5. Use Global() with trigger=.",
    ),
    "early results of a window without an end": (
        lambda keyed: keyed.window(Global(), early=each(2)),
        "the step window gets early= for Global, which has no end in time. Use Global() with trigger=.",
    ),
    "a number as a trigger": (
        lambda keyed: keyed.window(Global(), trigger=5),
        "the step window gets the trigger 5. Give each(n),",
    ),
    "a number as an evictor": (
        lambda keyed: keyed.window(Global(), evictor=5),
        "the step window gets evictor=5. Give last_values(n) or newest_values(age).",
    ),
    "event time without timestamps": (
        lambda keyed: keyed.window(Global(), trigger=every_event_time("5s")),
        "the step window gets a trigger in event time on a stream without timestamps. Give the records timestamps",
    ),
    "a sliding count window without its last records": (
        lambda keyed: keyed.window(CountSliding(5, every=1), accumulate=False),
        "the step window gets accumulate=False for CountSliding 5 every 1. Each of its results has the last records of"
        " the key: use CountTumbling(5) or Global() for those since the last result.",
    ),
    "an evictor of a sliding count window": (
        lambda keyed: keyed.window(CountSliding(5, every=1), evictor=newest_values("1s")),
        "the step window gets evictor= for CountSliding 5 every 1. It keeps the last records of the key: use Global()"
        " with trigger=each(1) and evictor=.",
    ),
    "a trigger of too many overlapping windows": (
        lambda keyed: keyed.window(Sliding("1001s", every="1s"), early=each(2)),
        "the step window gets a trigger for Sliding 1001s every 1s, in which a record is in 1001 windows. Let every="
        " be at least a thousandth of the size, or leave the trigger out: the windows share panes then.",
    ),
    "an evictor of too many overlapping windows": (
        lambda keyed: keyed.window(Sliding("1h", every="3s"), evictor=last_values(1)),
        "the step window gets an evictor for Sliding 1h every 3s, in which a record is in 1200 windows.",
    ),
    "late records of count windows": (
        lambda keyed: keyed.window(CountTumbling(5), lateness="5s"),
        "the step window has late records in CountTumbling 5. Leave late= and lateness= out: these windows do not"
        " end at a time.",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_wrong_window_or_trigger_is_refused_with_one_sentence(name: str) -> None:
    make, sentence = REFUSED[name]
    with pytest.raises(Exception) as caught:  # noqa: PT011  the sentence tells
        make(JobGraph("job").source(Given([1])).key_by(str))
    assert sentence in str(caught.value)
    assert isinstance(caught.value, InvalidJob) or name == "no gap"


def test_a_record_of_overlapping_windows_with_a_trigger_costs_in_proportion_to_the_overlap() -> None:
    def calls(windows: int) -> int:
        step = stepping(lambda keyed: keyed.window(Sliding(windows, every=1), early=each(1000)).count())
        step.rows([(("a", 1), 5 * SECOND)])
        made = 0

        def count_call(frame: Any, event: str, argument: Any) -> None:
            nonlocal made
            made += event == "call"

        sys.setprofile(count_call)
        try:
            step.rows([(("a", 2), 5 * SECOND)])
        finally:
            sys.setprofile(None)
        return made

    assert calls(400) < 5 * calls(100)
