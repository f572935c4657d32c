"""Failures and the views that answer them (protocol 4, 6, 8; decisions 3, 21)."""

from __future__ import annotations

import msgspec

from clonos.core import coordination as c
from clonos.core.ids import SlotId, term_of
from clonos.core.messages import Completed, Register, Release, View
from clonos.core.options import Options
from tests.unit.coordinator.desk import Desk, chain_plan, of_kind, sent


def _desk(has_effects: bool = False, domains: str = "ababab", **options: int) -> Desk:
    desk = Desk(chain_plan(2, has_effects), Options(**options))  # type: ignore[arg-type]
    desk.form(domains, slots=len(domains))
    desk.tick(300)
    return desk


def test_a_dead_task_lives_on_in_its_standbys_slot_and_restores_the_completed_checkpoint() -> None:
    desk = _desk()
    desk.complete(1)
    before = desk.of(2)
    desk.gone(before.slot)
    after = desk.of(2)
    assert after.slot in before.standbys
    assert after.incarnation == desk.number > before.incarnation
    assert (after.restore, after.objects) == (1, desk.coordinator.completed.tasks[2].objects)
    assert after.log_offset_bytes == 102
    assert not after.is_fresh


def test_everybody_else_keeps_incarnation_slot_and_what_it_restored() -> None:
    desk = _desk()
    desk.complete(1)
    before = desk.view
    desk.gone(desk.of(2).slot)
    for old, new in zip(before.placements, desk.view.placements, strict=True):
        if old.task != 2:
            assert (new.incarnation, new.slot, new.restore, new.objects) == (
                old.incarnation,
                old.slot,
                old.restore,
                old.objects,
            )


def test_the_view_goes_to_every_living_slot_and_names_no_other() -> None:
    desk = _desk()
    dead = desk.of(2).slot
    effects = desk.gone(dead)
    assert sorted(slot for slot, _ in sent(effects, View)) == sorted(set(desk.slots) - {dead})
    assert dead not in desk.view_slots()
    assert all(dead not in (p.slot, *p.standbys, *p.keepers) for p in desk.view.placements)


def test_failures_that_arrive_together_lead_to_one_view() -> None:
    desk = _desk()
    number = desk.number
    desk.gone(desk.of(0).slot, desk.of(3).slot, desk.of(5).slot)
    assert desk.number == number + 1
    assert {p.task for p in desk.view.placements if p.incarnation == desk.number} == {0, 3, 5}


def test_a_standby_whose_slot_died_with_the_task_is_no_candidate() -> None:
    desk = _desk()
    placement = desk.of(0)
    desk.gone(placement.slot, *placement.standbys)
    assert desk.of(0).slot in desk.view_slots()


def test_a_slot_that_is_lost_is_asked_for_again() -> None:
    desk = _desk()
    assert of_kind(desk.gone(1), c.RequestSlots) == [c.RequestSlots(1)]
    assert of_kind(desk.gone(2), c.RequestSlots) == [c.RequestSlots(1)]


def test_when_all_that_live_share_a_domain_slots_are_asked_for_elsewhere() -> None:
    desk = _desk(domains="ababab")
    effects = desk.gone(2, 4, 6)
    assert of_kind(effects, c.RequestSlots)[-1].avoid_domains == ("a",)


def test_a_slot_that_was_asked_for_and_never_came_is_asked_for_again() -> None:
    desk = _desk(slots_wait_ms=2_000)
    desk.gone(1)
    assert of_kind(desk.tick(1_800), c.RequestSlots) == []
    assert of_kind(desk.tick(300), c.RequestSlots) == [c.RequestSlots(1)]


def test_a_slot_that_cannot_be_started_is_asked_for_again_at_a_tick() -> None:
    desk = _desk()
    desk.gone(1)
    assert of_kind(desk.do(c.SlotRefused("no core is free")), c.Alarm)
    assert of_kind(desk.tick(100), c.RequestSlots) == [c.RequestSlots(1)]


