"""Worlds of a swarm: drawn from a seed alone, or mixed, where each world also draws its own cluster and fault mix.

Mixed draws come from a stream of their own and only where they are asked for, so that seeds keep their meaning.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from random import Random

from clonos_chaos.sim.random_faults import KINDS, FaultRng
from clonos_chaos.sim.sim_spill import DiskEnvironment
from clonos_chaos.swarm.world import World, WorldSettings


@dataclass(frozen=True)
class Swarm:
    """What the worlds of a swarm have in common. ``topology``: empty for each in turn."""

    topology: str = ""
    is_mixed: bool = False

    def world(
        self, seed: int, only_faults: Mapping[int, FaultRng] | None = None, records_max: int | None = None
    ) -> World:
        """The world of a seed, perhaps a smaller one."""
        settings = mixed_settings(seed) if self.is_mixed else None
        return World(seed, self.topology, settings=settings, records_max=records_max, only_faults=only_faults)

    def arguments(self, seed: int) -> str:
        """How the command line names one of them."""
        topology = f" --topology {self.topology}" if self.topology else ""
        return f"--from {seed} --to {seed}{topology}{' --mix' if self.is_mixed else ''}"


def mixed_settings(seed: int) -> WorldSettings:
    """Weather in which each world has a cluster and a mix of faults of its own, as swarm testing wants it.

    A mix: some kinds of faults and no others, so that two of a kind meet more often than where all kinds are alike.
    """
    rng = Random(f"mix of {seed}")
    kinds = sorted(set(KINDS))
    mix = rng.sample(kinds, rng.choice((1, 2, 3, len(kinds))))
    return replace(
        WorldSettings.draw(rng),
        disk=DiskEnvironment.draw(rng),
        tasks_a_slot=rng.choice((1, 1, 2, 3)),
        spare_slots=rng.choice((0, 1, 2, 4)),
        domains=rng.choice((2, 3, 5, 20)),
        fault_counts=(rng.choice((0, 1, 2, 4, 8, 12)),),
        fault_span_ms=(rng.choice((20, 50, 200, 1_000)),),
        fault_kinds=tuple(mix),
    )
