"""A slot's local disk in the simulated world: slow, and failing, by luck."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from clonos_chaos.sim_slot import SimSlot


class SimSpill:
    """``SpillStore``: one thing after another, as one background thread does."""

    def __init__(self, host: SimSlot) -> None:
        self.host, self.world, self.clock = host, host.world, host.world.clock
        self.segments: dict[int, list[bytes]] = {}
        self._free_ns = 0  # when the disk is done with what it was asked

    def _count(self, what: str) -> None:
        reached = self.world.outcome.reached
        reached[what] = reached.get(what, 0) + 1

    def _fails(self) -> bool:
        rate = self.world.settings.spill_failure
        return rate > 0 and self.clock.luck.random() < rate

    def _due_ns(self) -> int:
        start_ns = max(self._free_ns, self.clock.now_ns)
        self._free_ns = start_ns + self.clock.between(10_000, self.world.settings.spill_ns_max)
        return self._free_ns

    def write_segment(self, segment: int, payloads: list[bytes]) -> None:
        self.clock.at(self._due_ns(), self._written, segment, list(payloads))

    def _written(self, segment: int, payloads: list[bytes]) -> None:
        slot = self.host.slot
        if self._fails():
            self._count("spill_failed")
            self.host.run(
                slot.on_spilled, segment, 0, f"segment {segment} of slot {slot.id}: the simulated disk failed"
            )
            return
        self._count("spilled")
        self.segments[segment] = payloads
        self.host.run(slot.on_spilled, segment, sum(map(len, payloads)), "")

    def load(self, segment: int) -> None:
        self.clock.at(self._due_ns(), self._loaded, segment)

    def _loaded(self, segment: int) -> None:
        slot = self.host.slot
        payloads = self.segments.get(segment)
        if payloads is None:
            return  # deleted meanwhile
        if self._fails():
            self._count("load_failed")
            reason = f"segment {segment} of slot {slot.id}: the simulated disk failed"
            self.host.run(slot.on_segment_loaded, segment, None, reason)
            return
        self._count("segment_loaded")
        self.host.run(slot.on_segment_loaded, segment, payloads, "")

    def delete(self, segment: int) -> None:
        # One that is still being written stays behind; a simulated disk is large.
        self.segments.pop(segment, None)
