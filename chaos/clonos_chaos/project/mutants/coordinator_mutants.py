"""Mutants of the coordinator: acknowledgements, committing, views, repeats, garbage, poison records, terms."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from clonos.core.checkpoint import checkpoint_events
from clonos.core.checkpoint.checkpoint_metadata import CheckpointMetadata
from clonos.core.coordinator import checkpoint_ledger as ledger
from clonos.core.coordinator import (
    checkpoint_machine,
    coordinator,
    event_handlers,
    failover,
    failure_policy,
    relocation,
    startup,
    takeover,
    view_machine,
)
from clonos.core.coordinator.coordinator_events import Ticked
from clonos.core.coordinator.coordinator_state import CoordinatorState, Running
from clonos.core.slot.hosted_task import HostedTask
from clonos.core.wire.control_messages import Register
from clonos_chaos.project.mutants.mutation import Mutation, mutant
from clonos_chaos.sim.sim_coordinator import SimCoordinator

_MOVING = (checkpoint_machine.Collecting, checkpoint_machine.Committing, checkpoint_machine.Publishing)


@mutant("5")
def acknowledgements_of_the_dead_count(mutation: Mutation) -> None:
    """Only acknowledgements of current incarnations count."""

    def count_anyone(state: Any, event: Any) -> Any:
        after = replace(state, ledger=ledger.with_counted(state.ledger, event.message))
        return checkpoint_machine.advance(after) if isinstance(after, checkpoint_machine.Collecting) else (after, ())

    for state in _MOVING:
        mutation.swap_entry(checkpoint_machine.HANDLERS, (state, checkpoint_events.Acknowledged), count_anyone)


@mutant("5")
def acknowledgements_are_not_forgotten(mutation: Mutation) -> None:
    """At a failure the coordinator forgets the acknowledgements of the dead."""

    def forget(state: Any, event: Any) -> Any:
        after, effects = checkpoint_machine._forget(state, event)
        ledger = replace(after.ledger, pending=state.ledger.pending, finals=state.ledger.finals)
        return replace(after, ledger=ledger), effects

    for state in _MOVING:
        mutation.swap_entry(checkpoint_machine.HANDLERS, (state, checkpoint_events.Died), forget)


@mutant("8")
def pending_checkpoints_outlive_the_generation(mutation: Mutation) -> None:
    """A new generation forgets all that is pending."""

    def renew(state: Any, event: Any) -> Any:
        ledger = replace(state.ledger, generation=event.generation, incarnations=event.incarnations)
        return replace(state, ledger=ledger), ()

    for state in _MOVING:
        mutation.swap_entry(checkpoint_machine.HANDLERS, (state, checkpoint_events.Renewed), renew)


@mutant("5")
def no_committing(mutation: Mutation) -> None:
    """Views wait while a checkpoint is committing."""
    mutation.swap_entry(failover.GATE, checkpoint_machine.Committing, failover._issue)


@mutant("5")
def complete_before_it_is_durable(mutation: Mutation) -> None:
    """A checkpoint is complete when its metadata is durable."""

    def advance(right: Any, state: Any) -> Any:
        after, effects = right(state)
        if isinstance(after, checkpoint_machine.Committing) and not isinstance(state, checkpoint_machine.Committing):
            after, more = checkpoint_machine._complete(after, checkpoint_events.Durable(after.metadata.checkpoint))
            return after, (*effects, *more)
        return after, effects

    mutation.wrap(checkpoint_machine, "advance", advance)


@mutant("5")
def one_acknowledgement_is_enough(mutation: Mutation) -> None:
    """A checkpoint needs an acknowledgement of every task."""

    def metadata_of(right: Any, book: Any, number: Any, messages: Any) -> CheckpointMetadata:
        return right(book, number, messages)  # type: ignore[no-any-return]

    def with_acknowledgement(right: Any, pending: Any, message: Any) -> Any:
        after = right(pending, message)
        return replace(after, acknowledged=_AlmostAll(after.acknowledged))

    mutation.wrap(checkpoint_machine, "metadata_of", metadata_of)
    mutation.wrap(ledger, "with_acknowledgement", with_acknowledgement)


class _AlmostAll(dict[Any, Any]):
    """Table of acknowledgements that counts one too many; a missing task gets the acknowledgement of another one."""

    def __len__(self) -> int:
        return super().__len__() + 1

    def __missing__(self, task: Any) -> Any:
        from clonos.core.wire.control_messages import Snapshotted

        some: Snapshotted = next(iter(self.values()))
        return Snapshotted(task, some.incarnation, some.checkpoint, (), 0, (), False)


def _repeat_without(mutation: Mutation, word: str) -> None:
    def repeat(right: Any, state: CoordinatorState) -> None:
        before = len(state.effects)
        right(state)
        other_effects = [e for e in state.effects[before:] if type(getattr(e, "message", None)).__name__ != word]
        state.effects[before:] = other_effects

    right = event_handlers.REPEAT
    mutation.swap(event_handlers, "REPEAT", lambda state: repeat(right, state))


@mutant("4")
def no_repeated_views(mutation: Mutation) -> None:
    """Views are repeated until installed."""
    _repeat_without(mutation, "View")


@mutant("4, 5")
def no_repeated_triggers(mutation: Mutation) -> None:
    """Triggers are repeated until acknowledged."""
    _repeat_without(mutation, "TriggerCheckpoint")


@mutant("4")
def no_repeated_completions(mutation: Mutation) -> None:
    """Completions are repeated until a slot knows them."""
    _repeat_without(mutation, "Completed")


@mutant("4")
def no_repeated_acknowledgements(mutation: Mutation) -> None:
    """Acknowledgements of checkpoints are repeated until the checkpoint ends."""

    def tick(right: Any, self: HostedTask) -> None:
        acknowledge, self.acknowledge_snapshots = self.acknowledge_snapshots, lambda: None  # type: ignore[method-assign]
        right(self)
        self.acknowledge_snapshots = acknowledge  # type: ignore[method-assign]

    mutation.wrap(HostedTask, "tick", tick)


@mutant("6.2")
def views_name_an_older_checkpoint(mutation: Mutation) -> None:
    """A successor restores the last completed checkpoint, not an earlier one."""

    def begun(right: Any, number: Any, task: Any, assigned: Any, completed: Any, *arguments: Any) -> Any:
        return right(number, task, assigned, _previous.get(id(completed), completed), *arguments)

    _previous: dict[int, CheckpointMetadata] = {}

    def complete(state: Any, event: Any) -> Any:
        after, effects = checkpoint_machine._complete(state, event)
        _previous[id(after.ledger.completed)] = after.ledger.previous
        return after, effects

    mutation.wrap(view_machine, "_begun", begun)
    mutation.swap_entry(
        checkpoint_machine.HANDLERS, (checkpoint_machine.Committing, checkpoint_events.Durable), complete
    )


@mutant("7")
def dropped_keepers_count_as_ready(mutation: Mutation) -> None:
    """Only a keeper's status under the current view counts: a keeper that was dropped has deleted its logs."""

    ever: dict[Any, Any] = {}

    def assignment_for(right: Any, state: CoordinatorState, view: Any, domains: Any) -> Any:
        ever.update({(slot, task): by for slot, reports in state.statuses.items() for task, by in reports.keepers})
        return right(state, view, domains)

    def place(right: Any, options: Any, domains: Any, assignment: Any, ready: Any, *more: Any) -> Any:
        return right(options, domains, assignment, replace(ready, keepers=ever), *more)

    mutation.wrap(failover, "assignment_for", assignment_for)
    mutation.wrap(failover, "place", place)


