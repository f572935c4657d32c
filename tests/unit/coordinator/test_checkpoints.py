"""Checkpoints of the coordinator (protocol 5), through the whole machine."""

from __future__ import annotations

from clonos.core.coordinator.checkpoint_machine import COMMIT_ATTEMPTS_MAX, PENDING_MAX
from clonos.core.coordinator.coordinator_effects import Alarm, JobFailed, Send, StoodDown, WriteMetadata
from clonos.core.coordinator.coordinator_events import MetadataWritten, StopAsked, WriteOutcome
from clonos.core.model.errors import Blame
from clonos.core.model.ids import CheckpointId, SlotId, view_number
from clonos.core.model.progress import TaskPhase
from clonos.core.wire.control_messages import Completed, Trigger, View
from tests.harnesses.coordinator_harness import Desk, formed, of_kind, sent, written_metadata


def test_each_interval_a_checkpoint_triggers_every_source() -> None:
    desk = formed()
    assert sent(desk.tick(4_900), Trigger) == []
    triggers = sent(desk.tick(100), Trigger)
    assert {(slot, message.task, message.checkpoint) for slot, message in triggers} == {  # type: ignore[attr-defined]
        (desk.of(0).hosting_slot, 0, 1),
        (desk.of(1).hosting_slot, 1, 1),
    }


def test_a_trigger_is_repeated_to_a_source_until_it_has_acknowledged() -> None:
    desk = formed()
    desk.tick(5_000)
    desk.acknowledge(1, 0)
    assert {message.task for _, message in sent(desk.tick(300), Trigger)} == {1}  # type: ignore[attr-defined]


def test_metadata_is_written_when_every_task_has_acknowledged() -> None:
    desk = formed()
    desk.tick(5_000)
    assert of_kind(desk.acknowledge(1, 0, 1, 2, 3, 4), WriteMetadata) == []
    metadata = written_metadata(desk.acknowledge(1, 5))
    assert metadata.checkpoint == 1
    assert [entry.incarnation for entry in metadata.tasks] == [p.incarnation for p in desk.view.placements]
    assert [entry.log_offset_bytes for entry in metadata.tasks] == [100, 101, 102, 103, 104, 105]


def test_completed_is_sent_to_every_slot_and_repeated_until_confirmed() -> None:
    desk = formed()
    desk.tick(5_000)
    desk.slots[SlotId(3)].is_deaf = True
    desk.acknowledge(1)
    assert len(sent(desk.durable(1), Completed)) == 6
    assert [slot for slot, _ in sent(desk.tick(300), Completed)] == [3, 3, 3]
    desk.slots[SlotId(3)].is_deaf = False
    desk.tick(100)
    assert sent(desk.tick(300), Completed) == []


def test_completed_names_the_incarnations_that_acknowledged() -> None:
    desk = formed()
    effects = desk.complete(1)
    message = sent(effects, Completed)[0][1]
    assert isinstance(message, Completed)
    assert message.tasks == tuple((p.task, p.incarnation, 100 + p.task) for p in desk.view.placements)


def test_an_acknowledgement_of_a_dead_incarnation_is_ignored() -> None:
    desk = formed()
    desk.tick(5_000)
    dead = desk.of(5).incarnation
    desk.gone(desk.of(5).hosting_slot)
    desk.acknowledge(1, *(task for task in range(5)))
    late = desk.acknowledgement(5, 1, incarnation=dead)
    assert of_kind(desk.say(desk.of(5).hosting_slot, late), WriteMetadata) == []
    assert written_metadata(desk.acknowledge(1, 5)).tasks[5].incarnation == desk.of(5).incarnation


def test_an_acknowledgement_of_a_task_that_died_afterwards_is_dropped() -> None:
    desk = formed()
    desk.tick(5_000)
    desk.acknowledge(1, 5)
    desk.gone(desk.of(5).hosting_slot)
    assert of_kind(desk.acknowledge(1, *(task for task in range(5))), WriteMetadata) == []
    assert of_kind(desk.acknowledge(1, 5), WriteMetadata)


def test_an_acknowledgement_between_death_and_the_next_view_is_ignored() -> None:
    desk = formed()
    desk.tick(10_000)
    desk.acknowledge(1)  # committing: the next view waits
    dead = desk.of(0)
    desk.gone(dead.hosting_slot)
    assert desk.of(0) == dead
    desk.say(dead.hosting_slot, desk.acknowledgement(0, 2))
    desk.acknowledge(2, *(p.task for p in desk.view.placements if p.slot != dead.slot))
    assert of_kind(desk.durable(1), WriteMetadata) == []


