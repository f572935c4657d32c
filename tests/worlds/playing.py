"""Runs directed tests by the number of their case, and checks that their faults were injected."""

from __future__ import annotations

from clonos.core.coordinator.coordinator_effects import JobDone
from clonos_chaos.project.directed.building_blocks import not_injected
from clonos_chaos.project.directed.directed_tests import DIRECTED_TESTS
from clonos_chaos.swarm.environments import Swarm
from clonos_chaos.swarm.seeds import PLAIN, SwarmResult, swarm
from clonos_chaos.swarm.world import World
from tests.worlds.search import Search

SEEDS = range(6)
SHOWN_MIN = 2
"""Worlds of each case in which every fault must have been injected: timing is random, so some miss it."""


def swarmed(search: Search, kind: Swarm = PLAIN, part: int = 1, share: str = "") -> SwarmResult:
    """Runs the worlds of many seeds; asserts that each ends well, and returns their sum."""
    total, share = SwarmResult(), share or kind.topology or "plain"
    seeds = search.seeds_of(part)
    for tally in swarm(seeds, kind, processes=1, is_over=search.ends_by_time(share)):
        total.add(tally)
    search.note(share, total.worlds)
    failed = [seed for seed, _ in total.failures]
    stories = "\n\n".join(report for _, report in total.failures[:2])
    assert not failed, f"clonos chaos seeds {kind.arguments(failed[0])}\nall that failed: {failed}\n{stories}"
    assert total.worlds
    return total


def played(number: int, name: str = "") -> list[World]:
    """Worlds of one case in which every targeted fault was injected. All worlds that ran have ended well."""
    return played_scene(f"{number} {name}")


def played_scene(scene: str) -> list[World]:
    """Runs worlds of one case by its whole name."""
    worlds = []
    for seed in SEEDS:
        world = DIRECTED_TESTS[scene](seed)
        world.run()
        if not not_injected(world):
            worlds.append(world)
        if len(worlds) == SHOWN_MIN:
            return worlds
    raise AssertionError(f"{scene}: reached in {len(worlds)} of {len(SEEDS)} worlds")


def scenes_of(number: int) -> list[str]:
    """Names of all scenes of a number."""
    return [name for name in DIRECTED_TESTS if name.startswith(f"{number} ")]


def incarnations_of(world: World, name: str) -> int:
    """Number of incarnations of a task that have started, without those to which it moved."""
    task = world.task(name)
    return len(world.oracle.incarnations[task]) - sum(moved == name for moved, _ in world.oracle.situations.moved)


def is_done(world: World) -> bool:
    """The job has ended well."""
    return isinstance(world.ending, JobDone)
