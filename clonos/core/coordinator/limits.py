"""Ends of sources by a limit: when a step has let its records through, the sources in front of it end their input
(protocol 5).

The state is in the reports of the slots alone. So nothing is forgotten when a coordinator is replaced, and nothing is
left over when a rollback begins a new generation, whose limits are not reached yet.
"""

from __future__ import annotations

from clonos.core.coordinator.coordinator_state import CoordinatorState
from clonos.core.model.ids import TaskId
from clonos.core.model.progress import TaskCounter
from clonos.core.wire.control_messages import TaskStatus


def sources_to_end(state: CoordinatorState) -> frozenset[TaskId]:
    """Returns the sources in front of a step that has reached its limit."""
    reached = [task for task in state.plan.limited if _has_reached(state, task)]
    if not reached:
        return frozenset()
    return frozenset(
        source for source in state.plan.sources if any(task in state.plan.distances[source] for task in reached)
    )


def _has_reached(state: CoordinatorState, task: TaskId) -> bool:
    placement = state.view.placements[task]
    status = None if placement.slot is None else state.statuses.get(placement.slot)
    if status is None:
        return False
    return any(
        each.task == task and each.incarnation == placement.incarnation and _shows_limit(each) for each in status.tasks
    )


def _shows_limit(status: TaskStatus) -> bool:
    return any(name is TaskCounter.LIMIT_REACHED and value > 0 for name, value in status.counters)
