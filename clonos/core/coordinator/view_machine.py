"""View machine: numbered views of which task runs where. One table, ``(State, Event) -> handler`` (protocol 6 and 8).

    Unformed ──StartJob, ViewChange, Switch──▶ Standing ──ViewChange, RollBack, Switch──▶ Standing

An incarnation has the number of the view that began it. What it restores is fixed then and does not change during its
life. ``failover.GATE`` decides whether a view may be issued: never while a checkpoint is committing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from clonos.core.checkpoint.checkpoint_metadata import CheckpointMetadata
from clonos.core.model.ids import CheckpointId, Incarnation, TaskId, ViewNumber, term_of, view_number
from clonos.core.model.machine import Machine, Table
from clonos.core.placement.assignment import Assignment
from clonos.core.wire.control_messages import Placement, SlotAddress, View

NO_CUT = CheckpointId(0)

# ------------------------------------------------------------------ states


@dataclass(frozen=True, slots=True)
class Unformed:
    """State before the first view of this term. ``adopted`` is the highest view that living slots have of an earlier
    one.
    """

    term: int
    job_id: str
    adopted: View | None = None


@dataclass(frozen=True, slots=True)
class Standing:
    """State with a view in force."""

    view: View


State = Unformed | Standing

# ------------------------------------------------------------------ events


@dataclass(frozen=True, slots=True)
class StartJob:
    """Event: the job starts or resumes. Every task begins with the generation, at ``completed``. ``widths``: of its
    vertices, if they are not those of the job's plan."""

    generation: int
    completed: CheckpointMetadata
    assignment: Sequence[Assignment]
    addresses: tuple[SlotAddress, ...]
    widths: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class ViewChange:
    """Event: some tasks begin a new incarnation, are suspended or go on, or standbys, keepers or slots change.

    ``restarted`` has True for tasks that begin in single-step mode. ``confirmed`` has, for those of them that move, the
    number below which their external systems have confirmed all output.
    """

    restarted: dict[TaskId, bool]
    completed: CheckpointMetadata
    assignment: Sequence[Assignment]
    addresses: tuple[SlotAddress, ...]
    suspended: frozenset[TaskId] = frozenset()
    resumed: frozenset[TaskId] = frozenset()
    confirmed: Mapping[TaskId, int] = field(default_factory=dict)
    cut: CheckpointId = NO_CUT


@dataclass(frozen=True, slots=True)
class Switch:
    """Event: the checkpoint of a cut is complete, so every task begins at it, in the next generation.

    ``completed`` has the tasks of that generation. ``predecessors``: the task of the same name in the view before, if
    there is one. ``is_known``: this coordinator knows that no view has switched before, so that nothing has left after
    the cut.
    """

    completed: CheckpointMetadata
    assignment: Sequence[Assignment]
    addresses: tuple[SlotAddress, ...]
    predecessors: tuple[TaskId | None, ...]
    is_known: bool


@dataclass(frozen=True, slots=True)
class RollBack:
    """Event: a log is lost, so every task begins again at ``completed``, in the next generation."""

    completed: CheckpointMetadata
    assignment: Sequence[Assignment]
    addresses: tuple[SlotAddress, ...]


Event = StartJob | ViewChange | Switch | RollBack

# ------------------------------------------------------------------ handlers


def _start_job(state: Unformed, event: StartJob) -> Standing:
    number = view_number(state.term, 1)
    placements = tuple(
        _begun(number, t, assigned, event.completed, True, False) for t, assigned in enumerate(event.assignment)
    )
    return Standing(View(number, event.generation, state.job_id, event.addresses, placements, event.widths))


def _adopt_view(state: Unformed, event: ViewChange) -> Standing:
    assert state.adopted is not None, "a change needs a view to change"
    return Standing(_changed(state.adopted, view_number(state.term, 1), event))


def _change(state: Standing, event: ViewChange) -> Standing:
    return Standing(_changed(state.view, _next_number(state.view), event))


