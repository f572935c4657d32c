"""Requested, retained and failed checkpoints, and the pause between them (docs/savepoints.md)."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import structs

from clonos.core.coordinator.coordinator_effects import DeleteObjects, Effect, JobFailed
from clonos.core.coordinator.coordinator_events import CheckpointReleased, CheckpointRequested
from clonos.core.coordinator.coordinator_state import JobPhase
from clonos.core.model.errors import Blame
from clonos.core.wire.control_messages import TriggerCheckpoint
from tests.harnesses.coordinator_harness import CoordinatorHarness, formed, of_kind, sent


def complete(harness: CoordinatorHarness, number: int, name: str = "") -> tuple[Effect, ...]:
    """Lets a pending checkpoint complete; its first task has the object of this name."""
    effects: list[Effect] = []
    for task in range(6):
        message = harness.acknowledgement(task, number)
        objects = (name or f"object-{number}",) if task == 0 else ()
        effects += harness.receive(harness.of(task).hosting_slot, structs.replace(message, objects=objects))
    return (*effects, *harness.durable(number))


def deleted(effects: Iterable[Effect]) -> list[str]:
    """Names of the objects that are to be deleted."""
    return [name for effect in of_kind(effects, DeleteObjects) for name in effect.names]


def test_a_requested_checkpoint_begins_at_once_and_its_number_is_known_before_it_completes() -> None:
    harness = formed()
    harness.tick(1_000)
    triggers = sent(harness.do(CheckpointRequested(7)), TriggerCheckpoint)
    assert {message.checkpoint for _, message in triggers} == {1}  # type: ignore[attr-defined]
    held = harness.coordinator.requested(7)
    assert held is not None
    assert (held.number, held.metadata) == (1, None)
    assert harness.coordinator.committed(7) is None
    complete(harness, 1)
    committed = harness.coordinator.committed(7)
    assert committed is not None
    assert committed.checkpoint == 1


def test_a_request_waits_for_the_end_of_a_commit_and_then_does_not_wait_for_the_interval() -> None:
    harness = formed()
    harness.tick(5_000)
    harness.acknowledge(1)
    harness.do(CheckpointRequested(7))
    assert harness.pending() == [1]
    harness.durable(1)
    harness.tick(100)
    assert harness.pending() == [2]


def test_the_objects_of_a_requested_checkpoint_are_deleted_after_its_release_only() -> None:
    harness = formed(checkpoint_every_ms=500)
    harness.do(CheckpointRequested(7))
    gone: list[str] = deleted(complete(harness, 1))
    for number in range(2, 6):
        harness.tick(500)
        gone += deleted(complete(harness, number))
    assert gone == ["object-2", "object-3"]
    assert deleted(harness.do(CheckpointReleased(7))) == ["object-1"]
    assert deleted(harness.do(CheckpointReleased(7))) == []


def test_a_request_gets_a_later_checkpoint_when_its_own_is_abandoned() -> None:
    harness = formed(checkpoint_timeout_ms=2_000)
    harness.do(CheckpointRequested(7))
    harness.tick(2_100)
    assert harness.pending() == []
    harness.tick(3_000)
    complete(harness, 2)
    committed = harness.coordinator.committed(7)
    assert committed is not None
    assert committed.checkpoint == 2


def test_as_many_completed_checkpoints_keep_their_objects_as_the_option_allows() -> None:
    harness = formed(checkpoint_every_ms=500, checkpoints_retained=4)
    gone: list[list[str]] = []
    for number in range(1, 7):
        harness.tick(500)
        gone.append(deleted(complete(harness, number)))
    assert gone == [[], [], [], [], ["object-1"], ["object-2"]]


def test_no_checkpoint_begins_by_time_within_the_pause_after_the_last_one_or_beside_a_pending_one() -> None:
    harness = formed(checkpoint_every_ms=500, checkpoint_pause_min_ms=2_000)
    harness.tick(2_000)
    assert harness.pending() == [1]
    harness.tick(3_000)
    assert harness.pending() == [1]
    complete(harness, 1)
    harness.tick(1_900)
    assert harness.pending() == []
    harness.tick(100)
    assert harness.pending() == [2]


def test_the_job_fails_when_more_checkpoints_in_succession_fail_than_are_tolerated() -> None:
    harness = formed(checkpoint_every_ms=1_000, checkpoint_timeout_ms=1_000, checkpoint_failures_max=1)
    harness.tick(2_100)
    assert harness.coordinator.phase is JobPhase.RUNNING
    failed = of_kind(harness.tick(1_000), JobFailed)
    assert [each.blame for each in failed] == [Blame.ENVIRONMENT]
    assert "2 checkpoints in succession have failed, and checkpoint_failures_max is 1" in failed[0].reason


def test_a_completed_checkpoint_ends_the_succession_of_failed_ones() -> None:
    harness = formed(checkpoint_every_ms=1_000, checkpoint_timeout_ms=1_000, checkpoint_failures_max=1)
    harness.tick(2_100)
    complete(harness, harness.pending()[-1])
    harness.tick(2_000)
    assert harness.coordinator.phase is JobPhase.RUNNING