def test_during_a_commit_the_view_waits_and_then_names_the_new_checkpoint() -> None:
    desk = formed()
    desk.tick(5_000)
    desk.acknowledge(1)
    dead = desk.of(2)
    assert sent(desk.gone(dead.hosting_slot), View) == []
    assert sent(desk.tick(1_000), View) == []
    effects = desk.durable(1)
    kinds = [type(e.message) for e in of_kind(effects, Send)]
    assert kinds.index(Completed) < kinds.index(View)
    assert desk.of(2).restore == 1
    assert desk.of(2).objects == desk.coordinator.completed.tasks[2].objects
    assert desk.of(3).restore == 0  # belongs to its incarnation and does not change


def test_during_a_commit_the_view_waits_through_failed_attempts() -> None:
    desk = formed()
    desk.tick(5_000)
    desk.acknowledge(1)
    desk.gone(desk.of(2).hosting_slot)
    effects = desk.do(MetadataWritten(CheckpointId(1), WriteOutcome.FAILED, "no space"))
    assert of_kind(effects, Alarm)
    again = desk.tick(300)
    assert written_metadata(again).checkpoint == 1
    assert sent(again, View) == []
    assert sent(desk.durable(1), View)


def test_a_repeated_or_outdated_write_failure_uses_up_no_attempt() -> None:
    desk = formed()
    desk.tick(5_000)
    desk.acknowledge(1)
    desk.durable(1)
    desk.tick(5_000)
    desk.acknowledge(2)
    assert desk.do(MetadataWritten(CheckpointId(1), WriteOutcome.FAILED, "late")) == ()
    assert of_kind(desk.do(MetadataWritten(CheckpointId(2), WriteOutcome.FAILED, "no space")), Alarm)
    for _ in range(COMMIT_ATTEMPTS_MAX + 1):  # the same failure, told again while the next attempt waits
        assert desk.do(MetadataWritten(CheckpointId(2), WriteOutcome.FAILED, "no space")) == ()
    assert written_metadata(desk.tick(300)).checkpoint == 2


def test_metadata_that_cannot_be_written_fails_the_job_after_the_last_attempt() -> None:
    desk = formed(checkpoint_every_ms=1_000_000)
    desk.tick(100)
    desk.do(StopAsked(drain=True))
    desk.acknowledge(1)
    failed: list[JobFailed] = []
    for _ in range(COMMIT_ATTEMPTS_MAX):
        failed += of_kind(desk.do(MetadataWritten(CheckpointId(1), WriteOutcome.FAILED, "no space")), JobFailed)
        if not failed:
            desk.tick(60_000, step_ms=1_000)
    assert "no space" in failed[0].reason
    assert failed[0].blame is Blame.ENVIRONMENT


def test_a_write_whose_outcome_stays_unknown_fails_the_job_at_its_timeout() -> None:
    desk = formed(checkpoint_timeout_ms=3_000)
    desk.tick(5_000)
    desk.acknowledge(1)
    (failed,) = of_kind(desk.tick(3_500), JobFailed)
    assert "the store did not report within 3000 ms" in failed.reason


def test_a_checkpoint_number_taken_by_another_coordinator_ends_this_one() -> None:
    desk = formed()
    desk.tick(5_000)
    desk.acknowledge(1)
    effects = desk.do(MetadataWritten(CheckpointId(1), WriteOutcome.TAKEN))
    assert effects == (StoodDown(CheckpointId(1)),)
    assert desk.coordinator.phase == "replaced"
    assert desk.gone(1) == ()
    assert desk.tick(10_000) == ()
    assert desk.lose_log(0) == ()
    assert desk.do(StopAsked(drain=False)) == ()


def test_several_checkpoints_may_be_pending_and_a_later_one_subsumes_earlier_ones() -> None:
    desk = formed()
    desk.tick(10_000)
    assert desk.pending() == [1, 2]
    desk.acknowledge(1, 0, 1, 2)
    desk.acknowledge(2)
    desk.durable(2)
    assert desk.coordinator.checkpoint == 2
    assert desk.pending() == []
    assert of_kind(desk.acknowledge(1, 3, 4, 5), WriteMetadata) == []


def test_an_earlier_checkpoint_may_complete_while_a_later_one_is_pending() -> None:
    desk = formed()
    desk.tick(10_000)
    desk.acknowledge(1)
    desk.durable(1)
    assert desk.pending() == [2]


def test_a_checkpoint_acknowledged_during_a_commit_is_written_next() -> None:
    desk = formed()
    desk.tick(10_000)
    desk.acknowledge(1)
    assert of_kind(desk.acknowledge(2), WriteMetadata) == []
    assert written_metadata(desk.durable(1)).checkpoint == 2


