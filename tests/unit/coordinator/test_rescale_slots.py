"""Live rescale while processes are missing: what waits for them, and what becomes of the requests for them."""

from __future__ import annotations

from msgspec import structs

from clonos.core.coordinator import rescale_machine
from clonos.core.coordinator.coordinator_effects import (
    Alarm,
    DivideState,
    ReleaseSlot,
    RequestSlots,
    WithdrawRequests,
)
from clonos.core.coordinator.coordinator_events import OutputCommitted, RescaleRequested, SlotRefused, StateDivided
from clonos.core.model.ids import CheckpointId, SlotId
from clonos.core.model.plan import Edge, Partitioning, Plan, Vertex
from tests.harnesses.coordinator_harness import CoordinatorHarness, live_chain, of_kind

WAIT_MS = 2_000


def ready() -> CoordinatorHarness:
    """A running job with a process for each of its tasks and a checkpoint."""
    harness = live_chain(slots_wait_ms=WAIT_MS)
    harness.complete(1)
    harness.do(OutputCommitted(CheckpointId(1)))
    return harness


def name_of_step(harness: CoordinatorHarness) -> str:
    """The name of a step whose number of tasks can change."""
    return harness.plan.vertices[1].name


def switched(harness: CoordinatorHarness, *widths: tuple[str, int]) -> list[SlotId]:
    """Changes widths; returns the released slots."""
    harness.do(RescaleRequested(7, widths))
    while not harness.view.cut:
        harness.tick(100)
    harness.tick(300)
    cut = harness.view.cut
    harness.acknowledge(cut)
    effects = (*harness.durable(cut), *harness.tick(300))
    assert harness.coordinator.rescale == rescale_machine.Steady(7)
    assert not of_kind(effects, RequestSlots)
    return [released.slot for released in of_kind(effects, ReleaseSlot)]


def test_processes_that_fewer_tasks_do_not_need_are_released_at_the_switch() -> None:
    harness = ready()
    before = [placement.hosting_slot for placement in harness.view.placements]
    assert switched(harness, (name_of_step(harness), 1)) == [before[3]]
    assert [placement.slot for placement in harness.view.placements] == [*before[:3], *before[4:]]
    assert set(harness.view_slots()) == set(before) - {before[3]}
    named = [slot for p in harness.view.placements for slot in (*p.standbys, *p.keepers)]
    assert named
    assert before[3] not in named
    assert of_kind(harness.gone(before[3]), RequestSlots) == []


def test_spare_processes_stay_when_fewer_tasks_release_others() -> None:
    harness = live_chain(domains="abababab")
    harness.complete(1)
    harness.do(OutputCommitted(CheckpointId(1)))
    assert len(switched(harness, ("map", 1), ("sink", 1))) == 2
    assert len(harness.view_slots()) == len(harness.view.placements) + 2


def test_a_single_task_with_a_standby_keeps_a_second_process() -> None:
    harness = live_chain(plan=Plan("job", (Vertex("source", 2, is_source=True),), ()), domains="ab")
    harness.complete(1)
    assert switched(harness, ("source", 1)) == []
    assert [len(placement.standbys) for placement in harness.view.placements] == [1]


def test_a_process_that_keeps_a_journal_is_not_released() -> None:
    vertices = (Vertex("push", 1, is_source=True, is_journalled=True), Vertex("map", 3))
    plan = Plan("job", vertices, (Edge(0, 1, Partitioning.HASH, 0),))
    harness = live_chain(plan=plan, domains="aabc")
    harness.complete(1)
    keepers = harness.of(0).keepers
    assert keepers
    assert switched(harness, ("map", 1))
    assert set(keepers) <= set(harness.view_slots())


def phase_of(harness: CoordinatorHarness) -> type[rescale_machine.State]:
    """How far the change is."""
    return type(harness.coordinator.rescale)


def test_a_change_for_which_processes_do_not_come_is_given_up_and_withdraws_all_requests() -> None:
    harness = ready()
    assert of_kind(harness.do(RescaleRequested(7, ((name_of_step(harness), 5),))), RequestSlots) == [RequestSlots(3)]
    harness.register(90, "a")
    effects = harness.tick(WAIT_MS + 300)
    assert of_kind(effects, WithdrawRequests) == [WithdrawRequests()]
    assert of_kind(effects, RequestSlots) == [], "requested again, they would take cores after the refusal"
    assert harness.coordinator.rescale_refusals.get(7, "") == (
        "7 of 9 processes were there after 2 s. Free cores or add executors, ask for fewer tasks, or raise slots_wait"
    )
    assert of_kind(harness.tick(2 * WAIT_MS), RequestSlots) == []


def test_a_change_for_which_no_process_can_be_started_is_refused_with_the_reason() -> None:
    harness = ready()
    harness.do(RescaleRequested(7, ((name_of_step(harness), 3),)))
    [alarm] = of_kind(harness.do(SlotRefused("no module clonos")), Alarm)
    assert "no module clonos" in alarm.text
    harness.tick(WAIT_MS + 300)
    assert harness.coordinator.rescale_refusals.get(7, "") == (
        "6 of 7 processes were there after 2 s. The last process that could not be started: no module clonos"
    )


def test_a_change_to_fewer_tasks_does_not_wait_for_a_process_that_these_do_not_need() -> None:
    harness = ready()
    harness.gone(harness.of(3).hosting_slot)
    harness.tick(300)
    harness.do(RescaleRequested(7, ((name_of_step(harness), 1),)))
    harness.tick(100)
    assert isinstance(harness.coordinator.rescale, rescale_machine.Warming)


def test_requests_that_wait_are_withdrawn_before_they_are_repeated() -> None:
    harness = ready()
    harness.gone(1)
    effects = harness.tick(WAIT_MS + 300)
    assert of_kind(effects, WithdrawRequests) == [WithdrawRequests()]
    assert of_kind(effects, RequestSlots) == [RequestSlots(1)]


def test_a_job_with_one_task_left_still_needs_a_process_for_what_backs_it_up() -> None:
    plan = Plan(
        "job", (Vertex("all", 2, is_source=True, has_effects=True),), (Edge(0, None, Partitioning.EXTERNAL, 0),)
    )
    harness = live_chain(plan=plan, domains="ab")
    harness.divides = False
    harness.do(RescaleRequested(7, (("all", 1),)))
    while not harness.view.cut:
        harness.tick(100)
    harness.tick(300)
    cut = CheckpointId(1)
    harness.acknowledge(cut)
    [division] = of_kind(harness.durable(cut), DivideState)
    harness.do(StateDivided(cut, structs.replace(division.metadata, tasks=division.metadata.tasks[:1])))
    harness.tick(300)
    assert harness.coordinator.rescale == rescale_machine.Steady(7)
    assert len(harness.view.placements) == 1
    effects = harness.gone(next(slot for slot in (1, 2) if slot != harness.of(0).hosting_slot))
    assert of_kind(effects, RequestSlots), "its output would wait for ever for a keeper"


def test_a_process_that_dies_while_others_are_ordered_delays_the_change_and_does_not_end_it() -> None:
    harness = ready()
    harness.do(RescaleRequested(7, ((name_of_step(harness), 3),)))
    lost = harness.of(0).hosting_slot
    assert of_kind(harness.gone(lost), RequestSlots) == [RequestSlots(1)]
    harness.register(90, "a")
    harness.tick(300)
    assert phase_of(harness) is rescale_machine.Ordering, "one more process is to come"
    assert harness.of(0).hosting_slot != lost
    harness.register(91, "b")
    harness.tick(300)
    assert phase_of(harness) is rescale_machine.Warming
