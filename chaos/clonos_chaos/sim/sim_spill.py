"""Simulated local disk of a slot, with random delays and failures, and memory budgets small enough to need it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random
from typing import TYPE_CHECKING

from clonos.core.model.options import Options, SpillPolicy
from clonos.core.slot.slot_events import SegmentLoaded, SegmentSpilled
from clonos_chaos.sim.virtual_clock import MILLISECOND_NS

if TYPE_CHECKING:
    from clonos_chaos.sim.sim_slot import SimSlot


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


def draw_budgets(options: Options, rng: Random) -> Options:
    """Makes the in-flight logs of every second world spill; in some, soft limits are reached.

    Budgets are not smaller than that, because the barriers of pending checkpoints alone would fill them.
    """
    if rng.random() < 0.5:
        return options
    return replace(
        options,
        spill_policy=rng.choice(tuple(SpillPolicy)),
        inflight_memory_bytes=rng.choice((6_000, 12_000, options.inflight_memory_bytes)),
    )


class SimSpill:
    """``SpillStore`` that performs one request after another, as a single background thread does."""

    def __init__(self, host: SimSlot) -> None:
        self.host, self.world, self.clock = host, host.world, host.world.clock
        self.environment: DiskEnvironment = host.world.settings.disk
        self.segments: dict[int, list[bytes]] = {}
        self._free_ns = 0  # when the disk has finished its queue

    def _count(self, what: str) -> None:
        reached = self.world.outcome.reached
        reached[what] = reached.get(what, 0) + 1

    def _fails(self, rate: float) -> bool:
        return rate > 0 and self.clock.rng.random() < rate

    def _due_ns(self) -> int:
        start_ns = max(self._free_ns, self.clock.now_ns)
        self._free_ns = start_ns + self.clock.between(10_000, self.environment.delay_ns_max)
        return self._free_ns

    def _failure(self, segment: int) -> str:
        return f"segment {segment} of slot {self.host.id}: the simulated disk failed"

    def write_segment(self, segment: int, payloads: list[bytes]) -> None:
        self.clock.at(self._due_ns(), self._written, segment, payloads)

    def _written(self, segment: int, payloads: list[bytes]) -> None:
        if self._fails(self.environment.write_failure):
            self._count("segment not written")
            self.host.run(self.host.handle, SegmentSpilled(segment, 0, self._failure(segment)))
            return
        self._count("segment written")
        self.world.oracle.situations.spilled(self.host.slot)
        self.segments[segment] = payloads
        self.host.run(self.host.handle, SegmentSpilled(segment, sum(map(len, payloads)), ""))

    def load(self, segment: int) -> None:
        self.clock.at(self._due_ns(), self._loaded, segment)

    def _loaded(self, segment: int) -> None:
        payloads = self.segments.get(segment)
        if payloads is None:
            return  # deleted meanwhile
        if self._fails(self.environment.load_failure):
            self._count("segment not loaded")
            self.host.run(self.host.handle, SegmentLoaded(segment, None, self._failure(segment)))
            return
        self._count("segment loaded")
        self.host.run(self.host.handle, SegmentLoaded(segment, payloads, ""))

    def delete(self, segment: int) -> None:
        # A segment that is still being written stays: a simulated disk is large.
        self.segments.pop(segment, None)
