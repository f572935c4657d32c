"""Views: the numbered statements of who lives where. One table, ``(State, Event) -> handler``.

    Unformed ──Form──▶ Standing ──Change, RollBack──▶ Standing

An incarnation is the number of the view that began it; what it restores is fixed then and does not change during its
life. ``succession.GATE`` decides whether a view may be issued: never while a checkpoint is committing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from clonos.core.checkpoint.checkpoint_metadata import CheckpointMetadata
from clonos.core.coordinator.placement import Assignment
from clonos.core.model.ids import Incarnation, TaskId, ViewNumber, term_of, view_number
from clonos.core.model.machine import Machine, Table
from clonos.core.wire.control_messages import Placement, SlotAddress, View

# ------------------------------------------------------------------ states


@dataclass(frozen=True, slots=True)
class Unformed:
    """No view of this term yet. ``inherited``: the highest view of an earlier term that a living slot has."""

    term: int
    job_id: str
    inherited: View | None = None


@dataclass(frozen=True, slots=True)
class Standing:
    """The view that holds."""

    view: View


State = Unformed | Standing

# ------------------------------------------------------------------ events


@dataclass(frozen=True, slots=True)
class StartJob:
    """The job starts, or resumes: every task begins with the generation, at ``completed``."""

    generation: int
    completed: CheckpointMetadata
    assignment: Sequence[Assignment]
    addresses: tuple[SlotAddress, ...]


@dataclass(frozen=True, slots=True)
class ViewChange:
    """Some tasks begin a new incarnation (``restarted``: True for the cautious ones); riders and slots may differ."""

    restarted: dict[TaskId, bool]
    completed: CheckpointMetadata
    assignment: Sequence[Assignment]
    addresses: tuple[SlotAddress, ...]


@dataclass(frozen=True, slots=True)
class RollBack:
    """A log is lost: the next generation begins at ``completed``, every task with it."""

    completed: CheckpointMetadata
    assignment: Sequence[Assignment]
    addresses: tuple[SlotAddress, ...]


Event = StartJob | ViewChange | RollBack

# ------------------------------------------------------------------ handlers


def _form(state: Unformed, event: StartJob) -> Standing:
    number = view_number(state.term, 1)
    placements = tuple(_begun(number, t, seat, event.completed, True, False) for t, seat in enumerate(event.assignment))
    return Standing(View(number, event.generation, state.job_id, event.addresses, placements))


def _inherit(state: Unformed, event: ViewChange) -> Standing:
    assert state.inherited is not None, "a change needs a view to change"
    return Standing(_changed(state.inherited, view_number(state.term, 1), event))


def _change(state: Standing, event: ViewChange) -> Standing:
    return Standing(_changed(state.view, _following(state.view), event))


def _changed(view: View, number: ViewNumber, event: ViewChange) -> View:
    placements = tuple(
        _with_keepers_since(
            _begun(number, task, seat, event.completed, False, event.restarted[TaskId(task)]),
            number,
            view.placements[task],
        )
        if task in event.restarted
        else _reassigned(view.placements[task], seat, number)
        for task, seat in enumerate(event.assignment)
    )
    return View(number, view.generation, view.job_id, event.addresses, placements)


def _roll_back(state: Standing, event: RollBack) -> Standing:
    view, number = state.view, _following(state.view)
    placements = tuple(
        _with_keepers_since(_begun(number, t, seat, event.completed, True, False), number, view.placements[t])
        for t, seat in enumerate(event.assignment)
    )
    return Standing(View(number, number, view.job_id, event.addresses, placements))


def _following(view: View) -> ViewNumber:
    return view_number(term_of(view.number), (view.number & 0xFFFFFFFF) + 1)


def _begun(
    number: ViewNumber, task: int, seat: Assignment, completed: CheckpointMetadata, is_fresh: bool, is_cautious: bool
) -> Placement:
    entry = completed.tasks[task]
    return Placement(
        task=TaskId(task),
        incarnation=Incarnation(number),
        slot=seat.slot,
        restore=completed.checkpoint,
        objects=entry.objects,
        log_offset_bytes=entry.log_offset_bytes,
        is_fresh=is_fresh,
        is_cautious=is_cautious,
        standbys=seat.standbys,
        keepers=seat.keepers,
        keepers_since=(number,) * len(seat.keepers),
    )


def _with_keepers_since(placement: Placement, number: ViewNumber, before: Placement) -> Placement:
    """Keepers that the view before named too go on being what they are."""
    since = tuple(before.is_keeper_since(s) if s in before.keepers else number for s in placement.keepers)
    return msgspec.structs.replace(placement, keepers_since=since)


def _reassigned(placement: Placement, seat: Assignment, number: ViewNumber) -> Placement:
    """The same incarnation; only its riders may differ."""
    assert placement.slot == seat.slot, f"task {placement.task} was moved without a new incarnation"
    if placement.standbys == seat.standbys and placement.keepers == seat.keepers:
        return placement
    reassigned = msgspec.structs.replace(placement, standbys=seat.standbys, keepers=seat.keepers)
    return _with_keepers_since(reassigned, number, placement)


HANDLERS: Table[State] = {
    (Unformed, StartJob): _form,
    (Unformed, ViewChange): _inherit,
    (Standing, ViewChange): _change,
    (Standing, RollBack): _roll_back,
}


MACHINE: Machine[State, Event, State] = Machine("machine of the views", HANDLERS)
step = MACHINE.step
