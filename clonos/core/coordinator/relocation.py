"""Planned moves: a task that shares a slot since a loss moves to a standby on a slot without tasks (protocol 6.11).

A move is a recovery whose standby has everything but the current epoch: right after a checkpoint, one task at a time.
The task is suspended first, so that nothing of it is under way outside of the job when its successor begins. If that
takes longer than ``move_timeout``, the task goes on where it is.
"""

from __future__ import annotations

from clonos.core.coordinator.checkpoint_machine import Collecting
from clonos.core.coordinator.coordinator_effects import Alarm
from clonos.core.coordinator.coordinator_events import Received, Ticked
from clonos.core.coordinator.coordinator_state import CoordinatorState
from clonos.core.coordinator.failover import end_incarnation
from clonos.core.coordinator.failure_detector import NANOSECONDS
from clonos.core.coordinator.rescale_machine import Steady
from clonos.core.model.ids import TaskId
from clonos.core.model.progress import TaskCounter, TaskPhase
from clonos.core.placement.placement_rules import broken_rules
from clonos.core.wire.control_messages import SlotStatus

REASON = "it moves to a process of its own"


def tick(state: CoordinatorState, _event: Ticked) -> None:
    """Suspends a task that can move, at a tick of the running job."""
    if not state.is_running:
        return
    _give_up_if_late(state)
    if not _is_quiet(state):
        return
    task = next(filter(lambda task: _has_place(state, task), _sharing(state)), None)
    if task is not None:
        state.suspended_tasks[task] = state.awake_ns
        state.is_placement_due = True


def _give_up_if_late(state: CoordinatorState) -> None:
    """Lets a suspended task go on that has not ended what it had begun in time. This incarnation stays."""
    limit_ns = state.awake_ns - state.options.move_timeout_ms * NANOSECONDS
    waiting = [task for task in state.suspended_tasks if task not in state.failed_tasks]
    for task in [task for task in waiting if state.suspended_tasks[task] <= limit_ns]:
        del state.suspended_tasks[task]
        state.moves_given_up[task] = state.view.placements[task].incarnation
        state.emit(Alarm(_given_up_text(state, task)))
        state.is_placement_due = True


def _given_up_text(state: CoordinatorState, task: TaskId) -> str:
    return (
        f"{state.plan.task_name(task)} goes on in the process that it shares: calls that it had begun, or output that"
        f" its external system has to confirm, took longer than {state.options.move_timeout_ms / 1_000:g} s."
        " Raise move_timeout if it is to move"
    )


def on_status(state: CoordinatorState, event: Received) -> None:
    """Moves the tasks that are suspended on a slot, at its heartbeat."""
    if state.is_running:
        _move_suspended(state, event.message)


def _move_suspended(state: CoordinatorState, status: object) -> None:
    assert isinstance(status, SlotStatus)
    is_of_view = status.view >= state.view.number  # one before may tell of a suspension that was given up
    for task in status.tasks:
        is_ready = task.phase is TaskPhase.SUSPENDED and task.task in state.suspended_tasks and is_of_view
        if is_ready and task.task not in state.failed_tasks and state.is_current(task.task, task.incarnation):
            _move(state, task.task, dict(task.counters).get(TaskCounter.ROWS_WRITTEN, 0))


def _move(state: CoordinatorState, task: TaskId, confirmed_seq: int) -> None:
    """Takes the slot from a suspended task, so that a standby goes on. It does not count as a failure of the task."""
    ended, assigned = state.ledger.incarnations[task], state.assignment[task]
    assert ended is not None, task
    state.assignment = (*state.assignment[:task], assigned._replace(slot=None), *state.assignment[task + 1 :])
    end_incarnation(state, task, ended, REASON, is_move=True)
    state.failed_tasks[task] = False
    state.recovering_tasks[task] = None
    state.confirmed[task] = confirmed_seq


def _is_quiet(state: CoordinatorState) -> bool:
    """Returns whether a checkpoint has completed since the last failure, and no view, recovery or stop is under way.

    The next checkpoint may be pending, as it always is in a job whose checkpoints take longer than their interval.
    """
    recovers = state.recovering_tasks or state.open_recoveries or state.is_rollback_due or state.suspended_tasks
    is_under_way = state.behind_view or state.is_draining or state.is_placement_due
    is_alone = isinstance(state.rescale, Steady)
    is_new = is_alone and state.completed.checkpoint > state.failed_at and isinstance(state.checkpoints, Collecting)
    return is_new and not recovers and not is_under_way


def _sharing(state: CoordinatorState) -> list[TaskId]:
    """Returns the task of each shared slot that may move, ascending: the last to come, so that the others go on.

    A task with a journal stays, because its producer need not find it in another slot. A task with effects outside
    of the job stays if it has no keepers: its successor would not find what it has done.
    """
    if not state.options.move_tasks or len(state.hosted) == len(state.plan.tasks):
        return []
    began = [placement.incarnation for placement in state.view.placements]
    found = []
    for tasks in state.hosted.values():
        if len(tasks) > 1 and (free := [task for task in tasks if _may_move(state, task)]):
            found.append(max(free, key=began.__getitem__))
    return sorted(found)


def _may_move(state: CoordinatorState, task: TaskId) -> bool:
    is_fixed = state.plan.is_journalled(task) or (not state.options.keepers and task in state.plan.with_keepers)
    has_given_up = state.moves_given_up.get(task) == state.view.placements[task].incarnation
    return state.phases.get(task) is TaskPhase.LIVE and not is_fixed and not has_given_up


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
