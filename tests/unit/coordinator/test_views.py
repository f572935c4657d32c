"""Keepers of a view, and since which view they count as keepers (protocol 7)."""

from __future__ import annotations

from clonos.core.checkpoint.checkpoint_metadata import metadata_of_start
from clonos.core.coordinator.view_machine import RollBack, Standing, StartJob, Unformed, ViewChange, step
from clonos.core.model.ids import SlotId, TaskId
from clonos.core.placement.assignment import Assignment
from clonos.core.wire.control_messages import View
from tests.harnesses.coordinator_harness import chain_plan

PLAN = chain_plan(1, has_effects=True)
START = metadata_of_start(PLAN, "job-1", 1)
SINK = 2


def assignment(*keepers: int) -> tuple[Assignment, ...]:
    """Three tasks, each in a slot of its own; the keepers are those of the sink."""
    found = [Assignment(SlotId(task + 1), (), ()) for task in PLAN.tasks]
    found[SINK] = Assignment(SlotId(SINK + 1), (), tuple(map(SlotId, keepers)))
    return tuple(found)


def since(state: object) -> dict[int, int]:
    """Per keeper of the sink, the n of the view."""
    assert isinstance(state, Standing)
    placement = state.view.placements[SINK]
    return {slot: number & 0xFFFFFFFF for slot, number in zip(placement.keepers, placement.keepers_since, strict=True)}


def formed(*keepers: int) -> Standing:
    state = step(Unformed(1, "job-1"), StartJob(1, START, assignment(*keepers), ()))
    assert isinstance(state, Standing)
    return state


def test_a_keeper_counts_from_the_view_that_first_named_it() -> None:
    first = formed(7)
    second = step(first, ViewChange({}, START, assignment(7, 8), ()))
    third = step(second, ViewChange({TaskId(SINK): False}, START, assignment(7, 8), ()))
    assert (since(first), since(second), since(third)) == ({7: 1}, {7: 1, 8: 2}, {7: 1, 8: 2})


def test_a_keeper_that_was_dropped_and_named_again_counts_from_the_later_view() -> None:
    state = step(formed(7), ViewChange({}, START, assignment(8), ()))
    assert since(step(state, ViewChange({}, START, assignment(7, 8), ()))) == {7: 3, 8: 2}


def test_a_keeper_keeps_its_role_across_a_rollback() -> None:
    assert since(step(formed(7), RollBack(START, assignment(7, 9), ()))) == {7: 1, 9: 2}


def test_a_new_coordinator_continues_the_keepers_of_the_adopted_view() -> None:
    adopted: View = formed(7).view
    state = step(Unformed(2, "job-1", adopted), ViewChange({}, START, assignment(7, 8), ()))
    assert since(state) == {7: 1, 8: 1}
    assert isinstance(state, Standing)
    assert [number >> 32 for number in state.view.placements[SINK].keepers_since] == [1, 2]
