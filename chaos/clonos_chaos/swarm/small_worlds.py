"""Small worlds with many faults, short leases and short timeouts, in which a wrong rule shows soon."""

from __future__ import annotations

from random import Random

from clonos.core.model.options import Options
from clonos_chaos.jobs.fuzz_jobs import FUZZ_TOPOLOGIES, draw_job
from clonos_chaos.sim.virtual_clock import MILLISECOND_NS
from clonos_chaos.swarm.world import World, WorldSettings


def world(seed: int) -> World:
    """Returns the world of a seed."""
    rng = Random(f"probing {seed}")
    options = Options(
        rebalance=True,
        heartbeat_ms=50,
        lease_ms=300,
        checkpoint_every_ms=rng.choice((20, 60)),
        standbys=rng.choice((0, 1, 1)),
        sharing_depth=rng.choice((None, None, 1)),
        step_records_max=rng.choice((1, 3, 8)),
        step_records_first=rng.choice((1, 3)),
        credit_window_bytes=rng.choice((1, 600, 1 << 20)),
        snapshot_chain_max=rng.choice((2, 16)),
        failures_per_epoch_max=30,
    )
    settings = WorldSettings(
        step_ns_max=5 * MILLISECOND_NS,
        call_ns_max=2 * MILLISECOND_NS,
        store_ns_max=rng.choice((2, 20)) * MILLISECOND_NS,
        network_ns_max=rng.choice((1, 5)) * MILLISECOND_NS,
        control_loss=rng.choice((0.0, 0.1)),
        fresh_slot_ns_max=100 * MILLISECOND_NS,
        domains=rng.choice((2, 3, 20)),
        fault_counts=(3, 6, 9, 12),
        fault_span_ms=(100, 300),
        patience_ms=3_000,
        look_every=16,
    )
    topology = FUZZ_TOPOLOGIES[seed % len(FUZZ_TOPOLOGIES)]
    return World(
        seed,
        options=options,
        settings=settings,
        job=lambda rng: draw_job(topology, rng, rng.randint(60, 120), options.sharing_depth),
    )
