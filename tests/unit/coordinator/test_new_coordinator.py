"""Takeover by a new coordinator while tasks continue (protocol 9)."""

from __future__ import annotations

import msgspec
import pytest

from clonos.core.checkpoint.checkpoint_metadata import CheckpointMetadata
from clonos.core.checkpoint.plan_shape import shape_of
from clonos.core.coordinator.coordinator_effects import (
    Alarm,
    Effect,
    Ending,
    JobDone,
    JobFailed,
    RequestSlots,
    StoodDown,
)
from clonos.core.coordinator.coordinator_events import (
    Begin,
    OutputCommitted,
    RescaleRequested,
    SlotGone,
    StopRequested,
    Ticked,
)
from clonos.core.model.errors import Blame
from clonos.core.model.ids import CheckpointId, Incarnation, SlotId, term_of, view_number
from clonos.core.model.options import Options
from clonos.core.wire.control_messages import Register, Release, TriggerCheckpoint
from clonos.core.wire.recovery_messages import SinkFenced
from tests.harnesses.coordinator_harness import (
    CoordinatorHarness,
    chain_plan,
    live_chain,
    of_kind,
    sent,
    sharing_chain,
    written_metadata,
)


def _restart(harness: CoordinatorHarness, silent: tuple[int, ...] = ()) -> CoordinatorHarness:
    """Another coordinator while the slots continue; slots that are not silent report to it."""
    again = CoordinatorHarness(harness.plan, Options())
    again.do(Ticked(0))
    again.do(Begin(2, "job-1", len(harness.slots), harness.coordinator.completed, awaits_slots=True))
    again.slots = {slot: state for slot, state in harness.slots.items() if slot not in silent}
    again.tick(5_000)
    return again


def test_a_new_coordinator_adopts_the_highest_view_that_slots_report() -> None:
    harness = live_chain()
    harness.complete(1)
    before = harness.view
    again = _restart(harness)
    assert term_of(again.number) == 2
    assert again.view.generation == before.generation
    assert again.view.placements == before.placements
    again.complete(2)


def test_a_new_coordinator_replaces_slots_that_stay_silent_for_a_lease() -> None:
    harness = live_chain()
    harness.complete(1)
    before = harness.view
    silent = harness.of(2).hosting_slot
    again = _restart(harness, (silent,))
    assert [p.task for p in again.view.placements if p.incarnation == again.number] == [2]
    assert again.of(2).restore == 1
    assert again.of(0) == msgspec.structs.replace(before.placements[0], standbys=again.of(0).standbys)
    late = harness.slots[silent]
    assert [slot for slot, _ in sent(again.receive(silent, late.status()), Release)] == [silent]


def test_a_new_coordinator_waits_a_limited_time_for_the_view_of_a_registered_slot() -> None:
    for message_ms, is_replaced in ((5_300, False), (10_500, True)):
        harness = live_chain()
        harness.complete(1)
        before = harness.view
        again = CoordinatorHarness(harness.plan, Options())
        again.do(Ticked(0))
        again.do(Begin(2, "job-1", len(harness.slots), harness.coordinator.completed, awaits_slots=True))
        again.slots = harness.slots
        silent = again.slots[harness.of(2).hosting_slot]
        silent.is_deaf = True  # it is heard, but the question by which view never gets there
        again.tick(message_ms)
        silent.is_deaf = False
        again.tick(500)
        assert (again.of(2).incarnation != before.placements[2].incarnation) is is_replaced


def test_a_new_coordinator_requests_the_view_of_a_slot_that_registered_without_one() -> None:
    harness = live_chain()
    again = CoordinatorHarness(harness.plan, Options())
    again.do(Ticked(0))
    again.do(Begin(2, "job-1", len(harness.slots), awaits_slots=True))
    for slot, state in harness.slots.items():
        again.receive(slot, Register(slot, state.domain, "h", "", "", b"", "", 1, ()))
    again.slots = harness.slots
    again.tick(5_300)
    assert again.view.generation == harness.view.generation
    assert again.view.placements == harness.view.placements


