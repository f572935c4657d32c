"""Checkpoints of the coordinator (protocol 5), through the whole machine."""

from __future__ import annotations

import itertools

from clonos.core.coordinator.checkpoint_ledger import PENDING_MAX
from clonos.core.coordinator.checkpoint_machine import COMMIT_ATTEMPTS_MAX
from clonos.core.coordinator.coordinator_effects import (
    Alarm,
    JobFailed,
    Send,
    StoodDown,
    WriteMetadata,
)
from clonos.core.coordinator.coordinator_events import (
    MetadataWritten,
    OutputCommitted,
    StopRequested,
    WriteOutcome,
)
from clonos.core.model.errors import Blame
from clonos.core.model.ids import CheckpointId, SlotId, view_number
from clonos.core.model.options import Options
from clonos.core.model.progress import TaskCounter, TaskPhase
from clonos.core.wire.control_messages import Completed, TriggerCheckpoint, View
from tests.harnesses.coordinator_harness import CoordinatorHarness, formed, live_chain, of_kind, sent, written_metadata

RECORDS = ((TaskCounter.RECORDS_IN, 1),)


def test_each_interval_a_checkpoint_triggers_every_source() -> None:
    harness = formed()
    assert sent(harness.tick(4_900), TriggerCheckpoint) == []
    triggers = sent(harness.tick(100), TriggerCheckpoint)
    assert {(slot, message.task, message.checkpoint) for slot, message in triggers} == {  # type: ignore[attr-defined]
        (harness.of(0).hosting_slot, 0, 1),
        (harness.of(1).hosting_slot, 1, 1),
    }


def test_the_first_checkpoint_of_a_job_begins_when_a_transactional_sink_has_a_record() -> None:
    harness = formed()
    harness.tick(300)
    assert harness.pending() == []
    harness.slots[harness.of(0).hosting_slot].counters = RECORDS  # only a source has read
    harness.tick(300)
    assert harness.pending() == []
    harness.slots[harness.of(5).hosting_slot].counters = RECORDS
    assert {message.checkpoint for _, message in sent(harness.tick(100), TriggerCheckpoint)} == {1}  # type: ignore[attr-defined]
    harness.acknowledge(1, parts=[(1, b"part")])
    harness.durable(1)
    harness.do(OutputCommitted(CheckpointId(1)))
    harness.tick(4_900)
    assert harness.pending() == []
    harness.tick(100)
    assert harness.pending() == [2]


def test_the_second_checkpoint_of_a_new_job_does_not_begin_before_the_first_has_completed() -> None:
    harness = formed()
    harness.slots[harness.of(5).hosting_slot].counters = RECORDS
    harness.tick(4_900)
    assert harness.pending() == [1]


