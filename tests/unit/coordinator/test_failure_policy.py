"""Exceptions of user code, repeated deaths, and the timeline of each recovery (protocol 6)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from msgspec import structs

from clonos.core.coordinator.coordinator_effects import (
    Alarm,
    Effect,
    JobDone,
    JobFailed,
    Milestone,
    RecoveryEvent,
    ReleaseSlot,
)
from clonos.core.coordinator.coordinator_events import Received, SlotGone, SlotUnreachable
from clonos.core.coordinator.failure_policy import (
    BACKLOGS_REMEMBERED,
    DEATHS_OF_POISON,
    EPOCHS_REMEMBERED,
    INCARNATIONS_BEFORE_SINGLE_STEP,
)
from clonos.core.model.errors import SHORTAGE_ADVICE, Blame
from clonos.core.model.ids import ChannelId, CheckpointId, Incarnation, TaskId, view_number
from clonos.core.model.options import OnDivergence
from clonos.core.model.progress import TaskCounter, TaskPhase
from clonos.core.wire.recovery_messages import AnnounceAck, AnnounceStep, InputRange, Recourse
from tests.harnesses.coordinator_harness import CoordinatorHarness, chain_plan, live_chain, of_kind, sent


def test_a_task_that_raised_is_restarted_in_single_step_mode_in_the_same_slot() -> None:
    harness = live_chain()
    before = harness.of(3)
    harness.raise_in(3)
    after = harness.of(3)
    assert after.incarnation > before.incarnation
    assert after.slot == before.slot
    assert after.is_single_step
    assert not after.is_fresh


def test_an_exception_that_is_repeated_counts_once() -> None:
    harness = live_chain()
    failure = harness.failure(3)
    slot = harness.of(3).hosting_slot
    harness.tick(5_000)
    harness.acknowledge(1)  # the view waits
    for _ in range(3):
        harness.receive(slot, failure)
    harness.durable(1)
    harness.receive(slot, failure)
    assert harness.coordinator.phase == "running"
    assert len({p.incarnation for p in harness.view.placements}) == 2


def test_an_input_element_that_raises_in_two_incarnations_is_poison() -> None:
    harness = live_chain()
    harness.raise_in(3, channel=3, first_seq=10, count=64)
    effects = harness.raise_in(3, channel=3, first_seq=37, count=1)
    (failed,) = of_kind(effects, JobFailed)
    assert failed.blame is Blame.JOB
    assert (failed.task_name, failed.step, failed.record) == ("map/1", "split", "'x'")
    assert failed.at == InputRange(ChannelId(3), 37, 1)
    assert failed.traceback == "Traceback ..."
    assert failed.reason == "step split, at the record 'x', raised ValueError: x"
    assert "errors=sink" in failed.advice
    assert len(of_kind(effects, ReleaseSlot)) == 6


def test_failures_at_different_elements_or_channels_are_not_poison() -> None:
    harness = live_chain()
    harness.raise_in(3, channel=3, first_seq=10, count=5)
    harness.raise_in(3, channel=3, first_seq=15, count=1)
    harness.raise_in(3, channel=2, first_seq=10, count=5)
    assert harness.coordinator.phase == "running"


def test_a_poison_record_is_recognised_across_a_completed_checkpoint() -> None:
    harness = live_chain()
    harness.raise_in(3, first_seq=10, count=5)
    harness.tick(200)
    harness.complete(1)
    assert of_kind(harness.raise_in(3, first_seq=12, count=1), JobFailed)


def test_a_timer_that_raises_the_same_error_twice_is_poison() -> None:
    harness = live_chain()
    harness.raise_in(3, count=0)
    assert of_kind(harness.raise_in(3, count=0), JobFailed)


def test_a_fatal_exception_fails_the_job_at_once() -> None:
    harness = live_chain()
    (failed,) = of_kind(harness.raise_in(3, recourse=Recourse.NONE), JobFailed)
    assert failed.error == "ValueError: x"


def test_a_divergence_ends_the_job_at_once() -> None:
    harness = live_chain()
    assert of_kind(harness.raise_in(3, recourse=Recourse.ROLLBACK), JobFailed)
    assert harness.view.generation == view_number(1, 1)


def test_a_job_that_wants_it_goes_back_once_in_each_epoch_because_of_a_divergence() -> None:
    harness = live_chain(on_divergence=OnDivergence.ROLLBACK)
    for checkpoint in (1, 2):
        harness.complete(checkpoint)
        harness.tick(100)
        generation = harness.view.generation
        failed, slot = harness.failure(3, recourse=Recourse.ROLLBACK), harness.of(3).hosting_slot
        effects = (*harness.receive(slot, failed), *harness.receive(slot, failed))  # a report is repeated
        assert not of_kind(effects, JobFailed)
        assert harness.view.generation > generation
        (text,) = [alarm.text for alarm in of_kind(effects, Alarm) if "diverged" in alarm.text]
        assert text == (
            f"the replay of task map/1 has diverged (ValueError: x). All tasks roll back to checkpoint {checkpoint}"
        )
    assert of_kind(harness.raise_in(2, recourse=Recourse.ROLLBACK), JobFailed)


def _unrestorable(harness: CoordinatorHarness, task: int) -> tuple[Effect, ...]:
    failed = structs.replace(harness.failure(task, recourse=Recourse.STANDBY), blame=Blame.ENVIRONMENT)
    return harness.receive(harness.of(task).hosting_slot, failed)


def test_a_task_with_a_damaged_snapshot_continues_in_the_standby_that_holds_its_state() -> None:
    harness = live_chain()
    harness.complete(1)
    harness.tick(100)
    harness.raise_in(3)
    before = harness.of(3)
    effects = _unrestorable(harness, 3)
    after = harness.of(3)
    assert after.slot in before.standbys
    assert after.incarnation > before.incarnation
    assert not after.is_single_step
    assert before.slot in harness.view_slots()
    assert len(after.standbys) == 1
    assert any("continues on a standby" in alarm.text for alarm in of_kind(effects, Alarm))


def test_without_such_a_standby_a_damaged_snapshot_fails_the_job_by_name() -> None:
    harness = live_chain()
    harness.slots[harness.of(3).standbys[0]].standbys_at[TaskId(3)] = CheckpointId(0)
    harness.complete(1)
    harness.tick(100)
    harness.raise_in(3)
    (failed,) = of_kind(_unrestorable(harness, 3), JobFailed)
    assert failed.blame is Blame.ENVIRONMENT
    assert "ValueError: x" in failed.reason


def test_a_task_whose_process_lacks_memory_or_files_continues_in_its_standby_with_the_same_failure_count() -> None:
    harness = live_chain()
    harness.complete(1)
    harness.tick(100)
    before = harness.of(3)
    effects = harness.raise_in(3, recourse=Recourse.ELSEWHERE)
    after = harness.of(3)
    assert after.slot in before.standbys
    assert before.slot in harness.view_slots()
    assert any("continues on a standby" in alarm.text for alarm in of_kind(effects, Alarm))
    (failed,) = of_kind(harness.raise_in(3, recourse=Recourse.ELSEWHERE), JobFailed)  # another process lacks it too
    assert "at the record 'x', raised ValueError: x" in failed.reason
    assert failed.advice == SHORTAGE_ADVICE


def test_without_a_standby_a_task_whose_process_lacks_memory_or_files_is_tried_once_more() -> None:
    harness = live_chain()
    harness.slots[harness.of(3).standbys[0]].standbys_at[TaskId(3)] = CheckpointId(0)
    harness.complete(1)
    harness.tick(100)
    assert not of_kind(harness.raise_in(3, recourse=Recourse.ELSEWHERE), JobFailed)
    assert of_kind(harness.raise_in(3, recourse=Recourse.ELSEWHERE), JobFailed)


def test_too_many_incarnations_between_two_checkpoints_fail_the_job() -> None:
    harness = live_chain(failures_per_epoch_max=3)
    failed: list[JobFailed] = []
    for attempt in range(4):
        assert not failed
        failed = of_kind(harness.raise_in(3, first_seq=100 * attempt), JobFailed)
    assert failed


def test_a_completed_checkpoint_resets_the_restart_count() -> None:
    harness = live_chain(failures_per_epoch_max=3)
    for epoch in range(1, 4):
        for attempt in range(3):
            harness.raise_in(3, first_seq=1_000 * epoch + 100 * attempt)
        harness.tick(200)
        harness.complete(epoch)
    assert harness.coordinator.phase == "running"


def test_two_process_deaths_in_one_epoch_put_the_successor_in_single_step_mode() -> None:
    harness = live_chain()
    harness.gone(harness.of(2).hosting_slot)
    assert not harness.of(2).is_single_step
    harness.tick(200)
    harness.gone(harness.of(2).hosting_slot)
    assert harness.of(2).is_single_step


def test_deaths_during_replay_do_not_lead_to_single_step_mode() -> None:
    harness = live_chain()
    for slot in harness.slots.values():
        slot.phase = TaskPhase.REPLAYING
    harness.gone(harness.of(2).hosting_slot)
    harness.tick(200)
    harness.gone(harness.of(2).hosting_slot)
    assert not harness.of(2).is_single_step


def test_deaths_count_towards_single_step_mode_for_a_few_epochs() -> None:
    harness = live_chain()
    harness.gone(harness.of(2).hosting_slot)
    harness.tick(200)
    harness.complete(1)
    harness.gone(harness.of(2).hosting_slot)
    assert harness.of(2).is_single_step
    for checkpoint in range(2, 2 + EPOCHS_REMEMBERED):
        harness.tick(200)
        harness.complete(checkpoint)
    harness.gone(harness.of(2).hosting_slot)
    assert not harness.of(2).is_single_step


def test_incarnations_that_die_before_reporting_live_put_the_successor_in_single_step_mode() -> None:
    harness = live_chain()
    for slot in harness.slots.values():
        slot.phase = TaskPhase.REPLAYING
    for _ in range(INCARNATIONS_BEFORE_SINGLE_STEP):
        assert not harness.of(2).is_single_step
        harness.tick(200)
        harness.gone(harness.of(2).hosting_slot)
    assert harness.of(2).is_single_step


def _announce(
    harness: CoordinatorHarness, channel: int, first_seq: int, incarnation: int | None = None
) -> tuple[Effect, ...]:
    life = Incarnation(harness.of(2).incarnation if incarnation is None else incarnation)
    return harness.receive(harness.of(2).hosting_slot, AnnounceStep(TaskId(2), life, ChannelId(channel), first_seq))


def test_each_announced_step_of_a_single_step_task_is_acknowledged() -> None:
    harness = live_chain()
    for _ in range(2):
        ((slot, acknowledgement),) = sent(_announce(harness, 3, 17), AnnounceAck)
        assert slot == harness.of(2).hosting_slot
        assert acknowledgement == AnnounceAck(TaskId(2), harness.of(2).incarnation, ChannelId(3), 17)
    assert _announce(harness, 3, 17, incarnation=77) == ()  # an earlier life


def test_repeated_process_deaths_at_one_input_element_are_a_poison_record() -> None:
    harness = live_chain()
    for checkpoint in range(1, DEATHS_OF_POISON):
        _announce(harness, 3, 17)
        assert of_kind(harness.gone(harness.of(2).hosting_slot), JobFailed) == []
        harness.tick(200)
        harness.complete(checkpoint)  # of a barrier before the element
    _announce(harness, 3, 17)
    (failed,) = of_kind(harness.gone(harness.of(2).hosting_slot), JobFailed)
    assert failed.blame is Blame.JOB
    assert (failed.task_name, failed.at) == ("map/0", InputRange(ChannelId(3), 17, 1))
    assert failed.reason == "the process of task map/0 died 3 times at the same record (killed)."


def test_process_deaths_at_several_elements_or_in_replay_are_not_a_poison_record() -> None:
    harness = live_chain()
    for first_seq in (17, 17, 18, 17, 17):
        _announce(harness, 3, first_seq)
        assert of_kind(harness.gone(harness.of(2).hosting_slot), JobFailed) == []
        harness.tick(200)
    harness.gone(harness.of(2).hosting_slot)  # before it came to any element
    assert harness.coordinator.phase == "running"


# ------------------------------------------------------------------ timeline


def test_the_timeline_reports_each_milestone_once_and_in_order() -> None:
    harness = live_chain()
    slot = harness.slots[harness.of(2).standbys[0]]
    dead = harness.of(2)
    events = of_kind(harness.do(SlotGone(dead.hosting_slot, "killed", 10**12, 10**12 - 5)), RecoveryEvent)
    for phase in (TaskPhase.RECOVERING, TaskPhase.CONNECTING, TaskPhase.REPLAYING, TaskPhase.LIVE, TaskPhase.LIVE):
        slot.phase = phase
        events += of_kind(harness.do(Received(slot.slot, slot.status(), now_ns=10**12 + len(events))), RecoveryEvent)
    events = [entry for entry in events if entry.task == 2]
    assert [entry.milestone for entry in events] == list(Milestone)[1:]  # the last sign of life is an earlier one
    assert events[0].incarnation == dead.incarnation
    assert {entry.incarnation for entry in events[1:]} == {harness.of(2).incarnation}
    assert [entry.now_ns for entry in events] == sorted(entry.now_ns for entry in events)
    assert all(entry.cause == "killed" for entry in events)
    (recovery,) = [r for r in harness.coordinator.recoveries if r.task == 2]
    assert recovery.is_over
    assert tuple(milestone for milestone, _ in recovery.reached) == tuple(Milestone)
    assert recovery.reached[0] == (Milestone.FAILED, 10**12 - 5)


@pytest.mark.parametrize("alive_ns", [0, 10**12 + 1])
def test_a_recovery_without_a_plausible_last_sign_of_life_begins_with_its_detection(alive_ns: int) -> None:
    harness = live_chain()
    harness.do(SlotGone(harness.of(2).hosting_slot, "killed", 10**12, alive_ns))
    (recovery,) = [r for r in harness.coordinator.recoveries if r.task == 2]
    assert recovery.reached[0] == (Milestone.DETECTED, 10**12)


def test_the_sign_of_a_slot_whose_connection_broke_counts_if_it_is_dead() -> None:
    harness = live_chain()
    slot = harness.of(2).hosting_slot
    harness.do(SlotUnreachable(slot, 10**12, 10**12 - 5))
    harness.do(SlotGone(slot, "killed", 10**12 + 5, 10**12 - 5))
    (recovery,) = [r for r in harness.coordinator.recoveries if r.task == 2]
    assert recovery.reached[:2] == ((Milestone.FAILED, 10**12 - 5), (Milestone.DETECTED, 10**12 + 5))


def _report(
    harness: CoordinatorHarness, backlog: int | None, name: TaskCounter = TaskCounter.BACKLOG_ELEMENTS
) -> list[Milestone]:
    """The slot of task 2 sends a heartbeat with this backlog; the milestones that the task has reached by it."""
    slot = harness.slots[harness.of(2).hosting_slot]
    slot.counters = () if backlog is None else ((name, backlog), (TaskCounter.RECORDS_IN, 12))
    return [
        events.milestone
        for events in of_kind(harness.receive(slot.slot, slot.status()), RecoveryEvent)
        if events.task == 2
    ]


def _fails(harness: CoordinatorHarness) -> None:
    """The process of task 2 dies; the successor is live at its first heartbeat."""
    harness.gone(harness.of(2).hosting_slot)


@pytest.mark.parametrize("name", [TaskCounter.BACKLOG_ELEMENTS, TaskCounter.BACKLOG_BYTES])
def test_a_task_has_caught_up_when_it_has_no_more_backlog_than_before_the_failure(name: TaskCounter) -> None:
    harness = live_chain()
    for backlog in (3, 7, 0):  # the largest of the last reports counts, so that an empty moment does not
        _report(harness, backlog, name)
    _fails(harness)
    assert _report(harness, 100, name) == [Milestone.GATHERED, Milestone.REPLAYED]
    assert _report(harness, 8, name) == []
    assert _report(harness, 7, name) == [Milestone.CAUGHT_UP]


def test_a_task_has_not_caught_up_while_its_backlog_is_unknown() -> None:
    harness = live_chain()
    _report(harness, 5)
    _fails(harness)
    assert _report(harness, None) == [Milestone.GATHERED, Milestone.REPLAYED]
    assert _report(harness, 5) == [Milestone.CAUGHT_UP]


def test_old_reports_do_not_count_as_the_backlog_before_a_failure() -> None:
    harness = live_chain()
    for backlog in (100, *[2] * BACKLOGS_REMEMBERED):
        _report(harness, backlog)
    _fails(harness)
    assert Milestone.CAUGHT_UP not in _report(harness, 3)
    assert _report(harness, 2) == [Milestone.CAUGHT_UP]


def test_a_task_that_fails_while_catching_up_keeps_the_backlog_target_of_the_first_failure() -> None:
    harness = live_chain()
    _report(harness, 5)
    _fails(harness)
    assert Milestone.CAUGHT_UP not in _report(harness, 1_000)
    harness.tick(200)
    _fails(harness)
    assert Milestone.CAUGHT_UP not in _report(harness, 900)
    assert _report(harness, 5) == [Milestone.CAUGHT_UP]


def test_a_task_whose_input_has_ended_has_caught_up() -> None:
    harness = live_chain()
    _report(harness, 5)
    _fails(harness)
    harness.slots[harness.of(2).hosting_slot].phase = TaskPhase.FINAL
    assert Milestone.CAUGHT_UP in _report(harness, 6)


def test_a_task_that_is_still_behind_has_caught_up_when_the_job_ends() -> None:
    harness = live_chain()
    _report(harness, 5)
    _fails(harness)
    assert Milestone.CAUGHT_UP not in _report(harness, 6)
    harness.acknowledge(1, final=True)
    effects = harness.durable(1)
    assert [(events.milestone, events.task) for events in of_kind(effects, RecoveryEvent)] == [(Milestone.CAUGHT_UP, 2)]
    assert isinstance(effects[-1], JobDone)
    assert all(recovery.is_over for recovery in harness.coordinator.recoveries)


def test_a_task_that_died_without_a_reported_backlog_has_caught_up_when_it_is_live() -> None:
    harness = live_chain()
    _fails(harness)
    assert Milestone.CAUGHT_UP in _report(harness, 6)


def test_a_task_that_fails_again_before_it_has_caught_up_has_two_recoveries() -> None:
    harness = live_chain()
    harness.gone(harness.of(2).hosting_slot)
    harness.gone(harness.of(2).hosting_slot)
    harness.tick(200)
    recoveries = [r for r in harness.coordinator.recoveries if r.task == 2]
    assert [r.is_over for r in recoveries] == [False, True]
    assert recoveries[0].incarnation == recoveries[1].failed


def test_the_status_shows_phases_and_counters_of_living_incarnations() -> None:
    harness = live_chain()
    harness.slots[harness.of(3).hosting_slot].counters = ((TaskCounter.RECORDS_IN, 12),)
    harness.tick(100)
    assert harness.coordinator.counters[harness.of(3).task] == {"records_in": 12}
    assert harness.coordinator.phases[harness.of(3).task] == "live"
    assert [register.slot for register in harness.coordinator.slots] == sorted(harness.slots)
    harness.gone(harness.of(3).hosting_slot)
    assert harness.of(3).task not in harness.coordinator.counters


def _exposed(effects: tuple[Effect, ...]) -> list[str]:
    return [alarm.text for alarm in of_kind(effects, Alarm) if "died with all ready keepers" in alarm.text]


def test_only_a_task_that_dies_with_its_keepers_raises_an_alarm() -> None:
    for is_alone in (True, False):
        harness = live_chain(has_effects=True)
        harness.complete(1)
        sink = harness.of(4)
        assert sink.keepers
        effects = harness.gone(sink.hosting_slot) if is_alone else harness.gone(sink.hosting_slot, *sink.keepers)
        texts = _exposed(effects)
        assert bool(texts) is not is_alone
        if texts:
            assert "sink/0" in texts[0]
            assert "since checkpoint 1" in texts[0]


def test_a_task_with_calls_that_dies_with_its_keepers_raises_an_alarm_of_their_outcomes() -> None:
    plan = chain_plan(2)
    called = replace(plan, vertices=(*plan.vertices[:2], replace(plan.vertices[2], has_calls=True)))
    harness = live_chain(plan=called)
    harness.complete(1)
    sink = harness.of(4)
    assert sink.keepers
    (text,) = _exposed(harness.gone(sink.hosting_slot, *sink.keepers))
    assert "sink/0" in text
    assert "calls that were made since checkpoint 1 are made again, and may have other outcomes" in text


def test_a_keeper_that_is_not_ready_does_not_count_as_a_replica() -> None:
    harness = live_chain(has_effects=True)
    sink = harness.of(4)
    for slot in harness.slots.values():
        slot.are_backups_ready = False
    harness.tick(300)
    assert "sink/0" not in "".join(_exposed(harness.gone(*sink.keepers)))
    assert harness.of(4).keepers
    assert "sink/0" in "".join(_exposed(harness.gone(harness.of(4).hosting_slot)))
