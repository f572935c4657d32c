"""Latency marks: made by a source now and then, passed on once, measured at the end of a step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import pytest

from clonos.core.model.element_kind import ElementKind
from clonos.core.model.ids import ChannelId, CheckpointId, TaskId
from clonos.core.ports.task_port import Output, TaskPort
from clonos.core.task.latency import (
    BOUNDS_S,
    END_TO_END,
    MARK_EVERY_NS,
    PASSAGES_MAX,
    PROCESSING,
    LatencyMarks,
    Passage,
)
from clonos.core.wire.channel_messages import Batch, Mark
from clonos.job.prometheus.job_counters import GrowingHistogram, quantile
from tests.harnesses.channel_pair import ChannelPair
from tests.harnesses.task_harness import ScriptedTask, Start, check_repeats
from tests.unit.core.task.test_task_replay import JOBS

MS_NS = 1_000_000
SENDER = TaskId(3)


class Clock:
    """The clock of a port, which the test sets."""

    now_ns_value = 10**18

    def now_ns(self) -> int:
        return self.now_ns_value


def marks(trace_every_ms: int = 0) -> tuple[LatencyMarks, Clock]:
    clock = Clock()
    return LatencyMarks(cast(TaskPort, clock), TaskId(7), trace_every_ms), clock


def test_a_source_marks_a_step_when_the_last_mark_is_old_enough() -> None:
    found, clock = marks()
    began_ns = clock.now_ns_value
    made = []
    for _ in range(11):
        found.read(clock.now_ns_value)
        made.append(found.leave() is not None)
        clock.now_ns_value += MARK_EVERY_NS // 5
    assert made == [True, *[False] * 4, True, *[False] * 4, True]
    clock.now_ns_value = began_ns + 10 * MARK_EVERY_NS
    found.read(clock.now_ns_value)
    read_ns = clock.now_ns_value
    clock.now_ns_value += 3 * MS_NS
    assert found.leave() == Mark(read_ns, read_ns + 3 * MS_NS)


def test_a_task_measures_since_the_output_before_and_since_the_reading() -> None:
    found, clock = marks()
    assert found.families() == ()
    now_ns = clock.now_ns_value
    found.arrive(Mark(now_ns - 300 * MS_NS, now_ns - 4 * MS_NS), SENDER)
    found.arrive(Mark(now_ns - 1, now_ns - 1), SENDER)  # a second one in the same step
    assert found.leave() == Mark(now_ns - 300 * MS_NS, now_ns)
    assert found.leave() is None
    numbers = {family.metric.name: family.series[0].numbers for family in found.families()}
    assert numbers[PROCESSING.name][0] == pytest.approx(0.004)
    assert numbers[END_TO_END.name][0] == pytest.approx(0.3)
    assert numbers[PROCESSING.name][1 + BOUNDS_S.index(0.005)] == 1
    assert numbers[END_TO_END.name][1 + BOUNDS_S.index(0.5)] == 1
    assert sum(numbers[END_TO_END.name][1:]) == 1


def test_a_mark_of_a_host_whose_clock_is_ahead_counts_as_zero() -> None:
    found, clock = marks()
    found.arrive(Mark(clock.now_ns_value + MS_NS, clock.now_ns_value + MS_NS), SENDER)
    found.leave()
    assert [family.series[0].numbers[:2] for family in found.families()] == [(0, 1), (0, 1)]


ROWS = (Output(ChannelId(0), ElementKind.ROWS, 1, CheckpointId(0), b"x"),)


def test_a_mark_goes_on_with_the_outcome_of_the_last_call_of_its_step_and_measures_the_call_too() -> None:
    found, clock = marks()
    now_ns = clock.now_ns_value
    found.arrive(Mark(now_ns, now_ns), SENDER)
    assert found.leave(5, call=9) is None
    assert found.families() == ()
    clock.now_ns_value += 40 * MS_NS
    found.complete(8, 9)
    assert found.leave(outputs=ROWS) is None
    found.complete(9, 7)
    assert found.leave(outputs=ROWS) == Mark(now_ns, now_ns + 40 * MS_NS)
    assert found.families()[0].series[0].numbers[0] == pytest.approx(0.04)
    found.complete(9, None)
    assert found.leave(outputs=ROWS) is None


def test_a_mark_leaves_with_the_result_of_its_call_though_the_step_begins_the_next_call() -> None:
    found, clock = marks()
    now_ns = clock.now_ns_value
    found.arrive(Mark(now_ns, now_ns), SENDER)
    found.leave(5, call=9)
    found.complete(9, None)
    assert found.leave(outputs=ROWS, call=10) == Mark(now_ns, now_ns)


def test_a_mark_waits_for_the_calls_before_its_own_where_the_order_holds_the_result() -> None:
    barrier = (Output(ChannelId(0), ElementKind.BARRIER, 1, CheckpointId(1), b""),)
    for oldest in (None, 10):
        found, clock = marks()
        now_ns = clock.now_ns_value
        found.arrive(Mark(now_ns, now_ns), SENDER)
        found.leave(5, call=9)
        found.complete(9, 7)
        assert found.leave(outputs=barrier) is None
        found.complete(8, 7)
        assert found.leave(outputs=ROWS) is None
        found.complete(7, oldest)
        assert found.leave() == Mark(now_ns, now_ns), "what the record gives may be nothing"
        assert found.families()


def test_a_source_traces_at_the_interval_of_the_option_and_nothing_without_the_option() -> None:
    found, clock = marks(trace_every_ms=200)
    began_ns, sources = clock.now_ns_value, []
    for _ in range(6):
        found.read(clock.now_ns_value)
        mark = found.leave(10)
        assert mark is not None
        sources.append(mark.source)
        clock.now_ns_value += 100 * MS_NS
    assert sources == [7, None, 7, None, 7, None]
    first, *others = found.take_passages()
    assert first == Passage(7, began_ns, None, began_ns, began_ns, began_ns, 0, 10)
    assert len(others) == 2
    assert found.take_passages() == []
    untraced, clock = marks()
    untraced.read(clock.now_ns_value)
    assert untraced.leave() == Mark(clock.now_ns_value, clock.now_ns_value)
    assert untraced.take_passages() == []


def test_the_passage_of_a_traced_mark_has_its_wait_its_call_and_its_processing() -> None:
    found, clock = marks()
    read_ns = clock.now_ns_value - 9 * MS_NS
    sent_ns, taken_ns = read_ns + 2 * MS_NS, clock.now_ns_value
    found.arrive(Mark(read_ns, sent_ns, 4), SENDER)
    clock.now_ns_value += MS_NS
    assert found.leave(5, call=1) is None
    clock.now_ns_value += 30 * MS_NS
    found.complete(1, None)
    assert found.leave(outputs=ROWS) == Mark(read_ns, clock.now_ns_value, 4)
    (passage,) = found.take_passages()
    assert passage == Passage(4, read_ns, SENDER, sent_ns, taken_ns, clock.now_ns_value, 30 * MS_NS, 5)


def test_a_trace_has_one_passage_of_a_task_however_many_ways_lead_to_it() -> None:
    found, clock = marks()
    now_ns = clock.now_ns_value
    for sender in (1, 2):
        found.arrive(Mark(now_ns, now_ns, 4), TaskId(sender))
        mark = found.leave()
        assert mark is not None
        assert mark.source == (4 if sender == 1 else None)
    found.arrive(Mark(now_ns, now_ns, 5), SENDER)  # that of another source
    assert found.leave() == Mark(now_ns, now_ns, 5)
    assert [(each.source, each.sender) for each in found.take_passages()] == [(4, 1), (5, SENDER)]


def test_passages_that_are_not_reported_are_limited_in_number() -> None:
    found, clock = marks(trace_every_ms=1)
    for _ in range(PASSAGES_MAX + 10):
        clock.now_ns_value += MARK_EVERY_NS
        found.read(clock.now_ns_value)
        found.leave()
    passages = found.take_passages()
    assert len(passages) == PASSAGES_MAX
    assert passages[-1].ended_ns == clock.now_ns_value


def test_a_traced_mark_takes_the_place_of_an_untraced_mark() -> None:
    found, _ = marks()
    plain, traced = Mark(1, 2), Mark(3, 4, 5)
    for order in ((plain, traced), (traced, plain)):
        for mark in order:
            found.arrive(mark, SENDER)
        left = found.leave()
        assert left is not None
        assert left.read_ns == traced.read_ns
    for order in ((plain, traced), (traced, plain)):
        for mark in order:
            found.arrive(mark, SENDER)
            assert found.leave(call=1) is None
        found.complete(1, None)
        left = found.leave(outputs=ROWS)
        assert left is not None
        assert left.read_ns == traced.read_ns
        pair = ChannelPair()
        for mark in order:
            pair.sender.append(ElementKind.ROWS, 2, CheckpointId(0), b"ab", mark)
        pair.deliver_handshake()
        assert [mark for _, mark in batch_marks(pair) if mark is not None] == [traced]


@pytest.mark.parametrize("job", ["reader", "reader with calls aside"])
def test_a_life_with_the_whole_log_repeats_a_traced_one_and_traces_nothing(job: str) -> None:
    made = JOBS[job](trace_every_ms=1)
    first = ScriptedTask(made, 1).run()
    passages = first.task.marks.take_passages()
    assert any(each.call_ns for each in passages) == ("calls" in job)
    again = ScriptedTask(made, 2, Start(first.log)).run()
    check_repeats(first, again)
    assert again.task.marks.take_passages() == []


class WatchedMarks(LatencyMarks):
    """Marks that remember what their task reports."""

    def __init__(self, task: ScriptedTask) -> None:
        super().__init__(task, TaskId(0), 1)
        self.open_before: list[bool] = []
        self.outputs = 0

    def complete(self, call: int, oldest: int | None) -> None:
        self.open_before.append(oldest is not None and oldest < call)
        super().complete(call, oldest)

    def leave(self, records: int = 0, outputs: Sequence[Output] = (), call: int | None = None) -> Mark | None:
        self.outputs += sum(output.count for output in outputs)
        return super().leave(records, outputs, call)


def test_a_task_reports_to_its_marks_what_leaves_and_which_calls_are_open() -> None:
    scripted = ScriptedTask(JOBS["reader with calls aside"](), 1)
    watched = scripted.task.marks = WatchedMarks(scripted)
    scripted.run()
    assert set(watched.open_before) == {True, False}
    assert watched.outputs == sum(len(elements) for elements in scripted.outputs.values())


def batch_marks(pair: ChannelPair) -> list[tuple[int, Mark | None]]:
    return [(batch.first_seq, batch.mark) for batch, _ in pair.forward if isinstance(batch, Batch)]


def test_a_mark_rides_with_its_batch_once_and_waits_while_there_is_no_session() -> None:
    pair = ChannelPair()
    first, second = Mark(1, 2), Mark(3, 4)
    rows = ElementKind.ROWS, 2, CheckpointId(0), b"ab"
    pair.sender.append(ElementKind.BARRIER, 1, CheckpointId(1), b"", first)  # no batch of records
    pair.sender.append(*rows)
    pair.sender.append(*rows, first)
    pair.sender.append(*rows, second)  # one at a time
    pair.deliver_handshake()
    assert batch_marks(pair) == [(0, None), (1, None), (3, first), (5, None)]
    pair.sender.append(*rows, second)
    pair.pump()
    assert batch_marks(pair)[-1] == (7, second)
    pair.forward.clear()
    pair.renew()  # all is sent again
    while pair.back:
        pair.deliver_handshake()
    assert [mark for _, mark in batch_marks(pair)] == [None] * 5


def test_a_histogram_goes_on_over_incarnations() -> None:
    histogram = GrowingHistogram(END_TO_END)
    width = len(BOUNDS_S) + 1
    histogram.add(1, (2.0, *[3] * width))
    histogram.add(1, (3.0, *[4] * width))
    histogram.add(2, (1.0, *[1] * width))
    assert histogram.numbers == [4.0, *[5] * width]


def test_a_quantile_is_linear_within_its_bucket() -> None:
    assert quantile((1, 2, 4), (0, 10, 10, 0), 0.5) == 2
    assert quantile((1, 2, 4), (0, 10, 10, 0), 0.75) == 3
    assert quantile((1, 2, 4), (4, 0, 0, 0), 0.25) == 0.25
    assert quantile((1, 2, 4), (0, 0, 0, 5), 0.5) == 4, "above the last bound"
    assert quantile((1, 2, 4), (0, 0, 0, 0), 0.5) is None
