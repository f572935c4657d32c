"""Changes of widths, case 53: a fault before the metadata of the cut gives the change up, and none after it does."""

from __future__ import annotations

import pytest

from clonos_chaos.sim.rare_situations import RESCALED, RESCALED_AFTER_END, RESUMED_AT
from clonos_chaos.swarm.environments import Swarm
from tests.worlds.playing import is_done, played_scene, scenes_of, swarmed
from tests.worlds.search import Search

pytestmark = [pytest.mark.worlds, pytest.mark.slow]

EARLY = tuple(scene for scene in scenes_of(53) if " with the cut is issued" in scene or " its snapshot of" in scene)
ENDS_THE_CHANGE = tuple(scene for scene in EARLY if "paused" not in scene and "wait" not in scene)
LOSES_A_LOG = tuple(scene for scene in scenes_of(53) if scene.endswith("dies with its keepers when they are back"))
RESUMED = tuple(scene for scene in scenes_of(53) if " resumes with " in scene)
MADE = tuple(
    scene for scene in scenes_of(53) if scene not in EARLY + LOSES_A_LOG + RESUMED and "coordinator" not in scene
)


@pytest.mark.parametrize("scene", ENDS_THE_CHANGE)
def test_a_failure_before_the_metadata_leaves_the_widths_as_they_are(scene: str) -> None:
    for world in played_scene(scene):
        assert is_done(world)
        assert RESCALED not in world.outcome.reached


@pytest.mark.parametrize("scene", MADE)
def test_a_failure_after_the_metadata_is_begun_does_not_stop_the_change(scene: str) -> None:
    for world in played_scene(scene):
        assert is_done(world)
        assert world.outcome.reached[RESCALED] >= 1
        assert world.outcome.rollbacks == 0


def test_a_source_without_a_split_ends_and_its_width_changes_again() -> None:
    worlds = played_scene("53 source has more tasks than splits, and then fewer")
    assert all(map(is_done, worlds))
    assert any(world.outcome.reached.get(RESCALED_AFTER_END) for world in worlds), "the others ended during the change"


@pytest.mark.parametrize("scene", [scene for scene in scenes_of(53) if scene not in MADE + ENDS_THE_CHANGE + RESUMED])
def test_a_job_ends_well_with_its_widths_or_without_them(scene: str) -> None:
    for world in played_scene(scene):
        assert is_done(world)


@pytest.mark.parametrize("scene", RESUMED)
def test_a_job_whose_processes_have_all_died_goes_on_with_other_widths(scene: str) -> None:
    for world in played_scene(scene):
        assert is_done(world)
        assert world.outcome.reached[RESUMED_AT] >= 1


@pytest.mark.exhaustive
def test_worlds_whose_widths_change_show_no_fault(search: Search) -> None:
    total = swarmed(search, Swarm(is_rescaling=True), part=8, share="rescaled")
    assert total.reached[RESCALED]
