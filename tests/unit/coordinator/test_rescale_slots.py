"""Live rescale while processes are missing: what waits for them, and what becomes of the requests for them."""

from __future__ import annotations

from msgspec import structs

from clonos.core.coordinator import rescale_machine
from clonos.core.coordinator.coordinator_effects import Alarm, DivideState, RequestSlots, WithdrawRequests
from clonos.core.coordinator.coordinator_events import OutputCommitted, RescaleRequested, SlotRefused, StateDivided
from clonos.core.model.ids import CheckpointId
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


def test_a_change_for_which_processes_do_not_come_is_given_up_and_withdraws_all_requests() -> None:
    harness = ready()
    assert of_kind(harness.do(RescaleRequested(7, ((name_of_step(harness), 5),))), RequestSlots) == [RequestSlots(3)]
    harness.register(90, "a")
    effects = harness.tick(WAIT_MS + 300)
    assert of_kind(effects, WithdrawRequests) == [WithdrawRequests()]
    assert of_kind(effects, RequestSlots) == [], "requested again, they would take cores after the refusal"
    assert harness.coordinator.rescale_refusal(7) == (
        "7 of 9 processes were there after 2 s. Free cores or add executors, ask for fewer tasks, or raise slots_wait"
    )
    assert of_kind(harness.tick(2 * WAIT_MS), RequestSlots) == []


def test_a_change_for_which_no_process_can_be_started_is_refused_with_the_reason() -> None:
    harness = ready()
    harness.do(RescaleRequested(7, ((name_of_step(harness), 3),)))
    [alarm] = of_kind(harness.do(SlotRefused("no module clonos")), Alarm)
    assert "no module clonos" in alarm.text
    harness.tick(WAIT_MS + 300)
    assert harness.coordinator.rescale_refusal(7) == (
        "6 of 7 processes were there after 2 s. The last process that could not be started: no module clonos"
    )


def test_a_change_to_fewer_tasks_does_not_wait_for_a_process_that_these_do_not_need() -> None:
    harness = ready()
    harness.gone(harness.of(3).hosting_slot)
    harness.tick(300)
    harness.do(RescaleRequested(7, ((name_of_step(harness), 1),)))
    harness.tick(100)
    assert isinstance(harness.coordinator.rescale, rescale_machine.Cutting)


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
