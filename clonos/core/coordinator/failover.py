"""Failover: from a lost slot, an exception or a lost log to the next view (protocol 6 and 8).

While a checkpoint is committing, the next view waits for the outcome, so that it names the checkpoint that became
durable (``GATE``). Failures that arrive together lead to one view.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Final

from clonos.core.checkpoint import checkpoint_events
from clonos.core.checkpoint.checkpoint_metadata import CheckpointMetadata
from clonos.core.coordinator import (
    checkpoint_machine,
    failure_detector,
    failure_policy,
    rescale_machine,
    view_machine,
)
from clonos.core.coordinator.assignment_after_cut import assignment_after_cut
from clonos.core.coordinator.coordinator_effects import (
    Alarm,
    DivideState,
    JobFailed,
    Milestone,
    ReleaseSlot,
    RequestSlots,
    Send,
    WithdrawRequests,
)
from clonos.core.coordinator.coordinator_state import CoordinatorState, Over
from clonos.core.coordinator.failure_detector import NANOSECONDS
from clonos.core.model.errors import Blame
from clonos.core.model.ids import Incarnation, SlotId, TaskId, view_name
from clonos.core.model.options import OnDivergence, PlacementKind
from clonos.core.model.plan import Plan
from clonos.core.model.progress import SETTLED_PHASES, TaskPhase
from clonos.core.placement.assignment import (
    Assignment,
    Readiness,
    is_balanced,
    place,
    with_keepers_at_home,
)
from clonos.core.placement.placement_rules import broken_rules
from clonos.core.placement.survivability import depth_problem, what_is_not_survived
from clonos.core.wire.control_messages import TaskStatus, View
from clonos.core.wire.recovery_messages import (
    RECEIVED_UNKNOWN,
    AnnounceStep,
    JournalLost,
    LogLost,
    Recourse,
    SinkFenced,
    TaskFailed,
)

RollbackCause = LogLost | JournalLost | SinkFenced | TaskFailed
REFUSED_MS, REFUSED_MS_MAX = 100, 5_000
"""Linear backoff before the provider is asked again: 100 ms per refusal, at most 5 s."""

# ------------------------------------------------------------------ failures


def update_life(state: CoordinatorState, slot: SlotId, event: failure_detector.Event, is_certain: bool = False) -> None:
    """Advances the state of a slot. If the slot is now dead, its tasks fail. ``is_certain``: its process has ended."""
    before = state.lives[slot]
    after = state.lives[slot] = failure_detector.step(before, event)
    if isinstance(after, failure_detector.Dead) and not isinstance(before, failure_detector.Dead):
        _lose_slot(state, slot, after.reason, is_certain)


def _lose_slot(state: CoordinatorState, slot: SlotId, reason: str, is_certain: bool) -> None:
    name, alive_ns = state.describe_slot(slot), state.last_signs_ns.get(slot, 0)
    state.forget_slot(slot)
    if not is_certain:  # a paused or disconnected process must not run on for ever
        state.emit(ReleaseSlot(slot, reason))
    state.emit(Alarm(f"{name} is gone: {reason}", is_routine=True))
    if state.is_running:
        fail_tasks(state, state.hosted.pop(slot, ()), reason, alive_ns)
    state.is_placement_due = True
    if not isinstance(state.phase, Over):
        request_missing(state)


def fail_tasks(state: CoordinatorState, tasks: Iterable[TaskId], reason: str, alive_ns: int = 0) -> None:
    """Marks tasks as failed, because their process is gone. ``alive_ns``: as in ``SlotGone``."""
    for task in tasks:
        if task in state.failed_tasks or isinstance(state.phase, Over):
            continue
        name, was_live = state.plan.task_name(task), state.phases.get(task) in (TaskPhase.LIVE, TaskPhase.SUSPENDED)
        dead = state.ledger.incarnations[task]
        assert dead is not None, task
        event = failure_policy.ProcessDied(name, dead, was_live, reason, state.options.failures_per_epoch_max)
        _judge(state, task, dead, event, reason, alive_ns)


def record_announcement(state: CoordinatorState, message: AnnounceStep) -> None:
    """Notes the element that an incarnation in single-step mode takes next, which may be the cause if it dies now."""
    event = failure_policy.AnnouncedElement(message.incarnation, message.channel, message.first_seq)
    record = state.records.get(message.task, failure_policy.RecoveryRecord())
    state.records[message.task], _ = failure_policy.step(record, event)


def on_exception(state: CoordinatorState, failed: TaskFailed) -> None:
    """Judges an exception in a task's code. The report is repeated until a view ends the incarnation."""
    if not state.is_current(failed.task, failed.incarnation):
        return
    is_elsewhere = failed.recourse in (Recourse.STANDBY, Recourse.ELSEWHERE) and _leave_to_standby(state, failed)
    if is_elsewhere and failed.recourse is Recourse.STANDBY:
        fail_tasks(state, (failed.task,), f"its state could not be read: {failed.error}")
        return
    if _goes_back(state, failed):
        return
    event = failure_policy.Raised(state.plan.task_name(failed.task), failed, state.options.failures_per_epoch_max)
    _judge(state, failed.task, failed.incarnation, event, f"it raised {failed.error}")


