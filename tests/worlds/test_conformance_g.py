"""Part G of the conformance list, 31 to 49: faults aimed at named transitions, which random kills rarely reach.

Each world is judged by its oracle; here stands what is particular to the case, and that the case was reached.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from clonos.core.coordinator.coordinator_effects import JobFailed
from clonos.core.model.errors import Blame
from clonos.core.wire.messages import Message
from clonos_chaos.project.directed.loss_cases import CONTROL_MESSAGES
from clonos_chaos.sim.external_systems import SimService
from clonos_chaos.sim.virtual_clock import MILLISECOND_NS
from tests.worlds.playing import incarnations_of, is_done, played, played_scene, scenes_of

pytestmark = [pytest.mark.worlds, pytest.mark.slow]


def test_g31_a_sink_that_dies_after_a_complete_checkpoint_loses_no_output() -> None:
    for world in played(31, "sink dies after a complete checkpoint"):
        assert incarnations_of(world, "sink/0") > 1
        assert world.outcome.rollbacks == 0


def test_g32_the_view_waits_for_a_metadata_write_in_progress() -> None:
    for world in played(32, "task dies while metadata is written"):
        task = world.task("a/0")
        first = world.views[0].placements[task].incarnation
        successor = next(view.placements[task] for view in world.views if view.placements[task].incarnation != first)
        assert successor.restore >= 2
        assert successor.restore in world.chain


@pytest.mark.parametrize("scene", scenes_of(33))
def test_g33_a_standby_restores_exactly_the_checkpoint_that_the_view_names(scene: str) -> None:
    for world in played_scene(scene):
        assert incarnations_of(world, "a/0") > 1
        assert world.outcome.rollbacks == 0


@pytest.mark.parametrize("scene", scenes_of(34))
def test_g34_a_barrier_and_an_end_that_were_sent_keep_their_numbers(scene: str) -> None:
    for world in played_scene(scene):
        assert world.killed in (1, 3)
        assert world.outcome.rollbacks == 0


@pytest.mark.parametrize("scene", scenes_of(35))
def test_g35_messages_of_a_dead_incarnation_are_ignored(scene: str) -> None:
    for world in played_scene(scene):
        assert is_done(world)


@pytest.mark.parametrize("scene", scenes_of(36))
def test_g36_a_lost_log_causes_a_rollback_with_an_alarm_that_counts_the_loss(scene: str) -> None:
    for world in played_scene(scene):
        assert world.outcome.rollbacks >= 1
        fields: list[dict[str, Any]] = [dict(alarm.fields) for alarm in world.alarms]
        lost = [fields for fields in fields if "received_up_to" in fields]
        assert lost
        assert all(fields["position"] < fields["received_up_to"] for fields in lost)


def test_g37_backups_are_placed_in_new_processes_and_the_first_task_of_a_process_stays() -> None:
    for world in played(37, "all processes but one die, and others come"):
        assert is_done(world)
        assert world.outcome.rollbacks == 0
        first, last = world.views[0], world.views[-1]
        sink = world.task("sink/0")
        assert last.placements[sink].slot == first.placements[sink].slot
        for placement in last.placements:
            began = next(view for view in world.views if int(view.number) == placement.incarnation)
            assert placement.slot == began.placements[placement.task].slot
            assert placement.standbys
            assert placement.slot not in (*placement.standbys, *placement.keepers)
        assert last.placements[sink].keepers


def test_g37_a_sink_that_dies_with_its_keeper_rolls_the_job_back() -> None:
    for world in played(37, "sink and keeper die together"):
        assert world.outcome.rollbacks >= 1


@pytest.mark.parametrize("name", ["sink dies while its keeper is replaced", "sink dies while its keeper is behind"])
def test_g37_a_live_keeper_prevents_a_rollback(name: str) -> None:
    for world in played(37, name):
        assert world.outcome.rollbacks == 0


def test_g37_a_keeper_holds_no_entry_without_its_causes() -> None:
    for world in played(37, "message to the keeper is lost that had the causes of the next one"):
        assert world.outcome.rollbacks == 0


def test_g37_a_keeper_holds_all_logs_that_its_task_held() -> None:
    for world in played(37, "all but the keeper die"):
        assert world.outcome.rollbacks == 0


@pytest.mark.parametrize("message", CONTROL_MESSAGES)
def test_g38_each_lost_control_message_is_repeated(message: type[Message]) -> None:
    for world in played(38, f"{message.__name__} is lost"):
        assert incarnations_of(world, "a/0") > 1
        assert world.outcome.rollbacks == 0


def test_g38_a_lost_handshake_is_repeated() -> None:
    assert all(is_done(world) for world in played(38, "ChannelHandshake is lost"))


@pytest.mark.slow
def test_g38_checkpoints_go_on_after_the_maximum_of_triggers_was_lost() -> None:
    assert all(world.outcome.checkpoints for world in played(38, "more triggers are lost than may be pending"))


def test_g38_a_lost_report_of_a_lost_log_is_repeated() -> None:
    assert all(world.outcome.rollbacks for world in played(38, "LogLost is lost"))


@pytest.mark.parametrize("scene", scenes_of(39))
def test_g39_checkpoints_complete_after_a_trigger_died_with_its_source(scene: str) -> None:
    for world in played_scene(scene):
        assert world.outcome.checkpoints >= 2


@pytest.mark.parametrize("scene", scenes_of(40))
def test_g40_the_death_of_one_slot_or_domain_causes_no_rollback(scene: str) -> None:
    for world in played_scene(scene):
        assert world.outcome.rollbacks == 0
        assert sum(len(incarnations) > 1 for incarnations in world.oracle.incarnations.values()) >= 2


@pytest.mark.parametrize("scene", scenes_of(41))
def test_g41_tasks_that_recover_together_or_in_turn_do_so_without_a_rollback(scene: str) -> None:
    for world in played_scene(scene):
        assert world.outcome.rollbacks == 0


@pytest.mark.parametrize("scene", scenes_of(42))
def test_g42_a_replay_gets_its_whole_steps_for_every_piece_size_and_credit(scene: str) -> None:
    for world in played_scene(scene):
        assert world.outcome.rollbacks == 0


def test_g43_a_full_output_budget_drains_when_a_barrier_follows() -> None:
    for world in played(43, "in-flight budget is full with a barrier after"):
        assert any("above a soft limit" in alarm.text for alarm in world.alarms)


@pytest.mark.parametrize("scene", scenes_of(44))
def test_g44_skipped_views_and_a_failure_during_a_rollback_are_recovered(scene: str) -> None:
    for world in played_scene(scene):
        assert world.outcome.rollbacks >= 1


@pytest.mark.parametrize("scene", scenes_of(45))
def test_g45_an_end_of_stream_survives_failures_of_source_and_sink(scene: str) -> None:
    for world in played_scene(scene):
        assert world.killed == 1


def test_g46_one_of_two_peers_that_cannot_reach_each_other_is_replaced() -> None:
    for world in played(46, "two peers cannot reach each other"):
        assert incarnations_of(world, "a/0") + incarnations_of(world, "b/0") > 2
        assert world.outcome.rollbacks == 0


@pytest.mark.slow
@pytest.mark.parametrize("scene", scenes_of(47))
def test_g47_a_call_with_an_effect_is_made_once_or_reconciled_by_its_key(scene: str) -> None:
    for world in played_scene(scene):
        assert incarnations_of(world, "a/0") > 1
        assert world.outcome.rollbacks == 0


@pytest.mark.parametrize("fields", [", and the external system is asked", ", and is not repeated"])
def test_g47_a_call_that_took_place_is_not_repeated_with_or_without_reconcile(fields: str) -> None:
    for world in played(47, f"task dies between the call and CALL{fields}"):
        counted = Counter(asked.key for asked in world.job.service.answers if asked.is_effect)
        assert set(counted.values()) == {1}


def test_g47_a_call_that_never_took_place_is_made_after_reconcile_reports_so() -> None:
    for world in played(47, "task dies between the acknowledgement and the call, and the external system is asked"):
        service = world.job.service
        assert isinstance(service, SimService)
        assert len(service.never_happened) == 1
        assert [asked.is_reconciled for asked in service.answers].count(True) == 1


def test_g48_tasks_continue_while_the_coordinator_restarts() -> None:
    for world in played(48, "coordinator restarts while tasks live on"):
        assert world.store_term == 2
        assert all(len(incarnations) == 1 for incarnations in world.oracle.incarnations.values())


def test_g48_a_coordinator_that_knows_its_slots_waits_for_the_answer_of_each_and_not_for_a_lease() -> None:
    for world in played(48, "coordinator that knows its slots restarts, and their first answers are lost"):
        assert world.store_term == 2
        assert all(len(incarnations) == 1 for incarnations in world.oracle.incarnations.values())
        assert world.ended_ns < world.coordinator.began_ns + world.options.lease_ms * MILLISECOND_NS


def test_g48_a_coordinator_with_named_slots_replaces_an_ended_slot_without_waiting_for_a_lease() -> None:
    for world in played(48, "coordinator that knows its slots restarts while one of them dies"):
        assert incarnations_of(world, "b/0") == 2
        assert world.ended_ns < world.coordinator.began_ns + world.options.lease_ms * MILLISECOND_NS


def test_g48_an_old_coordinator_that_wakes_up_changes_nothing() -> None:
    for world in played(48, "old coordinator wakes up while it was committing"):
        assert world.store_term == 2
        assert all(view.number >> 32 in (1, 2) for view in world.views)


def test_g48_an_unknown_later_generation_leads_to_a_rollback_with_an_alarm() -> None:
    for world in played(48, "all that know a later generation die, and a slot that does not know it resumes"):
        generations = [view.generation for view in world.views]
        forgotten = max(index for index, one in enumerate(generations) if one >> 32 == 2)
        assert generations[forgotten + 1] < generations[forgotten] < generations[-1]
        assert any("has registered generation 2.1" in alarm.text for alarm in world.alarms)


def test_g48_a_sink_fenced_by_an_unknown_incarnation_is_restarted() -> None:
    worlds = played(48, "all that know a later incarnation of a sink die, and the coordinator")
    assert all(incarnations_of(world, "sink/0") >= 2 for world in worlds)
    assert any(
        "its external system has registered a later incarnation" in line for world in worlds for line in world.event_log
    )


def test_g49_a_poison_record_fails_the_job_with_its_place_and_never_loops() -> None:
    for world in played(49, "poison record whose inputs merge differently"):
        ending = world.ending
        assert isinstance(ending, JobFailed)
        assert (ending.blame, ending.record, ending.step) == (Blame.JOB, "20", "fuzz")
        assert "offset 20" in ending.traceback
        assert 2 <= incarnations_of(world, "join/0") <= 4