def test_a_new_slot_joins_the_next_view_and_gets_missing_riders() -> None:
    desk = Desk(chain_plan(1), Options(standbys=1))
    desk.form("aaa", slots=3, can_spread=0)
    desk.tick(200)
    desk.register(9, "b")
    effects = desk.tick(100)
    assert len(sent(effects, View)) == 4
    assert all(9 in p.standbys for p in desk.view.placements)
    desk.tick(200)
    assert all(p.standbys == (9,) for p in desk.view.placements)  # ready, so those in the own domain have gone


def test_a_keeper_is_changed_in_two_phases() -> None:
    desk = _desk(has_effects=True, domains="abcabc")
    sink = desk.of(4)
    for slot in desk.slots.values():
        slot.are_riders_ready = False
    desk.gone(sink.slot)  # the sink moves into the slot of its standby, which was its keeper too
    moved = desk.of(4)
    assert moved.slot == sink.keepers[0]
    assert moved.slot in moved.keepers
    assert len(moved.keepers) == 2
    desk.tick(500)
    assert desk.of(4).keepers == moved.keepers
    for slot in desk.slots.values():
        slot.are_riders_ready = True
    desk.tick(200)
    assert desk.of(4).keepers == tuple(slot for slot in moved.keepers if slot != moved.slot)


def test_a_task_without_any_slot_waits_in_the_view_until_one_registers() -> None:
    desk = Desk(chain_plan(1), Options(standbys=0))
    desk.form("ab", slots=2)
    desk.gone(1, 2)
    assert [p.slot for p in desk.view.placements] == [-1, -1, -1]
    waiting = desk.of(0).incarnation
    effects = desk.register(9, "c")
    assert sent(effects, View)
    assert [p.slot for p in desk.view.placements] == [9, 9, 9]
    assert desk.of(0).incarnation > waiting
    assert not desk.of(0).is_fresh


def test_nobody_is_sent_to_a_slot_that_is_nowhere() -> None:
    desk = Desk(chain_plan(1), Options(standbys=0))
    desk.form("ab", slots=2)
    desk.gone(1, 2)
    assert sent(desk.tick(10_000), object) == []


def test_a_job_without_slots_fails_when_none_comes_in_time() -> None:
    desk = Desk(chain_plan(1), Options(standbys=0, slots_wait_ms=3_000))
    desk.form("ab", slots=2)
    desk.gone(1, 2)
    effects = desk.tick(3_500)
    assert of_kind(effects, c.SlotsRefused)[0].got == 0
    assert of_kind(effects, c.JobFailed)


def test_too_few_slots_after_failures_host_several_tasks() -> None:
    desk = _desk(domains="ab" * 3)
    desk.gone(3, 4, 5, 6)
    assert {p.slot for p in desk.view.placements} == {1, 2}


def test_a_view_is_repeated_until_it_is_installed() -> None:
    desk = _desk()
    desk.slots[SlotId(5)].is_deaf = True
    desk.gone(1)
    assert [slot for slot, _ in sent(desk.tick(300), View)] == [5, 5, 5]
    desk.slots[SlotId(5)].is_deaf = False
    desk.tick(100)
    assert sent(desk.tick(300), View) == []


def test_completed_is_told_again_in_the_generation_that_a_slot_is_in() -> None:
    desk = _desk()
    desk.slots[SlotId(5)].is_deaf = True
    desk.complete(1)
    desk.slots[SlotId(5)].is_deaf = False
    desk.lose_log(0)
    effects = desk.tick(300)
    assert [(slot, m.generation) for slot, m in sent(effects, Completed)] == [(5, 2)]  # type: ignore[attr-defined]


# ------------------------------------------------------------------ lost logs


def test_a_lost_log_begins_a_generation_in_which_everybody_starts_at_the_checkpoint() -> None:
    desk = _desk()
    desk.complete(1)
    effects = desk.lose_log(3)
    view = desk.view
    assert view.generation == 2
    assert len(sent(effects, View)) == 6
    for placement in view.placements:
        assert placement.incarnation == desk.number
        assert placement.is_fresh
        assert placement.restore == 1
    (alarm,) = of_kind(effects, c.Alarm)
    assert dict(alarm.fields) == {
        "task": "map/1",
        "channel": desk.plan.outputs[3][0].id,
        "position": 40,
        "claim": 50,
        "generation": 2,
        "checkpoint": 1,
    }


