"""Planned moves: a task that shares a slot since a loss moves to a standby on a slot without tasks (protocol 6.11).

A move is a recovery whose standby has everything but the current epoch: right behind a checkpoint, one task at a time.
"""

from __future__ import annotations

from clonos.core.coordinator import event_handlers
from clonos.core.coordinator.checkpoint_machine import Collecting
from clonos.core.coordinator.coordinator_events import Ticked
from clonos.core.coordinator.coordinator_state import CoordinatorState
from clonos.core.coordinator.failover import end_incarnation
from clonos.core.model.ids import TaskId
from clonos.core.model.progress import TaskPhase
from clonos.core.placement.placement_rules import broken_rules

REASON = "it moves to a process of its own"


def tick(state: CoordinatorState, event: Ticked) -> None:
    """Does what is due at a tick of the running job, and then begins a move if one is possible."""
    event_handlers.tick(state, event)
    if not state.is_running or not _is_quiet(state):
        return
    task = next(filter(lambda task: _has_place(state, task), _sharing(state)), None)
    if task is not None:
        _move(state, task)


def _move(state: CoordinatorState, task: TaskId) -> None:
    """Takes the slot from a live task, so that a standby goes on. It does not count as a failure of the task."""
    ended, assigned = state.ledger.incarnations[task], state.assignment[task]
    assert ended is not None, task
    state.assignment = (*state.assignment[:task], assigned._replace(slot=None), *state.assignment[task + 1 :])
    end_incarnation(state, task, ended, REASON, is_move=True)
    state.failed_tasks[task] = False
    state.recovering_tasks[task] = None


def _is_quiet(state: CoordinatorState) -> bool:
    """Returns whether a checkpoint has completed since the last failure, and nothing is under way."""
    recovers = state.recovering_tasks or state.open_recoveries or state.is_rollback_due
    is_under_way = state.behind_view or state.ledger.pending or state.is_draining or state.is_rebalance_due
    is_new = state.completed.checkpoint > state.failed_at and isinstance(state.checkpoints, Collecting)
    return is_new and not recovers and not is_under_way


def _sharing(state: CoordinatorState) -> list[TaskId]:
    """Returns the tasks that came last into a slot with others and may move, ascending: those that were there go on.

    A task that acts on an external system, or receives records from one, stays: until its slot has the next view, two
    incarnations would do so.
    """
    if not state.options.rebalance or len(state.hosted) == len(state.plan.tasks):
        return []
    began = [placement.incarnation for placement in state.view.placements]
    shared = sorted(max(tasks, key=began.__getitem__) for tasks in state.hosted.values() if len(tasks) > 1)
    fixed = frozenset(state.plan.with_keepers) if shared else frozenset()
    return [task for task in shared if task not in fixed and state.phases.get(task) is TaskPhase.LIVE]


def _has_place(state: CoordinatorState, task: TaskId) -> bool:
    """Returns whether the standbys of a task are on slots without tasks, and one has reached the last checkpoint."""
    standbys = [slot for slot in state.assignment[task].standbys if slot in state.addresses]
    if any(state.hosted.get(slot) for slot in standbys):
        return False
    reached = (task, state.completed.checkpoint)
    ready = [slot for slot in standbys if slot in state.statuses and reached in state.statuses[slot].standbys]
    if not ready:
        return False
    slots = [assigned.slot for assigned in state.assignment]
    slots[task] = ready[0]
    return not broken_rules(state.plan, state.rules, slots, state.domains(), state.hosts())
