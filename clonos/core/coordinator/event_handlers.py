"""Handlers of the running job: messages of slots, time, and what is repeated until answered (protocol 5, 6 and 9)."""

from __future__ import annotations

from clonos.core.checkpoint import checkpoint_events
from clonos.core.coordinator import checkpoint_machine, failure_detector, rescale_machine
from clonos.core.coordinator.coordinator_effects import Alarm, Ending, JobFailed, Send, StoodDown
from clonos.core.coordinator.coordinator_events import (
    CheckpointReleased,
    CheckpointRequested,
    MetadataWritten,
    OutputCommitFailed,
    OutputCommitted,
    Received,
    SlotGone,
    SlotRefused,
    SlotUnreachable,
    StateDivided,
    StopRequested,
    Ticked,
    WriteOutcome,
)
from clonos.core.coordinator.coordinator_state import CoordinatorState, Replaced
from clonos.core.coordinator.failover import (
    advance_checkpoints,
    begin_rollback,
    end_recoveries,
    fail_tasks,
    give_up_rescale,
    note_progress,
    on_exception,
    record_announcement,
    renew_view,
    request_missing,
    update_life,
    withdraw_requests,
)
from clonos.core.coordinator.failure_detector import NANOSECONDS
from clonos.core.coordinator.rescale_machine import Cutting, Ordering, Switching
from clonos.core.coordinator.sources import hold_sources, limit_drift, sources_to_end, trigger_sources, watch_watermarks
from clonos.core.coordinator.startup import check_slots, hasten_checkpoint, note_first_record, refuse
from clonos.core.model.errors import Blame
from clonos.core.model.ids import COORDINATOR, CheckpointId, SlotId, ViewNumber, term_of
from clonos.core.wire.control_messages import (
    Release,
    SlotStatus,
    Snapshotted,
    Suspicion,
    View,
)
from clonos.core.wire.recovery_messages import AnnounceAck, AnnounceStep, JournalLost, LogLost, SinkFenced, TaskFailed

NUMBERS_AHEAD_MAX = 1 << 20
"""Maximum distance of a reported checkpoint from the highest known one. A higher number is ignored: numbers are used
once, so a single false report could use them all up.
"""

# ------------------------------------------------------------------ messages


def on_status(state: CoordinatorState, event: Received) -> None:
    """Applies the heartbeat of a slot."""
    status = event.message
    assert isinstance(status, SlotStatus)
    if status.view < state.view.generation or term_of(status.view) > state.term:
        _note_other_generation(state, event.slot, status.view)
        return
    before = state.statuses.get(event.slot)
    ending = sources_to_end(state) if state.plan.limited else None
    state.statuses[event.slot] = status
    if ending is not None and not sources_to_end(state) <= ending:
        state.due_ns = min(state.due_ns, state.awake_ns)  # a checkpoint, after which they end
    state.note_view(event.slot, status.view)
    state.note_completed(event.slot, status.completed)
    for task in status.tasks:
        if state.is_placed_in(event.slot, task.task):
            note_progress(state, task)
            note_first_record(state, task)
    if status.is_over_soft_limit:
        state.over_soft_limit[event.slot] = None
    else:
        state.over_soft_limit.pop(event.slot, None)
    if not state.is_balanced and (before is None or _backups(before) != _backups(status)):
        state.is_placement_due = True


def _note_other_generation(state: CoordinatorState, slot: SlotId, view: ViewNumber) -> None:
    """Stands down for a later term. The tasks of an earlier generation have ended, and may be those of another plan."""
    if term_of(view) > state.term:
        stand_down(state)
    else:
        state.note_view(slot, view)


def on_view(state: CoordinatorState, event: Received) -> None:
    """Stands down if a slot has installed a view of a later term."""
    assert isinstance(event.message, View)
    if term_of(event.message.number) > state.term:
        stand_down(state)


def stand_down(state: CoordinatorState) -> None:
    """Ends this coordinator's work because a slot obeys a later term."""
    state.emit(StoodDown(state.completed.checkpoint))
    state.phase = Replaced()


def _backups(status: SlotStatus) -> tuple[object, ...]:
    return status.view, status.standbys, status.keepers


def on_snapshotted(state: CoordinatorState, event: Received) -> None:
    """Counts the durable snapshot of a task."""
    message = event.message
    assert isinstance(message, Snapshotted)
    is_possible = message.checkpoint <= state.ledger.highest + NUMBERS_AHEAD_MAX
    if is_possible and 0 <= message.task < len(state.plan.tasks):
        state.checkpoint_history.store(message)
        advance_checkpoints(state, checkpoint_events.Acknowledged(message))


