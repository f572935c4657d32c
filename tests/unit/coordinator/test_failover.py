"""Failover: failures and the views that answer them (protocol 6, 8)."""

from __future__ import annotations

from msgspec.structs import replace

from clonos.core.coordinator.coordinator_effects import Alarm, Effect, JobFailed, RequestSlots, SlotsRefused
from clonos.core.coordinator.coordinator_events import Received, SlotGone, SlotRefused
from clonos.core.model.ids import ChannelId, SlotId, TaskId, ViewNumber, view_number
from clonos.core.model.options import Options
from clonos.core.model.progress import TaskPhase
from clonos.core.wire.control_messages import Completed, View
from clonos.core.wire.recovery_messages import JournalLost, LogLost
from clonos.job.status_view import build_status
from tests.harnesses.coordinator_harness import CoordinatorHarness, chain_plan, live_chain, of_kind, sent


def test_a_dead_task_restarts_in_its_standbys_slot_from_the_completed_checkpoint() -> None:
    harness = live_chain()
    harness.complete(1)
    before = harness.of(2)
    harness.gone(before.hosting_slot)
    after = harness.of(2)
    assert after.slot in before.standbys
    assert after.incarnation == harness.number > before.incarnation
    assert (after.restore, after.objects) == (1, harness.coordinator.completed.tasks[2].objects)
    assert after.log_offset_bytes == 102
    assert not after.is_fresh


def test_a_task_recovers_in_its_slot_and_waits_without_one() -> None:
    harness = CoordinatorHarness(chain_plan(1), Options(standbys=1))
    harness.form("ab", slots=2)
    harness.tick(300)
    sink = TaskId(2)
    harness.do(SlotGone(harness.of(sink).hosting_slot, "killed"))
    assert build_status("id", False, (), harness.coordinator).tasks[sink].phase is TaskPhase.RECOVERING
    harness.do(SlotGone(harness.of(sink).hosting_slot, "killed"))
    assert build_status("id", False, (), harness.coordinator).tasks[sink].phase is TaskPhase.WAITING


def test_all_other_tasks_keep_incarnation_slot_and_restored_checkpoint() -> None:
    harness = live_chain()
    harness.complete(1)
    before = harness.view
    harness.gone(harness.of(2).hosting_slot)
    for old, new in zip(before.placements, harness.view.placements, strict=True):
        if old.task != 2:
            assert (new.incarnation, new.slot, new.restore, new.objects) == (
                old.incarnation,
                old.slot,
                old.restore,
                old.objects,
            )


def test_the_view_is_sent_to_and_names_every_live_slot_only() -> None:
    harness = live_chain()
    dead = harness.of(2).hosting_slot
    effects = harness.gone(dead)
    assert sorted(slot for slot, _ in sent(effects, View)) == sorted(set(harness.slots) - {dead})
    assert dead not in harness.view_slots()
    assert all(dead not in (p.slot, *p.standbys, *p.keepers) for p in harness.view.placements)


def test_failures_that_arrive_together_lead_to_one_view() -> None:
    harness = live_chain()
    number = harness.number
    harness.gone(harness.of(0).hosting_slot, harness.of(3).hosting_slot, harness.of(5).hosting_slot)
    assert harness.number == number + 1
    assert {p.task for p in harness.view.placements if p.incarnation == harness.number} == {0, 3, 5}


def test_a_standby_whose_slot_died_with_the_task_is_no_candidate() -> None:
    harness = live_chain()
    placement = harness.of(0)
    harness.gone(placement.hosting_slot, *placement.standbys)
    assert harness.of(0).hosting_slot in harness.view_slots()


def test_a_lost_slot_is_requested_again() -> None:
    harness = live_chain()
    assert of_kind(harness.gone(1), RequestSlots) == [RequestSlots(1)]
    assert of_kind(harness.gone(2), RequestSlots) == [RequestSlots(1)]


def test_when_all_live_slots_share_a_domain_slots_are_requested_in_another() -> None:
    harness = live_chain(domains="ababab")
    effects = harness.gone(2, 4, 6)
    assert of_kind(effects, RequestSlots)[-1].avoid_domains == ("a",)