@mutant("7")
def keepers_of_the_dead_are_dropped(mutation: Mutation) -> None:
    """A view that begins an incarnation drops no keeper of the earlier one: the others may be dead as well."""

    incarnations: list[Any] = []

    def assignment_for(right: Any, state: CoordinatorState, view: Any, domains: Any) -> Any:
        incarnations[:] = [placement.incarnation for placement in view.placements]
        return right(state, view, domains)

    def place(right: Any, options: Any, domains: Any, assignment: Any, ready: Any, hosts: Any) -> Any:
        return right(options, domains, assignment, replace(ready, incarnations=tuple(incarnations)), hosts)

    mutation.wrap(failover, "assignment_for", assignment_for)
    mutation.wrap(failover, "place", place)


@mutant("8")
def lost_is_ignored(mutation: Mutation) -> None:
    """A new generation begins when a task reports a lost log."""
    from clonos.core.coordinator.coordinator import HANDLERS
    from clonos.core.coordinator.coordinator_state import Running
    from clonos.core.wire.recovery_messages import LogLost

    mutation.swap_entry(HANDLERS, (Running, LogLost), lambda state, event: None)


@mutant("8")
def rollback_of_the_lost_task_only(mutation: Mutation) -> None:
    """A generation begins with all tasks, each a new incarnation."""

    def roll_back(state: Any, event: Any) -> Any:
        after = view_machine._roll_back(state, event)
        assert isinstance(after, view_machine.Standing)
        placements = tuple(
            new if index == 0 else old
            for index, (new, old) in enumerate(zip(after.view.placements, state.view.placements, strict=True))
        )
        fields = {name: getattr(after.view, name) for name in after.view.__struct_fields__}
        return view_machine.Standing(type(after.view)(**{**fields, "placements": placements}))

    mutation.swap_entry(view_machine.HANDLERS, (view_machine.Standing, view_machine.RollBack), roll_back)


@mutant("6.2")
def incarnations_are_used_again(mutation: Mutation) -> None:
    """A new incarnation has a number that was never used."""

    def following(right: Any, view: Any) -> Any:
        return right(view)

    def begun(right: Any, number: Any, *arguments: Any) -> Any:
        placement = right(number, *arguments)
        fields = {name: getattr(placement, name) for name in placement.__struct_fields__}
        return type(placement)(**{**fields, "incarnation": (number >> 32 << 32) + 1})

    mutation.wrap(view_machine, "_next_number", following)
    mutation.wrap(view_machine, "_begun", begun)


