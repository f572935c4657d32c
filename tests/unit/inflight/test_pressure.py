"""A slot whose disk and memory are slow, fail, or run short."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from clonos.core.channel.budgets import HEADROOM_BYTES
from clonos.core.model.element_kind import ElementKind
from clonos.core.model.ids import COORDINATOR, ChannelId, CheckpointId, SlotId, TaskId, log_of
from clonos.core.model.options import SpillPolicy
from clonos.core.ports.task_port import Output, TaskEmission
from clonos.core.slot.backpressure import HOLD_HEARTBEATS
from clonos.core.slot.slot_events import MessageReceived, SegmentLoaded, SegmentSpilled, SinkOpened, StepEmitted
from clonos.core.wire.control_messages import Hold, Release
from clonos.core.wire.log_delta import Delta
from clonos.core.wire.recovery_messages import Recourse
from clonos.core.wire.replication_messages import AppendLog
from tests.harnesses.fake_disk import options_of
from tests.harnesses.sample_plans import chain_of, placement, view
from tests.harnesses.slot_harness import LIFE, SlotHarness

PAYLOAD = b"x" * 1_000


def _begun(policy: SpillPolicy = SpillPolicy.AVAILABILITY, memory_bytes: int = 20_000, **more: int) -> SlotHarness:
    bench = SlotHarness(options_of(policy, memory_bytes, **more))
    bench.begin()
    return bench


# ------------------------------------------------------------------ replay


@pytest.mark.parametrize("policy", SpillPolicy)
def test_b8_a_replay_during_processing_has_neither_gap_nor_repeat(policy: SpillPolicy) -> None:
    bench = _begun(policy)
    expected: list[bytes] = []

    def produce(count: int) -> None:
        for _ in range(count):
            expected.append(f"{len(expected):06d}".encode() * 100)
            bench.emit((0, expected[-1]))

    for _ in range(4):
        produce(25)
        bench.post(
            StepEmitted(
                TaskId(0),
                bench.thread,
                TaskEmission(b"", (Output(ChannelId(0), ElementKind.BARRIER, 1, CheckpointId(len(expected)), b""),)),
            )
        )
        expected.append(b"")  # the barrier, where an epoch begins
        bench.disk.do_all()
    seen = len(bench.received(0))
    assert seen == len(expected)
    bench.state(0, next_seq=0, session=2)
    while bench.disk.do():
        produce(3 if len(expected) < 200 else 0)
    assert bench.received(0)[seen:] == expected
    bench.emit((0, b"live"))
    assert bench.received(0)[-1] == b"live"


def test_b10_a_channel_that_waits_for_the_disk_delays_no_other() -> None:
    bench = _begun(SpillPolicy.EAGER)
    for _ in range(5):
        bench.emit((0, b"old"))
    bench.disk.do_all()
    bench.state(0, next_seq=0, session=2)
    assert [work[0] for work in bench.disk.asked][:1] == ["load"]  # which the disk does not do
    before = len(bench.received(0))
    for number in range(5):
        bench.emit((1, b"new"), (0, b"new"))
        assert len(bench.received(1)) == number + 1
    assert len(bench.received(0)) == before
    assert not bench.is_out_of_budget()
    bench.disk.do_all()
    assert bench.received(0)[before:] == [b"old"] * 5 + [b"new"] * 5


def test_b10_a_hanging_disk_pauses_sources_only_at_the_soft_limit() -> None:
    bench = _begun(memory_bytes=50_000)
    sent = 0
    while not bench.is_out_of_budget():
        bench.emit((0, PAYLOAD), (1, PAYLOAD))
        bench.tick()
        sent += 1
        assert bench.received(0) == bench.received(1) == [PAYLOAD] * sent
        assert sent < 100
    assert bench.slot.pressure.budget.memory_bytes > 50_000
    assert "inflight_memory_bytes" in bench.shell.warnings[0]
    bench.complete()  # a barrier passes, and frees all
    assert not bench.is_out_of_budget()


def test_b9_chunks_that_the_disk_could_not_write_are_sent_from_memory_with_one_warning() -> None:
    bench = _begun(memory_bytes=20_000)
    bench.disk.is_full = True
    for _ in range(50):
        bench.emit((0, PAYLOAD))
        bench.disk.do_all()
    bench.tick(3)
    bench.disk.do_all()
    assert [text for text in bench.shell.warnings if "no space left" in text] == bench.shell.warnings[:1]
    bench.state(0, next_seq=0, session=2)
    assert bench.received(0) == [PAYLOAD] * 100
    assert bench.is_out_of_budget()  # memory alone is too small


def test_b9_an_unreadable_segment_fails_the_incarnation_with_its_name() -> None:
    bench = _begun(SpillPolicy.EAGER)
    bench.emit((0, PAYLOAD))
    bench.disk.do_all()
    bench.disk.is_unreadable = True
    bench.state(0, next_seq=0, session=2)
    bench.disk.do_all()
    (failed,) = bench.budget_failures
    assert (failed.task, failed.incarnation, failed.recourse) == (0, LIFE, Recourse.RETRY)
    assert failed.error.startswith("SegmentUnreadable: ")
    assert "source/0 -> count/0" in failed.error
    assert "segment 1 of the disk of the test is damaged" in failed.error
    bench.tick()
    assert bench.budget_failures == [failed, failed]  # repeated until a view ends it
    assert not bench.disk.asked


@pytest.mark.parametrize(
    "change",
    [
        lambda payloads: [],
        lambda payloads: [b"\xc1", *payloads[1:]],
        lambda payloads: [b"\x91" * 5_000, *payloads[1:]],
        lambda payloads: payloads[:-1],
        lambda payloads: [*payloads[:-1], payloads[-1] + b"x"],
        lambda payloads: [b"\x91\x94\x05\x00\x01\x00", *payloads[1:]],
    ],
    ids=["nothing", "no heads", "deep heads", "a payload less", "a longer payload", "heads of other chunks"],
)
def test_a_segment_with_other_chunks_fails_the_incarnation(
    change: Callable[[list[bytes]], list[bytes]],
) -> None:
    bench = _begun(SpillPolicy.EAGER)
    bench.emit((0, PAYLOAD))
    bench.disk.do_all()
    (number,) = bench.disk.files
    bench.disk.files[number] = change(bench.disk.files[number])
    bench.state(0, next_seq=0, session=2)
    bench.disk.do_all()
    (failed,) = bench.budget_failures
    assert "it holds other elements than were stored" in failed.error


def test_a_load_that_completes_for_an_ended_incarnation_is_dropped() -> None:
    bench = _begun(SpillPolicy.EAGER)
    for _ in range(4):
        bench.emit((0, PAYLOAD), (1, PAYLOAD))
        bench.disk.do_all()
    bench.state(0, next_seq=0, session=2)
    late = list(bench.disk.asked)
    assert late
    bench.post(MessageReceived(COORDINATOR, view(2, [placement(t, LIFE + 1, t + 10) for t in range(4)])))
    assert not bench.disk.files
    for _, segment, _ in late:
        bench.post(SegmentLoaded(segment, [b"stale"], ""))
        bench.post(SegmentSpilled(segment, 5, ""))
    assert (bench.slot.pressure.budget.memory_bytes, bench.slot.pressure.budget.disk_bytes) == (0, 0)


def test_spilled_external_output_is_released_when_it_is_loaded() -> None:
    bench = SlotHarness(options_of(SpillPolicy.EAGER, keepers=0), chain_of(1))
    for _ in range(3):  # replayed before the external system registered the incarnation
        bench.emit((0, PAYLOAD))
        bench.disk.do_all()
    bench.post(SinkOpened(TaskId(0), LIFE, 0, None))
    left = [payload for slot, message, payload in bench.shell.sent if isinstance(message, Release)]
    assert left == []
    bench.disk.do_all()
    left = [payload for slot, message, payload in bench.shell.sent if isinstance(message, Release)]
    assert left == [PAYLOAD] * 3


# ------------------------------------------------------------------ limits


def test_b43_sources_pause_above_the_soft_disk_limit_until_a_checkpoint_truncates() -> None:
    bench = _begun(SpillPolicy.EAGER, inflight_disk_bytes=10_000)
    for _ in range(7):
        bench.emit((0, PAYLOAD))
        bench.disk.do_all()
    assert not bench.is_out_of_budget()
    bench.emit((0, PAYLOAD))
    bench.disk.do_all()
    assert bench.is_out_of_budget()
    assert bench.finishes()
    assert bench.counters["over_soft_limit"] == 1
    assert bench.counters["inflight_disk_bytes"] > 8_000
    bench.complete()
    assert not bench.is_out_of_budget()
    bench.tick()
    assert not bench.finishes()
    assert bench.counters["inflight_disk_bytes"] == 0
    assert not bench.budget_failures


def test_a_job_at_the_hard_disk_limit_fails_with_the_reason() -> None:
    bench = _begun(SpillPolicy.EAGER, inflight_disk_bytes=10_000)
    for _ in range(12):
        bench.emit((0, PAYLOAD))
        bench.disk.do_all()
    failed = bench.budget_failures[0]
    assert failed.recourse is Recourse.NONE
    assert failed.error.startswith("LimitExceeded: ")
    assert "inflight_disk_bytes" in failed.error
    assert "--resume" in failed.error


def test_a_permanently_failing_disk_fails_the_job_at_the_hard_memory_limit() -> None:
    bench = _begun(memory_bytes=20_000)
    bench.disk.is_full = True
    large = b"x" * (1 << 20)
    for _ in range(HEADROOM_BYTES // len(large)):
        bench.emit((0, large))
        bench.disk.do_all()
        bench.tick()
    assert not bench.budget_failures
    bench.emit((0, large))
    bench.tick()
    failed = bench.budget_failures[0]
    assert failed.recourse is Recourse.NONE
    assert "no space left on the disk of the test" in failed.error


def test_a5_causal_logs_above_their_soft_limit_pause_sources_until_they_are_truncated() -> None:
    bench = _begun(log_memory_bytes=1_000)
    bench.emit(log=b"d" * 800)
    bench.tick()
    assert not bench.is_out_of_budget()
    bench.emit(log=b"d" * 100)
    bench.tick()
    assert bench.is_out_of_budget()
    assert bench.counters["log_memory_bytes"] == 900
    assert "log_memory_bytes" in bench.shell.warnings[0]
    bench.complete()
    assert not bench.is_out_of_budget()


def test_a5_causal_logs_that_nothing_truncates_fail_the_job_at_their_hard_limit() -> None:
    bench = _begun(log_memory_bytes=1_000)
    bench.emit(log=b"d" * 1_001)
    bench.tick()
    assert bench.budget_failures[0].recourse is Recourse.NONE
    assert "log_memory_bytes" in bench.budget_failures[0].error


def test_a5_logs_held_as_a_keeper_count_towards_the_limits() -> None:
    plan = chain_of(2)
    options = options_of(log_memory_bytes=1_000)
    bench = SlotHarness(options, plan)
    keeper = [placement(0, LIFE + 1, 10), placement(1, LIFE, 11, keepers=(SlotId(1),))]
    bench.post(MessageReceived(COORDINATOR, view(2, keeper)))
    keep = AppendLog(TaskId(1), LIFE, True, (Delta(log_of(TaskId(1)), 0, True, b"d" * 900),))
    bench.post(MessageReceived(SlotId(11), keep))
    bench.tick()
    assert bench.finishes()
    assert bench.status.tasks == ()
    more = AppendLog(TaskId(1), LIFE, False, (Delta(log_of(TaskId(1)), 900, False, b"d" * 200),), ordinal=1)
    bench.post(MessageReceived(SlotId(11), more))
    bench.tick()
    failed = bench.budget_failures[0]
    assert (failed.task, failed.incarnation, failed.recourse) == (1, LIFE, Recourse.NONE)


def test_a_task_between_source_and_sink_is_never_paused_by_its_budget() -> None:
    plan = chain_of(3)
    bench = SlotHarness(options_of(memory_bytes=5_000), plan, task=1)
    bench.begin()
    for _ in range(20):
        bench.emit((1, PAYLOAD))
        bench.tick()
    assert bench.finishes()
    assert not bench.is_out_of_budget()


def test_sources_pause_while_another_slot_is_above_its_limit_and_resume_afterwards() -> None:
    bench = _begun()
    bench.tick()
    bench.post(MessageReceived(COORDINATOR, Hold(SlotId(7))))
    assert bench.is_out_of_budget()
    bench.tick(HOLD_HEARTBEATS - 1)
    bench.post(MessageReceived(COORDINATOR, Hold(SlotId(7))))
    bench.tick(HOLD_HEARTBEATS - 1)
    assert bench.is_out_of_budget()
    bench.tick(2)
    assert not bench.is_out_of_budget()


def test_a_source_that_starts_while_sources_are_held_is_held() -> None:
    bench = SlotHarness(options_of())
    bench.post(MessageReceived(COORDINATOR, Hold(SlotId(7))))
    bench.shell.gates.clear()
    bench.begin()
    assert bench.is_out_of_budget()
