"""Effects of a completed checkpoint: output committed, objects deleted, the job done or stopped."""

from __future__ import annotations

import msgspec
import pytest

from clonos.core.coordinator.checkpoint_machine import COMMIT_ATTEMPTS_MAX
from clonos.core.coordinator.coordinator_effects import (
    Alarm,
    CommitOutput,
    DeleteObjects,
    Effect,
    Ending,
    JobDone,
    JobFailed,
    ReleaseSlot,
    Send,
    WriteMetadata,
)
from clonos.core.coordinator.coordinator_events import OutputCommitFailed, OutputCommitted, StopRequested
from clonos.core.model.errors import Blame, MessageMalformed
from clonos.core.model.ids import CheckpointId, SlotId
from clonos.core.model.progress import TaskPhase
from clonos.core.wire.control_messages import Completed, TriggerCheckpoint, View
from clonos.job.status_view import build_status
from tests.harnesses.coordinator_harness import CoordinatorHarness, chain_plan, formed, of_kind, sent, written_metadata


def test_a_job_ends_with_a_last_checkpoint_when_all_tasks_are_final() -> None:
    harness = formed()
    metadata = written_metadata(harness.acknowledge(1, final=True))
    assert metadata.is_final
    effects = harness.durable(metadata.checkpoint)
    assert len(sent(effects, Completed)) == 6
    assert [e.slot for e in of_kind(effects, ReleaseSlot)] == sorted(harness.slots)
    assert effects[-1] == JobDone(Ending.FINISHED, metadata.checkpoint)


def test_the_job_is_not_done_before_its_output_is_committed() -> None:
    harness = formed()
    for task in harness.plan.tasks:
        parts = ((1, b"part"),) if task >= 4 else ()
        harness.receive(harness.of(task).hosting_slot, harness.acknowledgement(task, 1, final=True, parts=parts))
    effects = harness.durable(1)
    assert of_kind(effects, JobDone) == []
    assert of_kind(harness.do(OutputCommitted(CheckpointId(1))), JobDone)


def _acknowledge_with_parts(harness: CoordinatorHarness, checkpoint: int, *labels: int) -> tuple[Effect, ...]:
    harness.acknowledge(checkpoint, 0, 1, 2, 3)
    effects: tuple[Effect, ...] = ()
    for task in (4, 5):
        parts = [(label, f"{task}-{label}".encode()) for label in labels]
        effects = harness.receive(harness.of(task).hosting_slot, harness.acknowledgement(task, checkpoint, parts=parts))
    return effects


def test_prepared_output_is_committed_once_in_order_of_vertex_task_and_age() -> None:
    harness = formed()
    harness.tick(10_000)
    _acknowledge_with_parts(harness, 2, 1, 2)  # 1 never completed: 2 stands for it
    (commit,) = of_kind(harness.durable(2), CommitOutput)
    assert commit.checkpoint == 2
    assert [(p.vertex, p.parts) for p in commit.parts] == [(2, (b"4-1", b"4-2", b"5-1", b"5-2"))]
    harness.do(OutputCommitted(CheckpointId(2)))
    harness.tick(5_000)
    _acknowledge_with_parts(harness, 3, 1, 2, 3)  # the sink has not heard of 2 yet
    (commit,) = of_kind(harness.durable(3), CommitOutput)
    assert commit.parts[0].parts == (b"4-3", b"5-3")


def test_no_output_is_committed_before_the_metadata_is_durable() -> None:
    harness = formed()
    harness.tick(5_000)
    assert of_kind(_acknowledge_with_parts(harness, 1, 1), CommitOutput) == []


def test_the_next_metadata_waits_until_the_output_is_committed() -> None:
    harness = formed()
    harness.tick(10_000)
    _acknowledge_with_parts(harness, 1, 1)
    harness.durable(1)
    assert of_kind(_acknowledge_with_parts(harness, 2, 2), WriteMetadata) == []
    assert written_metadata(harness.do(OutputCommitted(CheckpointId(1)))).checkpoint == 2


