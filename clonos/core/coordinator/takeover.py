"""Takeover by a new coordinator, which adopts the slots and the view of an earlier one (protocol 9)."""

from __future__ import annotations

from dataclasses import replace

from clonos.core.coordinator import checkpoint_machine, failure_detector, rescale_machine, startup, view_machine
from clonos.core.coordinator.coordinator_effects import Ending, JobFailed, Send
from clonos.core.coordinator.coordinator_events import Received, StopRequested, Ticked
from clonos.core.coordinator.coordinator_state import CoordinatorState, Listening, Running
from clonos.core.coordinator.failover import (
    assignment_for,
    fail_tasks,
    install_view,
    note_progress,
    request_missing,
    switch,
)
from clonos.core.coordinator.failure_detector import NANOSECONDS
from clonos.core.model.errors import Blame
from clonos.core.model.ids import CheckpointId, SlotId, ViewNumber
from clonos.core.wire.authorization import fits
from clonos.core.wire.control_messages import SlotAddress, SlotStatus, View

NUMBERS_UNKNOWN = 100
"""Checkpoint numbers that an earlier coordinator may have used since its last completed checkpoint without a snapshot
that tells of them. A task may have gone on after the barrier of such a number, so it can be no cut."""


def on_view_reported(state: CoordinatorState, event: Received) -> None:
    """Notes the installed view of a slot, of which the highest becomes the current view."""
    view, phase = event.message, state.phase
    assert isinstance(view, View)
    plan = state.declared.with_widths(dict(view.widths))
    if not isinstance(phase, Listening) or not fits(view, plan):
        return
    if phase.highest_view is None or view.number > phase.highest_view.number:
        state.phase = replace(phase, highest_view=view)
    for address in view.slots:
        if address.slot == event.slot and address.slot not in state.addresses:
            _adopt(state, phase, address)


def _adopt(state: CoordinatorState, phase: Listening, address: SlotAddress) -> None:
    state.addresses[address.slot] = address
    state.lives[address.slot] = failure_detector.Alive(state.awake_ns)
    state.registers |= {register.slot: register for register in phase.registers if register.slot == address.slot}


def on_status(state: CoordinatorState, event: Received) -> None:
    """Notes what a living slot hosts, and requests its installed view if that is unknown."""
    phase = state.phase
    assert isinstance(event.message, SlotStatus)
    assert isinstance(phase, Listening)
    state.statuses[event.slot] = event.message
    _request_view(state, phase, event.slot)


def _request_view(state: CoordinatorState, phase: Listening, slot: SlotId) -> bool:
    """Requests the installed view of a slot that has not reported it yet. Returns whether a request was sent.

    A slot that registered here may also have received the dead coordinator's view later.
    """
    if _has_reported(state, phase, slot):
        return False
    state.emit(Send(slot, View(ViewNumber(0), 0, state.job_id, (), ())))
    return True


def _has_reported(state: CoordinatorState, phase: Listening, slot: SlotId) -> bool:
    highest = phase.highest_view.number if phase.highest_view is not None else 0
    return slot in state.addresses and slot in state.statuses and state.statuses[slot].view <= highest


def end_listening(state: CoordinatorState, _event: Ticked) -> None:
    """Decides after a lease, or once all named slots have answered: silent slots have failed.

    Slots that have not reported their view are asked again and awaited, for another lease at most.
    """
    phase = state.phase
    assert isinstance(phase, Listening)
    without_view = [slot for slot in state.statuses if _request_view(state, phase, slot)]
    if state.awake_ns < (phase.last_ns if without_view else phase.until_ns) and not _have_all_answered(state, phase):
        return
    highest_view = phase.highest_view
    if highest_view is None or highest_view.generation < state.completed.generation or not state.addresses:
        if state.is_draining and phase.only_adopts:
            state.finish(Ending.ABORTED, "stopped while no slot of the earlier driver could be taken over")
        elif phase.only_adopts:
            state.fail(JobFailed(Blame.ENVIRONMENT, "no slot of the earlier driver has a view that can be taken over."))
        else:
            startup.await_slots(state)
        return
    if state.is_switch_due(highest_view) and not isinstance(state.checkpoints, checkpoint_machine.Collecting):
        return  # the output of the cut is committed first
    _adopt_view(state, highest_view)


def stop(state: CoordinatorState, event: StopRequested) -> None:
    """Remembers that the job shall stop with a last checkpoint once it is taken over, or stops it at once."""
    if event.drain:
        state.is_draining = True
    else:
        startup.stop_early(state, event)


def _have_all_answered(state: CoordinatorState, phase: Listening) -> bool:
    """Returns whether all slots of the earlier coordinator are named, and each has reported its view or is dead."""
    return bool(phase.named) and all(
        isinstance(state.lives.get(slot), failure_detector.Dead) or _has_reported(state, phase, slot)
        for slot in phase.named
    )


def _adopt_view(state: CoordinatorState, highest_view: View) -> None:
    """Continues with the highest view of the earlier coordinator. View (term, 1) changes only what is missing, unless
    the checkpoint is a cut from which the view has not gone on."""
    if state.is_switch_due(highest_view):
        _switch(state, highest_view)
        return
    state.statuses = {
        slot: status
        for slot, status in state.statuses.items()
        if slot in state.addresses and status.view >= highest_view.generation
    }
    hosting = {(slot, each.task, each.incarnation) for slot, status in state.statuses.items() for each in status.tasks}
    missing = [
        placement.task
        for placement in highest_view.placements
        if placement.slot not in state.addresses
        or (placement.slot, placement.task, placement.incarnation) not in hosting
    ]
    state.views = view_machine.Unformed(state.term, state.job_id, highest_view)
    ledger = replace(
        state.ledger,
        generation=highest_view.generation,
        incarnations=tuple(p.incarnation for p in highest_view.placements),
    )
    state.checkpoints = replace(state.checkpoints, ledger=ledger)
    state.numbers_unknown_to = CheckpointId(ledger.highest + NUMBERS_UNKNOWN)
    _run(state)
    for status in list(state.statuses.values()):
        for each in status.tasks:
            note_progress(state, each)
    fail_tasks(state, missing, "its slot sent nothing while the new coordinator listened")
    if not state.is_running:
        return
    domains = state.domains()
    assignment = assignment_for(state, highest_view, domains)
    addresses = tuple(state.addresses[slot] for slot in domains)
    state.suspended_tasks = {p.task: state.awake_ns for p in highest_view.placements if p.is_suspended}
    install_view(state, view_machine.ViewChange(dict(state.failed_tasks), state.completed, assignment, addresses))
    request_missing(state)


def _switch(state: CoordinatorState, highest_view: View) -> None:
    """Begins the generation after the cut. A view that did so before may have been lost with all that had it."""
    state.views = view_machine.Unformed(state.term, state.job_id, highest_view)
    state.checkpoints = replace(state.checkpoints, ledger=replace(state.ledger, generation=highest_view.generation))
    _run(state)
    state.rescale = rescale_machine.step(state.rescale, rescale_machine.CutComplete())
    before = state.declared.with_widths(dict(highest_view.widths))
    switch(state, highest_view, before, state.completed, is_known=False)
    request_missing(state)


def _run(state: CoordinatorState) -> None:
    state.phase = Running()
    state.due_ns = state.awake_ns
    if not state.is_draining:
        state.due_ns += state.options.checkpoint_every_ms * NANOSECONDS
