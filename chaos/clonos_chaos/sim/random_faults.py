"""Faults of a world: injected at random instants, or at named points of the protocol (``targeted_faults``)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any

from clonos.core.model.ids import SlotId, TaskId
from clonos.core.wire.messages import Message
from clonos.core.wire.replication_messages import AppendAck
from clonos.io.process.fault_points import FaultPoint
from clonos_chaos.sim.sim_cluster import SimCluster
from clonos_chaos.sim.sim_slot import SimSlot
from clonos_chaos.sim.targeted_faults import DRAWN, PointReached, TargetedFault, delivered, task_of, word_of
from clonos_chaos.sim.virtual_clock import MILLISECOND_NS
from clonos_chaos.sim.world_settings import SHORT_PAUSE

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

RESCALE = "rescale"
"""Not drawn with the others: a request of other widths, which is no fault."""

RESUME = "resume"
"""Not drawn with the others: all processes die, and the job is resumed with other widths."""

KILL_WITH_KEEPERS = "kill_with_keepers"
"""Not drawn at random: it loses a log, so that the job rolls back."""


class Faults:
    """Faults of a world: drawn, numbered from 0, and injected."""

    def __init__(self, world: SimCluster, only: Mapping[int, FaultRng] | None = None) -> None:
        """``only``: the drawn faults to inject, each with the state of its random stream; None: all of them."""
        self.world = world
        self.rng = world.fault_rng
        self.only = only
        self.injected: dict[int, DrawnFault] = {}
        self.targeted_faults: list[TargetedFault] = []
        self.count = self.rng.choice(world.settings.fault_counts)
        self.span_ms = self.rng.choice(world.settings.fault_span_ms)
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
        self._rescale()
        self._resume()
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

    def _rescale(self) -> None:
        """Adds changes of widths at random instants; in every second case a process dies soon after the request.

        Drawn from a separate random stream.
        """
        rng = Random(f"rescales of {self.world.seed}")
        for first in range(self.count + 2, self.count + 2 + 2 * self.world.settings.rescales, 2):
            delay_ns = int(rng.random() * rng.choice((20, 200, 500)) * MILLISECOND_NS)
            death_ns = delay_ns + int(rng.random() * rng.choice((20, 100, 300)) * MILLISECOND_NS)
            death = rng.choice((RESCALE, RESCALE, "kill", "kill", "kill_domain", "restart_coordinator"))
            for number, kind, due_ns in ((first, RESCALE, delay_ns), (first + 1, death, death_ns)):
                if self.only is None or number in self.only:
                    self._timed.append((due_ns, partial(self._inject_drawn, number, kind)))

    def _resume(self) -> None:
        """Lets every third world with changes of widths die as a whole, and resume with other widths.

        Drawn from a separate random stream.
        """
        world, number = self.world, self.count + 2 + 2 * self.world.settings.rescales
        rng = Random(f"resumes of {world.seed}")
        is_drawn = world.settings.rescales > 0 and rng.random() < 0.33
        if is_drawn and (self.only is None or number in self.only):
            delay_ns = int(rng.random() * rng.choice((50, 200, 500)) * MILLISECOND_NS)
            self._timed.append((delay_ns, partial(self._inject_drawn, number, RESUME)))

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
                    self.world.count(f"injected at {reached.point}")
                    self.world.clock.at(self.world.clock.now_ns, targeted.action, self.world, reached)
        return is_lost

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
        if slot is None or self.world.ending is not None or not self.world.view.number:
            return
        self.world.count(kind)
        lease_ms = self.world.options.lease_ms
        others = [other for other in self.world.living() if other is not slot]
        if kind == "kill":
            self.world.kill(slot)
        elif kind == RESCALE:
            self.world.request_some_widths(self.rng)
        elif kind == RESUME:
            self.world.restart_job(self.world.draw_widths(self.rng), self.rng.choice((1, 50, 500)))
        elif kind == KILL_WITH_KEEPERS:
            assert task is not None
            self.world.kill_tasks_with_keepers([task])
        elif kind == "kill_domain":
            self.world.kill_domain(slot.domain)
        elif kind == "kill_linked":
            self.world.kill(slot)
            self._kill_neighbour(slot)
        elif kind == "pause":
            self.world.pause(slot, self.rng.choice((lease_ms // 3, lease_ms * 2)))
        elif kind == SHORT_PAUSE:
            self.world.pause(slot, lease_ms // 3)
        elif kind == "cut" and others:
            self.world.cut(slot, self.rng.choice(others), self.rng.choice((1, 50, lease_ms * 2)))
        elif kind == "reset" and others:
            self.world.cut(slot, self.rng.choice(others), 0)
        elif kind == "half_open" and others:
            self.world.half_open(slot, self.rng.choice(others), self.rng.choice((5, 50, lease_ms)))
        elif kind == "false_suspicion":
            self.world.suspect(slot, self.rng.choice((5, 100, 1_000)))
        elif kind == "cut_coordinator":
            self.world.cut_coordinator(slot, self.rng.choice((1, 50, lease_ms * 2)))
        elif kind == "restart_coordinator":
            self.world.restart_coordinator(self.rng.choice((1, 50, 500)))

    def _kill_neighbour(self, slot: SimSlot) -> None:
        for task in slot.slot.hosted:
            for channel in self.world.plan.outputs[task]:
                other = None if channel.receiver is None else self.world.slot_of(channel.receiver)
                if other is not None and other is not slot:
                    delay = int(self.rng.choice((0, 1, 20, 120)) * MILLISECOND_NS * self.rng.random())
                    self.world.clock.after(delay, self.world.kill, other)
                    return
