"""Startup: slots register before any task is activated; a resume begins a new generation."""

from __future__ import annotations

from dataclasses import replace

import pytest

from clonos.core.checkpoint.checkpoint_metadata import CheckpointMetadata
from clonos.core.coordinator.coordinator_effects import (
    Alarm,
    CommitOutput,
    Ending,
    JobDone,
    JobFailed,
    ReleaseSlot,
    RequestSlots,
    SlotsRefused,
)
from clonos.core.coordinator.coordinator_events import (
    Begin,
    CheckpointRequested,
    Event,
    SlotGone,
    StopRequested,
)
from clonos.core.model.errors import Blame
from clonos.core.model.ids import CheckpointId, SlotId, view_number
from clonos.core.model.options import Options
from clonos.core.wire.control_messages import Register, Release, TriggerCheckpoint, View
from tests.harnesses.coordinator_harness import CoordinatorHarness, chain_plan, of_kind, sent


def test_a_job_requests_one_slot_per_task() -> None:
    assert CoordinatorHarness().begin() == (RequestSlots(6),)


def test_a_job_of_one_task_requests_a_second_slot_for_its_backups() -> None:
    alone = CoordinatorHarness(replace(chain_plan(1), vertices=chain_plan(1).vertices[:1], edges=()))
    assert alone.begin() == (RequestSlots(2),)
    bare = CoordinatorHarness(alone.plan, Options(standbys=0))
    assert bare.begin() == (RequestSlots(1),)


def test_nothing_is_activated_before_enough_slots_have_registered() -> None:
    harness = CoordinatorHarness()
    harness.begin(slots=7)
    for slot in range(1, 7):
        assert harness.register(slot, "ab"[slot % 2]) == ()
    effects = harness.register(7, "a")
    assert len(sent(effects, View)) == 7
    assert harness.number == view_number(1, 1)
    assert harness.view.generation == view_number(1, 1)
    assert all(p.is_fresh and p.incarnation == harness.number and p.restore == 0 for p in harness.view.placements)


def test_a_repeated_registration_counts_once() -> None:
    harness = CoordinatorHarness()
    harness.begin(slots=2)
    harness.register(1, "a")
    harness.register(1, "a")
    assert harness.coordinator.phase == "starting"


def test_too_few_slots_at_the_timeout_release_all_and_report_needed_and_present() -> None:
    harness = CoordinatorHarness(options=Options(slots_wait_ms=2_000))
    harness.begin()
    harness.register(1, "a")
    harness.register(2, "b")
    for slot in harness.slots.values():
        harness.receive(slot.slot, Register(slot.slot, slot.domain, "h", "", "", b"", "", 1, ()))
    harness.tick(1_900)
    effects = harness.tick(100)
    assert [e.slot for e in of_kind(effects, ReleaseSlot)] == [1, 2]
    (refused,) = of_kind(effects, SlotsRefused)
    assert (refused.needed, refused.got) == (6, 2)
    (failed,) = of_kind(effects, JobFailed)
    assert "needs 6 slots" in failed.reason
    assert "got 2" in failed.reason
    assert failed.blame is Blame.ENVIRONMENT


def test_a_start_waits_for_a_second_domain_while_one_may_come() -> None:
    harness = CoordinatorHarness()
    harness.begin(slots=4)
    effects = [e for slot in range(1, 5) for e in harness.register(slot, "a")]
    assert of_kind(effects, RequestSlots) == [RequestSlots(2, ("a",))]
    assert harness.coordinator.phase == "starting"
    effects = list(harness.register(5, "b"))
    assert harness.coordinator.phase == "running"
    assert [e.slot for e in of_kind(effects, ReleaseSlot)] == [4]  # surplus, from the fullest domain


def test_surplus_slots_of_one_domain_are_released_and_others_requested() -> None:
    harness = CoordinatorHarness(options=Options(lease_ms=60_000))
    harness.begin(slots=2)
    for slot in (1, 2, 3):
        harness.register(slot, "a")
    effects = harness.tick(2_500)
    assert [e.slot for e in of_kind(effects, ReleaseSlot)] == [3]
    assert of_kind(effects, RequestSlots) == [RequestSlots(1, ("a",))]


