"""Rules of the placement: hosts, processes of their own, spread and packed; alarms and errors."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clonos.core.coordinator.coordinator_effects import Alarm, JobFailed, RequestSlots
from clonos.core.model.errors import Blame
from clonos.core.model.ids import CheckpointId, Incarnation, SlotId, TaskId
from clonos.core.model.options import Options, PlacementKind
from clonos.core.model.plan import ANYWHERE, PlacementRule, Plan
from clonos.core.placement.assignment import NO_ASSIGNMENT, Assignment, Readiness, ReplicationTargets, place
from clonos.core.placement.placement_rules import PlacementRules, broken_rules, rules_of
from tests.harnesses.coordinator_harness import CoordinatorHarness, chain_plan, of_kind

ON_B, ALONE = PlacementRule(host="b"), PlacementRule(is_exclusive=True)
NONE_READY = Readiness({}, {}, [CheckpointId(7)] * 20, [Incarnation(9)] * 20)


def _slots(domains: str) -> dict[SlotId, str]:
    return {SlotId(number): domain for number, domain in enumerate(domains, 1)}


def _placed(
    rules: PlacementRules, domains: dict[SlotId, str], before: list[Assignment], standbys: int = 0
) -> tuple[Assignment, ...]:
    return place([ReplicationTargets(standbys, 0)] * len(before), domains, before, NONE_READY, {}, rules)


def test_tasks_with_a_host_are_placed_there_and_the_others_beside() -> None:
    rules = PlacementRules((ANYWHERE, ON_B, ANYWHERE, ON_B))
    placed = _placed(rules, domains := _slots("aabb"), [NO_ASSIGNMENT] * 4)
    assert [domains[a.slot] for a in placed if a.slot] == ["a", "b", "a", "b"]
    assert len({a.slot for a in placed}) == 4


def test_a_task_on_the_host_of_the_driver_is_placed_by_the_name_of_the_host() -> None:
    rules = PlacementRules((PlacementRule(on_driver=True),), driver_host="machine-2")
    targets = [ReplicationTargets(0, 0)]
    hosts = {"a": "machine-1", "b": "machine-2"}
    (placed,) = place(targets, _slots("aab"), [NO_ASSIGNMENT], NONE_READY, hosts, rules)
    assert placed.slot == 3


def test_an_exclusive_task_shares_no_slot_though_the_others_have_to() -> None:
    rules = PlacementRules((ANYWHERE, ANYWHERE, ALONE, ANYWHERE))
    placed = _placed(rules, _slots("abc"), [NO_ASSIGNMENT] * 4)
    assert [a.slot for a in placed].count(placed[2].slot) == 1


def test_packed_tasks_fill_one_domain_before_the_next() -> None:
    domains = _slots("abcabcabc")
    spread = _placed(PlacementRules(), domains, [NO_ASSIGNMENT] * 3)
    packed = _placed(PlacementRules(kind=PlacementKind.PACK), domains, [NO_ASSIGNMENT] * 4, standbys=1)
    assert len({domains[a.slot] for a in spread if a.slot}) == 3
    assert [domains[a.slot] for a in packed if a.slot] == ["a", "a", "a", "b"]
    assert all(domains[a.slot] != domains[a.standbys[0]] for a in packed if a.slot)


def test_a_slot_on_the_host_of_a_task_comes_before_a_standby_elsewhere() -> None:
    before = [Assignment(SlotId(9), (SlotId(1),))]
    (there,) = _placed(PlacementRules((ON_B,)), _slots("ab"), before, standbys=1)
    assert there.slot == 2
    (elsewhere,) = _placed(PlacementRules((ON_B,)), _slots("ac"), before, standbys=1)
    assert elsewhere.slot == 1


RULES = st.sampled_from([ANYWHERE, ANYWHERE, PlacementRule(host="a"), ON_B, ALONE, replace(ON_B, is_exclusive=True)])


@settings(max_examples=60)
@given(data=st.data())
def test_a_placed_task_breaks_its_rule_only_where_no_slot_was_left_for_it(data: st.DataObject) -> None:
    rules = PlacementRules(tuple(data.draw(st.lists(RULES, min_size=1, max_size=5))))
    count = len(rules.of)
    plan = chain_plan(count)
    domains = _slots(data.draw(st.text("abc", min_size=1, max_size=7)))
    placed = list(_placed(rules, domains, [NO_ASSIGNMENT] * count, standbys=1))
    for _ in range(data.draw(st.integers(0, 3))):  # slots die
        if len(domains) > 1:
            del domains[data.draw(st.sampled_from(sorted(domains)))]
            before, placed = placed, list(_placed(rules, domains, placed, standbys=1))
            moved = [task for task in range(count) if before[task].slot != placed[task].slot]
            for task in moved:
                _assert_no_better(plan, rules, domains, placed, task)


def _assert_no_better(
    plan: Plan, rules: PlacementRules, domains: dict[SlotId, str], placed: list[Assignment], task: int
) -> None:
    """Asserts that no empty slot on its host was left for a task that is not there, or not alone."""
    slots = [assigned.slot for assigned in placed]
    name = plan.task_name(task)
    if f"{name} is to" not in broken_rules(plan, rules, slots, domains, {}):
        return
    empty = [slot for slot in domains if slot not in slots and rules.is_on_host(task, domains[slot], {})]
    assert not empty, (rules.of, domains, slots, name)


def _ruled(rule: PlacementRule, vertex: int = 1) -> Plan:
    plan = chain_plan()
    vertices = [replace(each, rule=rule) if number == vertex else each for number, each in enumerate(plan.vertices)]
    return replace(plan, vertices=tuple(vertices))


def test_rules_of_a_plan_without_any_are_plain() -> None:
    assert rules_of(chain_plan(), PlacementKind.SPREAD, "h").are_plain
    assert not rules_of(_ruled(ALONE), PlacementKind.SPREAD, "h").are_plain


def test_a_job_whose_rule_cannot_hold_asks_elsewhere_and_then_fails_with_the_reason() -> None:
    harness = CoordinatorHarness(_ruled(PlacementRule(host="host-3")), Options(slots_wait_ms=2_000))
    harness.begin()
    for number in range(1, 7):
        harness.register(number, "ab"[number % 2], host=f"host-{number % 2}")
    assert harness.coordinator.phase == "starting"
    assert of_kind(harness.effects_of_last, RequestSlots)[-1].avoid_domains == ("a", "b")
    (failed,) = of_kind(harness.tick(3_000), JobFailed)
    assert failed.blame is Blame.JOB
    assert "map/0 is to run on host-3, and runs on host-" in failed.reason
    assert "processes came, on host-0, host-1" in failed.reason


def test_a_job_starts_as_soon_as_a_slot_on_the_host_of_its_rule_has_come() -> None:
    harness = CoordinatorHarness(_ruled(PlacementRule(host="c")))
    harness.begin()
    for number in range(1, 7):
        harness.register(number, "ab"[number % 2])
    harness.register(7, "c")
    assert harness.coordinator.phase == "running"
    assert {harness.of(task).hosting_slot for task in (2, 3)} == {7}


@pytest.mark.parametrize("spare", [0, 1])
def test_an_exclusive_task_whose_slot_dies_gets_a_free_slot_or_an_alarm_is_raised(spare: int) -> None:
    harness = CoordinatorHarness(_ruled(ALONE))
    harness.begin(6 + spare)
    for number in range(1, 7 + spare):
        harness.register(number, "ab"[number % 2])
    harness.speak()
    dead = harness.of(2).hosting_slot
    harness.gone(dead)
    alarms = [alarm.text for alarm in of_kind(harness.effects_of_last, Alarm)]
    broken = [text for text in alarms if "map/0 is to have a process of its own, and shares one with" in text]
    assert len(broken) == (0 if spare else 1)
    slots = [harness.of(TaskId(task)).hosting_slot for task in harness.plan.tasks]
    assert (slots.count(harness.of(2).hosting_slot) == 1) is bool(spare)