def on_log_lost(state: CoordinatorState, event: Received) -> None:
    """Begins a rollback, because the log of a task, or the journal that it reads, is lost."""
    assert isinstance(event.message, LogLost | JournalLost)
    begin_rollback(state, event.message)


def on_sink_fenced(state: CoordinatorState, event: Received) -> None:
    """Decides what follows when a sink was fenced by an incarnation of which this coordinator knows nothing.

    Later term: stand down. Later generation: roll back, because this one cannot continue from what the later one let
    out. Same generation: restart the task.
    """
    fenced = event.message
    assert isinstance(fenced, SinkFenced)
    if not state.is_current(fenced.task, fenced.incarnation):
        return
    if term_of(fenced.by) > state.term:
        stand_down(state)
    elif fenced.generation > state.view.generation:
        begin_rollback(state, fenced)
    else:
        fail_tasks(state, (fenced.task,), "its external system has registered a later incarnation, which no slot knows")


def on_task_failed(state: CoordinatorState, event: Received) -> None:
    """Judges an exception in a task's code."""
    assert isinstance(event.message, TaskFailed)
    on_exception(state, event.message)


def on_announce_step(state: CoordinatorState, event: Received) -> None:
    """Acknowledges that a task in single-step mode is about to take an element, because the task waits for it."""
    message = event.message
    assert isinstance(message, AnnounceStep)
    if state.is_current(message.task, message.incarnation):
        record_announcement(state, message)
        acknowledgement = AnnounceAck(message.task, message.incarnation, message.channel, message.first_seq)
        state.emit(Send(event.slot, acknowledgement))


def on_suspicion(state: CoordinatorState, event: Received) -> None:
    """Notes that a slot cannot reach another one, which may be dead."""
    message = event.message
    assert isinstance(message, Suspicion)
    if message.suspect not in state.addresses or message.suspect == event.slot:
        return
    state.mutual_suspicions = state.mutual_suspicions.suspect(event.slot, message.suspect, state.awake_ns)
    if message.is_gone:
        update_life(state, message.suspect, failure_detector.Broke(state.awake_ns, event.slot))


def dismiss(state: CoordinatorState, event: Received) -> None:
    """Releases a slot that was replaced or is unknown, each time that it sends a message."""
    life = state.lives.get(event.slot)
    reason = life.reason if isinstance(life, failure_detector.Dead) else "this job does not know it"
    state.emit(Send(event.slot, Release(event.slot, reason)))


# ------------------------------------------------------------------ the provider and the sockets


def on_slot_gone(state: CoordinatorState, event: SlotGone) -> None:
    """Marks a slot as dead, because its process has ended for certain."""
    if event.slot in state.addresses:
        state.last_signs_ns[event.slot] = event.alive_ns
        update_life(state, event.slot, failure_detector.Ended(event.reason), is_certain=True)
    elif event.slot not in state.lives:  # ended before it had registered
        state.lives[event.slot] = failure_detector.Dead(event.reason)
        state.slots_requested = max(0, state.slots_requested - 1)


def on_slot_unreachable(state: CoordinatorState, event: SlotUnreachable) -> None:
    """Suspects a slot, because the coordinator's own connection to it broke."""
    if event.slot in state.addresses:
        state.last_signs_ns[event.slot] = event.alive_ns
        update_life(state, event.slot, failure_detector.Broke(state.awake_ns, COORDINATOR))


def on_slot_refused(state: CoordinatorState, event: SlotRefused) -> None:
    """Counts a slot that the provider could not deliver, which delays the next request. Alarms at refusals 1, 2, 4, 8
    ...
    """
    state.slots_requested = max(0, state.slots_requested - 1)
    state.refusals += 1
    state.refused_ns, state.refusal = state.awake_ns, event.reason
    if not state.refusals & (state.refusals - 1):
        state.emit(Alarm(f"a slot could not be started ({state.refusals} so far): {event.reason}"))


# ------------------------------------------------------------------ the store and the sinks


def on_metadata_written(state: CoordinatorState, event: MetadataWritten) -> None:
    """Completes a checkpoint, schedules another write, or stands down, by the outcome of writing its metadata."""
    if event.outcome is WriteOutcome.DURABLE:
        advance_checkpoints(state, checkpoint_events.Durable(event.checkpoint))
        hasten_checkpoint(state)
    elif event.outcome is WriteOutcome.TAKEN:
        advance_checkpoints(state, checkpoint_events.SnapshotTaken(event.checkpoint))
        if any(isinstance(effect, StoodDown) for effect in state.effects):
            state.phase = Replaced()
    else:
        advance_checkpoints(state, checkpoint_events.WriteFailed(event.checkpoint, event.text, state.awake_ns))


def on_output_committed(state: CoordinatorState, event: OutputCommitted) -> None:
    """Ends the commit of a checkpoint's output."""
    state.first_output = None
    advance_checkpoints(state, event)