def test_a_new_coordinator_without_any_slot_starts_like_a_resume() -> None:
    harness = live_chain()
    harness.complete(1)
    again = CoordinatorHarness(harness.plan, Options())
    again.do(Ticked(0))
    assert again.do(Begin(2, "job-1", 2, harness.coordinator.completed, awaits_slots=True)) == ()
    effects = again.tick(5_100)
    assert of_kind(effects, RequestSlots) == [RequestSlots(2)]
    again.register(50, "a")
    again.register(51, "b")
    assert again.view.generation == view_number(2, 1)


def test_numbers_given_by_the_old_coordinator_are_not_reused() -> None:
    harness = live_chain()
    harness.complete(1)
    harness.tick(10_000)
    assert harness.pending() == [2, 3]
    again = _restart(harness)
    for slot in again.slots.values():
        for placement in slot.hosted():
            again.receive(slot.slot, harness.acknowledgement(placement.task, 3))
    again.tick(5_100)
    assert again.pending() == [4]


def test_a_slot_that_registers_during_takeover_is_a_spare() -> None:
    harness = live_chain()
    again = CoordinatorHarness(harness.plan, Options())
    again.do(Ticked(0))
    again.do(Begin(2, "job-1", 6, awaits_slots=True))
    again.slots = dict(harness.slots)
    again.receive(70, Register(SlotId(70), "a", "h", "", "", b"", "", 1, ()))
    again.tick(5_000)
    assert 70 in again.view_slots()


def test_an_old_coordinator_stands_down_when_a_slot_reports_a_later_term() -> None:
    harness = live_chain()
    again = _restart(harness)
    woken = harness.receive(1, again.slots[SlotId(1)].status())
    assert of_kind(woken, StoodDown)
    assert harness.coordinator.phase == "replaced"
    assert harness.gone(2) == ()


def test_an_old_coordinator_stands_down_when_a_slot_answers_its_view_with_a_later_one() -> None:
    harness = live_chain()
    again = _restart(harness)
    assert of_kind(harness.receive(1, again.view), StoodDown)


def _fenced(harness: CoordinatorHarness, generation: int, incarnation: int) -> tuple[Effect, ...]:
    """The last task, a sink, says for whom its outside refuses it."""
    mine = harness.view.placements[-1]
    return harness.receive(
        mine.hosting_slot, SinkFenced(mine.task, mine.incarnation, generation, Incarnation(incarnation))
    )


def test_a_sink_fenced_by_an_unknown_later_generation_rolls_the_job_back() -> None:
    again = _restart(live_chain())
    effects = _fenced(again, view_number(1, 7), view_number(1, 7))
    assert again.view.generation == again.number == view_number(2, 2)
    assert any("has registered generation 1.7" in alarm.text for alarm in of_kind(effects, Alarm))


def test_a_sink_fenced_by_an_unknown_incarnation_is_restarted_alone() -> None:
    again = _restart(live_chain())
    before = again.view
    _fenced(again, before.generation, view_number(1, 7))
    assert again.view.generation == before.generation
    assert [p.task for p in again.view.placements if p.incarnation == again.number] == [before.placements[-1].task]


def test_a_coordinator_whose_sink_is_fenced_by_a_later_term_stands_down() -> None:
    harness = live_chain()
    assert of_kind(_fenced(harness, harness.view.generation, view_number(2, 1)), StoodDown)
    assert harness.coordinator.phase == "replaced"


def test_a_fencing_report_of_a_dead_incarnation_is_ignored() -> None:
    harness = live_chain()
    before = harness.view
    sink = before.placements[-1]
    fenced = SinkFenced(sink.task, Incarnation(1), view_number(1, 7), Incarnation(view_number(2, 7)))
    assert harness.receive(sink.hosting_slot, fenced) == ()
    assert harness.view == before


def _named(harness: CoordinatorHarness, silent: tuple[int, ...] = (), dead: tuple[int, ...] = ()) -> CoordinatorHarness:
    """Another coordinator that knows all slots by name, after a tenth of a lease; some are silent, some have ended."""
    again = CoordinatorHarness(harness.plan, Options())
    again.do(Ticked(0))
    again.do(Begin(2, "job-1", len(harness.slots), harness.coordinator.completed, (), True, True, tuple(harness.slots)))
    for slot in dead:
        again.do(SlotGone(SlotId(slot), "killed"))
    again.slots = {slot: state for slot, state in harness.slots.items() if slot not in (*silent, *dead)}
    again.tick(500)
    return again