def test_a_requested_slot_that_never_registers_is_requested_again() -> None:
    harness = live_chain(slots_wait_ms=2_000)
    harness.gone(1)
    assert of_kind(harness.tick(1_800), RequestSlots) == []
    assert of_kind(harness.tick(300), RequestSlots) == [RequestSlots(1)]


def test_a_slot_that_ends_before_it_registers_is_requested_again_alone() -> None:
    harness = live_chain()
    harness.gone(1, 2)  # two slots are on their way
    effects = (*harness.do(SlotGone(SlotId(99), "killed")), *harness.tick(100))
    assert of_kind(effects, RequestSlots) == [RequestSlots(1)]


def test_a_slot_that_cannot_be_started_is_requested_again_alone_at_a_tick() -> None:
    harness = live_chain()
    harness.gone(1, 2)
    assert of_kind(harness.do(SlotRefused("no core is free")), Alarm)
    assert of_kind(harness.tick(100), RequestSlots) == [RequestSlots(1)]


def test_a_provider_that_refuses_is_asked_with_growing_pauses_and_its_reason_is_reported() -> None:
    harness = CoordinatorHarness(chain_plan(1), Options(slots_wait_ms=30_000))
    effects = harness.begin(1)
    asked = alarms = 0
    ended: list[JobFailed] = []
    for _ in range(400):
        for _ in of_kind(effects, RequestSlots):
            asked += 1
            alarms += len(of_kind(harness.do(SlotRefused("Error from python worker: no module")), Alarm))
        effects = harness.tick(100)
        ended += of_kind(effects, JobFailed)
    assert 15 < asked < 40
    assert alarms < 7
    assert "no module" in ended[0].reason


def test_a_new_slot_joins_the_next_view_and_gets_missing_backups() -> None:
    harness = CoordinatorHarness(chain_plan(1), Options(standbys=1))
    harness.form("aaa", slots=3, can_spread=0)
    harness.tick(200)
    harness.register(9, "b")
    effects = harness.tick(100)
    assert len(sent(effects, View)) == 4
    assert all(9 in p.standbys for p in harness.view.placements)
    harness.tick(200)
    assert all(p.standbys == (9,) for p in harness.view.placements)  # ready, so those in the own domain have gone


def test_the_view_that_answers_a_loss_names_new_standbys_and_keepers_in_other_processes() -> None:
    harness = live_chain(has_effects=True, domains="abcabc")
    before = harness.of(4)
    harness.gone(before.keepers[0])  # its standby sat there too
    after = harness.of(4)
    assert after.slot == before.slot
    assert after.incarnation == before.incarnation
    assert after.keepers == after.standbys
    assert {after.slot, before.keepers[0]}.isdisjoint(after.keepers)
    assert all(
        p.slot not in (*p.standbys, *p.keepers) for p in harness.view.placements if p.incarnation < harness.number
    )


def test_backups_that_became_due_while_a_checkpoint_was_committing_are_placed_at_its_outcome() -> None:
    harness = live_chain(domains="abababb")
    (dead,) = {p.standbys[0] for p in harness.view.placements} - {p.slot for p in harness.view.placements}
    harness.tick(5_000)
    harness.acknowledge(1)
    number = harness.number
    harness.gone(dead)
    harness.tick(100)
    assert harness.number == number
    assert len(sent(harness.durable(1), View)) == 6
    assert all(dead not in (*p.standbys, *p.keepers) for p in harness.view.placements)


def test_the_last_slot_replicates_its_tasks_logs_to_the_next_slot_and_keeps_its_tasks() -> None:
    harness = CoordinatorHarness(chain_plan(1, has_effects=True), Options(standbys=1))
    harness.form("abc", slots=3)
    harness.gone(1, 2)
    assert {p.slot for p in harness.view.placements} == {3}
    harness.register(9, "d")
    harness.tick(50, step_ms=50)
    assert {p.slot for p in harness.view.placements} == {3}
    assert all(9 in p.standbys for p in harness.view.placements)
    assert 9 in harness.of(2).keepers
    harness.tick(200)
    assert harness.of(2).keepers == (9,)
    assert {p.slot for p in harness.view.placements} == {3}


