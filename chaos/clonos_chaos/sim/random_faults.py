"""Faults of a world: injected at random instants, or at named points of the protocol (``targeted_faults``)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any

from clonos.core.coordinator.coordinator_events import SlotGone, SlotUnreachable
from clonos.core.model.ids import COORDINATOR, SlotId, TaskId
from clonos.core.slot.slot_events import PeerBack, PeerGone
from clonos.core.wire.messages import Message
from clonos.core.wire.replication_messages import AppendAck
from clonos.io.process.fault_points import FaultPoint
from clonos_chaos.sim.targeted_faults import DRAWN, PointReached, TargetedFault, delivered, task_of, word_of
from clonos_chaos.sim.virtual_clock import MILLISECOND_NS

if TYPE_CHECKING:
    from clonos_chaos.sim.sim_slot import SimSlot
    from clonos_chaos.swarm.world import World

KINDS = (
    *("kill", "kill", "kill", "kill", "kill_domain", "kill_linked", "pause", "cut", "reset", "half_open"),
    *("false_suspicion", "cut_coordinator", "restart_coordinator"),
)


FaultRng = tuple[Any, ...]
"""The state of a ``Random``."""


@dataclass(frozen=True)
class DrawnFault:
    """A drawn fault that was injected, with the state of the random stream that its choices came from."""

    kind: str
    at_ns: int
    task: TaskId | None
    rng: FaultRng


EXTERNAL_IS_SLOW_NS = 10 * MILLISECOND_NS
"""Above this delay, output on its way to an external system can arrive after a successor has registered there."""

KILL_WITH_KEEPERS = "kill_with_keepers"
"""Not drawn at random: it loses a log, so that the job rolls back."""

SHORT_PAUSE = "short_pause"
"""Drawn only when a world asks for it: a process pauses for less than its lease, which is not a failure."""


class Faults:
    """Faults of a world: drawn, numbered from 0, and injected."""

    def __init__(self, world: World, rng: Random, only: Mapping[int, FaultRng] | None = None) -> None:
        """``only``: the drawn faults to inject, each with the state of its random stream; None: all of them."""
        self.world = world
        self.rng = rng
        self.only = only
        self.injected: dict[int, DrawnFault] = {}
        self.killed = 0
        self.targeted_faults: list[TargetedFault] = []
        self.count = rng.choice(world.settings.fault_counts)
        self.span_ms = rng.choice(world.settings.fault_span_ms)
        self._timed: list[tuple[int, partial[None]]] = []  # (delay from the first view, injection)
        self.watched: set[str] = set()

    def schedule(self) -> None:
        """Draws the faults of this world and arms them."""
        for number in range(self.count):
            kind = self.rng.choice(self.world.settings.fault_kinds)
            is_wanted = self.only is None or number in self.only
            inject = partial(self._inject_drawn, number, kind)
            if self.rng.random() < 0.5:
                point, nth = self.rng.choice(DRAWN), self.rng.randint(1, 12)
                targeted = TargetedFault(point, lambda _, reached, inject=inject: inject(reached.task), nth=nth)  # type: ignore[misc]
                self.targeted_faults += [targeted] * is_wanted
            else:
                delay_ns = int(self.rng.random() * self.span_ms * MILLISECOND_NS)
                self._timed += [(delay_ns, inject)] * is_wanted
        self._suspect_a_writer()
        self._lose_a_writer()
        if self.targeted_faults:
            self.watched = {targeted.point for targeted in self.targeted_faults}
            if any(point.endswith((" sent", " delivered")) for point in self.watched):
                self.world.network.watch = self._watch

    def _suspect_a_writer(self) -> None:
        """Adds one fault to every second world where it can happen: a sink is suspected with output on its way.

        Without it, one world in several hundred would fence a sink. Drawn from a separate random stream.
        """
        world, number = self.world, self.count
        rng = Random(f"suspected writer of {world.seed}")
        is_slow = bool(world.externals) and world.settings.external_ns_max > EXTERNAL_IS_SLOW_NS
        is_drawn = is_slow and number > 0 and "false_suspicion" in world.settings.fault_kinds and rng.random() < 0.5
        if is_drawn and (self.only is None or number in self.only):
            inject = partial(self._inject_drawn, number, "false_suspicion")
            self.targeted_faults.append(
                TargetedFault(
                    delivered(AppendAck),
                    lambda _, reached: inject(reached.task),
                    lambda _, reached: reached.task in world.externals,
                    nth=rng.randint(1, 6),
                )
            )

    def _lose_a_writer(self) -> None:
        """Adds one fault to every second world with kills and with tables or streams: a sink dies together with all its
        keepers.

        The job then rolls back over rows that are in a table, or in a stream that drops what it has. Drawn from a
        separate random stream.
        """
        world, number = self.world, self.count + 1
        rng = Random(f"lost writer of {world.seed}")
        has_rows = any(external.withdraws or not external.knows_output for external in world.externals.values())
        is_drawn = has_rows and self.count and "kill" in world.settings.fault_kinds and rng.random() < 0.5
        if is_drawn and (self.only is None or number in self.only):
            inject = partial(self._inject_drawn, number, KILL_WITH_KEEPERS)
            nth = rng.randint(2, 12)
            self.targeted_faults.append(
                TargetedFault(FaultPoint.SINK_WRITTEN, lambda _, reached: inject(reached.task), nth=nth)
            )

    def first_view(self) -> None:
        """Arms the timed faults: the job runs from its first view on."""
        for delay_ns, inject in self._timed:
            self.world.clock.after(delay_ns, inject)

    # ------------------------------------------------------------------ points

    def _watch(self, what: str, sender: SlotId, receiver: SlotId, message: Message) -> bool:
        point = f"{word_of(message)} {what}"
        if point not in self.watched:
            return False
        return self.reached(PointReached(point, task_of(self.world, message), sender, receiver, message))

    def reached(self, reached: PointReached) -> bool:
        """Injects the faults that are due, before the next event of the world; returns whether the message is lost."""
        is_lost = False
        if reached.point in self.watched:
            for targeted in self.targeted_faults:
                if targeted.point == reached.point and targeted.satisfies(self.world, reached):
                    is_lost = is_lost or targeted.is_loss
                    self._count(f"injected at {reached.point}")
                    self.world.clock.at(self.world.clock.now_ns, targeted.action, self.world, reached)
        return is_lost

    def _count(self, what: str) -> None:
        reached = self.world.outcome.reached
        reached[what] = reached.get(what, 0) + 1

    # ------------------------------------------------------------------ drawn faults

    def _victim(self, task: TaskId | None) -> SimSlot | None:
        living = self.world.living()
        if task is not None and self.rng.random() < 0.8:
            named = self.world.slot_of(task)
            if named is not None:
                return named
        return self.rng.choice(living) if living else None

    def _inject_drawn(self, number: int, kind: str, task: TaskId | None = None) -> None:
        if self.only is not None:
            self.rng.setstate(self.only[number])
        self.injected[number] = DrawnFault(kind, self.world.clock.now_ns, task, self.rng.getstate())
        self.inject(kind, task)

    def inject(self, kind: str, task: TaskId | None = None) -> None:
        """Injects one fault of a kind, at a task or at a slot that it chooses."""
        slot = self._victim(task)
        if slot is None or self.world.ending is not None or not self.world.oracle.view.number:
            return
        self._count(kind)
        lease_ms = self.world.options.lease_ms
        others = [other for other in self.world.living() if other is not slot]
        if kind == "kill":
            self.kill(slot)
        elif kind == KILL_WITH_KEEPERS:
            assert task is not None
            self.kill_tasks_with_keepers([task])
        elif kind == "kill_domain":
            self.kill_domain(slot.domain)
        elif kind == "kill_linked":
            self.kill(slot)
            self._kill_neighbour(slot)
        elif kind == "pause":
            self.pause(slot, self.rng.choice((lease_ms // 3, lease_ms * 2)))
        elif kind == SHORT_PAUSE:
            self.pause(slot, lease_ms // 3)
        elif kind == "cut" and others:
            self.cut(slot, self.rng.choice(others), self.rng.choice((1, 50, lease_ms * 2)))
        elif kind == "reset" and others:
            self.cut(slot, self.rng.choice(others), 0)
        elif kind == "half_open" and others:
            self.half_open(slot, self.rng.choice(others), self.rng.choice((5, 50, lease_ms)))
        elif kind == "false_suspicion":
            self.suspect(slot, self.rng.choice((5, 100, 1_000)))
        elif kind == "cut_coordinator":
            self.cut_coordinator(slot, self.rng.choice((1, 50, lease_ms * 2)))
        elif kind == "restart_coordinator":
            self.world.restart_coordinator(self.rng.choice((1, 50, 500)))

    def _kill_neighbour(self, slot: SimSlot) -> None:
        for task in slot.slot.hosted:
            for channel in self.world.plan.outputs[task]:
                other = None if channel.receiver is None else self.world.slot_of(channel.receiver)
                if other is not None and other is not slot:
                    delay = int(self.rng.choice((0, 1, 20, 120)) * MILLISECOND_NS * self.rng.random())
                    self.world.clock.after(delay, self.kill, other)
                    return

    # ------------------------------------------------------------------ kinds

    def kill(self, slot: SimSlot) -> None:
        """Kills a slot as SIGKILL does: peers see the connection break, the provider reports the death."""
        self.kill_together([slot])

    def kill_domain(self, domain: str) -> None:
        """Kills all slots of a domain at once."""
        self.kill_together([slot for slot in self.world.living() if slot.domain == domain])

    def kill_tasks(self, tasks: Iterable[TaskId]) -> None:
        """Kills the slots of these tasks at once."""
        found = {slot.id: slot for task in tasks if (slot := self.world.slot_of(task)) is not None}
        self.kill_together(list(found.values()))

    def kill_tasks_with_keepers(self, tasks: Iterable[TaskId]) -> None:
        """Kills the slots of these tasks and of their keepers at once."""
        placements = [self.world.oracle.view.placements[task] for task in tasks]
        named = dict.fromkeys(slot for placement in placements for slot in (placement.slot, *placement.keepers))
        self.kill_together([self.world.slots[slot] for slot in named if slot in self.world.slots])

    def kill_together(self, slots: list[SimSlot]) -> None:
        """Kills several slots at one instant."""
        slots = [slot for slot in slots if not slot.is_dead]
        if slots and self.world.ending is None:
            self.world.oracle.dying([slot.id for slot in slots])
            for slot in slots:
                self._kill(slot)

    def _kill(self, slot: SimSlot) -> None:
        world, clock = self.world, self.world.clock
        self.killed += 1
        world.note(f"kill slot {slot.id} with tasks {sorted(slot.slot.hosted)}")
        slot.kill()
        for other in world.living():
            if self.rng.random() < 0.5:
                world.network.break_connection(slot.id, other.id)
            clock.after(clock.between(MILLISECOND_NS, 10 * MILLISECOND_NS), other.run, other.handle, PeerGone(slot.id))
        gone = SlotGone(slot.id, "killed", clock.now_ns)
        clock.after(clock.between(MILLISECOND_NS, 50 * MILLISECOND_NS), world.handle, gone)

    def pause(self, slot: SimSlot, pause_ms: int) -> None:
        """Pauses a slot as SIGSTOP and a later SIGCONT do: events for the process wait."""
        slot.pause(self.world.clock.now_ns + pause_ms * MILLISECOND_NS)
        self.world.note(f"pause slot {slot.id} with tasks {sorted(slot.slot.hosted)} for {pause_ms} ms")

    def cut(self, slot: SimSlot, other: SimSlot, cut_ms: int) -> None:
        """Cuts the connection between two slots for a while; both ends see it break."""
        world = self.world
        world.note(f"cut {slot.id} from {other.id} for {cut_ms} ms")
        world.network.cut(slot.id, other.id)
        self._see_break(slot, other)
        world.clock.after(cut_ms * MILLISECOND_NS, self._heal, slot, other)

    def half_open(self, slot: SimSlot, other: SimSlot, unseen_ms: int) -> None:
        """Drops what one slot sends to the other, unseen by both, until the connection breaks and is made again."""
        world = self.world
        world.note(f"half open from {slot.id} to {other.id} for {unseen_ms} ms")
        world.network.lose_way(slot.id, other.id)
        world.clock.after(unseen_ms * MILLISECOND_NS, self.cut, slot, other, 1)

    def _see_break(self, slot: SimSlot, other: SimSlot) -> None:
        clock = self.world.clock
        for here, there in ((slot, other), (other, slot)):
            clock.after(clock.between(100_000, 10 * MILLISECOND_NS), here.run, here.handle, PeerGone(there.id))

    def _heal(self, slot: SimSlot, other: SimSlot) -> None:
        world, clock = self.world, self.world.clock
        world.network.heal(slot.id, other.id)
        for here, there in ((slot, other), (other, slot)):
            due = 10 * MILLISECOND_NS + clock.between(0, MILLISECOND_NS)
            clock.after(due, here.run, here.handle, PeerBack(there.id))

    def cut_coordinator(self, slot: SimSlot, cut_ms: int) -> None:
        """Cuts the connection between a slot and the coordinator for a while."""
        world, clock = self.world, self.world.clock
        world.note(f"cut {slot.id} from the coordinator for {cut_ms} ms")
        world.network.cut(slot.id, COORDINATOR)
        clock.after(clock.between(100_000, 10 * MILLISECOND_NS), world.handle, SlotUnreachable(slot.id))
        clock.after(cut_ms * MILLISECOND_NS, world.network.heal, slot.id, COORDINATOR)

    def suspect(self, slot: SimSlot, lives_ms: int) -> None:
        """Reports a slot as gone to the coordinator, while the slot lives on for a while with all its connections."""
        world, clock = self.world, self.world.clock
        world.note(f"false suspicion of slot {slot.id} with tasks {sorted(slot.slot.hosted)}")
        world.handle(SlotGone(slot.id, "suspected", clock.now_ns))
        clock.after(lives_ms * MILLISECOND_NS, self.kill, slot)