def _goes_back(state: CoordinatorState, failed: TaskFailed) -> bool:
    """Lets all tasks begin again because of a divergence, if the job wants that and has not done so in this epoch."""
    is_wanted = failed.recourse is Recourse.ROLLBACK and state.options.on_divergence is OnDivergence.ROLLBACK
    if is_wanted and not (state.is_rollback_due or state.has_diverged):
        state.has_diverged = True
        begin_rollback(state, failed)
    return is_wanted and state.is_rollback_due


def _leave_to_standby(state: CoordinatorState, failed: TaskFailed) -> bool:
    """Frees the slot of a task that cannot go on there, so that a standby is promoted; False without one.

    A standby that has not reported the last completed checkpoint yet has what it needs to reach it.
    """
    task, assigned = failed.task, state.assignment[failed.task]
    reported = [(slot, state.statuses[slot].standbys) for slot in assigned.standbys if slot in state.statuses]
    holders = [slot for slot, standbys in reported if any(known == task and at > 0 for known, at in standbys)]
    if not holders:
        return False
    state.emit(Alarm(f"task {state.plan.task_name(task)} continues on a standby: {failed.error}"))
    state.assignment = (*state.assignment[:task], assigned._replace(slot=None), *state.assignment[task + 1 :])
    return True


def _judge(
    state: CoordinatorState,
    task: TaskId,
    dead: Incarnation,
    event: failure_policy.ProcessDied | failure_policy.Raised,
    cause: str,
    alive_ns: int = 0,
) -> None:
    record, verdict = failure_policy.step(state.records.get(task, failure_policy.RecoveryRecord()), event)
    state.records[task] = record
    end_incarnation(state, task, dead, cause, alive_ns=alive_ns)
    if isinstance(verdict, JobFailed):
        state.fail(verdict)
        return
    state.failed_tasks[task] = verdict.is_single_step
    state.recovering_tasks[task] = None


def end_incarnation(
    state: CoordinatorState, task: TaskId, dead: Incarnation, cause: str, is_move: bool = False, alive_ns: int = 0
) -> None:
    """Ends the part of an incarnation in checkpoints, and opens the recovery of its task. ``alive_ns``: as in
    ``SlotGone``."""
    state.failed_at = state.completed.checkpoint
    advance_checkpoints(state, checkpoint_events.Died((task,)))
    give_up_cut(state, f"{state.plan.task_name(task)} has failed: {cause}")
    state.record_milestone(Milestone.DETECTED, task, dead, cause)
    failed = ((Milestone.FAILED, alive_ns),) if 0 < alive_ns < state.now_ns else ()
    reached, backlog = (*failed, (Milestone.DETECTED, state.now_ns)), state.backlog_before(task)
    name = state.plan.task_name(task)
    state.open_recovery(failure_policy.Recovery(task, dead, cause, None, reached, backlog, is_move=is_move, name=name))


