"""Negative controls: each rule of the protocol, replaced by a wrong one, is caught by a directed case.

``CAUGHT_BY`` keeps for each a scene that catches it, and from which seed on. Rules that others stand in for, which no
world shows, are in ``test_defence_in_depth``; those of journals in ``test_journals``.
"""

from __future__ import annotations

from functools import cache

import pytest

from clonos.core.channel.repeated_rows import RowNotRepeated
from clonos.core.coordinator.coordinator_effects import JobFailed
from clonos.core.coordinator.failure_policy import ERRORS_ADVICE
from clonos.core.model.errors import ReplayDiverged
from clonos_chaos.project.directed.directed_tests import DIRECTED_TESTS
from clonos_chaos.project.mutants.all_mutants import MUTANTS, mutated
from clonos_chaos.sim.environment import WorldFailed
from clonos_chaos.swarm.world import World
from tests.worlds.test_defence_in_depth import DEFENCE_IN_DEPTH

pytestmark = pytest.mark.controls

SEEDS_MAX = 8
"""So many are tried: what is drawn moves with every change of the core, and some scenes show their rule in every second
world only. One must catch it."""

CAUGHT_BY: dict[str, tuple[str, int]] = {
    "deltas_one_message_late": ("37 all but the keeper die", 0),
    "deltas_are_not_passed_on": ("21 holder dies before it answers", 0),
    "gaps_pass": ("26 connection is cut", 0),
    "handshake_does_not_reset_what_was_sent": ("26 connection is reset with a batch on its way", 0),
    "no_received_position": ("36 log is lost beyond the sharing depth", 0),
    "no_received_position_from_the_own_log": ("36 log is lost beyond the sharing depth", 0),
    "credit_is_never_renewed": ("42 replay of batches larger than the credit window", 0),
    "credit_outlives_the_session": ("42 credit is lost at a disconnect", 0),
    "no_repeated_handshakes": ("38 ChannelHandshake is lost", 0),
    "inflight_logs_end_one_element_late": ("49 poison record whose inputs merge differently", 0),
    "inflight_logs_go_with_the_snapshot": ("49 poison record whose inputs merge differently", 0),
    "inflight_logs_are_never_truncated": ("37 all but the keeper die", 0),
    "causal_logs_are_never_truncated": ("37 all but the keeper die", 0),
    "late_copies_keep_what_is_completed": ("33 complete is lost on its way to the next standby", 24),
    "snapshots_are_settled_one_checkpoint_early": ("45 sink dies before its last commit", 0),
    "whole_states_count_before_they_are_stored": ("38 more triggers are lost than may be pending", 0),
    "acknowledgements_of_the_dead_count": ("35 acknowledgement of a dead sink", 4),
    "acknowledgements_are_not_forgotten": ("39 trigger dies with its source with its barrier on its way", 0),
    "no_committing": ("32 task dies while metadata is written", 0),
    "complete_before_it_is_durable": ("37 all but the keeper die", 0),
    "one_acknowledgement_is_enough": ("37 all but the keeper die", 0),
    "no_repeated_views": ("35 acknowledgement of a dead sink", 0),
    "no_repeated_triggers": ("31 sink dies after a complete checkpoint", 0),
    "no_repeated_completions": ("38 every completion is lost on its first way to one slot", 0),
    "no_repeated_acknowledgements": ("48 old coordinator wakes up while it was committing", 0),
    "views_name_an_older_checkpoint": ("35 sink dies after it has acknowledged", 0),
    "keepers_of_the_dead_are_dropped": ("22 sink dies with its old keeper when the new one is ready", 0),
    "lost_is_ignored": ("37 sink and keeper die together", 0),
    "rollback_of_the_lost_task_only": ("37 sink and keeper die together", 0),
    "incarnations_are_used_again": ("37 all but the keeper die", 0),
    "garbage_is_collected_too_early": ("37 all but the keeper die", 0),
    "output_is_committed_twice": ("35 sink dies after it has acknowledged", 0),
    "poison_is_tried_for_ever": ("49 poison record whose inputs merge differently", 0),
    "new_coordinators_await_one_slot": (
        "48 coordinator that knows its slots restarts, and their first answers are lost",
        0,
    ),
    "tasks_move_without_suspension": ("52 task with calls moves", 0),
    "slots_that_come_are_not_used": ("37 all processes but one die, and others come", 0),
    "fenced_sinks_wait_for_a_view": ("48 all that know a later incarnation of a sink die, and the coordinator", 0),
    "fenced_sinks_begin_anew_only": (
        "48 all that know a later generation die, and a slot that does not know it resumes",
        0,
    ),
    "terms_are_not_claimed": ("48 old coordinator wakes up while it was committing", 0),
    "new_coordinators_ask_nobody": ("48 all that know a later incarnation of a sink die, and the coordinator", 2),
    "no_fencing": ("37 sink and keeper die together", 0),
    "shortest_log_wins": ("47 task dies between the call and CALL", 0),
    "first_answer_wins": ("47 task dies between the call and CALL", 0),
    "keepers_are_not_asked": ("37 all but the keeper die", 0),
    "no_repeated_log_requests": ("38 log requests are lost, and no view asks again", 0),
    "holders_answer_before_they_have_installed_the_view": (
        "24 suspected task sends on to a slot with an older view",
        0,
    ),
    "nobody_is_asked_again_under_another_view": ("21 holder dies before it answers", 0),
    "no_lost_log_rule": ("36 log is lost beyond the sharing depth", 0),
    "replay_does_not_wait_for_handshakes": ("37 all but the keeper die", 0),
    "standby_applies_later_changes": ("45 sink dies before its last output is confirmed", 0),
    "standby_misses_a_change": ("33 complete is lost on its way to the next standby", 0),
    "output_leaves_before_the_keepers_have_it": ("37 sink dies while its keeper is behind", 0),
    "calls_leave_before_the_keepers_have_them": ("47 task dies between the call and CALL", 0),
    "keepers_get_only_the_own_log": ("37 all but the keeper die", 0),
    "keepers_acknowledge_the_dead": ("24 suspected task calls on", 0),
    "keepers_take_what_follows_a_lost_message": (
        "37 message to the keeper is lost that had the causes of the next one",
        0,
    ),
    "keeper_is_replaced_in_one_phase": ("24 suspected sink writes on", 0),
    "no_repeated_appends": ("37 sink dies while its keeper is behind", 0),
    "sinks_acknowledge_before_the_external_system_has": ("31 sink dies after a complete checkpoint", 0),
    "snapshots_are_acknowledged_before_they_are_durable": ("37 all but the keeper die", 0),
    "keepers_outlive_the_generation": ("36 log is lost beyond the sharing depth", 0),
    "tables_keep_what_a_rollback_has_left": ("30 writer of a table dies with its keepers: sqlite", 0),
    "every_registration_withdraws": ("29 writer of a table dies", 0),
    "external_systems_forget_before_a_checkpoint_is_complete": (
        "30 writer of a table dies with its keepers: dbapi upsert",
        0,
    ),
    "streams_need_no_log": ("30 writer of a stream dies with its keepers: forgetting", 0),
    "keepers_get_a_log_that_lacks_output": ("30 successor of a writer whose log is lost dies too", 0),
    "rows_have_the_same_ids_after_a_rollback": ("30 writer of a stream dies with its keepers: forgetting", 0),
    "lost_is_reported_once": ("38 LogLost is lost", 0),
    "trigger_is_not_in_the_log": ("39 trigger dies with its source with its barrier unsent", 0),
    "timers_are_not_in_the_log": ("26 connection is reset with deltas on their way, then their owner dies", 0),
    "clock_is_not_in_the_log": ("37 all but the keeper die", 0),
    "end_is_not_in_the_log": ("34 source dies just after its end of stream", 0),
    "barriers_are_not_in_the_log": ("34 task dies just after its end of stream", 0),
    "replay_takes_other_counts": ("49 poison record whose inputs merge differently", 0),
    "alignment_is_ignored": ("34 task dies just after its end of stream", 0),
    "aligned_inputs_are_read_on": ("39 trigger dies with its source with its barrier unsent", 0),
    "barriers_stand_for_themselves_only": ("39 one source receives a later trigger only", 0),
    "end_does_not_stand_for_barriers": ("45 task dies when one of its inputs has ended", 0),
    "input_positions_are_off_by_one": ("35 sink dies after it has acknowledged", 0),
    "output_positions_are_off_by_one": ("37 all but the keeper die", 0),
    "log_offset_is_off_by_one": ("37 all but the keeper die", 0),
    "instant_is_not_in_the_snapshot": ("21 holder dies before it answers", 0),
    "ended_inputs_are_forgotten": ("45 task dies when one of its inputs has ended", 0),
    "seed_is_drawn_again_in_replay": ("49 poison record whose inputs merge differently", 0),
    "rng_goes_on_after_a_barrier": ("37 sink dies while its keeper is behind", 0),
    "clock_is_read_again_in_replay": ("49 poison record whose inputs merge differently", 0),
    "calls_are_made_again_in_replay": ("49 poison record whose inputs merge differently", 0),
    "replay_takes_the_answer_of_another_call": ("14 replay asks for another call", 0),
    "receivers_do_not_report_what_they_have_taken": ("14 replay makes other output", 0),
    "calls_in_doubt_are_made_as_new": ("47 task dies between the call and CALL", 0),
    "calls_in_doubt_are_not_asked_for": ("47 task dies between the call and CALL, and the external system is asked", 0),
    "keys_differ_between_lives": ("47 task dies between the call and CALL", 0),
    "no_intent": ("47 task dies between the call and CALL", 0),
    "routing_begins_anew_in_each_life": ("42 rows are routed in turn", 13),
    "tasks_count_instead_of_domains": ("22 linked tasks die before the keeper has any of their logs", 0),
    "logs_stop_before_they_are_acknowledged": ("22 linked tasks die before the keeper has any of their logs", 0),
    "any_acknowledgement_covers_all": ("22 linked tasks die while the keeper has a part of their logs", 0),
    "one_piece_is_the_log": ("22 linked tasks die while the keeper has a part of their logs", 0),
    "keepers_send_successors_only_their_own_log": (
        "22 linked tasks die, and the keeper with both logs is dropped",
        0,
    ),
    "new_keepers_get_what_is_not_covered": ("22 linked tasks die after the keeper with both logs", 0),
    "shadow_gets_only_the_own_log": ("50 task dies with all holders of its log and of its input's log", 0),
    "shadow_is_no_holder": ("50 task dies with all holders of its log and of its input's log", 0),
    "shadow_takes_over_wherever_it_stands": ("50 task dies with all holders of its log and of its input's log", 1),
    "snapshots_of_a_shadow_are_forgotten": ("50 task dies after a barrier that its shadow has passed", 0),
    "shadow_asks_for_its_input_again": ("50 hot standby takes over", 0),
    "maximum_for_minimum": ("51 task dies in the middle of a step", 0),
    "one_watermark_for_all_inputs": ("51 task dies in the middle of a step", 0),
    "idle_channels_count": ("51 task of the source is idle", 0),
    "idle_splits_count": ("51 task of the source is idle", 0),
    "watermarks_are_not_in_the_snapshot": ("51 task dies with a watermark delivered", 0),
    "splits_forget_their_watermarks": ("51 task dies just after a barrier", 0),
    "watermarks_leave_before_the_timers": ("51 task dies in the middle of a step", 0),
    "watermarks_overtake_rows": ("51 task dies in the middle of a step", 0),
    "watermarks_overtake_calls": ("51 task dies in the middle of a step", 0),
    "watermarks_leave_the_job": ("51 task dies in the middle of a step", 0),
    "watermarks_are_made_by_the_real_clock": ("51 task dies in the middle of a step", 0),
    "sources_wait_for_the_fastest": ("51 source waits for another one far behind", 0),
    "ended_sources_hold_others_back": ("51 source waits for another one far behind", 0),
    "idle_sources_hold_others_back": ("51 source waits for another one until it is idle", 0),
    "panes_take_a_record_twice": ("51 task of sliding windows dies just after a barrier", 0),
    "late_records_are_dropped": ("51 task of windows with late records dies in the middle of a step", 0),
    "windows_forget_the_watermark": ("51 task of sliding windows dies just after a barrier", 0),
    "sessions_do_not_merge": ("51 task of sliding windows dies just after a barrier", 0),
    "lateness_is_ignored": ("51 task of windows that take late records dies in the middle of a step", 0),
    "flush_timers_are_not_in_the_snapshot": ("34 task whose rows wait for a flush dies just after a barrier", 0),
    "waiting_rows_are_not_in_the_snapshot": ("34 task whose rows wait for a flush dies just after a barrier", 0),
    "tasks_go_on_after_the_cut": ("53 widths change", 0),
    "cuts_end_by_themselves": ("53 widths change", 0),
    "tasks_begin_before_the_output_of_the_cut_is_committed": (
        "53 sink with prepared output dies when the metadata of the cut is written",
        0,
    ),
    "widths_are_not_in_the_metadata": ("53 widths change", 0),
    "slots_check_all_messages_by_their_own_plan": (
        "53 keyed steps change their widths, and the coordinator restarts",
        21,
    ),
    "log_offsets_outlive_the_plan": (
        "53 keyed steps change their widths, and a task dies before its first checkpoint",
        42,
    ),
    "state_of_a_cut_is_not_divided": ("53 keyed steps change their widths twice", 0),
    "keys_are_divided_by_their_remainder": ("53 keyed steps change their widths twice", 0),
    "the_rest_of_a_chain_is_not_read": ("53 tasks are placed anew after a loss", 0),
    "what_was_read_outlives_its_generation": ("53 widths change", 0),
    "waiting_rows_are_dealt": ("53 step whose rows wait changes its width", 0),
    "drains_are_not_recorded": ("53 task whose rows wait dies when it has stored its snapshot of the cut", 0),
    "starts_withdraw_no_rows": ("53 job resumes with fewer sinks, and then with as many as before", 1),
    "starts_commit_prepared_output_again": ("53 job with prepared output resumes with other widths", 0),
    "numbers_of_returning_tasks_are_forgotten": ("53 sink has fewer tasks for a while", 0),
    "tasks_that_return_begin_at_zero": ("53 sink has fewer tasks for a while", 0),
    "splits_that_others_have_found_are_forgotten": ("53 source has fewer tasks for a while", 0),
    "splits_stay_with_their_tasks": ("53 source has fewer tasks for a while", 0),
    "parts_take_the_place_of_what_a_key_has": (
        "51 task of an aggregate that gets parts dies in the middle of a step",
        0,
    ),
    "parts_mix_panes": ("51 task of windows that get parts dies just after a barrier", 0),
    "late_records_are_in_parts": (
        "51 task of windows that get parts and late records dies in the middle of a step",
        8,
    ),
    "ended_windows_are_retained": ("51 task of sliding windows dies just after a barrier", 0),
}

