"""Warm-ups of a change of widths: slots read the state of the next tasks while the present ones run (protocol 6.12).

What they read is as of a completed checkpoint, and the tasks of the next plan read what has changed since. So slots are
asked again as of a later checkpoint, until one is fresh when all are done: so virtual machines are copied while they
run. Nothing depends on a warm-up: a task without it reads its whole state.
"""

from __future__ import annotations

from typing import Final

from clonos.core.checkpoint.checkpoint_events import CheckpointHeld
from clonos.core.checkpoint.snapshot import is_moved
from clonos.core.coordinator import rescale_machine
from clonos.core.coordinator.assignment_after_cut import assignment_after_cut
from clonos.core.coordinator.coordinator_effects import Send
from clonos.core.coordinator.coordinator_state import CoordinatorState
from clonos.core.coordinator.failover import advance_checkpoints, release_warm_up
from clonos.core.coordinator.failure_detector import NANOSECONDS
from clonos.core.coordinator.rescale_machine import Warming, WarmUpRound
from clonos.core.model.ids import SlotId, TaskId, view_number
from clonos.core.model.plan import Plan
from clonos.core.wire.control_messages import TaskWarmUp, WarmSource, WarmUp

FRESH_MS: Final = 500
"""Age of a checkpoint up to which what has changed since counts as little."""

ROUNDS_MAX: Final = 3
"""Checkpoints as of which slots are asked to read. After the last one the cut follows, however much has changed."""


def tick(state: CoordinatorState, warming: Warming) -> None:
    """Asks slots for the next warm-up once they have done the last one, or goes on to the cut."""
    warm_ups = warming.warm_ups
    timeout_ns = state.options.rescale_timeout_ms * NANOSECONDS
    if not state.completed.checkpoint or state.awake_ns - warming.begun_ns > timeout_ns:
        _go_on(state)
    elif not warming.rounds:
        _ask(state, warming)
    elif _behind(state, warm_ups):
        repeat(state, warm_ups)
    elif _is_fresh(state, warm_ups) or warming.rounds >= ROUNDS_MAX:
        _go_on(state)
    elif state.checkpoint_completed_ns > warm_ups.completed_ns:
        _ask(state, warming)
    else:
        repeat(state, warm_ups)
        if not state.ledger.pending:
            state.due_ns = min(state.due_ns, state.awake_ns)


def _go_on(state: CoordinatorState) -> None:
    release_warm_up(state)
    state.rescale = rescale_machine.step(state.rescale, rescale_machine.Warmed(state.awake_ns))


def _is_fresh(state: CoordinatorState, warm_ups: WarmUpRound) -> bool:
    return state.awake_ns - warm_ups.completed_ns <= FRESH_MS * NANOSECONDS


def _behind(state: CoordinatorState, warm_ups: WarmUpRound) -> list[SlotId]:
    """Returns the living slots that have not done what they were asked to read."""
    statuses = state.statuses
    return [
        slot
        for slot, _ in warm_ups.messages
        if slot in state.addresses and (slot not in statuses or statuses[slot].warmed < warm_ups.number)
    ]


def repeat(state: CoordinatorState, warm_ups: WarmUpRound) -> None:
    """Repeats the requests at the heartbeat; slots that have done them retain what they have read."""
    if state.awake_ns - state.warm_ups_sent_ns >= state.options.heartbeat_ms * NANOSECONDS:
        _send(state, warm_ups)


def _send(state: CoordinatorState, warm_ups: WarmUpRound) -> None:
    state.warm_ups_sent_ns = state.awake_ns
    late = _behind(state, warm_ups)
    for slot, message in warm_ups.messages:
        if slot in late:
            state.emit(Send(slot, message))
        elif slot in state.addresses:
            state.emit(Send(slot, WarmUp(message.number, message.generation, message.widths, ())))


def _ask(state: CoordinatorState, warming: Warming) -> None:
    state.warm_ups_asked += 1
    number = int(view_number(state.term, state.warm_ups_asked))
    messages = _messages(state, warming, number)
    warm_ups = WarmUpRound(number, state.checkpoint_completed_ns, messages)
    release_warm_up(state)
    completed = state.completed
    advance_checkpoints(state, CheckpointHeld(-number, completed.checkpoint, completed))
    state.rescale = rescale_machine.step(warming, rescale_machine.WarmUpsAsked(warm_ups))
    _send(state, warm_ups)


def _messages(state: CoordinatorState, warming: Warming, number: int) -> tuple[tuple[SlotId, WarmUp], ...]:
    """Returns what each slot that gets tasks with state is asked to read."""
    plan = state.plan.with_widths(dict(warming.widths))
    placed = assignment_after_cut(state, state.view, state.plan, plan, warming.is_placed_anew)
    found: dict[SlotId, list[TaskWarmUp]] = {}
    for task in plan.tasks:
        slot, sources = placed[task].slot, sources_of(state, plan, task)
        if slot is not None and sources:
            found.setdefault(slot, []).append(TaskWarmUp(plan.task_name(task), sources))
    head = number, state.view.generation, warming.widths
    return tuple((slot, WarmUp(*head, tuple(tasks))) for slot, tasks in sorted(found.items()))


def sources_of(state: CoordinatorState, plan: Plan, task: TaskId) -> tuple[WarmSource, ...]:
    """Returns what a task of the next plan reads as of the last completed checkpoint: the chain with which it goes on;
    with another width, the chains of all tasks of its vertex."""
    before, vertex = state.plan, plan.vertex_of[task]
    width, first = before.vertices[vertex].parallelism, before.first_task[vertex]
    name, entries = plan.vertices[vertex].name, state.completed.tasks
    if width == plan.vertices[vertex].parallelism:
        objects = entries[first + plan.index_of(task)].objects
        return (WarmSource("", 0, 0, objects),) if _is_chain(objects) else ()
    chains = [(index, entries[first + index].objects) for index in range(width)]
    return tuple(WarmSource(name, index, width, objects) for index, objects in chains if _is_chain(objects))


def _is_chain(objects: tuple[str, ...]) -> bool:
    """Returns whether objects are a chain of snapshots of one task: just after a change of widths they may not be."""
    return bool(objects) and not is_moved(objects[-1])
