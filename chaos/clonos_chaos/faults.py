"""Faults of a world: at random instants, or aimed at the n-th time that a named point of the protocol is reached."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from clonos.core import coordination as c
from clonos.core import messages as m
from clonos.core.ids import COORDINATOR, SlotId, TaskId
from clonos_chaos.clockwork import MILLISECOND_NS

if TYPE_CHECKING:
    from clonos_chaos.sim_slot import SimSlot
    from clonos_chaos.world import World

KINDS = ("kill", "kill", "kill", "kill_domain", "kill_task", "kill_linked", "pause", "cut", "false_suspicion")
POINTS = ("snapshot_written", "metadata", "call", "outside_written", "view", "batch", "barrier", "answer", "update", "kept")


class Faults:
    """Draws what goes wrong."""

    def __init__(self, world: World, luck: Random) -> None:
        self.world = world
        self.luck = luck
        self.killed = 0
        self.aims: list[tuple[str, int, str]] = []  # (point, how many times still, kind)
        self.count = luck.choice((0, 1, 1, 2, 3, 5, 8))
        self.span_ms = luck.choice((50, 200, 1_000))

    def schedule(self) -> None:
        """Sets the faults of this world up."""
        for _ in range(self.count):
            kind = self.luck.choice(KINDS)
            if self.luck.random() < 0.5:
                self.aims.append((self.luck.choice(POINTS), self.luck.randint(1, 12), kind))
            else:
                self.world.clock.after(int(self.luck.random() * self.span_ms * MILLISECOND_NS), self.strike, kind)
        if self.aims:
            self.world.network.watch = self._watch

    def _watch(self, what: str, _sender: SlotId, _receiver: SlotId, message: m.Message) -> None:
        if what != "delivered":
            return
        match message:
            case m.Batch(kind=kind, channel=channel):
                self.reached("barrier" if kind == 2 else "batch", self.world.plan.channels[channel].sender)
            case m.Answer(task=task):
                self.reached("answer", task)
            case m.StandbyUpdate(task=task):
                self.reached("update", task)
            case m.Kept(task=task):
                self.reached("kept", task)

    def reached(self, point: str, task: TaskId) -> None:
        """Counts down; strikes at the next instant, at whoever the point is about."""
        for number, (name, left, kind) in enumerate(self.aims):
            if name == point:
                if left > 1:
                    self.aims[number] = (name, left - 1, kind)
                else:
                    del self.aims[number]
                    self.world.clock.at(self.world.clock.now_ns, self.strike, kind, task)
                return

    # ------------------------------------------------------------------ kinds

    def _victim(self, task: int) -> SimSlot | None:
        placements = self.world.oracle.view.placements
        living = [slot for slot in self.world.slots.values() if not slot.is_dead]
        if 0 <= task < len(placements):
            named = self.world.slots.get(placements[task].slot)
            if named is not None and not named.is_dead and self.luck.random() < 0.8:
                return named
        return self.luck.choice(living) if living else None

    def strike(self, kind: str, task: int = -1) -> None:
        """One fault."""
        slot = self._victim(task)
        if slot is None or self.world.ending is not None or not self.world.oracle.view.number:
            return
        reached = self.world.outcome.reached
        reached[kind] = reached.get(kind, 0) + 1
        if kind == "kill_domain":
            for other in [s for s in self.world.slots.values() if s.domain == slot.domain and not s.is_dead]:
                self.kill(other)
        elif kind == "kill_linked":
            self.kill(slot)
            self._kill_neighbour(slot)
        elif kind == "pause":
            self._pause(slot)
        elif kind == "cut":
            self._cut(slot)
        elif kind == "false_suspicion":
            self._suspect(slot)
        else:
            self.kill(slot)

    def _kill_neighbour(self, slot: SimSlot) -> None:
        plan, placements = self.world.plan, self.world.oracle.view.placements
        for task in slot.slot.hosted:
            for channel in plan.outputs[task]:
                if channel.receiver >= 0:
                    other = self.world.slots.get(placements[channel.receiver].slot)
                    if other is not None and not other.is_dead:
                        delay = int(self.luck.choice((0, 1, 20, 120)) * MILLISECOND_NS * self.luck.random())
                        self.world.clock.after(delay, self.kill, other)
                        return

    def kill(self, slot: SimSlot) -> None:
        """SIGKILL: peers see the connection break, the provider reports it."""
        if slot.is_dead:
            return
        world, clock = self.world, self.world.clock
        self.killed += 1
        world.note(f"kill slot {slot.id} with tasks {sorted(slot.slot.hosted)}")
        slot.kill()
        for other in world.slots.values():
            if other is not slot and not other.is_dead:
                if self.luck.random() < 0.5:
                    world.network.break_connection(slot.id, other.id)
                clock.after(clock.between(MILLISECOND_NS, 10 * MILLISECOND_NS), other.run, other.slot.on_peer_gone, slot.id)
        gone = c.SlotGone(slot.id, "killed", clock.now_ns)
        clock.after(clock.between(MILLISECOND_NS, 50 * MILLISECOND_NS), world.handle, gone)

    def _pause(self, slot: SimSlot) -> None:
        lease_ms = self.world.options.lease_ms
        pause_ms = self.luck.choice((lease_ms // 3, lease_ms * 2))
        slot.paused_until_ns = self.world.clock.now_ns + pause_ms * MILLISECOND_NS
        self.world.note(f"pause slot {slot.id} with tasks {sorted(slot.slot.hosted)} for {pause_ms} ms")

    def _cut(self, slot: SimSlot) -> None:
        world, clock = self.world, self.world.clock
        others = [s for s in world.slots.values() if s is not slot and not s.is_dead]
        if not others:
            return
        other = self.luck.choice(others)
        world.note(f"cut {slot.id} from {other.id}")
        world.network.cut(slot.id, other.id)
        cut_ms = self.luck.choice((1, 50, world.options.lease_ms * 2))
        for here, there in ((slot, other), (other, slot)):
            clock.after(clock.between(100_000, 10 * MILLISECOND_NS), here.run, here.slot.on_peer_gone, there.id)
        clock.after(cut_ms * MILLISECOND_NS, self._heal, slot, other)

    def _heal(self, slot: SimSlot, other: SimSlot) -> None:
        world, clock = self.world, self.world.clock
        world.network.heal(slot.id, other.id)
        for here, there in ((slot, other), (other, slot)):
            due = 10 * MILLISECOND_NS + clock.between(0, MILLISECOND_NS)
            clock.after(due, here.run, here.slot.on_peer_back, there.id)

    def _suspect(self, slot: SimSlot) -> None:
        """The coordinator is told that a slot is gone, which lives on for a while, cut from nobody."""
        world, clock = self.world, self.world.clock
        world.note(f"false suspicion of slot {slot.id} with tasks {sorted(slot.slot.hosted)}")
        world.handle(c.SlotGone(slot.id, "suspected", clock.now_ns))
        clock.after(self.luck.choice((5, 100, 1000)) * MILLISECOND_NS, self.kill, slot)


__all__ = ["COORDINATOR", "Faults"]