def test_checkpoint_numbers_are_never_reused() -> None:
    desk = formed(checkpoint_timeout_ms=1_000)
    desk.tick(5_000)
    assert desk.pending() == [1]
    desk.tick(2_000)
    assert desk.pending() == []  # given up
    desk.lose_log(0)
    assert desk.view.generation == view_number(1, 2)
    desk.tick(3_500)
    assert desk.pending() == [2]


def test_an_acknowledgement_of_a_checkpoint_that_was_never_triggered_is_ignored() -> None:
    desk = Desk()
    desk.form()
    for number in (1 << 21, (1 << 62) - 1):
        for final in (False, True):
            desk.say(desk.of(0).hosting_slot, desk.acknowledgement(0, number, final))
    desk.tick(5_000)
    assert desk.pending() == [1]


def test_a_checkpoint_beyond_its_timeout_is_aborted_with_a_warning() -> None:
    desk = formed(checkpoint_timeout_ms=2_000)
    desk.tick(5_000)
    desk.acknowledge(1, 0, 1)
    (alarm,) = of_kind(desk.tick(2_100), Alarm)
    assert dict(alarm.fields) == {"checkpoint": 1, "missing": 4}


def test_at_most_the_configured_number_of_checkpoints_are_pending() -> None:
    desk = formed(checkpoint_every_ms=500)
    desk.tick(500 * (PENDING_MAX + 5))
    assert len(desk.pending()) == PENDING_MAX


def test_a_recovering_task_delays_the_next_checkpoint_by_at_most_one_interval() -> None:
    desk = formed()
    desk.slots[SlotId(1)].phase = TaskPhase.REPLAYING
    desk.tick(4_000)
    desk.gone(2)
    desk.slots[SlotId(1)].phase = TaskPhase.REPLAYING
    for slot in desk.slots.values():
        slot.phase = TaskPhase.REPLAYING
    desk.tick(5_900)
    assert desk.pending() == []
    desk.tick(200)
    assert desk.pending() == [1]


def test_a_checkpoint_begins_as_soon_as_the_recovery_has_ended() -> None:
    desk = formed()
    desk.tick(4_000)
    for slot in desk.slots.values():
        slot.phase = TaskPhase.RECOVERING
    desk.gone(2)
    desk.tick(2_000)
    assert desk.pending() == []
    for slot in desk.slots.values():
        slot.phase = TaskPhase.LIVE
    desk.tick(200)
    assert desk.pending() == [1]


def test_a_slot_above_its_soft_limit_starts_a_checkpoint_at_once() -> None:
    desk = formed()
    desk.tick(1_000)
    desk.slots[SlotId(1)].is_over_soft_limit = True
    effects = desk.tick(200)
    assert desk.pending() == [1]
    assert "soft limit" in of_kind(effects, Alarm)[0].text
    desk.tick(1_000)
    assert desk.pending() == [1]


def test_a_final_state_counts_for_every_checkpoint_whose_barrier_was_not_passed() -> None:
    desk = formed()
    desk.acknowledge(1, 0, final=True)  # it has passed no barrier
    desk.tick(5_000)
    desk.acknowledge(1, 1, 2, 3, 4, 5)
    desk.durable(1)
    desk.tick(5_000)
    metadata = written_metadata(desk.acknowledge(2, 1, 2, 3, 4, 5))
    assert metadata.checkpoint == 2
    assert [entry.final for entry in metadata.tasks] == [True] + [False] * 5
    assert metadata.tasks[0].snapshot == 1


def test_a_final_state_does_not_count_for_a_barrier_that_was_passed() -> None:
    desk = formed()
    desk.tick(5_000)
    desk.acknowledge(2, 0, final=True)  # its label is one above barrier 1, which it has passed
    assert of_kind(desk.acknowledge(1, 1, 2, 3, 4, 5), WriteMetadata) == []
    assert of_kind(desk.acknowledge(1, 0), WriteMetadata)


def test_no_trigger_is_sent_to_a_final_source() -> None:
    desk = formed()
    desk.acknowledge(1, 0, final=True)
    assert {message.task for _, message in sent(desk.tick(5_100), Trigger)} == {1}  # type: ignore[attr-defined]


def test_a_final_state_is_acknowledged_again_by_the_successor() -> None:
    desk = formed()
    desk.acknowledge(1, 0, final=True)
    desk.gone(desk.of(0).hosting_slot)
    desk.tick(5_000)
    assert of_kind(desk.acknowledge(1, 1, 2, 3, 4, 5), WriteMetadata) == []
    assert of_kind(desk.acknowledge(1, 0, final=True), WriteMetadata)
