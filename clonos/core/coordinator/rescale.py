"""Live rescale: a cut between two generations, of which the next one has other widths (protocol 6.12).

Every task is suspended at the barrier of one checkpoint, whose metadata has the widths. The next view begins a
generation there: its logs are empty, and nothing is under way outside of the job.
"""

from __future__ import annotations

from dataclasses import replace

from clonos.core.checkpoint import checkpoint_events
from clonos.core.coordinator import rescale_machine, warming
from clonos.core.coordinator.checkpoint_ledger import Pending
from clonos.core.coordinator.checkpoint_machine import Collecting
from clonos.core.coordinator.coordinator_events import RescaleRequested, Ticked
from clonos.core.coordinator.coordinator_state import CoordinatorState
from clonos.core.coordinator.event_handlers import hold_requested
from clonos.core.coordinator.failover import (
    advance_checkpoints,
    give_up_rescale,
    request_missing,
    slots_added,
    slots_dropped,
)
from clonos.core.coordinator.failure_detector import NANOSECONDS
from clonos.core.coordinator.rescale_machine import Cutting, Ordering, Steady, Switching, Warming
from clonos.core.coordinator.sources import sources_to_end, trigger_sources
from clonos.core.model.ids import CheckpointId, TaskId
from clonos.core.model.plan import LIMIT_KIND, Plan, refusals
from clonos.core.model.progress import TaskPhase
from clonos.core.placement.survivability import names_of

BESIDE = "another change of widths is under way"


def request(state: CoordinatorState, event: RescaleRequested) -> None:
    """Begins to change widths, or refuses to."""
    if not isinstance(state.rescale, Steady):
        state.note_rescale_refused(event.request, BESIDE)
        return
    reason = _why_refused(state, event)
    if reason:
        _refuse(state, event.request, reason)
        return
    plan = state.plan.with_widths(dict(event.widths))
    widths = tuple(plan.widths.items())
    _step(state, rescale_machine.WidthsAsked(event.request, widths, state.awake_ns, event.is_placed_anew))
    state.slots_needed += slots_added(state, widths)
    request_missing(state)


def refuse(state: CoordinatorState, event: RescaleRequested) -> None:
    """Refuses to change widths while the job does not run."""
    if isinstance(state.rescale, Steady):
        _refuse(state, event.request, "the job does not run")
    else:
        state.note_rescale_refused(event.request, BESIDE)


def _refuse(state: CoordinatorState, request: int, reason: str) -> None:
    _step(state, rescale_machine.Refused(request, reason))
    state.note_rescale_refused(request, reason)


def _why_refused(state: CoordinatorState, event: RescaleRequested) -> str:
    if state.is_draining:
        return "the job is being stopped"
    if len(state.ledger.finals) == len(state.plan.tasks):
        return "it has read all input"
    return refusal(state.plan, dict(event.widths))


def refusal(plan: Plan, widths: dict[str, int]) -> str:
    """Returns why the steps of a plan cannot get these widths, as a sentence without its end; empty if they can."""
    names = {vertex.name: number for number, vertex in enumerate(plan.vertices)}
    unknown = sorted(widths.keys() - names.keys())
    if unknown:
        return f"the job has no step {', '.join(unknown)}; it has {', '.join(names)}"
    groups = {plan.scaling_group[names[name]] for name in widths}
    for number, vertex in enumerate(plan.vertices):
        if plan.scaling_group[number] in groups and vertex.is_journalled:
            return f'"{vertex.name}" keeps its number of tasks: it keeps a journal of its input, which has an order'
        if plan.scaling_group[number] in groups and any(step.kind == LIMIT_KIND for step in vertex.steps):
            return f'"{vertex.name}" keeps its number of tasks: it lets a limited number of records through'
    return "; ".join(refusals(plan, widths))


def tick(state: CoordinatorState, _event: Ticked) -> None:
    """Does what is due for a rescale, at a tick of the running job."""
    if not state.is_running or isinstance(state.rescale, Steady):
        return
    match state.rescale:
        case Ordering(begun_ns=begun_ns, widths=widths):
            wanted = state.slots_needed - slots_dropped(state, widths)
            if len(state.addresses) >= wanted:
                _step(state, rescale_machine.SlotsThere(state.awake_ns))
            elif state.awake_ns - begun_ns > state.options.slots_wait_ms * NANOSECONDS:
                give_up_rescale(state, _too_few_text(state, wanted))
        case Warming():
            warming.tick(state, state.rescale)
        case Cutting(begun_ns=begun_ns, warm_ups=warm_ups):
            warming.repeat(state, warm_ups)
            if state.awake_ns - begun_ns > state.options.rescale_timeout_ms * NANOSECONDS:
                give_up_rescale(state, _late_text(state, state.rescale), is_interrupted=bool(state.recovering_tasks))
            else:
                _cut(state, state.rescale)
        case Switching(warm_ups=warm_ups):
            if state.is_switch_due(state.view):
                warming.repeat(state, warm_ups)
            elif not state.recovering_tasks:
                _step(state, rescale_machine.Settled())