def test_a_new_coordinator_that_knows_its_slots_decides_when_all_have_answered() -> None:
    harness = live_chain()
    harness.complete(1)
    again = _named(harness)
    assert again.number == view_number(2, 1)
    assert again.view.placements == harness.view.placements


def test_a_new_coordinator_that_knows_its_slots_waits_a_lease_for_a_silent_one() -> None:
    harness = live_chain()
    harness.complete(1)
    again = _named(harness, silent=(harness.of(2).hosting_slot,))
    assert again.coordinator.phase == "listening"
    again.tick(4_600)
    assert [p.task for p in again.view.placements if p.incarnation == again.number] == [2]


def test_a_new_coordinator_with_named_slots_does_not_wait_for_a_slot_that_has_ended() -> None:
    harness = live_chain()
    harness.complete(1)
    again = _named(harness, dead=(harness.of(2).hosting_slot,))
    assert [p.task for p in again.view.placements if p.incarnation == again.number] == [2]
    assert again.view.generation == harness.view.generation


def test_a_new_coordinator_whose_slots_have_all_ended_starts_like_a_resume_at_once() -> None:
    harness = live_chain()
    harness.complete(1)
    again = _named(harness, dead=tuple(harness.slots))
    assert again.coordinator.phase == "starting"


def test_a_coordinator_that_only_adopts_fails_the_job_when_no_slot_has_a_view() -> None:
    harness = live_chain()
    harness.complete(1)
    again = CoordinatorHarness(harness.plan, Options())
    again.do(Ticked(0))
    named = tuple(harness.slots)
    completed = harness.coordinator.completed
    again.do(Begin(2, "job-1", len(named), completed, awaits_slots=True, named=named, only_adopts=True))
    for slot in named:
        again.do(SlotGone(slot, "killed"))
    assert [failed.blame for failed in of_kind(again.tick(100), JobFailed)] == [Blame.ENVIRONMENT]
    assert again.coordinator.phase == "over"


def test_a_coordinator_that_only_adopts_runs_the_job_on_when_a_slot_has_a_view() -> None:
    harness = live_chain()
    harness.complete(1)
    again = CoordinatorHarness(harness.plan, Options())
    again.do(Ticked(0))
    named = tuple(harness.slots)
    registers, completed = harness.coordinator.slots, harness.coordinator.completed
    again.do(Begin(2, "job-1", 0, completed, awaits_slots=True, named=named, registers=registers, only_adopts=True))
    again.slots = dict(harness.slots)
    again.tick(500)
    assert again.view.placements == harness.view.placements
    assert again.coordinator.slots == registers


def test_a_job_that_shall_stop_while_it_is_taken_over_stops_with_a_checkpoint() -> None:
    harness = live_chain()
    harness.complete(1)
    again = CoordinatorHarness(harness.plan, Options())
    again.do(Ticked(0))
    named = tuple(harness.slots)
    again.do(Begin(2, "job-1", 0, harness.coordinator.completed, awaits_slots=True, named=named, only_adopts=True))
    assert again.do(StopRequested(drain=True)) == ()
    assert again.coordinator.phase == "listening"
    again.slots = dict(harness.slots)
    again.tick(500)
    assert again.view.placements == harness.view.placements
    triggers = [message for _, message in sent(again.tick(500), TriggerCheckpoint)]
    assert triggers
    assert all(message.then_pause for message in triggers)  # type: ignore[attr-defined]


def test_a_job_that_shall_stop_and_cannot_be_taken_over_ends_as_aborted() -> None:
    harness = live_chain()
    harness.complete(1)
    again = CoordinatorHarness(harness.plan, Options())
    again.do(Ticked(0))
    named = tuple(harness.slots)
    again.do(Begin(2, "job-1", 0, harness.coordinator.completed, awaits_slots=True, named=named, only_adopts=True))
    again.do(StopRequested(drain=True))
    for slot in named:
        again.do(SlotGone(slot, "killed"))
    assert [ended.ending for ended in of_kind(again.tick(100), JobDone)] == [Ending.ABORTED]


