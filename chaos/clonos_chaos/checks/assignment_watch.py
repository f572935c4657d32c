"""Oracle of assignments: the coordinator places missing standbys and keepers in other processes without delay.

Until another process keeps a task's log again, the next death of the task may cost a rollback. Tasks do not move.
"""

from __future__ import annotations

from clonos.core.coordinator import checkpoint_machine
from clonos.core.coordinator.coordinator_state import CoordinatorState
from clonos.core.model.ids import SlotId
from clonos_chaos.sim.sim_cluster import SimCluster
from clonos_chaos.sim.virtual_clock import MILLISECOND_NS

TICKS_MAX = 1
"""Ticks of the coordinator within which a view must name the missing standbys and keepers."""


class AssignmentWatch:
    """Oracle that compares the assignment of a world's coordinator with the slots that it knows."""

    def __init__(self, world: SimCluster) -> None:
        self._world = world
        self._lacking_ns = -1  # since when a standby or keeper has been missing that could be placed
        self._view = -1  # the view in force at that time

    def look(self) -> None:
        """Fails the world when a standby or keeper has been missing for too long."""
        world, now_ns = self._world, self._world.clock.now_ns
        state = world.coordinator.machine._state
        if not self._is_free(state):
            self._lacking_ns = -1
            return
        lacking = _lacking(state)
        if not lacking:
            self._lacking_ns = -1
        elif self._lacking_ns < 0 or self._view != state.view.number:  # in a new view, others have died since
            self._lacking_ns, self._view = now_ns, state.view.number
        elif now_ns - self._lacking_ns > TICKS_MAX * world.options.heartbeat_ms * MILLISECOND_NS // 2:
            names = ", ".join(world.plan.task_name(task) for task in lacking)
            world.fail(f"{names} could have standbys and keepers in other processes, and no view names them")

    def _is_free(self, state: CoordinatorState) -> bool:
        """Returns whether the coordinator could issue a view now."""
        coordinator = self._world.coordinator
        is_awake = not coordinator.is_dead and coordinator.paused_until_ns <= self._world.clock.now_ns
        is_ready = is_awake and coordinator.is_current and state.is_running and bool(state.assignment)
        is_waiting = isinstance(state.checkpoints, checkpoint_machine.Committing)
        return is_ready and not is_waiting and not state.is_switch_due(state.view)  # its output and state come first


def _lacking(state: CoordinatorState) -> list[int]:
    """Returns tasks with fewer standbys or keepers in other processes or domains than they need and could have."""
    domains = state.domains()
    found = []
    for task, (targets, placed) in enumerate(zip(state.targets, state.assignment, strict=True)):
        if placed.slot not in domains:
            continue
        others = [slot for slot in domains if slot != placed.slot]
        elsewhere = [slot for slot in others if domains[slot] != domains[placed.slot]]
        for backups, wanted in ((placed.standbys, targets.standbys), (placed.keepers, targets.keepers)):
            if _count(backups, others) < min(wanted, len(others)) or _count(backups, elsewhere) < min(
                wanted, len(elsewhere)
            ):
                found.append(task)
                break
    return found


def _count(backups: tuple[SlotId, ...], among: list[SlotId]) -> int:
    return sum(slot in among for slot in backups)
