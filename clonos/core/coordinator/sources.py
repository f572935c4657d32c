"""Control of sources beside triggers: that they end, hold, or read up to a limit (protocol 2.2, 4.2, 5.3).

The state is in the reports of the slots alone. So nothing is forgotten when a coordinator is replaced, and nothing is
left over when a rollback begins a new generation: limits are not reached yet, and watermarks lie where it has restored
them.
"""

from __future__ import annotations

from clonos.core.coordinator.coordinator_effects import Send
from clonos.core.coordinator.coordinator_state import CoordinatorState
from clonos.core.model.ids import TaskId
from clonos.core.model.progress import TaskCounter, TaskPhase
from clonos.core.model.watermark import END_OF_TIME_NS, INSTANT_NS_MIN
from clonos.core.wire.control_messages import DriftLimit, Hold, TaskStatus


def sources_to_end(state: CoordinatorState) -> frozenset[TaskId]:
    """Returns the sources in front of a step that has reached its limit."""
    reached = [task for task in state.plan.limited if _has_reached(state, task)]
    if not reached:
        return frozenset()
    return frozenset(
        source for source in state.plan.sources if any(task in state.plan.distances[source] for task in reached)
    )


def _has_reached(state: CoordinatorState, task: TaskId) -> bool:
    status = _status_of(state, task)
    return status is not None and bool(_counter(status, TaskCounter.LIMIT_REACHED))


def hold_sources(state: CoordinatorState) -> None:
    """Pauses all sources while a slot is above a soft limit, so that the elements in channels drain."""
    for above in state.over_soft_limit:
        _send_to_slots(state, state.plan.sources, Hold(above))
        return


def limit_drift(state: CoordinatorState) -> None:
    """Tells sources how far they may read: up to the watermark of the slowest other one, and the drift."""
    drift_ns = state.options.watermark_drift_max_ns
    if not drift_ns or len(sources := state.plan.timed_sources) < 2:
        return
    reached = sorted((reached_ns(state, task), task) for task in sources)
    (lowest_ns, slowest), (second_ns, _) = reached[:2]
    if lowest_ns < END_OF_TIME_NS:
        limits = [min(each + drift_ns, END_OF_TIME_NS) for each in (lowest_ns, second_ns)]
        _send_to_slots(state, sources, DriftLimit(limits[0], slowest, limits[1]))


def reached_ns(state: CoordinatorState, task: TaskId) -> int:
    """Returns the instant that other sources may pass by the drift only.

    A source that has ended or is idle holds nobody back: END_OF_TIME_NS. A source that its current incarnation has not
    reported holds all others back, because it may be anywhere.
    """
    status = _status_of(state, task)
    if status is None:
        return INSTANT_NS_MIN
    if status.phase is TaskPhase.FINAL:
        return END_OF_TIME_NS
    found = _counter(status, TaskCounter.WATERMARK_NS)
    return INSTANT_NS_MIN if found is None else found


def _send_to_slots(state: CoordinatorState, sources: tuple[TaskId, ...], message: Hold | DriftLimit) -> None:
    slots = {state.view.placements[task].slot for task in sources}
    for slot in sorted(slot for slot in slots if slot is not None and slot in state.addresses):
        state.emit(Send(slot, message))


def _status_of(state: CoordinatorState, task: TaskId) -> TaskStatus | None:
    """Returns what the current incarnation of a task has reported last."""
    placement = state.view.placements[task]
    status = None if placement.slot is None else state.statuses.get(placement.slot)
    for each in () if status is None else status.tasks:
        if each.task == task and each.incarnation == placement.incarnation:
            return each
    return None


def _counter(status: TaskStatus, wanted: TaskCounter) -> int | None:
    return next((value for name, value in status.counters if name is wanted), None)