def _too_few_text(state: CoordinatorState, wanted: int) -> str:
    text = f"{len(state.addresses)} of {wanted} processes were there after {state.options.slots_wait_ms / 1_000:g} s. "
    if state.refusals:
        return text + f"The last process that could not be started: {state.refusal}"
    return text + "Free cores or add executors, ask for fewer tasks, or raise slots_wait"


def _late_text(state: CoordinatorState, cutting: Cutting) -> str:
    pending = next((each for each in state.ledger.pending if each.number == cutting.checkpoint), None)
    if not cutting.checkpoint:
        what = f"the job did not come to rest, because {_what_is_under_way(state) or 'its tasks were busy'}"
    elif pending is None:
        what = f"{len(state.behind_view)} processes have not taken over the view that names the checkpoint"
    else:
        what = f"{names_of(state.plan, _holding_up(state, pending))} did not end calls or a step that had begun"
        what += ", or an external system did not confirm output"
    return f"{what} within {state.options.rescale_timeout_ms / 1_000:g} s. Raise rescale_timeout to wait longer"


def _holding_up(state: CoordinatorState, pending: Pending) -> list[TaskId]:
    """Returns the tasks for which a checkpoint waits: they have not taken it, and those that send to them have."""
    missing = dict.fromkeys(task for task in state.plan.tasks if task not in pending.acknowledged)
    return [task for task in missing if all(channel.sender not in missing for channel in state.plan.inputs[task])]


def _cut(state: CoordinatorState, cutting: Cutting) -> None:
    """Names the cut once the job is quiet, and begins its checkpoint once every slot has the view with it."""
    if not cutting.checkpoint:
        if _is_quiet(state):
            ledger = state.ledger
            if state.numbers_unknown_to > ledger.highest:
                ledger = replace(ledger, highest=state.numbers_unknown_to)
                state.checkpoints = replace(state.checkpoints, ledger=ledger)
            _step(state, rescale_machine.Quiet(CheckpointId(ledger.highest + 1), state.awake_ns))
            state.is_placement_due = True
    elif not cutting.is_triggered:
        if _is_known(state, cutting.checkpoint):
            _begin_checkpoint(state, cutting)
    elif all(pending.number != cutting.checkpoint for pending in state.ledger.pending) and isinstance(
        state.checkpoints, Collecting
    ):
        give_up_rescale(state, "the checkpoint did not complete")


def _is_quiet(state: CoordinatorState) -> bool:
    return not _what_is_under_way(state)


def _what_is_under_way(state: CoordinatorState) -> str:
    """Returns why a cut cannot be named yet, as a clause: a task neither is live nor has ended, or a view, checkpoint,
    commit, recovery, move or end is under way. Empty if none is."""
    settled = TaskPhase.LIVE, TaskPhase.FINAL
    not_live = [task for task in state.plan.tasks if state.phases.get(task) not in settled]
    clauses = {
        "a view was on its way": state.behind_view or state.is_placement_due,
        "the job is being stopped": state.is_draining,
        "it is rolled back": state.is_rollback_due,
        f"{names_of(state.plan, list(state.suspended_tasks))} moved": state.suspended_tasks,
        f"{names_of(state.plan, list(state.recovering_tasks))} recovered": state.recovering_tasks,
        f"{names_of(state.plan, not_live)} did not run": not_live,
        "a checkpoint was under way": not isinstance(state.checkpoints, Collecting) or state.ledger.pending,
        "sources are to end": sources_to_end(state) - state.ledger.finals.keys(),
    }
    return next((clause for clause, is_so in clauses.items() if is_so), "")


def _is_known(state: CoordinatorState, checkpoint: CheckpointId) -> bool:
    """Returns whether every slot has the view with the cut: a task without it would go on after the barrier."""
    return state.view.cut == checkpoint and not state.behind_view


def _begin_checkpoint(state: CoordinatorState, cutting: Cutting) -> None:
    if state.ledger.highest + 1 != cutting.checkpoint:
        give_up_rescale(state, "the number of its checkpoint was taken")
        return
    _step(state, rescale_machine.CutKnown())
    state.due_ns = state.awake_ns + state.options.checkpoint_every_ms * NANOSECONDS
    due = checkpoint_events.CheckpointDue(state.awake_ns, False, cutting.widths, cutting.is_placed_anew)
    advance_checkpoints(state, due)
    state.checkpoint_history.begin(state.ledger.highest, state.now_ns)
    hold_requested(state, state.ledger.highest)
    trigger_sources(state)


def _step(state: CoordinatorState, event: rescale_machine.Event) -> None:
    state.rescale = rescale_machine.step(state.rescale, event)