def test_a_keeper_is_changed_in_two_phases() -> None:
    harness = live_chain(has_effects=True, domains="abcabc")
    sink = harness.of(4)
    for slot in harness.slots.values():
        slot.are_backups_ready = False
    harness.gone(sink.hosting_slot)  # the sink moves into the slot of its standby, which was its keeper too
    moved = harness.of(4)
    assert moved.slot == sink.keepers[0]
    assert moved.slot in moved.keepers
    assert len(moved.keepers) == 2
    harness.tick(500)
    assert harness.of(4).keepers == moved.keepers
    for slot in harness.slots.values():
        slot.are_backups_ready = True
    harness.tick(200)
    assert harness.of(4).keepers == tuple(slot for slot in moved.keepers if slot != moved.slot)


def test_a_keepers_report_counts_only_under_the_installed_view() -> None:
    harness = CoordinatorHarness(chain_plan(1, has_effects=True), Options(standbys=1))
    harness.form("aaaa", slots=4, can_spread=0)
    harness.tick(200)
    (old,) = harness.of(2).keepers
    harness.register(9, "b")
    new = harness.slots[SlotId(9)]
    new.is_mute = True
    harness.tick(100)
    harness.receive(9, replace(new.status(), view=ViewNumber(new.view.number - 1)))  # it may have been let go since
    harness.tick(100)
    assert harness.of(2).keepers == (old, 9)
    harness.receive(9, new.status())
    harness.tick(100)
    assert harness.of(2).keepers == (9,)


def test_the_view_that_names_a_successor_keeps_all_keepers_of_the_dead_incarnation() -> None:
    harness = CoordinatorHarness(chain_plan(1, has_effects=True), Options(standbys=1))
    harness.form("aaaa", slots=4, can_spread=0)
    harness.tick(200)
    sink = harness.of(2)
    (old,) = sink.keepers
    harness.register(9, "b")
    new = harness.slots[SlotId(9)]
    new.is_mute = True
    harness.tick(100)
    assert harness.of(2).keepers == (old, 9)
    received = Received(new.slot, new.status())
    harness.slots[sink.hosting_slot].is_mute = harness.slots[sink.hosting_slot].is_deaf = True
    harness.do(received, SlotGone(sink.hosting_slot, "killed"))  # the new one is ready, and may be dead already
    assert harness.of(2).hosting_slot == old
    assert harness.of(2).keepers == (old, 9)
    new.is_mute = False
    harness.tick(200)  # both hold what the successor holds
    assert harness.of(2).keepers == (9,)


def test_a_task_without_any_slot_waits_in_the_view_until_one_registers() -> None:
    harness = CoordinatorHarness(chain_plan(1), Options(standbys=0))
    harness.form("ab", slots=2)
    harness.gone(1, 2)
    assert [p.slot for p in harness.view.placements] == [None, None, None]
    shown = build_status("id", False, (), harness.coordinator).tasks[0]
    assert (shown.slot, shown.pid, shown.phase) == (0, 0, TaskPhase.WAITING)
    waiting = harness.of(0).incarnation
    effects = harness.register(9, "c")
    assert sent(effects, View)
    assert [p.slot for p in harness.view.placements] == [9, 9, 9]
    assert harness.of(0).incarnation > waiting
    assert not harness.of(0).is_fresh


def test_no_message_is_sent_to_an_unplaced_task() -> None:
    harness = CoordinatorHarness(chain_plan(1), Options(standbys=0))
    harness.form("ab", slots=2)
    harness.gone(1, 2)
    assert sent(harness.tick(10_000), object) == []


def test_a_job_without_slots_fails_at_the_timeout() -> None:
    harness = CoordinatorHarness(chain_plan(1), Options(standbys=0, slots_wait_ms=3_000))
    harness.form("ab", slots=2)
    harness.gone(1, 2)
    effects = harness.tick(3_500)
    assert of_kind(effects, SlotsRefused)[0].got == 0
    assert of_kind(effects, JobFailed)


def test_too_few_slots_after_failures_host_several_tasks() -> None:
    harness = live_chain(domains="ab" * 3)
    harness.gone(3, 4, 5, 6)
    assert {p.slot for p in harness.view.placements} == {1, 2}


def test_a_view_is_repeated_until_it_is_installed() -> None:
    harness = live_chain()
    harness.slots[SlotId(5)].is_deaf = True
    harness.gone(1)
    assert [slot for slot, _ in sent(harness.tick(300), View)] == [5, 5, 5]
    harness.slots[SlotId(5)].is_deaf = False
    harness.tick(100)
    assert sent(harness.tick(300), View) == []