def begin_rollback(state: CoordinatorState, lost: RollbackCause) -> None:
    """Begins a rollback, because no successor of this task alone can continue."""
    if state.is_rollback_due or not state.is_current(lost.task, lost.incarnation):
        return
    state.is_rollback_due = True
    state.rollbacks += 1
    name = state.plan.task_name(lost.task)
    what, numbers = _what_is_lost(name, lost)
    give_up_cut(state, what if isinstance(lost, TaskFailed) else f"the log of {name} is lost")
    checkpoint = state.completed.checkpoint
    text = f"{what}. All tasks roll back to checkpoint {checkpoint}"
    generation = view_name(state.view.number + 1)
    fields = ("task", name), *numbers, ("generation", generation), ("checkpoint", checkpoint)
    if state.rollbacks > state.options.failures_per_epoch_max:
        state.fail(JobFailed(Blame.ENVIRONMENT, f"{state.rollbacks} rollbacks without a completed checkpoint: {text}"))
        return
    state.emit(Alarm(text, fields))


def _what_is_lost(name: str, lost: RollbackCause) -> tuple[str, tuple[tuple[str, str | int], ...]]:
    match lost:
        case TaskFailed(error=error):
            first, *_ = error.splitlines()
            return f"the replay of task {name} has diverged ({first.rstrip('.')})", ()
        case LogLost(channel=channel, position=position, received_up_to=received_up_to):
            what, end = f"the causal log of task {name} is lost", f"it ends at element {position} of channel {channel}"
            if channel is None:
                what += f": it was gathered up to byte {position}, but a holder has a copy up to byte {received_up_to}"
                return what, (("found_bytes", position), ("copied_bytes", received_up_to))
            if received_up_to == RECEIVED_UNKNOWN:
                what += f" with all its keepers: {end}, and the external system does not say what it has received"
                return what, (("channel", channel), ("position", position))
            what += f": {end}, and the receiver has received elements up to {received_up_to}"
            return what, (("channel", channel), ("position", position), ("received_up_to", received_up_to))
        case JournalLost():
            return (
                f"the journal of source {name} is lost with its keepers, and other tasks depend on what it has read",
                (),
            )
        case SinkFenced(generation=generation, by=by):
            what = (
                f"the external system of {name} has registered generation {view_name(generation)}, which is later than"
                " this one and unknown to all living slots"
            )
            return what, (("fenced_by_generation", view_name(generation)), ("fenced_by", view_name(by)))


def by_surplus(state: CoordinatorState) -> list[SlotId]:
    """Returns the living slots in the order in which they are released if there are too many: first those of the domain
    that has the most, or with ``pack`` the fewest."""
    sizes = Counter(address.domain for address in state.addresses.values())
    sign = -1 if state.options.placement is PlacementKind.PACK and len(sizes) > 2 else 1
    ranked = sorted(state.addresses.values(), key=lambda a: (sign * sizes[a.domain], a.domain, a.slot), reverse=True)
    return [address.slot for address in ranked]


def request_missing(state: CoordinatorState) -> None:
    """Requests the missing slots, in other domains if all living slots share one."""
    missing = state.slots_needed - len(state.addresses) - state.slots_requested
    wait_ms = min(REFUSED_MS * state.refusals, REFUSED_MS_MAX)
    if missing <= 0 or state.awake_ns - state.refused_ns < wait_ms * NANOSECONDS:
        return
    domains = sorted({address.domain for address in state.addresses.values()})
    state.slots_requested += missing
    state.requested_ns = state.awake_ns
    state.emit(RequestSlots(missing, tuple(domains) if len(domains) == 1 else ()))


def withdraw_requests(state: CoordinatorState) -> None:
    """Withdraws the requests for slots that have not registered: else they would take cores whenever some are free."""
    if state.slots_requested:
        state.slots_requested = 0
        state.emit(WithdrawRequests())


# ------------------------------------------------------------------ checkpoints


def advance_checkpoints(state: CoordinatorState, event: checkpoint_machine.Event) -> None:
    """Advances the checkpoint machine and performs its effects."""
    state.checkpoints, effects = checkpoint_machine.step(state.checkpoints, event)
    for effect in effects:
        if isinstance(effect, checkpoint_machine.Complete):
            _announce(state)
            if effect.metadata.is_cut:
                state.rescale = rescale_machine.step(state.rescale, rescale_machine.CutComplete())
        elif isinstance(effect, JobFailed):
            state.fail(effect)
        else:
            state.emit(effect)


