"""Planned moves: a task that shares a slot since a loss moves to a standby on a slot without tasks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from clonos.core.coordinator.coordinator_effects import Alarm
from clonos.core.coordinator.coordinator_events import StopRequested
from clonos.core.coordinator.relocation import REASON
from clonos.core.model.ids import CheckpointId, SlotId, TaskId, ViewNumber
from clonos.core.model.plan import Edge, Partitioning, Plan, Vertex
from clonos.core.model.progress import TaskCounter, TaskPhase
from tests.harnesses.coordinator_harness import CoordinatorHarness, live_chain, of_kind

MAP = 2
"""The first task of the map, whose slot is lost; the tasks are two sources, two maps and two sinks."""


def after_a_loss(
    has_effects: bool = False, lost: int = MAP, plan: Plan | None = None, **options: Any
) -> tuple[CoordinatorHarness, SlotId]:
    """A job of which a task was promoted into the slot of another one, and the new slot, which has its standby."""
    domains = "ababab"[: len(plan.tasks) if plan else None]
    harness = live_chain(has_effects, domains, plan, **{"move_tasks": True, **options})
    harness.complete(1)
    harness.tick(300)
    slot = harness.of(lost).hosting_slot
    harness.gone(slot)
    harness.tick(300)
    assert sharing(harness), "the standby was in the slot of another task"
    new = max(harness.slots) + 1
    harness.register(new, harness.slots[slot].domain)
    harness.tick(300)
    return harness, SlotId(new)


def sharing(harness: CoordinatorHarness) -> list[int]:
    """Tasks that share their slot."""
    hosts = [placement.slot for placement in harness.view.placements]
    return [task for task, slot in enumerate(hosts) if hosts.count(slot) > 1]


def test_a_task_that_shares_a_slot_moves_to_its_standby_when_that_has_the_last_checkpoint() -> None:
    harness, new = after_a_loss()
    before = harness.view
    assert new in harness.of(MAP).standbys
    assert sharing(harness), "no checkpoint has completed since"
    harness.complete(2)
    harness.tick(300)
    assert harness.of(MAP).slot == new
    assert sharing(harness) == []
    moved = [p.task for p, old in zip(harness.view.placements, before.placements, strict=True) if p.slot != old.slot]
    assert moved == [MAP]
    recoveries = harness.coordinator.recoveries
    assert [(each.cause == REASON, each.is_move) for each in recoveries] == [(False, False), (True, True)]


def test_a_move_counts_against_no_task_as_a_death() -> None:
    harness, _ = after_a_loss()
    harness.complete(2)
    harness.tick(300)
    assert sharing(harness) == [], "it has moved"
    assert not harness.of(MAP).is_single_step, "its one death is no cause for single steps"


def behind(harness: CoordinatorHarness, new: SlotId) -> None:
    """No standby in the new slot has reached the checkpoint."""
    harness.slots[new].standbys_at = dict.fromkeys(map(TaskId, harness.plan.tasks), CheckpointId(1))


def recovering(harness: CoordinatorHarness, _new: SlotId) -> None:
    """Tasks recover."""
    for slot in harness.slots.values():
        slot.phase = TaskPhase.RECOVERING


def draining(harness: CoordinatorHarness, _new: SlotId) -> None:
    """The job stops."""
    harness.do(StopRequested(drain=True))


@pytest.mark.parametrize("prevent", [behind, recovering, draining])
def test_no_task_moves(prevent: Callable[[CoordinatorHarness, SlotId], None]) -> None:
    harness, new = after_a_loss()
    harness.tick(5_000)
    prevent(harness, new)
    view = harness.view
    harness.acknowledge(2)
    harness.durable(2)
    harness.tick(300)
    assert harness.view.placements == view.placements


def test_a_standby_that_reaches_the_checkpoint_later_takes_the_task_then() -> None:
    harness, new = after_a_loss()
    harness.tick(5_000)
    behind(harness, new)
    harness.acknowledge(2)
    harness.durable(2)
    harness.tick(300)
    assert sharing(harness)
    harness.slots[new].standbys_at.clear()
    harness.tick(300)
    assert sharing(harness) == []
    assert any(placement.slot == new for placement in harness.view.placements)


def suspended(harness: CoordinatorHarness) -> list[int]:
    """Tasks that the view in force suspends."""
    return [placement.task for placement in harness.view.placements if placement.is_suspended]


def suspending(**loss: Any) -> tuple[CoordinatorHarness, SlotId, int]:
    """A job whose view suspends the task given, which still makes steps; also its slot."""
    harness, _ = after_a_loss(**loss)
    for each in harness.slots.values():
        each.suspends = False
    harness.complete(2)
    harness.tick(300)
    (task,) = suspended(harness)
    slot = harness.of(task).hosting_slot
    return harness, slot, task


def test_a_task_is_suspended_before_it_moves() -> None:
    harness, slot, task = suspending()
    harness.tick(2_000)
    assert task == MAP
    assert harness.of(MAP).slot == slot, "it has not said that nothing is under way"
    assert suspended(harness) == [MAP]
    harness.slots[slot].suspends = True
    harness.tick(300)
    assert harness.of(MAP).slot != slot
    assert (sharing(harness), suspended(harness)) == ([], [])


def test_a_sink_that_moves_continues_after_what_its_external_system_has_confirmed() -> None:
    sink = 4
    harness, slot, task = suspending(has_effects=True, lost=sink)
    assert task == sink
    assert slot in harness.of(sink).keepers, "its log outlives the other keepers"
    harness.slots[slot].counters = ((TaskCounter.ROWS_WRITTEN, 17),)
    harness.slots[slot].suspends = True
    harness.tick(300)
    assert harness.of(sink).slot != slot
    assert harness.of(sink).confirmed_seq == 17
    assert {p.confirmed_seq for p in harness.view.placements if p.task != sink} == {0}
    harness.gone(harness.of(sink).hosting_slot)
    harness.tick(300)
    assert harness.of(sink).confirmed_seq == 0, "of the incarnation that has died nobody knows what is confirmed"


def test_a_sink_with_effects_outside_stays_where_there_are_no_keepers() -> None:
    harness, _ = after_a_loss(has_effects=True, lost=4, keepers=0)
    for checkpoint in (2, 3, 4):
        harness.complete(checkpoint)
        harness.tick(300)
    assert [each.task for each in harness.coordinator.recoveries if each.is_move] != [], "the other task of its slot"
    assert all(each.task != 4 for each in harness.coordinator.recoveries if each.is_move)


def test_a_suspended_task_that_dies_is_replaced_as_any_other() -> None:
    harness, slot, task = suspending()
    harness.gone(slot)
    harness.tick(300)
    assert harness.of(task).slot != slot
    assert suspended(harness) == []
    assert [each.is_move for each in harness.coordinator.recoveries if each.task == task] == [False, False]


def test_a_suspended_task_moves_also_when_its_standby_is_lost() -> None:
    harness, slot, task = suspending()
    for standby in harness.of(task).standbys:
        harness.gone(standby)
    harness.tick(300)
    assert suspended(harness) == [task], "it makes no step, so it has to begin again somewhere"
    before = harness.of(task).incarnation
    harness.slots[slot].suspends = True
    harness.tick(300)
    assert harness.of(task).incarnation > before
    assert suspended(harness) == []


def test_a_move_that_takes_too_long_is_given_up_and_the_task_goes_on() -> None:
    harness, slot, task = suspending(move_timeout_ms=1_000)
    incarnation = harness.of(task).incarnation
    harness.tick(500)
    assert suspended(harness) == [task]
    harness.tick(600)
    assert task not in suspended(harness), "it goes on"
    assert (harness.of(task).slot, harness.of(task).incarnation) == (slot, incarnation)
    (alarm,) = [each.text for each in of_kind(harness.effects_of_last, Alarm) if "move_timeout" in each.text]
    assert alarm.startswith(f"{harness.plan.task_name(TaskId(task))} goes on in the process that it shares")


def test_another_task_of_the_slot_moves_when_the_move_of_one_was_given_up() -> None:
    harness, slot, task = suspending(move_timeout_ms=1_000)
    shared = sharing(harness)
    harness.tick(1_300)
    harness.slots[slot].suspends = True
    for checkpoint in (3, 4):
        harness.complete(checkpoint)
        harness.tick(300)
    (moved,) = [each.task for each in harness.coordinator.recoveries if each.is_move]
    assert moved in shared
    assert moved != task
    assert sharing(harness) == []


def test_a_status_from_before_a_move_was_given_up_moves_nothing() -> None:
    """The slot says that the task is suspended, in a heartbeat that was sent under an earlier view."""
    harness, slot, task = suspending()
    late = replace(harness.slots[slot].status(), view=ViewNumber(int(harness.view.number) - 1))
    statuses = tuple(replace(each, phase=TaskPhase.SUSPENDED) for each in late.tasks)
    harness.receive(slot, replace(late, tasks=statuses))
    assert harness.of(task).slot == slot
    assert suspended(harness) == [task]


def test_no_checkpoint_begins_while_a_task_is_suspended() -> None:
    harness, slot, _ = suspending()
    harness.tick(1_500)
    highest = harness.coordinator.highest
    harness.tick(1_500)
    assert harness.coordinator.highest == highest
    harness.slots[slot].suspends = True
    harness.tick(3_000)
    assert harness.coordinator.highest > highest


def test_a_journalled_source_stays_and_the_other_task_of_its_slot_moves() -> None:
    plan = Plan(
        "job",
        (Vertex("source", 1, is_source=True, is_journalled=True), Vertex("map", 2, is_transactional=True)),
        (Edge(0, 1, Partitioning.HASH, 0),),
    )
    harness, _ = after_a_loss(plan=plan, lost=0)
    shared = sharing(harness)
    assert 0 in shared
    harness.complete(2)
    harness.tick(300)
    (other,) = [task for task in shared if task != 0]
    moved = [each.task for each in harness.coordinator.recoveries if each.is_move]
    assert moved == [other]
    assert sharing(harness) == []


def test_no_task_moves_without_the_option() -> None:
    harness, new = after_a_loss(move_tasks=False)
    for checkpoint in (2, 3):
        harness.complete(checkpoint)
        harness.tick(300)
    assert sharing(harness)
    assert all(placement.slot != new for placement in harness.view.placements)


def test_tasks_that_must_share_their_slots_stay() -> None:
    harness = live_chain(domains="ab", move_tasks=True)
    for checkpoint in (1, 2, 3):
        harness.complete(checkpoint)
        harness.tick(300)
    assert {int(placement.incarnation) for placement in harness.view.placements} == {int(harness.view.number)}