def test_a_view_does_not_wait_for_the_commit_of_output() -> None:
    harness = formed()
    harness.tick(5_000)
    _acknowledge_with_parts(harness, 1, 1)
    harness.durable(1)
    assert sent(harness.gone(harness.of(0).hosting_slot), View)


def test_a_failing_commit_is_retried_and_fails_the_job_after_the_last_attempt() -> None:
    harness = formed(checkpoint_every_ms=1_000_000)
    harness.tick(100)
    harness.do(StopRequested(drain=True))
    _acknowledge_with_parts(harness, 1, 1)
    (first,) = of_kind(harness.durable(1), CommitOutput)
    failed: list[JobFailed] = []
    for _ in range(COMMIT_ATTEMPTS_MAX):
        failed += of_kind(harness.do(OutputCommitFailed(CheckpointId(1), "folder is read-only")), JobFailed)
        if not failed:
            assert of_kind(harness.tick(60_000, step_ms=1_000), CommitOutput) == [first]
    assert "folder is read-only" in failed[0].reason


def test_a_commit_that_a_repetition_cannot_help_fails_the_job_at_once() -> None:
    harness = formed(checkpoint_every_ms=1_000_000)
    harness.tick(100)
    harness.do(StopRequested(drain=True))
    _acknowledge_with_parts(harness, 1, 1)
    assert of_kind(harness.durable(1), CommitOutput)
    closed = OutputCommitFailed(CheckpointId(1), "standard output is closed", blame=Blame.ENVIRONMENT)
    effects = harness.do(closed)
    assert [failed.reason for failed in of_kind(effects, JobFailed)] == ["standard output is closed"]
    assert not of_kind(effects, Alarm)


def test_a_repeated_or_outdated_commit_failure_uses_up_no_attempt() -> None:
    harness = formed()
    for checkpoint in (1, 2):
        harness.tick(5_000)
        _acknowledge_with_parts(harness, checkpoint, checkpoint)
        harness.durable(checkpoint)
        if checkpoint == 1:
            harness.do(OutputCommitted(CheckpointId(1)))
    assert harness.do(OutputCommitFailed(CheckpointId(1), "late")) == ()
    assert of_kind(harness.do(OutputCommitFailed(CheckpointId(2), "folder is read-only")), Alarm)
    for _ in range(COMMIT_ATTEMPTS_MAX + 1):  # the same failure, told again while the next attempt waits
        assert harness.do(OutputCommitFailed(CheckpointId(2), "folder is read-only")) == ()
    (commit,) = of_kind(harness.tick(300), CommitOutput)
    assert commit.checkpoint == 2


def test_deletion_keeps_the_objects_of_the_last_two_checkpoints() -> None:
    harness = formed()
    names: dict[int, str] = {}
    deleted: list[str] = []
    for checkpoint in (1, 2, 3, 4):
        harness.tick(5_000)
        effects: tuple[Effect, ...] = ()
        for task in harness.plan.tasks:
            chain = (f"{task}-full",) if checkpoint < 3 else ()  # from 3 on a new full one
            message = harness.acknowledgement(task, checkpoint, objects=(*chain, f"{task}-{checkpoint}"))
            harness.receive(harness.of(task).hosting_slot, message)
        effects = harness.durable(checkpoint)
        deleted = sorted(name for e in of_kind(effects, DeleteObjects) for name in e.names)
        names[checkpoint] = ",".join(deleted[:2])
        if checkpoint < 3:
            assert deleted == []
    assert deleted == sorted(name for task in harness.plan.tasks for name in (f"{task}-2", f"{task}-full"))
    assert names[3] == "0-1,1-1"


def test_objects_of_dropped_acknowledgements_are_deleted_later() -> None:
    harness = formed()
    harness.tick(5_000)
    harness.receive(harness.of(5).hosting_slot, harness.acknowledgement(5, 1, objects=("dead",)))
    harness.gone(harness.of(5).hosting_slot)
    effects = (*harness.acknowledge(1), *harness.durable(1))
    assert of_kind(effects, DeleteObjects) == [DeleteObjects(("dead",))]