def on_state_divided(state: CoordinatorState, event: StateDivided) -> None:
    """Begins the generation after a cut with the state that was divided for it, or tries that again."""
    rescale = state.rescale
    if not isinstance(rescale, Switching) or rescale.divided or event.checkpoint != state.completed.checkpoint:
        return
    if event.blame is not None:
        text = (
            f"the widths could not change at checkpoint {event.checkpoint}: {event.text.rstrip('.')}. To go on with"
            " the numbers of tasks before, resume with widths= (--width) that name them."
        )
        state.fail(JobFailed(event.blame, text))
        return
    if event.metadata is None:
        what = f"the state of checkpoint {event.checkpoint} could not be divided"
        if rescale.attempts >= checkpoint_machine.COMMIT_ATTEMPTS_MAX:
            reason = (
                f"{what} among the next tasks in {rescale.attempts} attempts:"
                f" {event.text.rstrip('.')}. Repair the store, then resume:"
                " the checkpoint has the next numbers of tasks, and the job goes on with them."
            )
            state.fail(JobFailed(Blame.ENVIRONMENT, reason))
            return
        fields = (("checkpoint", event.checkpoint), ("attempt", rescale.attempts), ("error", event.text))
        state.emit(Alarm(f"{what}; trying again", fields))
    state.rescale = rescale_machine.step(rescale, rescale_machine.Divided(event.metadata, state.awake_ns))


def on_output_commit_failed(state: CoordinatorState, event: OutputCommitFailed) -> None:
    """Schedules another attempt to commit a checkpoint's output."""
    advance_checkpoints(state, checkpoint_machine.CommitFailed(event, state.awake_ns))


# ------------------------------------------------------------------ the user


def stop(state: CoordinatorState, event: StopRequested) -> None:
    """Stops the job, with a last checkpoint or at once."""
    if event.drain:
        state.is_draining = True
        give_up_rescale(state, "the job is being stopped")
        state.due_ns = min(state.due_ns, state.awake_ns)
        if _begin_checkpoint_if_due(state):
            trigger_sources(state)
    else:
        state.finish(Ending.ABORTED, "the job was stopped at once")


def request_checkpoint(state: CoordinatorState, event: CheckpointRequested) -> None:
    """Begins a checkpoint, of a job that runs at once, and keeps its objects for the request."""
    state.requests[event.request] = None
    if state.is_running and _begin_checkpoint_if_due(state):
        trigger_sources(state)


def release_checkpoint(state: CoordinatorState, event: CheckpointReleased) -> None:
    """Lets the objects that were kept for a request be deleted."""
    state.requests.pop(event.request, None)
    advance_checkpoints(state, checkpoint_events.HoldReleased(event.request))


# ------------------------------------------------------------------ time


def tick(state: CoordinatorState, _event: Ticked) -> None:
    """Checks slots, begins checkpoints and repeats messages, at a tick of the running job."""
    check_slots(state)
    _resolve_mutual_suspicions(state)
    timeout_ns = state.options.checkpoint_timeout_ms * NANOSECONDS
    advance_checkpoints(state, checkpoint_events.TimePassed(state.awake_ns, timeout_ns))
    if not state.is_running:
        return
    has_begun = _begin_checkpoint_if_due(state)
    if _is_repeat_due(state):
        REPEAT(state)  # includes triggers; frequent checkpoints must not prevent repeats
    elif has_begun:
        trigger_sources(state)
    _request_slots_again(state)
    state.emit(*map(Alarm, state.standing_alarms.due(state.awake_ns)))


def on_tick_closing(state: CoordinatorState, _event: Ticked) -> None:
    """Repeats the commit of the last output if that is due."""
    timeout_ns = state.options.checkpoint_timeout_ms * NANOSECONDS
    advance_checkpoints(state, checkpoint_events.TimePassed(state.awake_ns, timeout_ns))


def _resolve_mutual_suspicions(state: CoordinatorState) -> None:
    if not state.mutual_suspicions.standing:
        return
    state.mutual_suspicions = state.mutual_suspicions.expire(state.awake_ns, state.limits)
    loser = state.mutual_suspicions.loser(state.limits)
    if loser is not None:
        reason = "it and a peer cannot reach each other, although the coordinator reaches both"
        update_life(state, loser, failure_detector.Ended(reason))


def _request_slots_again(state: CoordinatorState) -> None:
    wait_ns = state.options.slots_wait_ms * NANOSECONDS
    if not isinstance(state.rescale, Ordering) and state.awake_ns - state.requested_ns >= wait_ns:
        withdraw_requests(state)
    if state.unplaced_since_ns is not None and state.awake_ns - state.unplaced_since_ns >= wait_ns:
        refuse(state, len(state.addresses))
        return
    request_missing(state)


