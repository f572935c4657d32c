"""Status of a job, built from the coordinator's machine in the coordinator's thread."""

from __future__ import annotations

from collections import Counter
from typing import assert_never

from clonos.connectors.html_table import html_table
from clonos.core.coordinator.coordinator import Coordinator
from clonos.core.coordinator.coordinator_state import JobPhase
from clonos.core.coordinator.failure_policy import Recovery
from clonos.core.coordinator.rescale_machine import Cutting, Ordering, State, Steady, Switching, Warming
from clonos.core.model.ids import TaskId
from clonos.core.model.metric_series import late_records
from clonos.core.model.plan import Plan
from clonos.core.model.progress import TaskCounter, TaskPhase
from clonos.core.model.watermark import END_OF_TIME_NS, INSTANT_NS_MIN
from clonos.core.wire.control_messages import Register, SlotStatus, TaskStatus
from clonos.core.wire.printable import escaped
from clonos.status import (
    RESCALE_TEXTS,
    CheckpointState,
    Phase,
    RecoveryState,
    RescalePhase,
    RescaleState,
    SlotState,
    Status,
    TaskState,
)

PHASES = {
    JobPhase.IDLE: Phase.STARTING,
    JobPhase.LISTENING: Phase.STARTING,
    JobPhase.STARTING: Phase.STARTING,
    JobPhase.RUNNING: Phase.RUNNING,
    JobPhase.CLOSING: Phase.STOPPING,
    JobPhase.OVER: Phase.ENDED,
    JobPhase.REPLACED: Phase.ENDED,
}


def build_status(job_id: str, is_stopping: bool, alarms: tuple[str, ...], coordinator: Coordinator) -> Status:
    """Builds the status from what the coordinator knows now."""
    view, plan = coordinator.view, coordinator.plan
    phase = PHASES[coordinator.phase]
    counters = {task: _displayed(status) for task, status in coordinator.task_statuses.items()}
    totals: Counter[str] = Counter()
    for found in counters.values():
        totals.update(found)
    for counter in (TaskCounter.WATERMARK_NS, TaskCounter.RESTORED_PERMILLE):  # whose sums mean nothing
        totals.pop(counter, None)
    return Status(
        job=plan.job_name,
        phase=Phase.STOPPING if is_stopping and phase is not Phase.ENDED else phase,
        job_id=job_id,
        checkpoint=coordinator.checkpoint,
        generation=coordinator.generation & 0xFFFFFFFF,
        view=0 if view is None else view.number,
        slots=tuple(_slot(each, coordinator.slot_status(each.slot)) for each in coordinator.slots),
        tasks=_tasks(plan, coordinator, counters),
        recoveries=tuple(recovery_state(each) for each in coordinator.recoveries if not each.is_move),
        moves=tuple(recovery_state(each) for each in coordinator.recoveries if each.is_move),
        rescale=rescale_state(coordinator),
        alarms=alarms,
        totals=dict(totals),
    )


def rescale_state(coordinator: Coordinator) -> RescaleState | None:
    """Returns the last change of widths or places; None if none was asked for."""
    state, refusals = coordinator.rescale, dict(coordinator.rescale_refusals)
    phase, widths, text, checkpoint = rescale_phase(state), tuple[tuple[str, int], ...](), "", 0
    match state:
        case Steady(request=0, refusal=""):
            return None
        case Steady(refusal=text):
            pass
        case Ordering(widths=widths) | Warming(widths=widths):
            pass
        case Cutting(widths=widths, checkpoint=checkpoint):
            pass
        case Switching():
            cut, view = coordinator.completed, coordinator.view
            widths = cut.widths
            checkpoint = cut.checkpoint if view is not None and view.generation == cut.generation else 0
    now = coordinator.plan.widths
    other = {name: to for name, to in widths if now.get(name) != to}
    return RescaleState(state.request, phase, other, text or RESCALE_TEXTS[phase], refusals, checkpoint)


def rescale_phase(state: State) -> RescalePhase:
    """Returns the phase of a change of widths by the state of its machine."""
    match state:
        case Steady(refusal=""):
            return RescalePhase.DONE
        case Steady():
            return RescalePhase.REFUSED
        case Ordering():
            return RescalePhase.ORDERING
        case Warming():
            return RescalePhase.WARMING
        case Cutting():
            return RescalePhase.CUTTING
        case Switching():
            return RescalePhase.SWITCHING
        case _:
            assert_never(state)


