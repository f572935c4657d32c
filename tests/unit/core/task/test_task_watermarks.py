"""Event time of one task: the minimum over its inputs, steps that span watermarks, snapshots (protocol 2 and 5)."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clonos.core.log import determinants as d
from clonos.core.model.element_kind import ElementKind
from clonos.core.model.ids import ChannelId, TaskId
from clonos.core.model.metric_series import LATE_RECORDS, late_records
from clonos.core.model.plan import Channel
from clonos.core.model.watermark import ACTIVE, IDLE, Activity, Watermark
from clonos.core.ports.task_snapshot import ChannelTime, EventTime
from clonos.core.task.inputs import InputQueue
from clonos.core.task.watermarks import InputWatermarks
from clonos.core.wire.recovery_messages import InputRange
from tests.harnesses.recording_chain import RecordingChain
from tests.harnesses.task_harness import END, Job, Start, barrier, columns, restored_at, rows, watermark
from tests.unit.core.task.test_task_steps import UNION, Scripted, sent, union


def forwarded(life: Scripted) -> list[str]:
    """The output in order: rows as they were numbered, watermarks, barriers."""
    return [
        content if kind is ElementKind.WATERMARK else kind.name.lower() if not kind.is_data else content.split(",")[0]
        for kind, _, content in life.outputs.get(ChannelId(3), [])
        if not content.startswith("('watermark")
    ]


def watermarks(life: Scripted) -> list[str]:
    return [content for kind, _, content in life.outputs.get(ChannelId(3), []) if kind is ElementKind.WATERMARK]


# ------------------------------------------------------------------ the minimum


def test_the_watermark_of_a_task_is_the_minimum_over_its_channels_once_each_has_one() -> None:
    life = union(
        sent(0, watermark(5)),
        sent(1, watermark(9)),
        sent(2, watermark(-3)),
        sent(2, watermark(7)),
        sent(0, watermark(8)),
    ).run()
    assert watermarks(life) == ["-3", "5", "7"]


def test_a_watermark_that_falls_on_its_channel_changes_nothing() -> None:
    life = union(*(sent(channel, watermark(4)) for channel in range(3)), sent(1, watermark(2)), sent(1, watermark(4)))
    assert watermarks(life.run()) == ["4"]


def test_an_idle_channel_does_not_count_and_counts_again_when_it_is_active() -> None:
    life = union(
        *(sent(0, watermark(1)), sent(1, watermark(5)), sent(2, watermark(6))),
        sent(0, watermark(IDLE)),  # 5
        *(sent(1, watermark(8)), sent(2, watermark(9))),  # 6, 8
        sent(0, watermark(ACTIVE)),
        *(sent(1, watermark(20)), sent(2, watermark(20))),  # channel 0 is at 1: nothing
        sent(0, watermark(7)),  # below its own
        sent(0, watermark(12)),
    ).run()
    assert watermarks(life) == ["1", "5", "6", "8", "12"]


def test_a_task_is_idle_when_all_channels_are_and_active_before_it_goes_on() -> None:
    life = union(
        *(sent(channel, watermark(channel)) for channel in range(3)),
        *(sent(channel, watermark(IDLE)) for channel in (2, 1, 0)),
        sent(1, watermark(ACTIVE)),  # now it alone counts
        sent(1, rows("a")),
    ).run()
    assert forwarded(life) == ["0", "2", str(IDLE), str(ACTIVE), "('a'"]


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_channels_that_become_idle_leave_the_latest_watermark_in_any_order(order: tuple[int, ...]) -> None:
    life = union(
        *(sent(channel, watermark(channel)) for channel in range(3)),
        *(sent(channel, watermark(IDLE)) for channel in order),
    ).run()
    assert watermarks(life)[-2:] == ["2", str(IDLE)]


def test_an_ended_channel_does_not_count_and_no_end_makes_an_idle_task_rise() -> None:
    life = union(
        *(sent(0, watermark(1)), sent(1, watermark(5)), sent(2, watermark(6))),
        sent(0, END),  # 5
        sent(1, watermark(IDLE)),  # 6
        sent(2, END),  # only an idle channel is left
        sent(1, watermark(ACTIVE)),
        sent(1, watermark(9)),
    ).run()
    assert watermarks(life) == ["1", "5", "6", str(IDLE), str(ACTIVE), "9"]


class Twin(NamedTuple):
    """The rule, said plainly: what the channels have had so far, and what the task has made of it."""

    reached: dict[int, int]
    idle: set[int]
    ended: set[int]

    def own(self) -> int | None:
        counted = {0, 1, 2} - self.idle - self.ended
        if self.is_idle:
            return max(
                (self.reached[channel] for channel in (self.idle - self.ended) & self.reached.keys()), default=None
            )
        if not counted or not counted <= self.reached.keys():
            return None
        return min(self.reached[channel] for channel in counted)

    @property
    def is_idle(self) -> bool:
        return bool({0, 1, 2} - self.ended) and not {0, 1, 2} - self.idle - self.ended


CONTENTS = st.one_of(st.integers(-5, 20), st.sampled_from((IDLE, ACTIVE, "end")))


@given(st.lists(st.tuples(st.integers(0, 2), CONTENTS), max_size=40), st.integers(0, 40))
def test_any_order_of_watermarks_gives_what_the_rule_gives_also_after_a_restore(
    elements: list[tuple[int, Any]], restore_at: int
) -> None:
    queues = [InputQueue(Channel(ChannelId(n), 0, 0, 0), 0, 0, False) for n in range(3)]  # type: ignore[arg-type]
    twin, highest, was_idle = Twin({}, set(), set()), None, False
    tested = InputWatermarks(queues, None)
    for place, (channel, content) in enumerate(elements):
        if place == restore_at:
            tested = InputWatermarks(queues, tested.event_time())
        if channel in twin.ended:
            continue
        if content == "end":
            twin.ended.add(channel)
            queues[channel].end()
            changes = tested.end()
        else:
            if isinstance(content, Activity):
                (twin.idle.add if content is IDLE else twin.idle.discard)(channel)
            else:
                twin.reached[channel] = max(content, twin.reached.get(channel, content))
            changes = tested.take(ChannelId(channel), content)
        expected: list[Watermark] = [ACTIVE] if was_idle and not twin.is_idle and len(twin.ended) < 3 else []
        lowest = None if twin.is_idle and was_idle else twin.own()
        if lowest is not None and (highest is None or lowest > highest):
            highest = lowest
            expected.append(lowest)
        is_timed = bool(twin.reached or twin.idle)
        expected += [IDLE] if is_timed and twin.is_idle and not was_idle else []
        was_idle = twin.is_idle if len(twin.ended) < 3 else was_idle
        assert changes == expected
        assert tested.own_ns == highest


# ------------------------------------------------------------------ steps


def spanning(step_records: int = 64) -> Scripted:
    life = union(step_records_first=step_records, step_records_max=step_records)
    life.arrivals = [
        *(sent(1, watermark(9)), None, sent(2, watermark(9)), None),
        *(sent(0, rows(1, 2)), sent(0, watermark(3)), sent(0, rows(4)), sent(0, watermark(5)), sent(0, rows(6, 7))),
        *(sent(0, barrier(1)), None),
    ]
    return life


def test_a_step_spans_watermarks_and_the_chain_gets_a_batch_between_two_of_them() -> None:
    life = spanning().run()
    assert life.log == d.step(1, 1) + d.step(2, 1) + d.step(0, 7) + d.step(0, 1)
    chain: Any = life.task.chain
    assert chain.batches == [2, 1, 2]
    assert life.task.records_in == 5


def test_where_steps_are_cut_makes_no_difference_to_the_output() -> None:
    in_one, cut = spanning().run(), spanning(step_records=1).run()
    assert len(cut.log) > len(in_one.log)
    assert cut.outputs == in_one.outputs


def test_a_step_ends_where_the_kind_of_the_records_changes_after_a_watermark() -> None:
    life = union()
    life.arrivals = [sent(0, rows(1)), sent(0, watermark(3)), sent(0, columns(2)), sent(0, watermark(4)), None]
    assert life.run().log == d.step(0, 2) + d.step(0, 2)


def test_a_watermark_after_a_barrier_waits_for_the_alignment() -> None:
    life = union(
        *(sent(0, watermark(1)), sent(1, watermark(1)), sent(2, watermark(1))),
        *(sent(0, barrier(1)), sent(0, watermark(5)), sent(1, watermark(5)), sent(2, watermark(6))),
        *(sent(1, barrier(1)), sent(2, barrier(1))),
    ).run()
    assert forwarded(life) == ["1", "barrier", "5"]


def test_the_place_of_a_failure_is_the_watermark_that_fired_the_timer() -> None:
    life = union(sent(0, rows(1, 2)), *(sent(channel, watermark(4)) for channel in (1, 2, 0)))

    def fail(_: Watermark) -> None:
        raise ValueError("no")

    life.task.chain.advance_watermark = fail  # type: ignore[assignment,method-assign]
    with pytest.raises(ValueError, match="no"):
        life.run()
    assert life.task.at == InputRange(ChannelId(0), 2, 1)


# ------------------------------------------------------------------ snapshots


def test_a_snapshot_has_the_watermark_and_the_activity_of_each_channel() -> None:
    life = union(
        *(sent(0, watermark(7)), sent(1, watermark(5)), sent(2, watermark(IDLE))),
        *(sent(channel, barrier(1)) for channel in range(3)),
    ).run()
    times = (
        ChannelTime(ChannelId(0), 7, False),
        ChannelTime(ChannelId(1), 5, False),
        ChannelTime(ChannelId(2), None, True),
    )
    assert life.snapshots[0].event_time == EventTime(5, False, times)


def test_a_restored_task_goes_on_from_the_watermarks_of_its_snapshot() -> None:
    first = union(
        *(sent(0, watermark(7)), sent(1, watermark(5)), sent(2, watermark(IDLE))),
        *(sent(channel, barrier(1)) for channel in range(3)),
    ).run()
    start: Start = restored_at(first, 1)
    second = union(sent(0, watermark(9)), sent(1, watermark(8)), sent(2, watermark(ACTIVE)), start=start).run()
    assert watermarks(second) == ["8"]  # 5 was forwarded before the barrier


def refuse(chain: RecordingChain, row: Any) -> object:
    chain.context.recorder.metric_table.cell(LATE_RECORDS, (f"step {row % 2}",))[0] += 1
    return "late"


def test_late_records_are_counted_once_whatever_a_successor_replays() -> None:
    job = Job(UNION, TaskId(3), lambda _: RecordingChain((refuse,)))
    rest = [sent(0, rows(4, 5)), *(sent(channel, barrier(2)) for channel in range(3))]
    script = [sent(0, rows(1, 2)), sent(0, rows(3)), *(sent(channel, barrier(1)) for channel in range(3)), *rest]
    first = Scripted(job, script).run()
    refused = [{"step 1": 2, "step 0": 1}, {"step 1": 3, "step 0": 2}]
    assert [late_records(each.metrics) for each in first.snapshots] == refused
    assert [late_records(each.metrics) for each in Scripted(job, script, Start(first.log)).run().snapshots] == refused
    restored = Scripted(job, rest, restored_at(first, 1)).run()
    assert [late_records(each.metrics) for each in restored.snapshots] == refused[1:]


def test_a_snapshot_of_a_task_without_watermarks_has_no_event_time() -> None:
    life = union(*(sent(channel, barrier(1)) for channel in range(3))).run()
    assert life.snapshots[0].event_time is None
