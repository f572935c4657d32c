"""Latency marks: made by a source now and then, passed on once, measured at the end of a step."""

from __future__ import annotations

from typing import cast

import pytest

from clonos.core.model.element_kind import ElementKind
from clonos.core.model.ids import CheckpointId
from clonos.core.ports.task_port import TaskPort
from clonos.core.task.latency import BOUNDS_S, END_TO_END, MARK_EVERY_NS, PROCESSING, LatencyMarks
from clonos.core.wire.channel_messages import Batch, Mark
from clonos.job.prometheus.job_counters import GrowingHistogram, quantile
from tests.harnesses.channel_pair import ChannelPair

MS_NS = 1_000_000


class Clock:
    """The clock of a port, which the test sets."""

    now_ns_value = 10**18

    def now_ns(self) -> int:
        return self.now_ns_value


def marks() -> tuple[LatencyMarks, Clock]:
    clock = Clock()
    return LatencyMarks(cast(TaskPort, clock)), clock


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
    found.arrive(Mark(now_ns - 300 * MS_NS, now_ns - 4 * MS_NS))
    found.arrive(Mark(now_ns - 1, now_ns - 1))  # a second one in the same step
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
    found.arrive(Mark(clock.now_ns_value + MS_NS, clock.now_ns_value + MS_NS))
    found.leave()
    assert [family.series[0].numbers[:2] for family in found.families()] == [(0, 1), (0, 1)]


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
