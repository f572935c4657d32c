"""Simulated local disk of a slot, with random delays and failures."""

from __future__ import annotations

from clonos.core.recovery.recovery_machine import Replaying
from clonos.core.slot.slot_events import SegmentLoaded, SegmentSpilled
from clonos_chaos.sim.rare_situations import SPILL_IN_REPLAY
from clonos_chaos.sim.sim_process import SimProcess


class SimSpill:
    """``SpillStore`` that performs one request after another, as a single background thread does."""

    def __init__(self, host: SimProcess) -> None:
        self.host, self.world, self.clock = host, host.world, host.world.clock
        self.environment = host.world.settings.disk
        self.segments: dict[int, list[bytes]] = {}
        self._free_ns = 0  # when the disk has finished its queue

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
            self.world.count("segment not written")
            self.host.run(self.host.handle, SegmentSpilled(segment, 0, self._failure(segment)))
            return
        self.world.count("segment written")
        if any(isinstance(hosted.state, Replaying) for hosted in self.host.slot.hosted.values()):
            self.world.count(SPILL_IN_REPLAY)
        self.segments[segment] = payloads
        self.host.run(self.host.handle, SegmentSpilled(segment, sum(map(len, payloads)), ""))

    def load(self, segment: int) -> None:
        self.clock.at(self._due_ns(), self._loaded, segment)

    def _loaded(self, segment: int) -> None:
        payloads = self.segments.get(segment)
        if payloads is None:
            return  # deleted meanwhile
        if self._fails(self.environment.load_failure):
            self.world.count("segment not loaded")
            self.host.run(self.host.handle, SegmentLoaded(segment, None, self._failure(segment)))
            return
        self.world.count("segment loaded")
        self.host.run(self.host.handle, SegmentLoaded(segment, payloads, ""))

    def delete(self, segment: int) -> None:
        # A segment that is still being written stays: a simulated disk is large.
        self.segments.pop(segment, None)
