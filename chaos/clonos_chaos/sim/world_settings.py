"""Settings of a simulated world: delays, failure rates, cluster and faults; and its outcome."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from clonos_chaos.sim.network import DELAYS_NS
from clonos_chaos.sim.virtual_clock import MILLISECOND_NS, SECOND_NS

KINDS = (
    *("kill", "kill", "kill", "kill", "kill_domain", "kill_linked", "pause", "cut", "reset", "half_open"),
    *("false_suspicion", "cut_coordinator", "restart_coordinator"),
)

SHORT_PAUSE = "short_pause"
"""Drawn only when a world asks for it: a process pauses for less than its lease, which is not a failure."""


@dataclass(frozen=True)
class DiskEnvironment:
    """Delays and failure rates of the local disks of a world."""

    delay_ns_max: int = 5 * MILLISECOND_NS  # of one write or load
    write_failure: float = 0.0
    load_failure: float = 0.0

    @staticmethod
    def draw(rng: Random) -> DiskEnvironment:
        """Draws delays and failure rates."""
        return DiskEnvironment(
            delay_ns_max=rng.choice((MILLISECOND_NS // 10, 5 * MILLISECOND_NS, 100 * MILLISECOND_NS)),
            write_failure=rng.choice((0.0, 0.0, 0.1, 0.5)),
            load_failure=rng.choice((0.0, 0.0, 0.02)),
        )


@dataclass(frozen=True)
class WorldSettings:
    """Environment of a world: delays, failure rates, cluster and faults. ``draw`` makes a random one."""

    step_ns_max: int = 2 * MILLISECOND_NS
    call_ns_max: int = 5 * MILLISECOND_NS
    store_ns_max: int = 20 * MILLISECOND_NS
    external_ns_max: int = 5 * MILLISECOND_NS
    store_failure: float = 0.0
    disk: DiskEnvironment = DiskEnvironment()
    network_ns_max: int = 2 * MILLISECOND_NS
    control_loss: float = 0.0
    is_encoding: bool = False
    fresh_slot_ns_max: int = SECOND_NS
    domains: int = 3
    spare_slots: int = 1
    tasks_a_slot: int = 1
    fault_counts: tuple[int, ...] = (0, 1, 1, 2, 3, 5, 8)  # one of these is drawn
    fault_span_ms: tuple[int, ...] = (50, 200, 1_000)  # from the first view on
    fault_kinds: tuple[str, ...] = KINDS  # of which each fault is one; a kind named twice is drawn twice as often
    rescales: int = 0  # changes of widths, beside the other faults
    patience_ms: int = 30_000  # a world without a view, a checkpoint or a fault for this long is stuck
    look_every: int = 64  # messages between two looks at all logs

    @staticmethod
    def draw(rng: Random) -> WorldSettings:
        """Draws a random environment."""
        return WorldSettings(
            step_ns_max=rng.choice((MILLISECOND_NS // 5, 2 * MILLISECOND_NS, 10 * MILLISECOND_NS)),
            store_ns_max=rng.choice((MILLISECOND_NS, 20 * MILLISECOND_NS, 200 * MILLISECOND_NS)),
            external_ns_max=rng.choice((MILLISECOND_NS, 30 * MILLISECOND_NS)),
            store_failure=rng.choice((0.0, 0.0, 0.1)),
            network_ns_max=rng.choice(DELAYS_NS),
            control_loss=rng.choice((0.0, 0.0, 0.02, 0.2)),
            is_encoding=rng.random() < 0.2,
            domains=rng.choice((2, 3, 20)),
            spare_slots=rng.choice((0, 1, 2)),
        )


@dataclass
class WorldOutcome:
    """Result of a world."""

    seed: int
    digest: str = ""
    delivered: int = 0
    views: int = 0
    rollbacks: int = 0
    checkpoints: int = 0
    virtual_ms: int = 0
    reached: dict[str, int] = field(default_factory=dict)