def test_a_coordinator_that_goes_on_from_a_cut_with_fewer_tasks_replaces_lost_slots() -> None:
    harness = live_chain()
    harness.complete(1)
    harness.do(OutputCommitted(CheckpointId(1)))
    harness.do(RescaleRequested(7, (("map", 1), ("sink", 1))))
    while not harness.view.cut:
        harness.tick(100)
    harness.tick(300)
    harness.divides = False
    harness.acknowledge(harness.view.cut)
    harness.durable(harness.view.cut)
    again = CoordinatorHarness(harness.plan, Options())
    again.do(Ticked(0))
    registers, named = harness.coordinator.slots, tuple(harness.slots)
    cut = _divided(harness.coordinator.completed)
    again.do(Begin(2, "job-1", 0, cut, awaits_slots=True, named=named, registers=registers, only_adopts=True))
    again.slots = dict(harness.slots)
    again.tick(500)
    assert len(again.view.placements) == 4
    effects = again.gone(*[placement.hosting_slot for placement in again.view.placements[1:]])
    assert [request.count for request in of_kind(effects, RequestSlots)] == [1, 1, 1], "4 slots are needed, and 1 lives"


@pytest.mark.parametrize("is_placed_anew", [False, True])
def test_a_coordinator_that_takes_over_at_a_cut_spreads_the_tasks_if_its_request_asked_for_it(
    is_placed_anew: bool,
) -> None:
    harness = sharing_chain()
    harness.do(RescaleRequested(7, (), is_placed_anew=is_placed_anew))
    harness.tick(500)
    harness.acknowledge(2)  # slots read ahead as of it
    harness.durable(2)
    harness.do(OutputCommitted(CheckpointId(2)))
    harness.tick(500)
    harness.tick(300)
    cut = written_metadata(harness.acknowledge(harness.view.cut))
    again = CoordinatorHarness(harness.plan, Options(move_tasks=False))
    again.do(Ticked(0))
    registers, named = harness.coordinator.slots, tuple(each.slot for each in harness.coordinator.slots)
    again.do(Begin(2, "job-1", 0, cut, awaits_slots=True, named=named, registers=registers, only_adopts=True))
    again.slots = {slot: harness.slots[slot] for slot in named}
    again.tick(500)
    hosting = [placement.slot for placement in again.view.placements]
    assert (len(set(hosting)) == len(hosting)) is is_placed_anew


def test_a_cut_after_a_takeover_has_a_number_that_the_earlier_coordinator_has_not_used() -> None:
    harness = live_chain()
    harness.complete(1)
    harness.do(OutputCommitted(CheckpointId(1)))
    harness.tick(5_000)
    assert harness.pending() == [2]  # tasks have passed its barrier, and store their snapshots
    again = CoordinatorHarness(harness.plan, Options())
    again.do(Ticked(0))
    registers, named, completed = harness.coordinator.slots, tuple(harness.slots), harness.coordinator.completed
    again.do(Begin(2, "job-1", 0, completed, awaits_slots=True, named=named, registers=registers, only_adopts=True))
    again.slots = dict(harness.slots)
    again.tick(100)  # so that slots read ahead as of the last checkpoint
    again.do(RescaleRequested(1, ()))
    again.tick(400)
    assert again.view.cut > 2, "a task that has gone on after the barrier would count as standing at it"
    again.tick(300)
    assert again.pending() == [again.view.cut]
    cut = again.view.cut
    assert written_metadata(again.acknowledge(cut)).is_cut


def _divided(cut: CheckpointMetadata) -> CheckpointMetadata:
    """A cut of the chain, with the tasks of its widths."""
    plan = chain_plan().with_widths(dict(cut.widths))
    return msgspec.structs.replace(cut, tasks=cut.tasks[: len(plan.tasks)], plan=shape_of(plan))