def _announce(state: CoordinatorState) -> None:
    completed = state.completed_message()
    state.checkpoint_history.complete(completed.checkpoint, state.now_ns)
    state.checkpoint_completed_ns = state.awake_ns
    for slot in sorted(state.addresses):
        state.behind_completed[slot] = None
        state.emit(Send(slot, completed))
    state.records = {t: r for t, old in state.records.items() if not (r := _next_epoch(old)).is_clean}
    state.rollbacks, state.has_diverged = 0, False
    state.is_placement_due |= not state.is_balanced  # standbys have a new checkpoint to reach


def _next_epoch(record: failure_policy.RecoveryRecord) -> failure_policy.RecoveryRecord:
    return failure_policy.step(record, failure_policy.EpochOver())[0]


def slots_wanted(state: CoordinatorState, tasks: int) -> int:
    """Returns the default number of slots: one per task, and at least two if there are standbys or keepers."""
    has_backups = any(target.standbys or target.keepers for target in state.targets)
    return max(tasks, 2 if has_backups else 1)


def slots_added(state: CoordinatorState, widths: rescale_machine.Widths) -> int:
    """Returns how many slots more than the running tasks the tasks of other widths need."""
    return max(0, slots_wanted(state, sum(width for _, width in widths)) - slots_wanted(state, len(state.plan.tasks)))


def slots_dropped(state: CoordinatorState, widths: rescale_machine.Widths) -> int:
    """Returns how many slots fewer than the running tasks the tasks of other widths need."""
    after = sum(width for _, width in widths)
    fewer = slots_wanted(state, len(state.plan.tasks)) - slots_wanted(state, after)
    return max(0, min(fewer, state.slots_needed - slots_wanted(state, 0)))  # a job may have fewer slots than tasks


def give_up_cut(state: CoordinatorState, reason: str) -> None:
    """Gives a rescale up that has named its cut, because a task has failed."""
    if state.cut:
        give_up_rescale(state, reason, is_interrupted=True)


def release_warm_up(state: CoordinatorState) -> None:
    """Lets the objects be deleted that slots were asked to read for the next tasks."""
    if isinstance(state.rescale, rescale_machine.Warming) and state.rescale.rounds:
        advance_checkpoints(state, checkpoint_events.HoldReleased(-state.rescale.warm_ups.number))


GIVES_UP: Final = rescale_machine.Ordering | rescale_machine.Warming | rescale_machine.Cutting
"""States in which a change of widths may be given up."""


def give_up_rescale(state: CoordinatorState, reason: str, is_interrupted: bool = False) -> None:
    """Gives a rescale up, unless the metadata of its cut is being written: then only the outcome counts."""
    rescale = state.rescale
    if not isinstance(rescale, GIVES_UP):
        return
    committing = state.checkpoints
    if isinstance(committing, checkpoint_machine.Committing) and committing.metadata.is_cut:
        return
    release_warm_up(state)
    state.slots_needed -= slots_added(state, rescale.widths)
    advance_checkpoints(state, checkpoint_events.CutGivenUp())
    state.rescale = rescale_machine.step(rescale, rescale_machine.GivenUp(reason))
    state.note_rescale_refused(rescale.request, reason, is_interrupted)
    state.is_placement_due = True
    state.emit(Alarm(f"the widths stay as they are: {reason}"))


# ------------------------------------------------------------------ views