@mutant("5")
def garbage_is_collected_too_early(mutation: Mutation) -> None:
    """Deletion keeps all objects that the last two checkpoints and pending ones need."""

    def collect(right: Any, book: Any, dropped: Any) -> Any:
        names, after = right(book, dropped)
        needed = {entry.objects[-1] for entry in book.completed.tasks if entry.objects}
        every = book.completed.objects() | book.previous.objects()
        return tuple(sorted({*names, *(every - needed)})), after

    mutation.wrap(checkpoint_machine, "collect_garbage", collect)


@mutant("5")
def output_is_committed_twice(mutation: Mutation) -> None:
    """The output of a completed checkpoint is not committed again."""

    def entry(right: Any, completed: CheckpointMetadata, message: Any) -> Any:
        earlier = completed.tasks[message.task].prepared
        found = right(completed, message)
        fields = {name: getattr(found, name) for name in found.__struct_fields__}
        return type(found)(**{**fields, "prepared": (*earlier, *found.prepared)})

    mutation.wrap(ledger, "_entry", entry)


@mutant("6")
def poison_is_tried_for_ever(mutation: Mutation) -> None:
    """An input element at which two incarnations raise is a poison record."""
    mutation.swap(failure_policy, "is_same_element", lambda one, other: False)


@mutant("9")
def terms_are_not_claimed(mutation: Mutation) -> None:
    """A coordinator that finds its checkpoint number taken stands down."""
    mutation.swap(SimCoordinator, "is_current", property(lambda self: True))


@mutant("9")
def new_coordinators_ask_nobody(mutation: Mutation) -> None:
    """A new coordinator asks every slot that contacts it for its view, and waits for the reply."""
    mutation.swap(takeover, "_request_view", lambda state, phase, slot: False)


@mutant("9")
def new_coordinators_await_one_slot(mutation: Mutation) -> None:
    """A new coordinator that knows its slots by name waits until each of them has answered or is known to be dead."""

    def has_one_answered(state: CoordinatorState, phase: Any) -> bool:
        return any(slot in state.statuses for slot in phase.named)

    mutation.swap(takeover, "_have_all_answered", has_one_answered)


@mutant("6.9")
def slots_that_come_are_not_used(mutation: Mutation) -> None:
    """A task that lacks a standby or a keeper in another process gets one as soon as a slot registers."""

    def register(state: CoordinatorState, event: Any) -> None:
        is_due = state.is_placement_due
        startup.register(state, event)
        state.is_placement_due = is_due

    mutation.swap_entry(coordinator.HANDLERS, (Running, Register), register)


@mutant("9")
def fenced_sinks_wait_for_a_view(mutation: Mutation) -> None:
    """A sink that is fenced reports it: no living process may know the incarnation that fenced it."""
    from clonos.core.slot import slot
    from clonos.core.slot.slot_events import SinkWriterFenced

    mutation.swap_entry(slot.HANDLERS, SinkWriterFenced, lambda slot, event: None)


@mutant("9")
def fenced_sinks_begin_anew_only(mutation: Mutation) -> None:
    """No incarnation of an earlier generation continues after the output of a later generation."""
    from clonos.core.coordinator.coordinator import HANDLERS
    from clonos.core.coordinator.coordinator_state import Running
    from clonos.core.wire.recovery_messages import SinkFenced

    def on_sink_fenced(state: Any, event: Any) -> None:
        fenced = event.message
        if state.is_current(fenced.task, fenced.incarnation):
            failover.fail_tasks(state, (fenced.task,), "its external system has registered a later incarnation")

    mutation.swap_entry(HANDLERS, (Running, SinkFenced), on_sink_fenced)


@mutant("9")
def slots_obey_any_term(mutation: Mutation) -> None:
    """Slots obey the highest term."""
    from clonos.core.slot.slot import FROM_COORDINATOR, Slot
    from clonos.core.wire.control_messages import View

    def on_view(right: Any, self: Slot, sender: Any, view: Any, payload: Any) -> None:
        if view.number and view.number >> 32 < self.view.number >> 32:
            fields = {name: getattr(self.view, name) for name in self.view.__struct_fields__}
            self.view = type(self.view)(**{**fields, "number": view.number - 1})
        right(self, sender, view, payload)

    mutation.wrap_entry(FROM_COORDINATOR, View, on_view)


@mutant("6.11")
def tasks_move_without_suspension(mutation: Mutation) -> None:
    """A task moves when it has said that nothing of it is under way outside of the job."""

    def tick(right: Any, state: CoordinatorState, event: Any) -> None:
        right(state, event)
        for task in state.suspended_tasks:
            relocation._move(state, task, 0)
        state.suspended_tasks = {}

    mutation.wrap_entry(coordinator.HANDLERS, (Running, Ticked), tick)
