"""Options and cluster of worlds with chosen faults only: quick, with short leases and small steps."""

from __future__ import annotations

from typing import Final

from clonos.core.model.options import Options
from clonos_chaos.sim.virtual_clock import MILLISECOND_NS
from clonos_chaos.sim.world_settings import WorldSettings

OPTIONS: Final = Options(
    move_tasks=True,
    heartbeat_ms=50,
    lease_ms=500,
    checkpoint_every_ms=30,
    step_records_max=3,
    step_records_first=3,
    failures_per_epoch_max=50,
    calls_ahead_max=1,
)
SETTINGS: Final = WorldSettings(
    step_ns_max=3 * MILLISECOND_NS,
    call_ns_max=2 * MILLISECOND_NS,
    store_ns_max=10 * MILLISECOND_NS,
    external_ns_max=3 * MILLISECOND_NS,
    network_ns_max=MILLISECOND_NS,
    fresh_slot_ns_max=200 * MILLISECOND_NS,
    domains=20,
    patience_ms=5_000,
    look_every=8,
)