def test_a_log_that_is_lost_before_any_checkpoint_goes_back_to_the_start() -> None:
    desk = _desk()
    desk.lose_log(0)
    assert all((p.restore, p.objects, p.log_offset_bytes) == (0, (), 0) for p in desk.view.placements)


def test_a_dead_incarnations_loss_is_not_believed() -> None:
    desk = _desk()
    dead = desk.of(3).incarnation
    desk.gone(desk.of(3).slot)
    assert desk.lose_log(3, incarnation=dead) == ()
    assert desk.view.generation == 1


def test_a_loss_that_is_repeated_leads_to_one_rollback() -> None:
    desk = _desk()
    lost = desk.of(3).incarnation
    desk.lose_log(3)
    desk.lose_log(3, incarnation=lost)
    assert desk.view.generation == 2


def test_a_rollback_waits_while_a_checkpoint_is_committing() -> None:
    desk = _desk()
    desk.tick(5_000)
    desk.acknowledge(1)
    assert sent(desk.lose_log(3), View) == []
    desk.durable(1)
    assert desk.view.generation == 2
    assert desk.of(0).restore == 1


def test_a_failure_during_the_rollback_is_an_ordinary_one_of_the_new_generation() -> None:
    desk = _desk()
    desk.lose_log(3)
    desk.gone(desk.of(2).slot)
    assert desk.view.generation == 2
    assert not desk.of(2).is_fresh
    assert desk.of(3).is_fresh


def test_rollbacks_without_a_completed_checkpoint_come_to_an_end() -> None:
    desk = _desk(failures_per_epoch_max=3)
    effects: tuple[c.Effect, ...] = ()
    for _ in range(4):
        effects = desk.lose_log(0)
    assert "4 rollbacks without a completed checkpoint" in of_kind(effects, c.JobFailed)[0].reason


# ------------------------------------------------------------------ user code


def test_a_task_that_raised_gets_a_cautious_successor_in_the_same_slot() -> None:
    desk = _desk()
    before = desk.of(3)
    desk.raise_in(3)
    after = desk.of(3)
    assert after.incarnation > before.incarnation
    assert after.slot == before.slot
    assert after.is_cautious
    assert not after.is_fresh


def test_an_exception_that_is_repeated_counts_once() -> None:
    desk = _desk()
    failure = desk.failure(3)
    slot = desk.of(3).slot
    desk.tick(5_000)
    desk.acknowledge(1)  # the view waits
    for _ in range(3):
        desk.say(slot, failure)
    desk.durable(1)
    desk.say(slot, failure)
    assert desk.coordinator.phase == "running"
    assert len({p.incarnation for p in desk.view.placements}) == 2


def test_the_same_input_element_raising_in_two_incarnations_is_poison() -> None:
    desk = _desk()
    desk.raise_in(3, channel=3, first_seq=10, count=64)
    effects = desk.raise_in(3, channel=3, first_seq=37, count=1)
    (failed,) = of_kind(effects, c.JobFailed)
    assert failed.fault is c.Fault.JOB
    assert (failed.task_name, failed.step, failed.record) == ("map/1", "split", "'x'")
    assert (failed.channel, failed.first_seq, failed.count) == (3, 37, 1)
    assert failed.traceback == "Traceback ..."
    assert "poison" in failed.reason
    assert len(of_kind(effects, c.ReleaseSlot)) == 6


def test_other_elements_and_channels_are_no_poison() -> None:
    desk = _desk()
    desk.raise_in(3, channel=3, first_seq=10, count=5)
    desk.raise_in(3, channel=3, first_seq=15, count=1)
    desk.raise_in(3, channel=2, first_seq=10, count=5)
    assert desk.coordinator.phase == "running"


def test_poison_is_known_again_after_a_checkpoint_has_completed() -> None:
    desk = _desk()
    desk.raise_in(3, first_seq=10, count=5)
    desk.tick(200)
    desk.complete(1)
    assert of_kind(desk.raise_in(3, first_seq=12, count=1), c.JobFailed)


def test_a_timer_that_raises_the_same_twice_is_poison() -> None:
    desk = _desk()
    desk.raise_in(3, channel=-1, first_seq=0, count=0)
    assert of_kind(desk.raise_in(3, channel=-1, first_seq=0, count=0), c.JobFailed)