def _changed(view: View, number: ViewNumber, event: ViewChange) -> View:
    placements = [
        _with_keepers_since(
            _begun(
                number,
                task,
                assigned,
                event.completed,
                False,
                event.restarted[TaskId(task)],
                event.confirmed.get(TaskId(task), 0),
            ),
            number,
            view.placements[task],
        )
        if task in event.restarted
        else _reassigned(view.placements[task], assigned, number)
        for task, assigned in enumerate(event.assignment)
    ]
    for task in (event.suspended | event.resumed) - event.restarted.keys():
        placements[task] = msgspec.structs.replace(placements[task], is_suspended=task in event.suspended)
    head = number, view.generation, view.job_id, event.addresses, tuple(placements), view.widths
    return View(*head, event.cut, view.begins_at_cut)


def _switch(state: Standing, event: Switch) -> Standing:
    return Standing(_switched(state.view, _next_number(state.view), event))


def _switch_adopted(state: Unformed, event: Switch) -> Standing:
    assert state.adopted is not None, "a switch needs a view that it follows"
    return Standing(_switched(state.adopted, view_number(state.term, 1), event))


def _switched(view: View, number: ViewNumber, event: Switch) -> View:
    before = [None if task is None else view.placements[task] for task in event.predecessors]
    head = number, number, view.job_id, event.addresses, _all_begun(number, event, before), event.completed.widths
    return View(*head, begins_at_cut=event.is_known)


def _roll_back(state: Standing, event: RollBack) -> Standing:
    view, number = state.view, _next_number(state.view)
    placements = _all_begun(number, event, view.placements)
    return Standing(View(number, number, view.job_id, event.addresses, placements, view.widths))


def _all_begun(
    number: ViewNumber, event: Switch | RollBack, before: Sequence[Placement | None]
) -> tuple[Placement, ...]:
    """Returns the placements by which every task begins again, in the next generation."""
    begun = [_begun(number, t, assigned, event.completed, True, False) for t, assigned in enumerate(event.assignment)]
    pairs = zip(begun, before, strict=True)
    return tuple(p if old is None else _with_keepers_since(p, number, old) for p, old in pairs)


def _next_number(view: View) -> ViewNumber:
    return view_number(term_of(view.number), (view.number & 0xFFFFFFFF) + 1)


def _begun(
    number: ViewNumber,
    task: int,
    assigned: Assignment,
    completed: CheckpointMetadata,
    is_fresh: bool,
    is_single_step: bool,
    confirmed_seq: int = 0,
) -> Placement:
    entry = completed.tasks[task]
    return Placement(
        task=TaskId(task),
        incarnation=Incarnation(number),
        slot=assigned.slot,
        restore=completed.checkpoint,
        objects=entry.objects,
        log_offset_bytes=entry.log_offset_bytes,
        is_fresh=is_fresh,
        is_single_step=is_single_step,
        standbys=assigned.standbys,
        keepers=assigned.keepers,
        keepers_since=(number,) * len(assigned.keepers),
        confirmed_seq=confirmed_seq,
    )


def _with_keepers_since(placement: Placement, number: ViewNumber, before: Placement) -> Placement:
    """Returns the placement with the first views of keepers that the view before also named."""
    since = tuple(before.is_keeper_since(s) if s in before.keepers else number for s in placement.keepers)
    return msgspec.structs.replace(placement, keepers_since=since)


def _reassigned(placement: Placement, assigned: Assignment, number: ViewNumber) -> Placement:
    """Returns the placement of the same incarnation, with new standbys and keepers."""
    assert placement.slot == assigned.slot, f"task {placement.task} was moved without a new incarnation"
    if placement.standbys == assigned.standbys and placement.keepers == assigned.keepers:
        return placement
    reassigned = msgspec.structs.replace(placement, standbys=assigned.standbys, keepers=assigned.keepers)
    return _with_keepers_since(reassigned, number, placement)


HANDLERS: Table[State] = {
    (Unformed, StartJob): _start_job,
    (Unformed, ViewChange): _adopt_view,
    (Standing, ViewChange): _change,
    (Standing, RollBack): _roll_back,
    (Standing, Switch): _switch,
    (Unformed, Switch): _switch_adopted,
}


MACHINE: Machine[State, Event, State] = Machine("machine of the views", HANDLERS)
step = MACHINE.step
