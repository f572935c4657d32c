"""Part E of the conformance list, 20 to 26: several failures, together and one after the other."""

from __future__ import annotations

import pytest

from tests.worlds.playing import incarnations_of, is_done, played, played_scene, scenes_of

pytestmark = [pytest.mark.worlds, pytest.mark.slow]


@pytest.mark.parametrize("scene", scenes_of(20))
def test_e20_failures_of_several_tasks_cause_no_rollback(scene: str) -> None:
    for world in played_scene(scene):
        assert world.outcome.rollbacks == 0
        assert sum(len(incarnations) > 1 for incarnations in world.oracle.incarnations.values()) >= 2


LIVES_E21 = {
    "21 task dies again during replay": {"a/0": 3},
    "21 downstream dies while its upstream waits for determinants": {"a/0": 2, "b/0": 2},
    "21 downstream dies while its upstream replays": {"a/0": 2, "b/0": 2},
    "21 holder dies before it answers": {"a/0": 2, "b/0": 2},
}


@pytest.mark.parametrize("scene", scenes_of(21))
def test_e21_a_second_failure_during_a_recovery_causes_no_rollback(scene: str) -> None:
    for world in played_scene(scene):
        lived = {name: incarnations_of(world, name) for name in ("source/0", "a/0", "b/0", "sink/0")}
        assert {name: count for name, count in lived.items() if count > 1} == LIVES_E21[scene]
        assert world.outcome.rollbacks == 0


def test_e22_linked_failures_within_the_sharing_depth_cause_no_rollback() -> None:
    for world in played(22, "linked tasks die within the sharing depth"):
        assert min(incarnations_of(world, "a/0"), incarnations_of(world, "b/0")) > 1
        assert world.outcome.rollbacks == 0


@pytest.mark.parametrize(
    "scene_name", ["before the keeper has any of their logs", "while the keeper has a part of their logs"]
)
def test_e22_a_domain_death_causes_no_rollback_when_logs_have_a_replica_elsewhere(scene_name: str) -> None:
    for world in played(22, f"linked tasks die {scene_name}"):
        assert min(incarnations_of(world, "source/0"), incarnations_of(world, "a/0")) > 1
        assert world.outcome.rollbacks == 0


@pytest.mark.parametrize("how", [", and the keeper with both logs is dropped", " after the keeper with both logs"])
def test_e22_a_domain_death_causes_no_rollback_when_one_keeper_holds_another_tasks_log(how: str) -> None:
    for world in played(22, f"linked tasks die{how}"):
        assert min(incarnations_of(world, "source/0"), incarnations_of(world, "sink/0")) > 1
        assert world.outcome.rollbacks == 0


def test_e22_a_sink_and_one_of_two_ready_keepers_die_without_a_rollback() -> None:
    for world in played(22, "sink dies with its old keeper when the new one is ready"):
        assert incarnations_of(world, "sink/0") > 1
        assert world.outcome.rollbacks == 0


def test_e22_failures_beyond_the_sharing_depth_roll_back_with_an_alarm() -> None:
    for world in played(36, "log is lost beyond the sharing depth"):
        assert world.outcome.rollbacks == 1
        (alarm,) = [alarm for alarm in world.alarms if "is lost" in alarm.text]
        fields = dict(alarm.fields)
        assert alarm.text.startswith(f"the causal log of task {fields['task']} is lost")
        assert alarm.text.endswith(f"All tasks roll back to checkpoint {fields['checkpoint']}")
        assert fields["task"] == "a/0"
        numbered = [fields for text, fields in world.warnings if "had left before the rollback" in text]
        assert [fields["generation"] for fields in numbered] == [fields["generation"]]


@pytest.mark.slow
@pytest.mark.parametrize("scene", scenes_of(23))
def test_e23_deaths_of_standbys_and_coordinators_cause_no_rollback(scene: str) -> None:
    for world in played_scene(scene):
        assert incarnations_of(world, "a/0") > 1
        assert world.outcome.rollbacks == 0


@pytest.mark.parametrize("scene", [scene for scene in scenes_of(24) if "below the lease" in scene])
def test_e24_a_pause_below_the_lease_is_not_a_failure(scene: str) -> None:
    for world in played_scene(scene):
        assert all(len(incarnations) == 1 for incarnations in world.oracle.incarnations.values())


@pytest.mark.parametrize("scene", [scene for scene in scenes_of(24) if "below the lease" not in scene])
def test_e24_a_live_task_that_was_replaced_is_fenced(scene: str) -> None:
    for world in played_scene(scene):
        assert max(len(incarnations) for incarnations in world.oracle.incarnations.values()) > 1
        assert world.outcome.rollbacks == 0


def test_e25_a_checkpoint_triggered_during_a_recovery_completes() -> None:
    for world in played(25, "checkpoint is triggered during a recovery"):
        assert is_done(world)
        assert world.outcome.checkpoints >= 3


@pytest.mark.parametrize("scene", scenes_of(26))
def test_e26_a_broken_connection_between_two_live_tasks_loses_no_element(scene: str) -> None:
    for world in played_scene(scene):
        assert world.outcome.rollbacks == 0