def test_an_exception_that_no_second_try_helps_fails_the_job_at_once() -> None:
    desk = _desk()
    (failed,) = of_kind(desk.raise_in(3, fatal=True), c.JobFailed)
    assert failed.error == "ValueError: x"


def test_too_many_incarnations_between_two_checkpoints_fail_the_job() -> None:
    desk = _desk(failures_per_epoch_max=3)
    failed: list[c.JobFailed] = []
    for attempt in range(4):
        assert not failed
        failed = of_kind(desk.raise_in(3, first_seq=100 * attempt), c.JobFailed)
    assert failed


def test_a_completed_checkpoint_begins_the_count_anew() -> None:
    desk = _desk(failures_per_epoch_max=3)
    for epoch in range(1, 4):
        for attempt in range(3):
            desk.raise_in(3, first_seq=1_000 * epoch + 100 * attempt)
        desk.tick(200)
        desk.complete(epoch)
    assert desk.coordinator.phase == "running"


def test_two_deaths_of_the_process_in_one_epoch_make_the_successor_cautious() -> None:
    desk = _desk()
    desk.gone(desk.of(2).slot)
    assert not desk.of(2).is_cautious
    desk.tick(200)
    desk.gone(desk.of(2).slot)
    assert desk.of(2).is_cautious


def test_deaths_during_replay_never_make_the_successor_cautious() -> None:
    desk = _desk()
    for slot in desk.slots.values():
        slot.phase = "replaying"
    desk.gone(desk.of(2).slot)
    desk.tick(200)
    desk.gone(desk.of(2).slot)
    assert not desk.of(2).is_cautious


def test_deaths_in_two_epochs_do_not_make_the_successor_cautious() -> None:
    desk = _desk()
    desk.gone(desk.of(2).slot)
    desk.tick(200)
    desk.complete(1)
    desk.gone(desk.of(2).slot)
    assert not desk.of(2).is_cautious


# ------------------------------------------------------------------ timeline


def test_the_timeline_tells_each_milestone_once_and_in_order() -> None:
    desk = _desk()
    slot = desk.slots[desk.of(2).standbys[0]]
    dead = desk.of(2)
    told = of_kind(desk.do(c.SlotGone(dead.slot, "killed", now_ns=10**12)), c.Told)
    for phase in ("recovering", "connecting", "replaying", "live", "live"):
        slot.phase = phase
        told += of_kind(desk.do(c.Received(slot.slot, slot.status(), now_ns=10**12 + len(told))), c.Told)
    told = [entry for entry in told if entry.task == 2]
    assert [entry.milestone for entry in told] == list(c.Milestone)
    assert told[0].incarnation == dead.incarnation
    assert {entry.incarnation for entry in told[1:]} == {desk.of(2).incarnation}
    assert [entry.now_ns for entry in told] == sorted(entry.now_ns for entry in told)
    assert all(entry.cause == "killed" for entry in told)
    (recovery,) = [r for r in desk.coordinator.recoveries if r.task == 2]
    assert recovery.is_over
    assert tuple(milestone for milestone, _ in recovery.reached) == tuple(c.Milestone)


def test_a_live_task_that_is_behind_has_not_caught_up() -> None:
    desk = _desk()
    slot = desk.slots[desk.of(2).standbys[0]]
    desk.gone(desk.of(2).slot)
    slot.counters = (("behind", 5),)
    milestones = [entry.milestone for entry in of_kind(desk.tick(100), c.Told) if entry.task == 2]
    assert milestones == [c.Milestone.GATHERED, c.Milestone.REPLAYED]
    slot.counters = (("behind", 0),)
    assert [e.milestone for e in of_kind(desk.tick(100), c.Told) if e.task == 2] == [c.Milestone.CAUGHT_UP]


def test_a_task_that_fails_again_before_it_has_caught_up_has_two_recoveries() -> None:
    desk = _desk()
    desk.gone(desk.of(2).slot)
    desk.gone(desk.of(2).slot)
    desk.tick(200)
    recoveries = [r for r in desk.coordinator.recoveries if r.task == 2]
    assert [r.is_over for r in recoveries] == [False, True]
    assert recoveries[0].incarnation == recoveries[1].failed


