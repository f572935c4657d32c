"""Triggers of faults: a fault waits for its instant and a quiescent job, or sets a breakpoint at a fault point."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from clonos.core.model.errors import JobError
from clonos.core.model.progress import SETTLED_PHASES
from clonos.io.process.fault_points import FaultPoint, FaultPointReached
from clonos.status import Status
from clonos_chaos.real.fault_point_server import Breakpoint, FaultPointServer
from clonos_chaos.scenario.scenario import (
    FAULT_POINTS,
    STATUS_POINTS,
    FaultKind,
    FaultSpec,
    FaultTrigger,
    Pattern,
    is_fault_point,
)
from clonos_chaos.scenario.victims import Shape, tasks_of
from clonos_chaos.sim.targeted_faults import POINTS, is_of_message

PATIENCE_S: Final = 15.0
"""Longest wait for a missing standby or keeper."""

PATIENCE_OF_MOVES_S: Final = 60.0
"""Longest wait until a task has moved out of a shared slot, after a new process, its standby and a checkpoint."""

OF_THE_DRIVER: Final = (FaultPoint.METADATA_BEGUN, FaultPoint.METADATA_WRITTEN, FaultPoint.COMMITTED)


@dataclass(slots=True)
class PlannedFault:
    """Fault that is still to be injected, or repeated. ``asked_s``: when its trigger first fired."""

    fault: FaultSpec
    left: int
    victim: str = ""
    asked_s: float = 0.0
    breakpoint: Breakpoint | None = None

    @staticmethod
    def of(fault: FaultSpec) -> PlannedFault:
        """Makes a planned fault. Raises JobError: real processes have no such point."""
        point = fault.at.point
        is_here = point in STATUS_POINTS or point in FAULT_POINTS or is_of_message(point)
        if point and not (is_here and not point.endswith(" sent")):
            where = (
                "can be reached in the simulated world only (--simulated)"
                if is_here or point in POINTS
                else "is unknown"
            )
            raise JobError(
                f"the point {point!r} {where};"
                f" real processes have: {', '.join((*STATUS_POINTS, *FAULT_POINTS))}, <message> delivered."
            )
        return PlannedFault(fault, fault.count if fault.pattern is Pattern.IN_A_ROW else 1)


@dataclass(frozen=True, slots=True)
class Look:
    """State of the job at one instant. ``live_since_s`` 0: not all tasks have been live yet.

    ``with_keepers``: tasks that have keepers. ``killed``: incarnations whose death the coordinator may not know yet.
    """

    now_s: float
    live_since_s: float
    status: Status
    shape: Shape
    standbys: int
    with_keepers: Collection[str]
    killed: Mapping[str, int]
    is_disturbed: bool  # by a fault with a duration
    records: int
    slots_usual: int = 0

    def may_inject(self, fault: FaultSpec) -> bool:
        """Returns whether the conditions of a fault hold."""
        has_slots = not fault.all_slots or (len(self.status.slots) >= self.slots_usual and self.is_spread)
        return has_slots and (self.is_quiescent or not fault.quiescent)

    @property
    def is_spread(self) -> bool:
        """Returns whether no two tasks share a slot, as after a death, until one of them has moved."""
        return len({task.slot for task in self.status.tasks}) == len(self.status.tasks)

    @property
    def is_quiescent(self) -> bool:
        """Returns whether every task is live, its standbys and keepers could take over, and no fault is active."""
        return is_whole(self.status, self.standbys, self.with_keepers) and not self.is_disturbed

    @property
    def has_unnoticed_death(self) -> bool:
        """Returns whether the coordinator has not noticed the last death yet."""
        return any(self.killed.get(task.name) == task.incarnation for task in self.status.tasks)


def is_live(status: Status) -> bool:
    """Returns whether all tasks run, and recovered tasks have caught up."""
    latest = {one.task: one for one in status.recoveries}
    phases = {task.phase for task in status.tasks}
    return bool(phases) and phases <= SETTLED_PHASES and all(one.is_over for one in latest.values())


def is_whole(status: Status, standbys: int, with_keepers: Collection[str]) -> bool:
    """Returns whether all tasks are live, and their standbys and keepers could take over."""
    has_standbys = not standbys or all(task.standbys for task in status.tasks)
    return is_live(status) and has_standbys and all(task.keepers for task in status.tasks if task.name in with_keepers)


class FaultTriggers:
    """Triggers of a run. ``fault_point_server``: None when no fault waits at a fault point."""

    def __init__(self, fault_point_server: FaultPointServer | None) -> None:
        self._fault_point_server = fault_point_server
        self._look: Look | None = None

    def is_due(self, planned: PlannedFault, look: Look) -> bool:
        """Returns whether a fault is to be injected now."""
        self._look = look
        fault = planned.fault
        if is_fault_point(fault.at.point):
            return self._is_hit(planned, look)
        if not planned.asked_s:
            if not _has_fired(fault.at, look):
                return False
            planned.asked_s = look.now_s
        if look.has_unnoticed_death:
            return False
        if fault.at.point == "recovering" or fault.kind is FaultKind.KILL_DRIVER or look.may_inject(fault):
            return True
        patience_s = PATIENCE_OF_MOVES_S if fault.all_slots else PATIENCE_S
        return look.now_s - planned.asked_s > patience_s and is_live(look.status)

    def _is_hit(self, planned: PlannedFault, look: Look) -> bool:
        if planned.breakpoint is not None:
            return planned.breakpoint.hit is not None
        planned.asked_s = planned.asked_s or look.now_s
        is_patient = look.now_s - planned.asked_s < PATIENCE_S or not is_live(look.status)
        fault = planned.fault
        if (
            (fault.quiescent or fault.all_slots)
            and is_patient
            and (look.has_unnoticed_death or not look.may_inject(fault))
        ):
            return False
        planned.breakpoint = self._set_breakpoint(planned, look.shape)
        return False

    def _set_breakpoint(self, planned: PlannedFault, shape: Shape) -> Breakpoint:
        at = planned.fault.at
        step = at.task or planned.fault.victim
        names = set(tasks_of(shape, step))

        def where(reached: FaultPointReached) -> bool:
            found = self._task_of(reached, names)
            if found and not at.task and not planned.victim:
                planned.victim = found
            return bool(found) or at.point in OF_THE_DRIVER

        assert self._fault_point_server is not None, "a scenario with fault points has a server for them"
        return self._fault_point_server.set_breakpoint(at.point, nth=at.nth, where=where)

    def _task_of(self, reached: FaultPointReached, names: Collection[str]) -> str:
        """Returns which of these tasks has reached a point; a point of a whole slot counts for its task."""
        if reached.task or self._look is None:
            return reached.task if reached.task in names else ""
        there = [task.name for task in self._look.status.tasks if task.pid == reached.pid and task.name in names]
        return there[0] if there else ""


def _has_fired(at: FaultTrigger, look: Look) -> bool:
    status = look.status
    if at.seconds is not None:
        return look.now_s - look.live_since_s >= at.seconds
    if at.records is not None:
        return look.records >= at.records
    if at.point == "checkpoint":
        return status.checkpoint >= at.nth
    begun = [one for one in status.recoveries if "view" in one.reached]
    return len(begun) >= at.nth and not begun[at.nth - 1].is_over
