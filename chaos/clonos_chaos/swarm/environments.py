"""Environments of a swarm's worlds: drawn from the seed alone, or mixed, with a cluster and a fault mix per world.

Mixed draws come from a separate random stream and only on request, so that seeds keep their meaning.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from random import Random

from clonos_chaos.sim.random_faults import FaultRng
from clonos_chaos.sim.world_settings import KINDS, DiskEnvironment, WorldSettings
from clonos_chaos.swarm.world import KEYED, World


@dataclass(frozen=True)
class Swarm:
    """Common parameters of a swarm's worlds. ``topology``: empty for each in turn. ``is_rescaling``: widths change."""

    topology: str = ""
    is_mixed: bool = False
    is_rescaling: bool = False

    def world(
        self, seed: int, only_faults: Mapping[int, FaultRng] | None = None, records_max: int | None = None
    ) -> World:
        """Returns the world of a seed, or a smaller version of it."""
        settings = mixed_settings(seed) if self.is_mixed or self.is_rescaling else None
        if settings is not None and self.is_rescaling:
            settings = replace(settings, rescales=Random(f"count of rescales of {seed}").choice((1, 2, 3)))
        topology = self.topology
        if self.is_rescaling and not topology and Random(f"keyed job of {seed}").random() < 0.7:
            topology = KEYED
        return World(seed, topology, settings=settings, records_max=records_max, only_faults=only_faults)

    def arguments(self, seed: int) -> str:
        """Returns the command-line arguments that select one of its worlds."""
        topology = f" --topology {self.topology}" if self.topology else ""
        drawn = (" --mix" if self.is_mixed else "") + (" --rescale" if self.is_rescaling else "")
        return f"--from {seed} --to {seed}{topology}{drawn}"


def mixed_settings(seed: int) -> WorldSettings:
    """Draws an environment with its own cluster and mix of faults, as in swarm testing.

    A mix has some kinds of faults only, so that two faults of a kind coincide more often.
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