def _slot(register: Register, status: SlotStatus | None) -> SlotState:
    usage = (0.0, 0) if status is None else (status.cpu_ms / 1e3, status.resident_bytes)
    return SlotState(register.slot, register.pid, register.domain, register.host, *usage)


def _displayed(status: TaskStatus) -> dict[str, int]:
    """Returns the counters of a task with its late records, and without the watermark of a source that has none yet, is
    idle or has ended."""
    found: dict[str, int] = dict(status.counters)
    if found.get(TaskCounter.WATERMARK_NS, 0) in (INSTANT_NS_MIN, END_OF_TIME_NS):
        del found[TaskCounter.WATERMARK_NS]
    if late := late_records(status.metrics):
        found[TaskCounter.LATE_RECORDS] = sum(late.values())
    return found


def _tasks(plan: Plan, coordinator: Coordinator, counters: dict[TaskId, dict[str, int]]) -> tuple[TaskState, ...]:
    view = coordinator.view
    if view is None:
        return ()
    registers = {register.slot: register for register in coordinator.slots}
    survived = coordinator.losses_survived()
    phases, statuses = coordinator.phases, coordinator.task_statuses
    found = []
    for task in plan.tasks:
        placement = view.placements[task]
        status = statuses.get(task)
        hot = None if status is None else status.hot_key
        register = None if placement.slot is None else registers.get(placement.slot)
        found.append(
            TaskState(
                name=plan.task_name(task),
                incarnation=placement.incarnation,
                slot=placement.slot or 0,
                pid=0 if register is None else register.pid,
                domain="" if register is None else register.domain,
                phase=_phase(coordinator, phases.get(task, TaskPhase.WAITING), register is not None),
                counters=counters.get(task, {}),
                standbys=coordinator.standbys_ready(task),
                keepers=coordinator.keepers_ready(task),
                hot_standbys=coordinator.standbys_hot(task),
                hot_key="" if hot is None else escaped(hot.key),
                hot_key_share=0.0 if hot is None else min(100, hot.percent) / 100,
                losses_survived=survived[task],
                latencies=() if status is None else status.latencies,
                metrics=() if status is None else status.metrics,
            )
        )
    return tuple(found)


def _phase(coordinator: Coordinator, reported: TaskPhase, has_slot: bool) -> TaskPhase:
    """Returns the phase of a task. ``reported``: what its slot said last, also before the job ended."""
    if coordinator.phase is JobPhase.OVER:
        return TaskPhase.FINAL if reported is TaskPhase.FINAL else TaskPhase.ENDED
    return reported if has_slot else TaskPhase.WAITING


def recovery_state(recovery: Recovery) -> RecoveryState:
    """Returns a recovery or a move as the status has it."""
    return RecoveryState(
        task=recovery.name,
        failed_incarnation=recovery.failed or 0,
        incarnation=recovery.incarnation or 0,
        cause=recovery.cause,
        reached={milestone.value: at_ns for milestone, at_ns in recovery.reached},
        replayed_records=recovery.replayed_records,
        replayed_calls=recovery.replayed_calls,
        executed_calls=recovery.executed_calls,
    )


def checkpoint_states(coordinator: Coordinator) -> tuple[CheckpointState, ...]:
    """Returns the last checkpoints that the coordinator has begun, oldest first."""
    pending = frozenset(coordinator.pending)
    return tuple(
        CheckpointState(
            int(times.number), times.begun_ns, times.completed_ns, times.number in pending, times.size_bytes
        )
        for times in coordinator.checkpoint_times
    )


def status_html(status: Status) -> str:
    """Returns a table of the tasks for notebooks."""
    count = len(status.recoveries)
    recoveries = f", {count} {'recovery' if count == 1 else 'recoveries'}" if count else ""
    caption = f"{status.job} is {status.phase.value}, checkpoint {status.checkpoint}{recoveries}"
    hosts = {slot.slot: slot.host for slot in status.slots}
    rows = (
        (task.name, task.phase.value, hosts.get(task.slot, ""), task.pid, task.standbys, task.keepers)
        for task in status.tasks
    )
    return html_table(("task", "phase", "host", "pid", "standbys", "keepers"), rows, caption)