# ------------------------------------------------------------------ checkpoints begin


def _begin_checkpoint_if_due(state: CoordinatorState) -> bool:
    """Begins a checkpoint by time, above a soft limit, on request, or to drain. Returns whether one was begun.

    It is postponed while a task recovers or moves, for one interval at most, and to the end of a commit. A rescale
    begins its own.
    """
    pending = state.ledger.pending
    if isinstance(state.rescale, Cutting) or state.is_switch_due(state.view):
        return False
    if state.is_draining:
        if state.ledger.drain is not None:
            hold_requested(state, state.ledger.drain.number)
            return False
    elif not isinstance(state.checkpoints, checkpoint_machine.Collecting):
        return False  # what it gathered would only wait for the commit
    elif not state.requests and not (state.over_soft_limit and not pending) and not _is_due(state):
        return False
    interval_ns = state.options.checkpoint_every_ms * NANOSECONDS
    if state.recovering_tasks or state.failed_tasks or state.suspended_tasks:
        if state.postponed_ns is None:
            state.postponed_ns = state.awake_ns
        if state.awake_ns - state.postponed_ns < interval_ns:
            return False
    state.postponed_ns = None
    if state.over_soft_limit and not pending:
        names = ", ".join(state.describe_slot(slot) for slot in state.over_soft_limit)
        state.emit(Alarm(f"above a soft limit: {names}. Sources pause, and a checkpoint begins", is_routine=True))
    state.due_ns = state.awake_ns + interval_ns
    highest = state.ledger.highest
    advance_checkpoints(state, checkpoint_events.CheckpointDue(state.awake_ns, state.is_draining))
    if state.ledger.highest == highest:
        return False
    state.checkpoint_history.begin(state.ledger.highest, state.now_ns)
    if state.is_draining:
        state.drain_number = state.ledger.highest
    hold_requested(state, state.ledger.highest)
    return True


def _is_due(state: CoordinatorState) -> bool:
    """Returns whether a checkpoint is due by time: the interval has passed and, where a pause is set, no checkpoint is
    pending and the pause after the last one has passed."""
    pause_ns = state.options.checkpoint_pause_min_ms * NANOSECONDS
    if pause_ns and (state.ledger.pending or state.awake_ns - state.checkpoint_completed_ns < pause_ns):
        return False
    return state.awake_ns >= state.due_ns


def hold_requested(state: CoordinatorState, number: CheckpointId) -> None:
    """Keeps the objects of a checkpoint that begins for all that have requested one."""
    requests, state.requests = state.requests, {}
    for request in requests:
        advance_checkpoints(state, checkpoint_events.CheckpointHeld(request, number))


# ------------------------------------------------------------------ repeats


def _is_repeat_due(state: CoordinatorState) -> bool:
    return state.awake_ns - state.repeated_ns >= state.options.heartbeat_ms * NANOSECONDS // 2


def _repeat(state: CoordinatorState) -> None:
    """Repeats messages to the slots that have not answered them."""
    state.repeated_ns = state.awake_ns
    for slot in sorted(state.behind_view):
        state.emit(Send(slot, state.view))
    if state.behind_completed:
        completed = state.completed_message()
        for slot in sorted(state.behind_completed):
            state.emit(Send(slot, completed))
    trigger_sources(state)
    hold_sources(state)
    limit_drift(state)
    watch_watermarks(state)


REPEAT = _repeat
"""Function that repeats messages, a module attribute so that a mutant can replace it."""


def finish_if_done(state: CoordinatorState) -> None:
    """Ends the job when the last checkpoint is complete and its output is committed."""
    if not isinstance(state.checkpoints, checkpoint_machine.Collecting):
        return
    completed = state.checkpoints.ledger.completed
    if completed.checkpoint > 0 and completed.is_final:
        end_recoveries(state)
        state.finish(Ending.FINISHED, "")
    elif state.drain_number and completed.checkpoint >= state.drain_number:
        end_recoveries(state)
        state.finish(Ending.DRAINED, "the job was stopped with a last checkpoint")


def after_event(state: CoordinatorState, is_tick: bool) -> None:
    """Ends the job or issues the next view if an event made that due. A move of tasks waits for a tick, and then at
    most for the checkpoint that is committing; a failed task waits for no tick.
    """
    finish_if_done(state)
    if not state.is_running:
        return
    is_urgent = bool(state.failed_tasks) or state.is_rollback_due
    if isinstance(state.rescale, Switching):
        is_urgent = is_urgent or state.is_switch_due(state.view)
    is_at_once = is_tick or state.is_view_waiting or state.unplaced_since_ns is not None
    if is_urgent or (state.is_placement_due and is_at_once):
        renew_view(state)
