"""Flow control: input is bounded by what a receiver processes soon, and a step by its output budget."""

from __future__ import annotations

from dataclasses import replace

import pyarrow
import pytest

from clonos.core.channel.output_budget import UNLIMITED, OutputBudget
from clonos.core.channel.receiver import WINDOW_BYTES_FIRST, WINDOW_BYTES_MIN, ChannelReceiver
from clonos.core.model.ids import TaskId
from clonos.core.model.options import Options
from clonos.core.task.step_size import StepSize
from tests.harnesses.channel_pair import CHANNEL
from tests.harnesses.recording_chain import RecordingChain, ask, nothing
from tests.harnesses.task_harness import Job, ScriptedTask
from tests.unit.core.task.test_task_replay import READER, work
from tests.unit.core.task.test_task_services import line

HEARTBEAT_MS, DELAY_MS = 100, 200
MAX_BYTES = 4 << 20


class Consumer:
    """A receiver that works off ``bytes_per_tick`` of a queue that its sender keeps full, if it is so ``hasty``."""

    def __init__(self) -> None:
        self.receiver = ChannelReceiver(CHANNEL, 0, 0, MAX_BYTES)

    def ticks(self, count: int, bytes_per_tick: int, hasty: bool = True) -> int:
        """The window after some heartbeats."""
        receiver = self.receiver
        for _ in range(count):
            left = bytes_per_tick
            while left:
                receiver.grant()
                receiver.announced_credit_bytes = receiver.granted_bytes
                come = min(receiver.granted_bytes - receiver.session_bytes, MAX_BYTES if hasty else left)
                receiver.session_bytes += come
                receiver.queued_bytes += come
                freed = min(left, receiver.queued_bytes, max(1, bytes_per_tick // 5))
                receiver.processed(0, freed)
                left -= freed
            receiver.adapt(HEARTBEAT_MS, DELAY_MS)
        return receiver.window_bytes


@pytest.mark.parametrize("bytes_per_tick", [1_000, 100_000])
def test_the_window_of_a_slow_receiver_shrinks_to_its_rate_times_the_delay(bytes_per_tick: int) -> None:
    fair_bytes = bytes_per_tick * DELAY_MS // HEARTBEAT_MS
    assert Consumer().ticks(40, bytes_per_tick) == pytest.approx(fair_bytes, rel=0.2)


def test_the_slowest_receiver_keeps_a_window_of_one_message() -> None:
    assert Consumer().ticks(60, 3) == WINDOW_BYTES_MIN


def test_a_receiver_that_waits_for_input_gets_a_larger_window_up_to_the_maximum() -> None:
    consumer = Consumer()
    assert consumer.receiver.window_bytes == WINDOW_BYTES_FIRST
    assert consumer.ticks(20, 50 * MAX_BYTES) == MAX_BYTES


def test_a_stalled_receiver_keeps_its_window_until_it_continues() -> None:
    consumer = Consumer()
    before = consumer.ticks(20, 10_000)
    assert consumer.ticks(50, 0) == before


def test_a_task_that_waits_for_output_budget_is_woken_once() -> None:
    woken: list[int] = []
    room = OutputBudget(lambda: woken.append(1))
    assert room.left_bytes() == UNLIMITED
    room.allow(100, 0)
    room.spend(60)
    assert room.left_bytes() == 40
    room.spend(60)
    room.allow(30, 60)  # which is spent already: the slot has not handled the second
    assert room.left_bytes() <= 0
    assert not woken
    room.allow(-5, 120)
    assert not woken
    room.allow(10, 120)
    room.allow(20, 120)
    assert woken == [1]
    assert room.left_bytes() == 20


def test_a_step_fits_the_output_budget_and_is_never_below_the_minimum() -> None:
    pace = StepSize(Options(step_records_first=64), ScriptedTask(work(), 1), is_single_step=False)
    assert pace.limit(UNLIMITED, 1_000) == 64
    pace.produced(64, 6_400)
    assert pace.limit(5_000, 1_000) == 50
    assert pace.limit(100, 1_000) == 25  # half of the last one
    assert pace.limit(UNLIMITED, 7) == 7  # calls that may be open
    assert pace.limit(UNLIMITED, 0) == 0


def test_a_task_that_has_emitted_nothing_for_thousands_of_steps_goes_on() -> None:
    pace = StepSize(Options(step_records_first=64), ScriptedTask(work(), 1), is_single_step=False)
    pace.produced(64, 6_400)
    for _ in range(5_000):
        pace.produced(64, 0)
    assert pace.limit(5_000, 1_000) == 64
    pace.produced(64, 6_400)
    assert pace.limit(600, 1_000) == 32


def test_the_first_step_has_at_most_step_records_max() -> None:
    pace = StepSize(Options(step_records_max=1), ScriptedTask(work(), 1), is_single_step=False)
    assert pace.limit(UNLIMITED, 1_000) == 1


class Costly(ScriptedTask):
    """A port at which time goes by as a test says."""

    spent_ns = 0

    def cost_clock_ns(self) -> int:
        return self.spent_ns


def test_a_step_targets_its_cost_and_four_times_that_for_columns() -> None:
    port = Costly(work(), 1)
    pace = StepSize(Options(step_cost_us=5_000), port, is_single_step=False)
    began_ns = pace.begin()
    port.spent_ns += 100_000
    pace.measure(10, began_ns)
    assert pace.limit(UNLIMITED, 100_000) == 500
    pace.is_columnar = True
    assert pace.limit(UNLIMITED, 100_000) == 2_000


def test_a_columnar_step_is_not_tiny_where_credit_is_used_up() -> None:
    pace = StepSize(Options(step_records_max=1 << 16), Costly(work(), 1), is_single_step=False)
    began_ns = pace.begin()
    pace.measure(10_000, began_ns - 1_000_000)
    pace.expect_columns()
    pace.produced(64, 640)
    assert pace.limit(100, 100_000) == 1 << 16
    wide = StepSize(Options(step_records_max=1 << 16), Costly(work(), 1), is_single_step=False)
    wide.measure(10_000, wide.begin() - 1_000_000)
    wide.expect_columns()
    wide.produced(64, 64 * 300)
    assert wide.limit(100, 100_000) == 13_981  # 4 MiB
    pace.produced(1, 100_000_000)
    assert pace.limit(100, 100_000) == 1 << 15  # an element has more than the bytes that may exceed it: half a step


def test_columnar_steps_soon_have_the_length_that_their_cost_allows() -> None:
    port = Costly(work(), 1)
    pace = StepSize(Options(step_cost_us=5_000, step_records_first=64), port, is_single_step=False)
    pace.expect_columns()
    sizes = []
    for _ in range(6):
        sizes.append(pace.limit(UNLIMITED, 100_000))
        began_ns = pace.begin()
        port.spent_ns += 1_000_000 + 100 * sizes[-1]  # a millisecond for each step
        pace.measure(sizes[-1], began_ns)
    assert sizes[:2] == [64, 1_271]
    assert sizes[-1] == Options().step_records_max


def _sizes(steps: int, first: int, fixed_ns: int, element_ns: int) -> list[int]:
    """Returns the sizes of columnar steps whose cost is a line."""
    port = Costly(work(), 1)
    pace = StepSize(Options(step_cost_us=5_000, step_records_first=first), port, is_single_step=False)
    pace.expect_columns()
    sizes: list[int] = []
    for _ in range(steps):
        sizes.append(pace.limit(UNLIMITED, 100_000))
        began_ns = pace.begin()
        port.spent_ns += fixed_ns + element_ns * sizes[-1]
        pace.measure(sizes[-1], began_ns)
    return sizes


@pytest.mark.parametrize("fixed_ms", [19, 21, 30, 200])
@pytest.mark.parametrize("first", [1, 2, 64, 1_000])
def test_columnar_steps_that_cost_more_than_their_target_without_their_elements_do_not_shrink(
    fixed_ms: int, first: int
) -> None:
    sizes = _sizes(200, first, fixed_ms * 1_000_000, 1_000)[20:]
    assert min(sizes) > 500
    assert sum(sizes) > 0.7 * len(sizes) * Options().step_records_max


@pytest.mark.parametrize("first", [1, 64])
def test_columnar_steps_over_costly_elements_are_short(first: int) -> None:
    target_ns = 20_000_000
    for element_ns in (1_000_000, 50_000_000):
        sizes = _sizes(200, first, 100_000, element_ns)[20:]
        assert max(sizes) <= max(2, 3 * target_ns // element_ns)
        assert sum(sizes) <= 1.3 * len(sizes) * max(1, target_ns // element_ns)


def test_a_task_is_columnar_when_it_reads_or_writes_columns() -> None:
    assert ScriptedTask(work(), 2).run().task.pace.is_columnar
    rows = ScriptedTask(line(ask), 2).run().task
    assert not rows.pace.is_columnar
    rows.outputs.columns(0, pyarrow.RecordBatch.from_pydict({"n": [1]}), [1])
    rows.finish_step(1, rows.pace.begin())
    assert rows.pace.is_columnar


def test_a_task_that_reads_columns_is_columnar_from_its_start() -> None:
    plan = replace(READER, vertices=(replace(READER.vertices[0], reads_columns=True), *READER.vertices[1:]))
    assert (
        ScriptedTask(Job(plan, TaskId(0), lambda _: RecordingChain((nothing,), splits={0: []})), 2)
        .run()
        .task.pace.is_columnar
    )


def test_bytes_that_arrive_beyond_the_credit_count_as_granted_until_there_is_room_again() -> None:
    receiver = ChannelReceiver(CHANNEL, 0, 0, MAX_BYTES)
    receiver.grant()
    receiver.announced_credit_bytes = receiver.granted_bytes
    receiver.session_bytes = receiver.queued_bytes = (
        receiver.granted_bytes + WINDOW_BYTES_FIRST // 2
    )  # one batch too large
    assert receiver.grant()
    assert receiver.granted_bytes == receiver.session_bytes
