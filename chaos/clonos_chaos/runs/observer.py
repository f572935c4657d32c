"""Observer of a simulated world, as the runner observes real processes: samples, recoveries, healthy tasks.

It looks between the world's events and adds no event, so that a world is the same with and without it.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from clonos.job.status_view import build_status
from clonos.status import RecoveryState, Status
from clonos_chaos.checks.verdict import contradictions
from clonos_chaos.scenario.run_record import RunRecord, has_moved
from clonos_chaos.scenario.scenario_oracle import Findings
from clonos_chaos.sim.external_systems import SimAsked
from clonos_chaos.sim.virtual_clock import MILLISECOND_NS

if TYPE_CHECKING:
    from clonos_chaos.sim.sim_slot import SimSlot
    from clonos_chaos.swarm.world import World

LOOK_EVERY_NS: Final = 2 * MILLISECOND_NS
INSTANT, ANSWER = 3, 5
"""Indices in an entry of a row's lineage."""


class Observer:
    """Observer that fills the record of a run in ``world``."""

    def __init__(self, world: World, record: RunRecord) -> None:
        self.world, self.record = world, record
        self._recoveries: dict[tuple[str, int], RecoveryState] = {}
        self._known: dict[str, int] = {}  # incarnations
        self._may_restart: set[str] = set()  # tasks that may restart
        self._next_ns = 0
        self._step = world.clock.step
        world.clock.step = self._step_and_look  # type: ignore[method-assign]

    def _step_and_look(self) -> None:
        self._step()
        if self.world.clock.now_ns >= self._next_ns and self.world.ending is None:
            self._next_ns = self.world.clock.now_ns + LOOK_EVERY_NS
            self._look()

    def _look(self) -> None:
        coordinator = self.world.coordinator
        if coordinator.is_dead or coordinator.machine.view is None:
            return
        status = build_status("", False, (), coordinator.machine)
        self.record.add_sample(status, self.world.clock.now_ns, LOOK_EVERY_NS)
        self.record.generations.add(coordinator.machine.generation)
        self._take(status)

    def _take(self, status: Status) -> None:
        for recovery in status.recoveries:
            self._recoveries[recovery.task, recovery.failed_incarnation] = recovery
        for task in status.tasks:
            before = self._known.get(task.name, task.incarnation)
            is_free = task.name in self._may_restart or has_moved(status, task)
            if before != task.incarnation and not is_free:
                self.record.disturbed.append(f"{task.name} {before} -> {task.incarnation}")
            self._known[task.name] = task.incarnation

    def expect_restarts(self, slots: list[SimSlot]) -> dict[str, int]:
        """Returns the tasks in these slots with their incarnations, and takes note that they may restart."""
        placements = self.world.view.placements
        affected = {slot.id for slot in slots}
        found: dict[str, int] = {
            self.world.plan.task_name(p.task): p.incarnation for p in placements if p.slot in affected
        }
        self._may_restart |= found.keys()
        return found

    def sum_up(self) -> None:
        """Completes the record at the end: the last recoveries, and the findings if the job has ended well."""
        coordinator = self.world.coordinator.machine
        if coordinator.view is not None:
            self._take(build_status("", False, (), coordinator))
        self.record.recoveries = list(self._recoveries.values())
        if not self.record.failure:
            self.record.findings = findings_of(self.world)


def findings_of(world: World) -> Findings:
    """Counts the findings again, from committed rows and the log of the service.

    The lineage of a row says when it was read and when the sink received it. Tasks raise on disorder themselves.
    """
    rows = [row for committed in world.committed.values() for row in committed]
    counted = Counter(row[0] for row in rows)
    expected, copies = world.job.expected(), world.job.copies
    visible = {entry[ANSWER] for _, lineage, *_ in rows for entry in lineage}
    asked: dict[Any, list[SimAsked]] = {}
    for call in world.job.service.answers:
        asked.setdefault((call.question, call.generation), []).append(call)
    again = [calls for calls in asked.values() if len(calls) > 1]
    epoch_ns = world.clock.epoch_ns
    return Findings(
        records=len(expected),
        lost=sum(max(0, copies - counted[offset]) for offset in expected),
        duplicated=sum(max(0, count - copies) for count in counted.values()),
        contradicted=len(contradictions(rows)),
        calls=len(world.job.service.answers),
        calls_repeated=sum(len(calls) - 1 for calls in again),
        calls_needless=sum(not visible.isdisjoint({call.answer for call in calls[:-1]}) for calls in again),
        keys_changed=sum(len({call.key for call in calls}) > 1 for calls in again),
        rows=sorted((lineage[-1][INSTANT] - epoch_ns, lineage[0][INSTANT] - epoch_ns) for _, lineage, *_ in rows),
    )
