"""Planned moves, case 52: tasks with effects outside of the job move, and repeat nothing."""

from __future__ import annotations

import pytest

from clonos_chaos.sim.rare_situations import MOVE_GIVEN_UP, MOVED_WITH_EFFECTS
from tests.worlds.playing import is_done, played_scene, scenes_of

pytestmark = [pytest.mark.worlds, pytest.mark.slow]

STAYING = tuple(scene for scene in scenes_of(52) if " goes on" in scene)
MOVING = tuple(scene for scene in scenes_of(52) if " moves" in scene and "another coordinator" not in scene)
"""In these the task moves in spite of the fault; in the others its successor is that of a dead task."""


@pytest.mark.parametrize("scene", MOVING)
def test_a_task_with_effects_moves_without_a_rollback(scene: str) -> None:
    for world in played_scene(scene):
        assert world.outcome.reached[MOVED_WITH_EFFECTS] > 0
        assert world.outcome.rollbacks == 0


@pytest.mark.parametrize("scene", [scene for scene in scenes_of(52) if scene not in MOVING + STAYING])
def test_a_suspended_task_is_replaced(scene: str) -> None:
    for world in played_scene(scene):
        assert is_done(world)
        name = "a/0" if "calls" in scene else "sink/0"
        assert len(world.oracle.incarnations[world.task(name)]) > 2


@pytest.mark.parametrize("scene", STAYING)
def test_a_task_whose_move_is_given_up_goes_on_and_repeats_nothing(scene: str) -> None:
    assert any(world.outcome.reached.get(MOVE_GIVEN_UP, 0) for world in played_scene(scene))