def test_objects_that_a_later_snapshot_may_build_on_are_not_deleted() -> None:
    harness = formed(checkpoint_timeout_ms=8_000)
    harness.tick(10_000)
    harness.receive(harness.of(5).hosting_slot, harness.acknowledgement(5, 2, objects=("base",)))
    harness.acknowledge(1)
    assert of_kind(harness.durable(1), DeleteObjects) == []


def test_a_drained_job_pauses_its_sources_after_the_last_barrier_and_ends() -> None:
    harness = formed()
    harness.tick(1_000)
    effects = harness.do(StopRequested(drain=True))
    triggers = [message for _, message in sent(effects, TriggerCheckpoint)]
    assert [message.then_pause for message in triggers] == [True, True]  # type: ignore[attr-defined]
    harness.tick(6_000)
    assert harness.pending() == [1]  # no further checkpoint begins
    harness.acknowledge(1)
    effects = harness.durable(1)
    assert of_kind(effects, JobDone) == [JobDone(Ending.DRAINED, CheckpointId(1))]
    assert len(of_kind(effects, ReleaseSlot)) == 6
    assert {task.phase for task in build_status("id", True, (), harness.coordinator).tasks} == {TaskPhase.ENDED}


def test_a_drain_survives_the_death_of_a_source() -> None:
    harness = formed()
    harness.tick(1_000)
    harness.do(StopRequested(drain=True))
    harness.acknowledge(1)
    second_harness = formed()
    second_harness.tick(1_000)
    second_harness.do(StopRequested(drain=True))
    second_harness.gone(second_harness.of(0).hosting_slot)
    repeated = [message for _, message in sent(second_harness.tick(200), TriggerCheckpoint)]
    assert (0, second_harness.of(0).incarnation, True) in {
        (message.task, message.incarnation, message.then_pause)  # type: ignore[attr-defined]
        for message in repeated
    }
    second_harness.acknowledge(1)
    assert of_kind(second_harness.durable(1), JobDone)


def test_a_drain_interrupted_by_a_rollback_starts_again() -> None:
    harness = formed()
    harness.tick(1_000)
    harness.do(StopRequested(drain=True))
    harness.lose_log(2)
    harness.tick(300)
    assert harness.pending() == [2]
    harness.acknowledge(2)
    assert of_kind(harness.durable(2), JobDone) == [JobDone(Ending.DRAINED, CheckpointId(2))]


def test_a_job_that_is_stopped_at_once_releases_all_and_names_its_checkpoint() -> None:
    harness = formed()
    harness.complete(1)
    effects = harness.do(StopRequested(drain=False))
    assert effects[-1] == JobDone(Ending.ABORTED, CheckpointId(1))
    assert len(of_kind(effects, ReleaseSlot)) == 6


def test_a_release_is_repeated_to_a_slot_that_has_not_ended() -> None:
    harness = formed()
    harness.slots[SlotId(2)].is_deaf = True
    status = harness.slots[SlotId(2)].status()
    harness.do(StopRequested(drain=False))
    assert [e.slot for e in of_kind(harness.receive(2, status), Send)] == [2]


@pytest.mark.parametrize("task", [-1, 6, 1_000])
def test_an_acknowledgement_of_a_task_that_does_not_exist_is_malformed(task: int) -> None:
    harness = formed()
    message = harness.acknowledgement(0, 1)
    with pytest.raises(MessageMalformed, match=f"task {task}, the plan has 6"):
        harness.receive(1, msgspec.structs.replace(message, task=task))


def test_a_job_whose_sinks_have_effects_commits_nothing() -> None:
    harness = CoordinatorHarness(chain_plan(2, has_effects=True))
    harness.form()
    assert of_kind(harness.complete(1), CommitOutput) == []