NAMED = frozenset(
    {
        "no_fencing",
        "shortest_log_wins",
        "deltas_one_message_late",
        "acknowledgements_of_the_dead_count",
        "no_received_position",
        "no_received_position_from_the_own_log",
        "no_committing",
        "no_repeated_views",
        "no_repeated_triggers",
        "no_repeated_completions",
        "no_repeated_acknowledgements",
        "no_repeated_log_requests",
        "no_repeated_handshakes",
        "no_repeated_appends",
        "output_leaves_before_the_keepers_have_it",
        "calls_leave_before_the_keepers_have_them",
    }
)
"""Rules that the promise leans on: worlds must show them, no case of their own would do."""


def is_well(scene: str, seed: int) -> bool:
    """Whether a world comes to the end that it should. Any exception is a complaint: a bug in a machine shows so."""
    world: World = DIRECTED_TESTS[scene](seed)
    try:
        world.run()
    except WorldFailed:
        return False
    except Exception:  # noqa: BLE001  an assertion or an error of the core is how a wrong rule shows
        return False
    if world.expects_divergence and world.expects_failure:
        return isinstance(world.ending, JobFailed) and world.ending.error.partition(":")[0] in DIVERGENCES
    if world.expects_failure:
        return isinstance(world.ending, JobFailed) and world.ending.advice == ERRORS_ADVICE
    return True


DIVERGENCES = {ReplayDiverged.__name__, RowNotRepeated.__name__}

is_well_by_the_right_rules = cache(is_well)


def test_every_mutant_has_a_case() -> None:
    assert set(CAUGHT_BY) | DEFENCE_IN_DEPTH == set(MUTANTS)
    assert not set(CAUGHT_BY) & DEFENCE_IN_DEPTH
    assert set(CAUGHT_BY) >= NAMED


@pytest.mark.parametrize("mutant", CAUGHT_BY)
def test_a_mutated_rule_is_caught(mutant: str) -> None:
    scene, first = CAUGHT_BY[mutant]
    for seed in range(first, first + SEEDS_MAX):
        with mutated(mutant):
            is_caught = not is_well(scene, seed)
        if is_caught:
            assert is_well_by_the_right_rules(scene, seed), f"{scene!r}, seed {seed}, fails without {mutant} too"
            return
    pytest.fail(f"{mutant} ({MUTANTS[mutant].rule}) is caught by none of {SEEDS_MAX} worlds of {scene!r}")
