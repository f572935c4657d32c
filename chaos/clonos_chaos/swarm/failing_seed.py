"""Reports of failing seeds: a command that reproduces the shrunk world, and the events of the tasks concerned."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from clonos_chaos.sim.random_faults import FaultRng
from clonos_chaos.sim.virtual_clock import MILLISECOND_NS
from clonos_chaos.swarm.environments import Swarm
from clonos_chaos.swarm.event_log import excerpt_of, with_short_slots
from clonos_chaos.swarm.shrinking import SECONDS_MAX, Failure, Shrunk, chosen, failure_of, shrink
from clonos_chaos.swarm.world import World

GOOD = 0
BAD = 1


def shrunk_seed(seed: int, swarm: Swarm, seconds_max: float = SECONDS_MAX) -> Shrunk | None:
    """Returns the smallest failing world found for a seed; None where the seed does not fail."""
    whole = failure_of(swarm.world(seed))
    if whole is None:
        return None
    return shrink(partial(_world, swarm, seed), whole, whole.world.job.records, seconds_max)


def _world(swarm: Swarm, seed: int, only_faults: Mapping[int, FaultRng] | None, records_max: int | None) -> World:
    return swarm.world(seed, only_faults, records_max)


def command_of(seed: int, swarm: Swarm, shrunk: Shrunk) -> str:
    """Returns the command line that reproduces a shrunk world."""
    faults = ",".join(map(str, shrunk.faults)) or "none"
    records = "" if shrunk.records is None else f" --records {shrunk.records}"
    return f"clonos chaos seeds {swarm.arguments(seed)} --only-faults {faults}{records}"


def failure_report(failure: Failure) -> str:
    """Formats what failed, in which environment, and the last events of the tasks concerned."""
    world = failure.world
    kind = "" if type(failure.error).__name__ == "WorldFailed" else f"{type(failure.error).__name__}: "
    return with_short_slots(
        world,
        "\n".join(
            (
                f"seed {world.seed} ({world.job.name}): {kind}{failure.complaint}",
                f"{world.options}\n{world.settings}\n{world.plan.vertices}",
                excerpt_of(world, failure.complaint),
            )
        ),
    )


def seed_report(seed: int, swarm: Swarm, known: str) -> str:
    """Formats the report of a failing seed. ``known``: report of its first run, if the failure does not repeat."""
    shrunk = shrunk_seed(seed, swarm)
    if shrunk is None:
        return f"clonos chaos seeds {swarm.arguments(seed)}\nIt failed once, but not when it was run again.\n{known}"
    injected = [f"fault {number}: {each.kind} at {each.at_ns // MILLISECOND_NS} ms" for number, each in shrunk.injected]
    size = f"{len(shrunk.faults)} faults, {shrunk.failure.world.job.records} records, after {shrunk.tries} tries"
    lines = [command_of(seed, swarm, shrunk), f"shrunk to {size}", *injected, failure_report(shrunk.failure)]
    return "\n".join(lines)


def show_again(seed: int, swarm: Swarm, faults: tuple[int, ...] | None, records: int | None) -> int:
    """Runs one smaller world and prints a report if it fails. Returns the exit code."""
    failure = failure_of(chosen(partial(_world, swarm, seed), faults, records))
    if failure is None:
        print(f"seed {seed} does not fail in this world")
        return GOOD
    print(f"FAILED: {failure_report(failure)}")
    return BAD