def _issue(state: CoordinatorState) -> None:
    view, domains = state.view, state.domains()
    if state.is_switch_due(view):
        return _switch_when_divided(state, view)
    assignment = assignment_for(state, view, domains)
    addresses = tuple(state.addresses[slot] for slot in domains)
    if state.is_rollback_due:
        event: view_machine.Event = view_machine.RollBack(state.completed, assignment, addresses)
    else:
        placed = [TaskId(t) for t, p in enumerate(view.placements) if p.slot is None and assignment[t].slot is not None]
        restarted = {**dict.fromkeys(placed, False), **state.failed_tasks}
        suspended = frozenset(state.suspended_tasks)
        is_same = addresses == view.slots and assignment == state.assignment
        resumed = frozenset(task for task in state.moves_given_up if view.placements[task].is_suspended)
        is_moving = resumed or not all(view.placements[task].is_suspended for task in suspended)
        if not restarted and is_same and not is_moving and state.cut == view.cut:
            state.is_placement_due = state.is_view_waiting = False
            return
        moving = suspended, resumed, state.confirmed
        event = view_machine.ViewChange(restarted, state.completed, assignment, addresses, *moving, state.cut)
        _warn_of_lost_keepers(state, view)
    install_view(state, event)


def _switch_when_divided(state: CoordinatorState, view: View) -> None:
    """Divides the state of a cut among the next tasks, and then begins their generation."""
    switching = state.rescale
    assert isinstance(switching, rescale_machine.Switching), switching
    divided = switching.divided
    if divided is None and state.declared.with_widths(dict(state.completed.widths)) == state.plan:
        divided = state.completed  # the tasks are the same
    if divided is not None:
        dropped = slots_dropped(state, state.completed.widths)
        switch(state, view, state.plan, divided, is_known=True, dropped=dropped)
    elif switching.retry_ns is not None and state.awake_ns >= switching.retry_ns:
        state.rescale = rescale_machine.step(switching, rescale_machine.DivisionAsked())
        state.emit(DivideState(state.completed))


def switch(
    state: CoordinatorState,
    view: View,
    before: Plan,
    divided: CheckpointMetadata,
    *,
    is_known: bool,
    dropped: int = 0,
) -> None:
    """Begins the generation after a cut. A task of the same name stays where it was in ``view``, which has the tasks of
    the plan ``before``, unless all are to be placed anew. Slots that are not needed any more are released.

    ``dropped``: how many slots fewer are needed; 0 for another coordinator, which begins with the number for the tasks
    of the cut.
    """
    state.adopt_plan(divided)
    plan, domains = state.plan, state.domains()
    predecessors = tuple(before.task_named(plan.task_name(task)) for task in plan.tasks)
    placed = assignment_after_cut(state, view, before, plan, divided.is_placed_anew)
    state.slots_needed -= dropped
    if _release_surplus(state, placed):
        domains = state.domains()
        placed = assignment_after_cut(state, view, before, plan, divided.is_placed_anew, placed)
    addresses = tuple(state.addresses[slot] for slot in domains)
    install_view(state, view_machine.Switch(divided, placed, addresses, predecessors, is_known))


def _release_surplus(state: CoordinatorState, placed: Sequence[Assignment]) -> bool:
    """Releases slots that no task of a placement needs, down to the number that is needed; returns whether there are
    any. The keepers of a journal stay: what they hold outlives the generation."""
    needed = {assigned.slot for assigned in placed}
    for task, assigned in enumerate(placed):
        if state.plan.is_journalled(TaskId(task)):
            needed.update(assigned.keepers)
    count = min(len(state.addresses.keys() - needed), len(state.addresses) - state.slots_needed)
    for _ in range(count):
        state.release(
            next(slot for slot in by_surplus(state) if slot not in needed), "fewer tasks need fewer processes"
        )
    return count > 0


def _warn_of_lost_keepers(state: CoordinatorState, view: View) -> None:
    """Raises an alarm for tasks that died with all ready keepers: their external effects may be repeated, or the
    outcomes of their calls be others."""
    lost = [task for task in state.failed_tasks if state.options.keepers and _has_lost_keepers(state, view, task)]
    kinds = (
        (
            state.plan.with_keepers,
            "external effects that were made",
            "may be repeated with other content and other keys",
        ),
        (state.plan.with_answers, "calls that were made", "are made again, and may have other outcomes"),
    )
    for tasks, what, outcome in kinds:
        if names := [state.plan.task_name(task) for task in lost if task in tasks]:
            text = f"{', '.join(names)} died with all ready keepers: {what} since checkpoint"
            text += f" {state.completed.checkpoint} {outcome}"
            state.emit(Alarm(text, (("checkpoint", state.completed.checkpoint),)))


