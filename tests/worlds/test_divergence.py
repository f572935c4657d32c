"""Tasks whose replay differs from their first execution, in worlds: what the job does about it."""

from __future__ import annotations

import pytest

from clonos.core.channel.repeated_rows import RowNotRepeated
from clonos.core.coordinator.coordinator_effects import JobFailed
from clonos.core.model.errors import ReplayDiverged
from clonos_chaos.swarm.world import World
from tests.worlds.playing import is_done, played_scene

pytestmark = pytest.mark.worlds

DIFFERS = {"asks for another call": ReplayDiverged, "makes other output": RowNotRepeated}


def error_of(world: World) -> str:
    """Name of the error that has ended the job."""
    assert isinstance(world.ending, JobFailed)
    return world.ending.error.partition(":")[0]


@pytest.mark.parametrize("what", DIFFERS)
def test_a_divergence_ends_the_job(what: str) -> None:
    for world in played_scene(f"14 replay {what}"):
        assert error_of(world) == DIFFERS[what].__name__
        assert world.outcome.rollbacks == 0


@pytest.mark.parametrize("what", DIFFERS)
def test_all_tasks_go_back_to_the_last_checkpoint_after_a_divergence(what: str) -> None:
    for world in played_scene(f"14 replay {what}, and all tasks go back"):
        assert is_done(world)
        assert world.outcome.rollbacks == 1
        assert any("the replay of task a/0 has diverged" in alarm.text for alarm in world.alarms)


@pytest.mark.parametrize("what", DIFFERS)
def test_the_second_divergence_of_an_epoch_ends_the_job(what: str) -> None:
    for world in played_scene(f"14 replay {what}, and again after the rollback"):
        assert error_of(world) == DIFFERS[what].__name__
        assert world.outcome.rollbacks == 1


@pytest.mark.parametrize("what", DIFFERS)
def test_a_job_that_accepts_divergences_goes_on_with_one_alarm(what: str) -> None:
    for world in played_scene(f"14 replay {what}, which the job accepts"):
        assert is_done(world)
        assert world.outcome.rollbacks == 0
        assert sum("because on_divergence is accept" in text for text, _ in world.warnings) == 1
