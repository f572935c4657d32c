"""Control of sources: that they begin a checkpoint, end, hold, or read up to a limit (protocol 2.2, 4.2, 5.3).

The state is in the reports of the slots alone. So nothing is forgotten when a coordinator is replaced, and nothing is
left over when a rollback begins a new generation: limits are not reached yet, and watermarks lie where it has restored
them.
"""

from __future__ import annotations

from clonos.core.coordinator.coordinator_effects import Alarm, Send
from clonos.core.coordinator.coordinator_state import CoordinatorState, StandingWatermark
from clonos.core.model.ids import TaskId
from clonos.core.model.progress import TaskCounter, TaskPhase
from clonos.core.model.watermark import END_OF_TIME_NS, INSTANT_NS_MIN
from clonos.core.wire.control_messages import DriftLimit, Hold, TaskStatus, TriggerCheckpoint

STANDING_MS = 60_000
"""Time after which a watermark that does not rise is reported."""

NANOSECONDS_PER_MS = 1_000_000


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


def trigger_sources(state: CoordinatorState) -> None:
    """Sends the highest pending checkpoint to every source that lacks it; it replaces the earlier ones."""
    if not state.ledger.pending:
        return
    pending = state.ledger.pending[-1]
    ending = sources_to_end(state)
    for task in state.plan.sources:
        placement = state.view.placements[task]
        if task in pending.acknowledged or task in state.failed_tasks or placement.slot is None:
            continue
        trigger = TriggerCheckpoint(task, placement.incarnation, pending.number, pending.then_pause, task in ending)
        state.emit(Send(placement.slot, trigger))


def hold_sources(state: CoordinatorState) -> None:
    """Pauses all sources while a slot is above a soft limit, so that the elements in channels drain."""
    for above in state.over_soft_limit:
        _send_to_slots(state, state.plan.sources, Hold(above))
        return


def limit_drift(state: CoordinatorState) -> None:
    """Tells sources how far they may read: up to the watermark of the slowest other one, and the drift."""
    drift_ns, sources = state.options.watermark_drift_max_ns, state.plan.timed_sources
    if not state.plan.has_drift_limit(state.options):
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


def watch_watermarks(state: CoordinatorState) -> None:
    """Raises an alarm, once for each source, about a watermark that stands for long and holds event time back.

    Either the source has no records while others have, or its records do not make the watermark rise.
    """
    reached = {task: reached_ns(state, task) for task in state.plan.timed_sources}
    lowest_ns, known = min(reached.values(), default=END_OF_TIME_NS), state.standing_watermarks.of
    for task, now_at_ns in reached.items():
        status = _status_of(state, task)
        if status is None:
            known.pop(task, None)
            continue
        records_in = _counter(status, TaskCounter.RECORDS_IN) or 0
        standing = known.get(task)
        if standing is None or standing.reached_ns != now_at_ns:
            known[task] = StandingWatermark(now_at_ns, state.awake_ns, records_in)
        elif now_at_ns == lowest_ns and state.awake_ns - standing.since_ns >= STANDING_MS * NANOSECONDS_PER_MS:
            is_ahead = any(now_at_ns < other_ns < END_OF_TIME_NS for other_ns in reached.values())
            _report_standing(state, task, now_at_ns, records_in - standing.records_in, is_ahead)


def _report_standing(state: CoordinatorState, task: TaskId, at_ns: int, records: int, is_ahead: bool) -> None:
    """Raises the alarm, unless the source ends or becomes idle by itself, or holds nobody back."""
    number = state.plan.vertex_of[task]
    becomes_idle = state.plan.vertices[number].becomes_idle
    if at_ns == END_OF_TIME_NS or number in state.standing_watermarks.reported or state.is_draining:
        return
    if not records and (becomes_idle or not is_ahead):
        return
    state.standing_watermarks.reported[number] = None
    fields: tuple[tuple[str, str | int], ...] = ()
    name, at = state.plan.task_name(task), "has not begun"
    if at_ns != INSTANT_NS_MIN:
        at, fields = "stands", (("watermark_ns", at_ns),)
    idle_advice = 'give the timestamps of the source idle_after=, such as Timestamps(..., idle_after="1min")'
    if not records:
        what = f"the source {name} has read no record for {STANDING_MS // 1000} s, and its watermark {at}"
        advice = f"If the source, or a split of it, may be without records for long, {idle_advice}."
    else:
        what = f"the source {name} has read {records:,} records in {STANDING_MS // 1000} s, but its watermark {at}"
        advice = "Check that its timestamps rise, and that watermarks= gives any."
        if not becomes_idle:
            advice = f"If one of its splits has no records, {idle_advice}. Otherwise check that its timestamps rise."
    waiting = "windows and event-time timers"
    if is_ahead and state.options.watermark_drift_max_ns:
        waiting = "windows, event-time timers and the other sources"
    state.emit(Alarm(f"{what}: {waiting} wait for it. {advice}", fields))


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