def test_completed_is_repeated_with_the_generation_of_the_slot() -> None:
    harness = live_chain()
    harness.slots[SlotId(5)].is_deaf = True
    harness.complete(1)
    harness.slots[SlotId(5)].is_deaf = False
    harness.lose_log(0)
    effects = harness.tick(300)
    assert [(slot, m.generation) for slot, m in sent(effects, Completed)] == [(5, view_number(1, 2))]  # type: ignore[attr-defined]


# ------------------------------------------------------------------ lost logs


def test_a_lost_log_starts_a_generation_in_which_all_tasks_restore_the_checkpoint() -> None:
    harness = live_chain()
    harness.complete(1)
    effects = harness.lose_log(3)
    view = harness.view
    assert view.generation == view_number(1, 2)
    assert len(sent(effects, View)) == 6
    for placement in view.placements:
        assert placement.incarnation == harness.number
        assert placement.is_fresh
        assert placement.restore == 1
    (alarm,) = of_kind(effects, Alarm)
    assert dict(alarm.fields) == {
        "task": "map/1",
        "channel": harness.plan.outputs[3][0].id,
        "position": 40,
        "received_up_to": 50,
        "generation": "1.2",
        "checkpoint": 1,
    }


def test_a_rollback_alarm_names_the_lost_logs() -> None:
    losses = {
        (None, 40, 50): "it was gathered up to byte 40, but a holder has a copy up to byte 50",
        (6, 40, 50): "it ends at element 40 of channel 6, and the receiver has received elements up to 50",
    }
    for (channel, position, received_up_to), what in losses.items():
        harness = live_chain()
        life = harness.of(3).incarnation
        where = None if channel is None else ChannelId(channel)
        (alarm,) = of_kind(
            harness.receive(harness.of(3).hosting_slot, LogLost(TaskId(3), life, where, position, received_up_to)),
            Alarm,
        )
        assert what in alarm.text
        assert "journal" not in alarm.text
    harness = live_chain()
    (alarm,) = of_kind(
        harness.receive(harness.of(0).hosting_slot, JournalLost(TaskId(0), harness.of(0).incarnation)), Alarm
    )
    assert alarm.text.startswith("the journal of source source/0 is lost")
    assert harness.view.generation == view_number(1, 2)


def test_a_log_lost_before_any_checkpoint_rolls_back_to_the_start() -> None:
    harness = live_chain()
    harness.lose_log(0)
    assert all((p.restore, p.objects, p.log_offset_bytes) == (0, (), 0) for p in harness.view.placements)


def test_a_lost_log_reported_by_a_dead_incarnation_is_ignored() -> None:
    harness = live_chain()
    dead = harness.of(3).incarnation
    harness.gone(harness.of(3).hosting_slot)
    assert harness.lose_log(3, incarnation=dead) == ()
    assert harness.view.generation == view_number(1, 1)


def test_a_repeated_report_of_a_lost_log_leads_to_one_rollback() -> None:
    harness = live_chain()
    lost = harness.of(3).incarnation
    harness.lose_log(3)
    harness.lose_log(3, incarnation=lost)
    assert harness.view.generation == view_number(1, 2)


def test_a_rollback_waits_while_a_checkpoint_is_committing() -> None:
    harness = live_chain()
    harness.tick(5_000)
    harness.acknowledge(1)
    assert sent(harness.lose_log(3), View) == []
    harness.durable(1)
    assert harness.view.generation == view_number(1, 2)
    assert harness.of(0).restore == 1


def test_a_failure_during_a_rollback_is_recovered_in_the_new_generation() -> None:
    harness = live_chain()
    harness.lose_log(3)
    harness.gone(harness.of(2).hosting_slot)
    assert harness.view.generation == view_number(1, 2)
    assert not harness.of(2).is_fresh
    assert harness.of(3).is_fresh


def test_rollbacks_without_a_completed_checkpoint_fail_the_job_at_the_limit() -> None:
    harness = live_chain(failures_per_epoch_max=3)
    effects: tuple[Effect, ...] = ()
    for _ in range(4):
        effects = harness.lose_log(0)
    assert "4 rollbacks without a completed checkpoint" in of_kind(effects, JobFailed)[0].reason