def test_the_status_shows_phases_and_counters_of_living_incarnations() -> None:
    desk = _desk()
    desk.slots[desk.of(3).slot].counters = (("records_in", 12),)
    desk.tick(100)
    assert desk.coordinator.counters[desk.of(3).task] == {"records_in": 12}
    assert desk.coordinator.phases[desk.of(3).task] == "live"
    assert [register.slot for register in desk.coordinator.slots] == sorted(desk.slots)
    desk.gone(desk.of(3).slot)
    assert desk.of(3).task not in desk.coordinator.counters


# ------------------------------------------------------------------ a new coordinator (protocol 9)


def _restart(desk: Desk, silent: tuple[int, ...] = ()) -> Desk:
    """Another coordinator while the slots live on; those that are not silent tell it what they have."""
    again = Desk(desk.plan, Options())
    again.do(c.Ticked(0))
    again.do(c.Begin(2, "job-1", len(desk.slots), desk.coordinator.completed, awaits_slots=True))
    again.slots = {slot: state for slot, state in desk.slots.items() if slot not in silent}
    again.tick(5_000)
    return again


def test_a_new_coordinator_goes_on_with_the_highest_view_heard() -> None:
    desk = _desk()
    desk.complete(1)
    before = desk.view
    again = _restart(desk)
    assert term_of(again.number) == 2
    assert again.view.generation == before.generation
    assert again.view.placements == before.placements
    again.complete(2)


def test_a_new_coordinator_replaces_what_has_not_spoken_for_a_lease() -> None:
    desk = _desk()
    desk.complete(1)
    before = desk.view
    silent = desk.of(2).slot
    again = _restart(desk, (silent,))
    assert [p.task for p in again.view.placements if p.incarnation == again.number] == [2]
    assert again.of(2).restore == 1
    assert again.of(0) == msgspec.structs.replace(before.placements[0], standbys=again.of(0).standbys)
    late = desk.slots[silent]
    assert [slot for slot, _ in sent(again.say(silent, late.status()), Release)] == [silent]


def test_a_new_coordinator_that_hears_nobody_starts_like_a_resume() -> None:
    desk = _desk()
    desk.complete(1)
    again = Desk(desk.plan, Options())
    again.do(c.Ticked(0))
    assert again.do(c.Begin(2, "job-1", 2, desk.coordinator.completed, awaits_slots=True)) == ()
    effects = again.tick(5_100)
    assert of_kind(effects, c.RequestSlots) == [c.RequestSlots(2)]
    again.register(50, "a")
    again.register(51, "b")
    assert again.view.generation == 2


def test_numbers_that_the_old_coordinator_gave_are_not_given_again() -> None:
    desk = _desk()
    desk.complete(1)
    desk.tick(10_000)
    assert desk.pending() == [2, 3]
    again = _restart(desk)
    for slot in again.slots.values():
        for placement in slot.hosted():
            again.say(slot.slot, desk.acknowledgement(placement.task, 3))
    again.tick(5_100)
    assert again.pending() == [4]


def test_a_slot_that_registers_while_a_new_coordinator_listens_is_a_spare() -> None:
    desk = _desk()
    again = Desk(desk.plan, Options())
    again.do(c.Ticked(0))
    again.do(c.Begin(2, "job-1", 6, awaits_slots=True))
    again.slots = dict(desk.slots)
    again.say(70, Register(SlotId(70), "a", "h", "", "", b"", "", 1, ()))
    again.tick(5_000)
    assert 70 in again.view_slots()


def test_an_old_coordinator_stands_down_when_a_slot_obeys_a_later_term() -> None:
    desk = _desk()
    again = _restart(desk)
    woken = desk.say(1, again.slots[SlotId(1)].status())
    assert of_kind(woken, c.StoodDown)
    assert desk.coordinator.phase == "replaced"
    assert desk.gone(2) == ()


def test_an_old_coordinator_stands_down_when_a_slot_answers_its_view_with_a_later_one() -> None:
    desk = _desk()
    again = _restart(desk)
    assert of_kind(desk.say(1, again.view), c.StoodDown)
