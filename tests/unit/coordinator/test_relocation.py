"""Planned moves: a task that shares a slot since a loss moves to a standby on a slot without tasks."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from clonos.core.coordinator.coordinator_events import StopRequested
from clonos.core.coordinator.relocation import REASON
from clonos.core.model.ids import CheckpointId, SlotId, TaskId
from clonos.core.model.progress import TaskPhase
from tests.harnesses.coordinator_harness import CoordinatorHarness, live_chain

MAP = 2
"""The first task of the map, whose slot is lost; the tasks are two sources, two maps and two sinks."""


def after_a_loss(
    has_effects: bool = False, lost: int = MAP, rebalance: bool = True
) -> tuple[CoordinatorHarness, SlotId]:
    """A job of which a task was promoted into the slot of another one, and the new slot, which has its standby."""
    harness = live_chain(has_effects, rebalance=rebalance)
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


def test_a_sink_with_effects_outside_stays_where_it_is() -> None:
    sink = 4
    harness, _ = after_a_loss(has_effects=True, lost=sink)
    for checkpoint in (2, 3, 4):
        harness.complete(checkpoint)
        place = harness.of(sink).slot
        harness.tick(300)
        assert harness.of(sink).slot == place


def test_no_task_moves_without_the_option() -> None:
    harness, new = after_a_loss(rebalance=False)
    for checkpoint in (2, 3):
        harness.complete(checkpoint)
        harness.tick(300)
    assert sharing(harness)
    assert all(placement.slot != new for placement in harness.view.placements)


def test_tasks_that_must_share_their_slots_stay() -> None:
    harness = live_chain(domains="ab", rebalance=True)
    for checkpoint in (1, 2, 3):
        harness.complete(checkpoint)
        harness.tick(300)
    assert {int(placement.incarnation) for placement in harness.view.placements} == {int(harness.view.number)}