def test_checkpoints_grow_further_apart_while_the_sinks_of_a_new_job_have_no_output() -> None:
    harness = formed()
    harness.slots[harness.of(5).hosting_slot].counters = RECORDS
    begun_ms = []
    for number in range(1, 10):
        while number not in harness.pending():
            harness.tick(50, step_ms=50)
        begun_ms.append(harness.now_ns // 1_000_000)
        harness.acknowledge(number)
        harness.durable(number)
    apart_ms = [later - earlier for earlier, later in itertools.pairwise(begun_ms)]
    assert apart_ms == [250, 300, 600, 1_200, 2_400, 4_800, 5_000, 5_000]


def test_a_resumed_job_and_a_job_without_transactional_sinks_wait_for_the_interval() -> None:
    first = formed()
    resumed = CoordinatorHarness(options=Options())
    resumed.form(resume=written_metadata((*first.tick(5_000), *first.acknowledge(1))), term=2)
    for harness in (resumed, live_chain(has_effects=True)):
        for slot in harness.slots.values():
            slot.counters = RECORDS
        assert sent(harness.tick(4_500), TriggerCheckpoint) == []
        harness.tick(500)
        assert len(harness.pending()) == 1


def test_a_trigger_is_repeated_to_a_source_until_it_has_acknowledged() -> None:
    harness = formed()
    harness.tick(5_000)
    harness.acknowledge(1, 0)
    assert {message.task for _, message in sent(harness.tick(300), TriggerCheckpoint)} == {1}  # type: ignore[attr-defined]


def test_metadata_is_written_when_every_task_has_acknowledged() -> None:
    harness = formed()
    harness.tick(5_000)
    assert of_kind(harness.acknowledge(1, 0, 1, 2, 3, 4), WriteMetadata) == []
    metadata = written_metadata(harness.acknowledge(1, 5))
    assert metadata.checkpoint == 1
    assert [entry.incarnation for entry in metadata.tasks] == [p.incarnation for p in harness.view.placements]
    assert [entry.log_offset_bytes for entry in metadata.tasks] == [100, 101, 102, 103, 104, 105]


def test_completed_is_sent_to_every_slot_and_repeated_until_confirmed() -> None:
    harness = formed()
    harness.tick(5_000)
    harness.slots[SlotId(3)].is_deaf = True
    harness.acknowledge(1)
    assert len(sent(harness.durable(1), Completed)) == 6
    assert [slot for slot, _ in sent(harness.tick(300), Completed)] == [3, 3, 3]
    harness.slots[SlotId(3)].is_deaf = False
    harness.tick(100)
    assert sent(harness.tick(300), Completed) == []


def test_completed_names_the_incarnations_that_acknowledged() -> None:
    harness = formed()
    effects = harness.complete(1)
    message = sent(effects, Completed)[0][1]
    assert isinstance(message, Completed)
    assert message.tasks == tuple((p.task, p.incarnation, 100 + p.task) for p in harness.view.placements)


def test_an_acknowledgement_of_a_dead_incarnation_is_ignored() -> None:
    harness = formed()
    harness.tick(5_000)
    dead = harness.of(5).incarnation
    harness.gone(harness.of(5).hosting_slot)
    harness.acknowledge(1, *(task for task in range(5)))
    late = harness.acknowledgement(5, 1, incarnation=dead)
    assert of_kind(harness.receive(harness.of(5).hosting_slot, late), WriteMetadata) == []
    assert written_metadata(harness.acknowledge(1, 5)).tasks[5].incarnation == harness.of(5).incarnation


def test_an_acknowledgement_of_a_task_that_died_afterwards_is_dropped() -> None:
    harness = formed()
    harness.tick(5_000)
    harness.acknowledge(1, 5)
    harness.gone(harness.of(5).hosting_slot)
    assert of_kind(harness.acknowledge(1, *(task for task in range(5))), WriteMetadata) == []
    assert of_kind(harness.acknowledge(1, 5), WriteMetadata)


def test_an_acknowledgement_between_death_and_the_next_view_is_ignored() -> None:
    harness = formed()
    harness.tick(10_000)
    harness.acknowledge(1)  # committing: the next view waits
    dead = harness.of(0)
    harness.gone(dead.hosting_slot)
    assert harness.of(0) == dead
    harness.receive(dead.hosting_slot, harness.acknowledgement(0, 2))
    harness.acknowledge(2, *(p.task for p in harness.view.placements if p.slot != dead.slot))
    assert of_kind(harness.durable(1), WriteMetadata) == []


def test_during_a_commit_the_view_waits_and_then_names_the_new_checkpoint() -> None:
    harness = formed()
    harness.tick(5_000)
    harness.acknowledge(1)
    dead = harness.of(2)
    assert sent(harness.gone(dead.hosting_slot), View) == []
    assert sent(harness.tick(1_000), View) == []
    effects = harness.durable(1)
    kinds = [type(e.message) for e in of_kind(effects, Send)]
    assert kinds.index(Completed) < kinds.index(View)
    assert harness.of(2).restore == 1
    assert harness.of(2).objects == harness.coordinator.completed.tasks[2].objects
    assert harness.of(3).restore == 0  # belongs to its incarnation and does not change


def test_during_a_commit_the_view_waits_through_failed_attempts() -> None:
    harness = formed()
    harness.tick(5_000)
    harness.acknowledge(1)
    harness.gone(harness.of(2).hosting_slot)
    effects = harness.do(MetadataWritten(CheckpointId(1), WriteOutcome.FAILED, "no space"))
    assert of_kind(effects, Alarm)
    again = harness.tick(300)
    assert written_metadata(again).checkpoint == 1
    assert sent(again, View) == []
    assert sent(harness.durable(1), View)


def test_a_repeated_or_outdated_write_failure_uses_up_no_attempt() -> None:
    harness = formed()
    harness.tick(5_000)
    harness.acknowledge(1)
    harness.durable(1)
    harness.tick(5_000)
    harness.acknowledge(2)
    assert harness.do(MetadataWritten(CheckpointId(1), WriteOutcome.FAILED, "late")) == ()
    assert of_kind(harness.do(MetadataWritten(CheckpointId(2), WriteOutcome.FAILED, "no space")), Alarm)
    for _ in range(COMMIT_ATTEMPTS_MAX + 1):  # the same failure, told again while the next attempt waits
        assert harness.do(MetadataWritten(CheckpointId(2), WriteOutcome.FAILED, "no space")) == ()
    assert written_metadata(harness.tick(300)).checkpoint == 2


def test_metadata_that_cannot_be_written_fails_the_job_after_the_last_attempt() -> None:
    harness = formed(checkpoint_every_ms=1_000_000)
    harness.tick(100)
    harness.do(StopRequested(drain=True))
    harness.acknowledge(1)
    failed: list[JobFailed] = []
    for _ in range(COMMIT_ATTEMPTS_MAX):
        failed += of_kind(harness.do(MetadataWritten(CheckpointId(1), WriteOutcome.FAILED, "no space")), JobFailed)
        if not failed:
            harness.tick(60_000, step_ms=1_000)
    assert "no space" in failed[0].reason
    assert failed[0].blame is Blame.ENVIRONMENT


def test_a_write_whose_outcome_stays_unknown_fails_the_job_at_its_timeout() -> None:
    harness = formed(checkpoint_timeout_ms=3_000)
    harness.tick(5_000)
    harness.acknowledge(1)
    (failed,) = of_kind(harness.tick(3_500), JobFailed)
    assert "the store did not report within 3000 ms" in failed.reason


def test_a_checkpoint_number_taken_by_another_coordinator_ends_this_one() -> None:
    harness = formed()
    harness.tick(5_000)
    harness.acknowledge(1)
    effects = harness.do(MetadataWritten(CheckpointId(1), WriteOutcome.TAKEN))
    assert effects == (StoodDown(CheckpointId(1)),)
    assert harness.coordinator.phase == "replaced"
    assert harness.gone(1) == ()
    assert harness.tick(10_000) == ()
    assert harness.lose_log(0) == ()
    assert harness.do(StopRequested(drain=False)) == ()


def test_several_checkpoints_may_be_pending_and_a_later_one_subsumes_earlier_ones() -> None:
    harness = formed()
    harness.tick(10_000)
    assert harness.pending() == [1, 2]
    harness.acknowledge(1, 0, 1, 2)
    harness.acknowledge(2)
    harness.durable(2)
    assert harness.coordinator.checkpoint == 2
    assert harness.pending() == []
    assert of_kind(harness.acknowledge(1, 3, 4, 5), WriteMetadata) == []


def test_an_earlier_checkpoint_may_complete_while_a_later_one_is_pending() -> None:
    harness = formed()
    harness.tick(10_000)
    harness.acknowledge(1)
    harness.durable(1)
    assert harness.pending() == [2]


def test_a_checkpoint_acknowledged_during_a_commit_is_written_next() -> None:
    harness = formed()
    harness.tick(10_000)
    harness.acknowledge(1)
    assert of_kind(harness.acknowledge(2), WriteMetadata) == []
    assert written_metadata(harness.durable(1)).checkpoint == 2


def test_the_last_checkpoint_of_a_drain_begins_during_a_commit() -> None:
    harness = formed()
    harness.tick(5_000)
    harness.acknowledge(1)
    harness.do(StopRequested(drain=True))
    assert harness.pending() == [1, 2]


def test_checkpoint_numbers_are_never_reused() -> None:
    harness = formed(checkpoint_timeout_ms=1_000)
    harness.tick(5_000)
    assert harness.pending() == [1]
    harness.tick(2_000)
    assert harness.pending() == []  # given up
    harness.lose_log(0)
    assert harness.view.generation == view_number(1, 2)
    harness.tick(3_500)
    assert harness.pending() == [2]


def test_an_acknowledgement_of_a_checkpoint_that_was_never_triggered_is_ignored() -> None:
    harness = CoordinatorHarness()
    harness.form()
    for number in (1 << 21, (1 << 62) - 1):
        for final in (False, True):
            harness.receive(harness.of(0).hosting_slot, harness.acknowledgement(0, number, final))
    harness.tick(5_000)
    assert harness.pending() == [1]


def test_a_checkpoint_beyond_its_timeout_is_aborted_with_a_warning() -> None:
    harness = formed(checkpoint_timeout_ms=2_000)
    harness.tick(5_000)
    harness.acknowledge(1, 0, 1)
    (alarm,) = of_kind(harness.tick(2_100), Alarm)
    missing = "map/0, map/1, sink/0, sink/1 have not taken it"
    assert alarm == Alarm(f"checkpoint 1 did not complete in 2 s, because {missing}; a later one replaces it")


def test_at_most_the_configured_number_of_checkpoints_are_pending() -> None:
    harness = formed(checkpoint_every_ms=500)
    harness.tick(500 * (PENDING_MAX + 5))
    assert len(harness.pending()) == PENDING_MAX


def test_a_recovering_task_delays_the_next_checkpoint_by_at_most_one_interval() -> None:
    harness = formed()
    harness.slots[SlotId(1)].phase = TaskPhase.REPLAYING
    harness.tick(4_000)
    harness.gone(2)
    harness.slots[SlotId(1)].phase = TaskPhase.REPLAYING
    for slot in harness.slots.values():
        slot.phase = TaskPhase.REPLAYING
    harness.tick(5_900)
    assert harness.pending() == []
    harness.tick(200)
    assert harness.pending() == [1]


def test_a_checkpoint_begins_as_soon_as_the_recovery_has_ended() -> None:
    harness = formed()
    harness.tick(4_000)
    for slot in harness.slots.values():
        slot.phase = TaskPhase.RECOVERING
    harness.gone(2)
    harness.tick(2_000)
    assert harness.pending() == []
    for slot in harness.slots.values():
        slot.phase = TaskPhase.LIVE
    harness.tick(200)
    assert harness.pending() == [1]


def test_a_slot_above_its_soft_limit_starts_a_checkpoint_at_once() -> None:
    harness = formed()
    harness.tick(1_000)
    harness.slots[SlotId(1)].is_over_soft_limit = True
    effects = harness.tick(200)
    assert harness.pending() == [1]
    assert "soft limit" in of_kind(effects, Alarm)[0].text
    harness.tick(1_000)
    assert harness.pending() == [1]


def test_a_final_state_counts_for_every_checkpoint_whose_barrier_was_not_passed() -> None:
    harness = formed()
    harness.acknowledge(1, 0, final=True)  # it has passed no barrier
    harness.tick(5_000)
    harness.acknowledge(1, 1, 2, 3, 4, 5)
    harness.durable(1)
    harness.tick(5_000)
    metadata = written_metadata(harness.acknowledge(2, 1, 2, 3, 4, 5))
    assert metadata.checkpoint == 2
    assert [entry.final for entry in metadata.tasks] == [True] + [False] * 5
    assert metadata.tasks[0].snapshot == 1


def test_a_final_state_does_not_count_for_a_barrier_that_was_passed() -> None:
    harness = formed()
    harness.tick(5_000)
    harness.acknowledge(2, 0, final=True)  # its label is one above barrier 1, which it has passed
    assert of_kind(harness.acknowledge(1, 1, 2, 3, 4, 5), WriteMetadata) == []
    assert of_kind(harness.acknowledge(1, 0), WriteMetadata)


def test_no_trigger_is_sent_to_a_final_source() -> None:
    harness = formed()
    harness.acknowledge(1, 0, final=True)
    assert {message.task for _, message in sent(harness.tick(5_100), TriggerCheckpoint)} == {1}  # type: ignore[attr-defined]


def test_a_final_state_is_acknowledged_again_by_the_successor() -> None:
    harness = formed()
    harness.acknowledge(1, 0, final=True)
    harness.gone(harness.of(0).hosting_slot)
    harness.tick(5_000)
    assert of_kind(harness.acknowledge(1, 1, 2, 3, 4, 5), WriteMetadata) == []
    assert of_kind(harness.acknowledge(1, 0, final=True), WriteMetadata)