def test_a_job_with_one_domain_starts_after_the_wait_and_warns_when_it_stays_alone() -> None:
    harness = CoordinatorHarness(options=Options(slots_wait_ms=1_000))
    harness.begin(slots=3)
    for slot in (1, 2, 3):
        harness.register(slot, "a")
    effects = harness.tick(1_100)
    assert harness.coordinator.phase == "running"
    assert not of_kind(effects, Alarm)  # another slot may still come
    assert not of_kind(harness.tick(9_000), Alarm)
    (alarm,) = of_kind(harness.tick(1_500), Alarm)
    assert "too few standbys in another domain" in alarm.text
    assert not of_kind(harness.tick(20_000), Alarm)
    for placement in harness.view.placements:
        assert len(placement.standbys) == 1
        assert placement.slot not in placement.standbys  # in another slot at least


def test_a_provider_with_one_domain_causes_no_wait() -> None:
    harness = CoordinatorHarness()
    harness.begin(slots=2, can_spread=False)
    harness.register(1, "a")
    harness.register(2, "a")
    assert harness.coordinator.phase == "running"


def test_a_slot_that_ends_while_others_are_awaited_is_requested_again() -> None:
    harness = CoordinatorHarness()
    harness.begin(slots=2)
    harness.register(1, "a")
    assert of_kind(harness.gone(1), RequestSlots) == [RequestSlots(1)]
    harness.register(2, "b")
    assert harness.coordinator.phase == "starting"


def test_a_slot_that_ends_before_it_registers_is_requested_again() -> None:
    harness = CoordinatorHarness()
    harness.begin(slots=2)
    harness.register(1, "a")
    harness.do(SlotGone(SlotId(77), "import error"))
    assert of_kind(harness.tick(100), RequestSlots) == [RequestSlots(1, ("a",))]


def test_a_slot_with_other_versions_fails_the_start_with_a_remedy() -> None:
    harness = CoordinatorHarness()
    harness.do(Begin(1, "job-1", 1, versions=(("python", "3.11"), ("wire", "1"))))
    effects = harness.receive(5, Register(SlotId(5), "a", "h", "", "", b"", "", 1, (("python", "3.12"), ("wire", "1"))))
    assert isinstance(sent(effects, Release)[0][1], Release)
    (failed,) = of_kind(effects, JobFailed)
    assert "python 3.12 instead of 3.11" in failed.reason
    assert "ship an environment" in failed.reason


def test_a_slot_with_another_hash_seed_is_refused_without_revealing_either_seed() -> None:
    harness = CoordinatorHarness()
    harness.do(Begin(1, "job-1", 1, versions=(("hash_seed", "4711"),)))
    effects = harness.receive(5, Register(SlotId(5), "a", "h", "", "", b"", "", 1, (("hash_seed", "815"),)))
    (failed,) = of_kind(effects, JobFailed)
    assert "it has another hash_seed" in failed.reason
    assert "PYTHONHASHSEED" in failed.reason
    assert "4711" not in failed.reason
    assert "815" not in failed.reason


def test_a_slot_with_other_versions_is_refused_while_the_job_runs() -> None:
    harness = CoordinatorHarness()
    harness.do(Begin(1, "job-1", 2, versions=(("wire", "1"),)))
    harness.register(1, "a")
    harness.register(2, "b")
    effects = harness.receive(5, Register(SlotId(5), "a", "h", "", "", b"", "", 1, (("wire", "2"),)))
    assert of_kind(effects, JobFailed) == []
    assert [slot for slot, _ in sent(effects, Release)] == [5]
    assert harness.coordinator.phase == "running"


def _completed_checkpoint() -> CheckpointMetadata:
    harness = CoordinatorHarness()
    harness.form()
    harness.complete(1)
    return harness.coordinator.completed


def test_a_resume_begins_the_next_generation_at_the_checkpoint() -> None:
    metadata = _completed_checkpoint()
    harness = CoordinatorHarness()
    harness.begin(resume=metadata, term=2)
    for slot, domain in enumerate("ababab", 1):
        harness.register(slot, domain)
    assert harness.number == view_number(2, 1)
    assert harness.view.generation == view_number(2, 1)
    for placement, entry in zip(harness.view.placements, metadata.tasks, strict=True):
        assert placement.is_fresh  # a resume is a rollback
        assert (placement.restore, placement.objects) == (1, entry.objects)
        assert placement.log_offset_bytes == entry.log_offset_bytes
    harness.complete(2)  # numbers go on
    assert harness.coordinator.completed.generation == view_number(2, 1)


