"""Cluster of a simulated world: its slots and its coordinator, and what can be done to them and their connections."""

from __future__ import annotations

from abc import ABC
from collections.abc import Iterable, Mapping
from random import Random

from clonos.core.coordinator.coordinator_events import Event, RescaleRequested, SlotGone, SlotUnreachable
from clonos.core.model.ids import COORDINATOR, SlotId, TaskId
from clonos.core.slot.slot_events import PeerBack, PeerGone
from clonos_chaos.sim.environment import SimEnvironment
from clonos_chaos.sim.sim_coordinator import SimCoordinator
from clonos_chaos.sim.sim_slot import SimSlot
from clonos_chaos.sim.virtual_clock import MILLISECOND_NS

WIDTHS = (1, 1, 2, 2, 3, 4)
"""Widths that are drawn for a step."""


class SimCluster(SimEnvironment, ABC):
    """Processes in their environment. ``fault_rng``: the random stream of the faults."""

    slots: dict[SlotId, SimSlot]
    coordinator: SimCoordinator
    fault_rng: Random
    killed = 0
    expects_divergence = False  # the code of a task is to do something else in its replay, which is no crash
    _domain_turn = 0
    _requests = 0  # of other widths

    def living(self) -> list[SimSlot]:
        """Returns the slots whose process runs."""
        return [slot for slot in self.slots.values() if not slot.is_dead]

    def slot_of(self, task: TaskId) -> SimSlot | None:
        """Returns the living slot to which the latest view assigns a task."""
        placements = self.view.placements
        slot = self.slot_at(placements[task].slot) if 0 <= task < len(placements) else None
        return slot if slot is not None and not slot.is_dead else None

    def slot_at(self, slot: SlotId | None) -> SimSlot | None:
        """Returns a slot by its id, dead or not; None for a task without a slot."""
        return None if slot is None else self.slots.get(slot)

    def add_slot(self) -> None:
        """Starts a slot in the next domain in turn, unless the job has ended."""
        if self.ending is not None:
            return
        slot_id = SlotId(self.clock.rng.getrandbits(62) + 1)
        self._domain_turn += 1
        slot = self.slots[slot_id] = SimSlot(self, slot_id, f"domain{self._domain_turn % self.settings.domains}")
        slot.register()
        self.clock.after(self.clock.between(0, 25 * MILLISECOND_NS), slot.tick)

    def end_slot(self, slot_id: SlotId) -> None:
        """Ends a process, as the provider does."""
        slot = self.slots.get(slot_id)
        if slot is not None and not slot.is_dead:
            self.oracle.dying([slot_id])
            slot.kill()

    @property
    def slots_needed(self) -> int:
        """The slots with which the job begins."""
        needed = -(-len(self.declared.tasks) // self.settings.tasks_a_slot) + self.settings.spare_slots
        return max(2, needed)  # one slot may be a keeper's

    def has_died(self, slot_id: SlotId) -> bool:
        return self.slots[slot_id].is_dead

    # ------------------------------------------------------------------ the coordinator

    def handle(self, event: Event) -> None:
        """Passes an event to the current coordinator."""
        self.coordinator.handle(event)

    def restart_coordinator(self, down_ms: int) -> None:
        """Kills the coordinator; after a while another one claims the next term."""
        if self.ending is None and self.coordinator.is_current and not self.coordinator.is_dead:
            self.note(f"coordinator {self.coordinator.term} dies")
            self.coordinator.is_dead = True
            self.clock.after(down_ms * MILLISECOND_NS, self.replace_coordinator, 0)

    def replace_coordinator(self, pause_ms: int) -> None:
        """Starts a coordinator that claims the next term; the earlier one, if alive, resumes after a pause."""
        self.coordinator.paused_until_ns = self.clock.now_ns + pause_ms * MILLISECOND_NS
        self.coordinator = SimCoordinator(self, self.store_term + 1)
        self.note(f"coordinator {self.coordinator.term} begins")
        for slot in self.living():
            self.network.break_connection(COORDINATOR, slot.id)
        self.coordinator.begin(self.slots_needed)

    def draw_widths(self, rng: Random) -> dict[str, int]:
        """Draws a width for each step whose width may change."""
        return {step: rng.choice(WIDTHS) for step in self.scalable}

    def restart_job(self, widths: Mapping[str, int], down_ms: int) -> None:
        """Kills all processes at one instant, once there is a checkpoint; after a while the job is resumed with other
        widths."""
        coordinator = self.coordinator
        if not self.scalable or self.ending is not None:
            return
        if not self.chain or coordinator.is_dead or not coordinator.is_current:
            self.clock.after(10 * MILLISECOND_NS, self.restart_job, widths, down_ms)
            return
        self.note(f"coordinator {coordinator.term} dies with all slots")
        coordinator.is_dead = True
        self.kill_together(self.living())
        self.clock.after(down_ms * MILLISECOND_NS, self._resume_job, widths)

    def _resume_job(self, widths: Mapping[str, int]) -> None:
        self.kill_together(self.living())  # those that the dead coordinator had requested
        if not self.chain[max(self.chain)].is_final:
            self.resume_at(widths, self.store_term + 1)
        for _ in range(self.slots_needed):
            self.add_slot()
        self.replace_coordinator(0)

    def request_some_widths(self, rng: Random) -> None:
        """Asks the coordinator for a change of drawn widths."""
        steps = rng.sample(self.scalable, rng.randint(1, len(self.scalable))) if self.scalable else ()
        widths = tuple((step, rng.choice(WIDTHS)) for step in steps)
        self.request_widths(widths, is_placed_anew=rng.random() < 0.4)

    def request_widths(self, widths: tuple[tuple[str, int], ...], *, is_placed_anew: bool = False) -> None:
        """Asks the coordinator for a change of widths, or of places."""
        self._requests += 1
        self.note(f"request {self._requests} of a change of widths: {widths}" + " and places" * is_placed_anew)
        self.handle(RescaleRequested(self._requests, widths, self.clock.now_ns, is_placed_anew))

    # ------------------------------------------------------------------ what can be done to them

    def kill(self, slot: SimSlot) -> None:
        """Kills a slot as SIGKILL does: peers see the connection break, the provider reports the death."""
        self.kill_together([slot])

    def kill_domain(self, domain: str) -> None:
        """Kills all slots of a domain at once."""
        self.kill_together([slot for slot in self.living() if slot.domain == domain])

    def kill_tasks(self, tasks: Iterable[TaskId]) -> None:
        """Kills the slots of these tasks at once."""
        found = {slot.id: slot for task in tasks if (slot := self.slot_of(task)) is not None}
        self.kill_together(list(found.values()))

    def kill_tasks_with_keepers(self, tasks: Iterable[TaskId]) -> None:
        """Kills the slots of these tasks and of their keepers at once."""
        placements = [self.view.placements[task] for task in tasks]
        named = dict.fromkeys(slot for placement in placements for slot in (placement.slot, *placement.keepers))
        self.kill_together([self.slots[slot] for slot in named if slot in self.slots])

    def kill_together(self, slots: list[SimSlot]) -> None:
        """Kills several slots at one instant."""
        slots = [slot for slot in slots if not slot.is_dead]
        if slots and self.ending is None:
            self.oracle.dying([slot.id for slot in slots])
            for slot in slots:
                self._kill(slot)

    def _kill(self, slot: SimSlot) -> None:
        clock = self.clock
        self.killed += 1
        self.note(f"kill slot {slot.id} with tasks {sorted(slot.slot.hosted)}")
        slot.kill()
        for other in self.living():
            if self.fault_rng.random() < 0.5:
                self.network.break_connection(slot.id, other.id)
            clock.after(clock.between(MILLISECOND_NS, 10 * MILLISECOND_NS), other.run, other.handle, PeerGone(slot.id))
        gone = SlotGone(slot.id, "killed", clock.now_ns)
        clock.after(clock.between(MILLISECOND_NS, 50 * MILLISECOND_NS), self.handle, gone)

    def pause(self, slot: SimSlot, pause_ms: int) -> None:
        """Pauses a slot as SIGSTOP and a later SIGCONT do: events for the process wait."""
        slot.pause(self.clock.now_ns + pause_ms * MILLISECOND_NS)
        self.note(f"pause slot {slot.id} with tasks {sorted(slot.slot.hosted)} for {pause_ms} ms")

    def cut(self, slot: SimSlot, other: SimSlot, cut_ms: int) -> None:
        """Cuts the connection between two slots for a while; both ends see it break."""
        self.note(f"cut {slot.id} from {other.id} for {cut_ms} ms")
        self.network.cut(slot.id, other.id)
        self._see_break(slot, other)
        self.clock.after(cut_ms * MILLISECOND_NS, self._heal, slot, other)

    def half_open(self, slot: SimSlot, other: SimSlot, unseen_ms: int) -> None:
        """Drops what one slot sends to the other, unseen by both, until the connection breaks and is made again."""
        self.note(f"half open from {slot.id} to {other.id} for {unseen_ms} ms")
        self.network.lose_way(slot.id, other.id)
        self.clock.after(unseen_ms * MILLISECOND_NS, self.cut, slot, other, 1)

    def _see_break(self, slot: SimSlot, other: SimSlot) -> None:
        clock = self.clock
        for here, there in ((slot, other), (other, slot)):
            clock.after(clock.between(100_000, 10 * MILLISECOND_NS), here.run, here.handle, PeerGone(there.id))

    def _heal(self, slot: SimSlot, other: SimSlot) -> None:
        clock = self.clock
        self.network.heal(slot.id, other.id)
        for here, there in ((slot, other), (other, slot)):
            due = 10 * MILLISECOND_NS + clock.between(0, MILLISECOND_NS)
            clock.after(due, here.run, here.handle, PeerBack(there.id))

    def cut_coordinator(self, slot: SimSlot, cut_ms: int) -> None:
        """Cuts the connection between a slot and the coordinator for a while."""
        clock = self.clock
        self.note(f"cut {slot.id} from the coordinator for {cut_ms} ms")
        self.network.cut(slot.id, COORDINATOR)
        clock.after(clock.between(100_000, 10 * MILLISECOND_NS), self.handle, SlotUnreachable(slot.id))
        clock.after(cut_ms * MILLISECOND_NS, self.network.heal, slot.id, COORDINATOR)

    def suspect(self, slot: SimSlot, lives_ms: int) -> None:
        """Reports a slot as gone to the coordinator, while the slot lives on for a while with all its connections."""
        clock = self.clock
        self.note(f"false suspicion of slot {slot.id} with tasks {sorted(slot.slot.hosted)}")
        self.handle(SlotGone(slot.id, "suspected", clock.now_ns))
        clock.after(lives_ms * MILLISECOND_NS, self.kill, slot)