def _has_lost_keepers(state: CoordinatorState, view: View, task: TaskId) -> bool:
    placement = view.placements[task]
    ready = {slot for slot, status in state.statuses.items() if (task, placement.incarnation) in status.keepers}
    # A keeper that is older than the dead incarnation holds what that began from.
    old = {slot for slot in placement.keepers if placement.is_keeper_since(slot) < placement.incarnation}
    return not any(slot in state.addresses for slot in placement.keepers if slot in ready or slot in old)


def _issue_unless_switching(state: CoordinatorState) -> None:
    """Lets the view that follows a cut wait until its output is committed: a task with the transactional id of an
    earlier one would abort it."""
    (_wait if state.is_switch_due(state.view) else _issue)(state)


def _wait(state: CoordinatorState) -> None:
    """Waits, because the metadata being written decides what successors restore. The outcome leads to the view."""
    state.is_view_waiting = True


GATE: dict[type, Callable[[CoordinatorState], None]] = {
    checkpoint_machine.Collecting: _issue,
    checkpoint_machine.Committing: _wait,
    checkpoint_machine.Publishing: _issue_unless_switching,
    checkpoint_machine.Deposed: _wait,
}
"""Issues the next view or waits, by the state of the checkpoint machine."""


def renew_view(state: CoordinatorState) -> None:
    """Issues the next view as soon as the checkpoint machine allows it."""
    GATE[type(state.checkpoints)](state)


def assignment_for(state: CoordinatorState, view: View, domains: dict[SlotId, str]) -> tuple[Assignment, ...]:
    """Returns the next assignment of all tasks, from the one in ``view`` and the living slots."""
    standbys = {(s, task): at for s, status in state.statuses.items() for task, at in status.standbys}
    # A dismissed keeper has discarded what it held, so only reports under the view in force count.
    current = [(s, status.keepers) for s, status in state.statuses.items() if status.view >= view.number]
    named = {(s, p.task) for p in view.placements for s in p.keepers}
    keepers = {(s, task): by for s, held in current for task, by in held if (s, task) in named}
    snapshots = [entry.snapshot for entry in state.completed.tasks]
    shadows = frozenset((s, task) for s, status in state.statuses.items() for task in status.shadows)
    # Dismiss no keeper of a dead incarnation: its successor has gathered nothing yet, and the others may be dead too.
    restarted = range(len(view.placements)) if state.is_rollback_due else state.failed_tasks
    incarnations = [None if p.task in restarted else p.incarnation for p in view.placements]
    ready = Readiness(standbys, keepers, snapshots, incarnations, shadows)
    assignment = state.assignment or [Assignment(p.slot, p.standbys, p.keepers) for p in view.placements]
    placed = place(state.targets, domains, assignment, ready, state.hosts(), state.rules)
    if not state.suspended_tasks:
        return placed
    return with_keepers_at_home(placed, [task for task in state.suspended_tasks if task in state.plan.with_keepers])