def test_the_generation_of_a_driver_that_died_before_its_first_checkpoint_is_not_reused() -> None:
    metadata = _completed_checkpoint()
    generations = []
    for term in (2, 3):
        harness = CoordinatorHarness()
        harness.begin(resume=metadata, term=term)
        for slot, domain in enumerate("ababab", 1):
            harness.register(slot, domain)
        generations.append(harness.view.generation)
        harness.lose_log(0)  # as when an external system has output of the previous driver
        generations.append(harness.view.generation)
    assert generations == sorted(set(generations))


def test_a_resume_commits_the_output_of_its_checkpoint_again() -> None:
    metadata = _completed_checkpoint()
    entry = replace_prepared(metadata)
    harness = CoordinatorHarness()
    effects = harness.begin(resume=entry, term=2)
    (commit,) = of_kind(effects, CommitOutput)
    assert commit.checkpoint == 1
    assert commit.parts[0].parts == (b"part",)


def replace_prepared(metadata: CheckpointMetadata) -> CheckpointMetadata:
    import msgspec

    last = msgspec.structs.replace(metadata.tasks[-1], prepared=((metadata.checkpoint, b"part"),))
    return msgspec.structs.replace(metadata, tasks=(*metadata.tasks[:-1], last))


def test_a_resume_of_another_plan_is_refused() -> None:
    harness = CoordinatorHarness(chain_plan(3))
    effects = harness.begin(resume=_completed_checkpoint(), term=2)
    (failed,) = of_kind(effects, JobFailed)
    assert failed.blame is Blame.JOB
    assert "the parallelism of" in failed.reason


def test_a_resumed_job_that_had_finished_only_commits_its_output() -> None:
    harness = CoordinatorHarness()
    harness.form()
    harness.acknowledge(1, final=True)
    harness.durable(1)
    again = CoordinatorHarness()
    effects = again.begin(resume=harness.coordinator.completed, term=2)
    assert of_kind(effects, JobDone) == [JobDone(Ending.FINISHED, harness.coordinator.checkpoint)]
    assert of_kind(effects, RequestSlots) == []


@pytest.mark.parametrize("stop", [StopRequested(drain=True, ends_start=True), StopRequested(drain=False)])
def test_a_stop_that_ends_a_start_releases_all_before_the_first_view(stop: StopRequested) -> None:
    harness = CoordinatorHarness()
    harness.begin(slots=2)
    harness.register(1, "a")
    effects = harness.do(stop)
    assert [e.slot for e in of_kind(effects, ReleaseSlot)] == [1]
    assert of_kind(effects, JobDone)[0].ending is Ending.ABORTED


@pytest.mark.parametrize(
    "awaited",
    [(StopRequested(drain=True),), (CheckpointRequested(1), StopRequested(drain=True, ends_start=True))],
    ids=["a stop with a savepoint", "a savepoint, then a signal"],
)
def test_a_stop_with_an_awaited_checkpoint_waits_until_the_tasks_run(awaited: tuple[Event, ...]) -> None:
    harness = CoordinatorHarness()
    harness.begin(slots=3)
    assert harness.do(*awaited) == ()
    assert harness.coordinator.awaited_by_drain == harness.plan.tasks
    assert harness.do(StopRequested(drain=True, ends_start=True)) == ()  # a signal that comes after it
    for slot in (1, 2, 3):
        harness.register(slot, "ab"[slot % 2])
    triggers = [message for _, message in sent(harness.tick(500), TriggerCheckpoint)]
    assert triggers
    assert all(message.then_pause for message in triggers)  # type: ignore[attr-defined]
    harness.acknowledge(1)
    ended = of_kind(harness.durable(1), JobDone)
    assert ended == [JobDone(Ending.DRAINED, CheckpointId(1))]


def test_a_job_whose_slots_never_come_fails_although_a_stop_waits_for_them() -> None:
    harness = CoordinatorHarness()
    harness.begin(slots=3)
    harness.do(StopRequested(drain=True))
    (failed,) = of_kind(harness.tick(Options().slots_wait_ms + 1_000), JobFailed)
    assert "the job needs 3 slots" in failed.reason
