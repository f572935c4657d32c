"""Rules of the placement in simulated worlds with faults: followed after every take-over, or an alarm names them."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise
from random import Random

import pytest

from clonos.core.model.ids import SlotId
from clonos.core.model.options import PlacementKind
from clonos.core.model.plan import ANYWHERE, PlacementRule
from clonos.core.placement.placement_rules import broken_rules, rules_of
from clonos.core.wire.control_messages import View
from clonos_chaos.sim.sim_coordinator import SimCoordinator
from clonos_chaos.sim.world_settings import WorldSettings
from clonos_chaos.swarm.world import World

pytestmark = [pytest.mark.worlds, pytest.mark.slow]

SEEDS = range(16)
DOMAINS = 3
SETTINGS = WorldSettings(domains=DOMAINS, spare_slots=2, fault_counts=(3, 5, 8))


def _ruled(seed: int) -> World:
    """The world of a seed whose vertices have rules, or none."""
    world, rng = World(seed, settings=SETTINGS), Random(f"rules of {seed}")
    rules = [
        ANYWHERE,
        PlacementRule(is_exclusive=True),
        *(PlacementRule(host=f"domain{number}") for number in range(DOMAINS)),
    ]
    world.plan = world.declared = replace(
        world.plan, vertices=tuple(replace(each, rule=rng.choice(rules)) for each in world.plan.vertices)
    )
    world.options = replace(world.options, placement=rng.choice(list(PlacementKind)))
    world.coordinator = SimCoordinator(world, 1)
    return world


def _broken(world: World, view: View, before: View | None) -> list[str]:
    """Rules that a view does not follow. Asserts that no better slot was left for a task that has moved in it."""
    rules = rules_of(world.plan, world.options.placement, "")
    domains = {address.slot: address.domain for address in view.slots}
    slots = [placement.slot for placement in view.placements]
    tasks = Counter(slot for slot in slots if slot is not None)
    broken = [text for text in broken_rules(world.plan, rules, slots, domains, {}).split("; ") if text]
    for placement in view.placements:
        name = world.plan.task_name(placement.task)
        has_moved = before is None or before.placements[placement.task].slot != placement.slot
        if has_moved and any(text.startswith(f"{name} is to") for text in broken):
            assert not [slot for slot in domains if _is_left(world, placement.task, slot, domains, tasks)], (name, view)
    return broken


def _is_left(world: World, task: int, slot: SlotId, domains: dict[SlotId, str], tasks: Counter[SlotId]) -> bool:
    rules = rules_of(world.plan, world.options.placement, "")
    return not tasks[slot] and rules.is_on_host(task, domains[slot], {})


def test_tasks_of_worlds_with_faults_follow_their_rules_wherever_a_slot_is_left_or_an_alarm_names_them() -> None:
    followed = broken = 0
    for seed in SEEDS:
        world = _ruled(seed)
        world.run()
        alarms = "\n".join(alarm.text for alarm in world.alarms)
        for before, view in pairwise([None, *world.views]):
            assert view is not None, "the first one is before all views"
            found = _broken(world, view, before)
            missing = [text for text in found if text.partition(", and ")[0] not in alarms]
            assert not missing, (seed, missing)
            broken += bool(found)
            followed += not found and any(int(p.incarnation) == view.number for p in view.placements)
    assert followed > 30, followed
    assert broken > 4, broken