def install_view(state: CoordinatorState, event: view_machine.Event) -> None:
    """Puts the next view into force and sends it to every slot."""
    state.views = view_machine.step(state.views, event)
    view = state.view
    began = [p for p in view.placements if int(p.incarnation) == view.number]
    incarnations = tuple(None if p.slot is None else p.incarnation for p in view.placements)
    advance_checkpoints(state, checkpoint_events.Renewed(view.generation, incarnations))
    state.hosted = {}
    for placement in view.placements:
        if placement.slot is not None:
            state.hosted.setdefault(placement.slot, []).append(placement.task)
    for placement in began:
        state.phases[placement.task] = TaskPhase.WAITING if placement.slot is None else TaskPhase.RECOVERING
        state.recovering_tasks[placement.task] = None
        if placement.slot is not None:
            _note_successor(state, placement.task, BEGINNINGS.get(type(event), ""))
    state.failed_tasks, state.confirmed = {}, {}
    state.suspended_tasks = {t: at for t, at in state.suspended_tasks.items() if view.placements[t].is_suspended}
    state.is_rollback_due = state.is_placement_due = state.is_view_waiting = False
    if all(placement.slot is not None for placement in view.placements):
        state.unplaced_since_ns = None
    elif state.unplaced_since_ns is None:
        state.unplaced_since_ns = state.awake_ns
    domains = {address.slot: address.domain for address in view.slots}
    state.assignment = assignment = tuple(event.assignment)
    others_exist = len(set(domains.values())) > 1
    pairs = zip(state.targets, assignment, strict=True)
    state.is_balanced = all(is_balanced(target, assigned, domains, others_exist) for target, assigned in pairs)
    state.repeated_ns = state.awake_ns
    for slot in domains:
        state.behind_view[slot] = None
        state.emit(Send(slot, view))
    slots = [assigned.slot for assigned in assignment]
    broken = broken_rules(state.plan, state.rules, slots, domains, state.hosts())
    if broken and broken != state.broken_rules:
        state.emit(Alarm(f"no living process allows otherwise: {broken}"))
    state.broken_rules = broken
    state.standing_alarms.note("depth", depth_problem(state.plan, assignment, domains) or "", state.awake_ns)
    is_survived = state.is_balanced and others_exist
    cost = "" if is_survived else what_is_not_survived(state.plan, state.targets, assignment, domains)
    state.standing_alarms.note("survival", cost, state.awake_ns)


# ------------------------------------------------------------------ timeline


BEGINNINGS: dict[type, str] = {view_machine.RollBack: "rollback"}
"""Why all tasks recover, by the event of the next view. After a cut they begin again, and nothing has failed."""


def _note_successor(state: CoordinatorState, task: TaskId, cause: str) -> None:
    incarnation = Incarnation(state.view.number)
    recovery = state.open_recoveries.get(task)
    if recovery is None:
        if not cause:
            return  # the job starts, its widths have changed, or a waiting task gets its slot
        name, backlog = state.plan.task_name(task), state.backlog_before(task)
        recovery = failure_policy.Recovery(task, None, cause, None, (), backlog, name=name)
    reached, _ = failure_policy.reach(recovery, (Milestone.VIEW,), state.now_ns)
    state.open_recoveries[task] = replace(reached, incarnation=incarnation)
    state.record_milestone(Milestone.VIEW, task, incarnation, recovery.cause)


def note_progress(state: CoordinatorState, status: TaskStatus) -> None:
    """Notes how far a task is, according to its slot."""
    task = status.task
    if not state.is_current(task, status.incarnation):
        return
    state.phases[task] = status.phase
    if status.phase in SETTLED_PHASES:
        state.recovering_tasks.pop(task, None)
    recovery = state.open_recoveries.get(task)
    if recovery is None:
        _note_backlog(state, status)
        return
    if recovery.incarnation != status.incarnation:
        return
    recovery = failure_policy.with_work(recovery, status)
    _reach(state, recovery, failure_policy.milestones_of(status, recovery.backlog_before))


def _reach(state: CoordinatorState, recovery: failure_policy.Recovery, milestones: tuple[Milestone, ...]) -> None:
    task, incarnation = recovery.task, recovery.incarnation
    assert incarnation is not None, recovery
    state.open_recoveries[task], news = failure_policy.reach(recovery, milestones, state.now_ns)
    for milestone in news:
        state.record_milestone(milestone, task, incarnation, recovery.cause)
    if state.open_recoveries[task].is_over:
        state.close_recovery(task)


def end_recoveries(state: CoordinatorState) -> None:
    """Ends the recoveries of replayed tasks, which have no input left because the job's last checkpoint is complete."""
    for recovery in list(state.open_recoveries.values()):
        if recovery.has_reached(Milestone.REPLAYED):
            _reach(state, recovery, (Milestone.CAUGHT_UP,))


def _note_backlog(state: CoordinatorState, status: TaskStatus) -> None:
    backlog = failure_policy.backlog_of(status)
    if backlog is None or status.phase not in SETTLED_PHASES:
        return
    backlogs = state.backlogs.get(status.task)
    if backlogs is None:
        backlogs = state.backlogs[status.task] = deque(maxlen=failure_policy.BACKLOGS_REMEMBERED)
    backlogs.append(backlog)
