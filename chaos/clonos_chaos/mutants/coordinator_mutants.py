"""Wrong rules of the coordinator: acknowledgements, committing, views, repeats, garbage, poison, terms."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from clonos.core.checkpoint.checkpoint_metadata import CheckpointMetadata
from clonos.core.coordinator import checkpoint_ledger as ledger
from clonos.core.coordinator import (
    checkpoint_machine,
    coordinator,
    event_handlers,
    failover,
    failure_policy,
    startup,
    view_machine,
)
from clonos.core.coordinator.coordinator_state import CoordinatorState, Running
from clonos.core.slot.hosted_task import HostedTask
from clonos.core.wire.control_messages import Register
from clonos_chaos.mutants.mutation import Planting, mutant
from clonos_chaos.sim.sim_coordinator import SimCoordinator

_MOVING = (checkpoint_machine.Collecting, checkpoint_machine.Committing, checkpoint_machine.Publishing)


@mutant("5")
def acknowledgements_of_the_dead_count(planting: Planting) -> None:
    """Only acknowledgements of current incarnations count."""
    for state in _MOVING:
        planting.swap_entry(
            checkpoint_machine.HANDLERS,
            (state, checkpoint_machine.Acknowledged),
            lambda state, event: checkpoint_machine.count(state, event.message),
        )


@mutant("5")
def acknowledgements_are_not_forgotten(planting: Planting) -> None:
    """At a failure the coordinator forgets the acknowledgements of the dead."""

    def forget(state: Any, event: Any) -> Any:
        after, effects = checkpoint_machine._forget(state, event)
        ledger = replace(after.ledger, pending=state.ledger.pending, finals=state.ledger.finals)
        return replace(after, ledger=ledger), effects

    for state in _MOVING:
        planting.swap_entry(checkpoint_machine.HANDLERS, (state, checkpoint_machine.Died), forget)


@mutant("8")
def pending_checkpoints_outlive_the_generation(planting: Planting) -> None:
    """A new generation forgets all that is pending."""

    def renew(state: Any, event: Any) -> Any:
        ledger = replace(state.ledger, generation=event.generation, incarnations=event.incarnations)
        return replace(state, ledger=ledger), ()

    for state in _MOVING:
        planting.swap_entry(checkpoint_machine.HANDLERS, (state, checkpoint_machine.Renewed), renew)


@mutant("5")
def no_committing(planting: Planting) -> None:
    """Views wait while a checkpoint is committing."""
    planting.swap_entry(failover.GATE, checkpoint_machine.Committing, failover._issue)


@mutant("5")
def complete_before_it_is_durable(planting: Planting) -> None:
    """A checkpoint is complete when its metadata is durable."""

    def advance(right: Any, state: Any) -> Any:
        after, effects = right(state)
        if isinstance(after, checkpoint_machine.Committing) and not isinstance(state, checkpoint_machine.Committing):
            after, more = checkpoint_machine._complete(after, checkpoint_machine.Durable(after.metadata.checkpoint))
            return after, (*effects, *more)
        return after, effects

    planting.wrap(checkpoint_machine, "_advance", advance)


@mutant("5")
def one_acknowledgement_is_enough(planting: Planting) -> None:
    """A checkpoint needs an acknowledgement of every task."""

    def metadata_of(right: Any, book: Any, number: Any, messages: Any) -> CheckpointMetadata:
        return right(book, number, messages)  # type: ignore[no-any-return]

    def with_acknowledgement(right: Any, pending: Any, message: Any) -> Any:
        after = right(pending, message)
        return replace(after, acknowledged=_AlmostAll(after.acknowledged))

    planting.wrap(checkpoint_machine, "metadata_of", metadata_of)
    planting.wrap(checkpoint_machine, "with_acknowledgement", with_acknowledgement)


class _AlmostAll(dict[Any, Any]):
    """A table of acknowledgements that counts one more than it has; whoever is missing is given the last one's."""

    def __len__(self) -> int:
        return super().__len__() + 1

    def __missing__(self, task: Any) -> Any:
        from clonos.core.wire.control_messages import Snapshotted

        some: Snapshotted = next(iter(self.values()))
        return Snapshotted(task, some.incarnation, some.checkpoint, (), 0, (), False)


def _repeat_without(planting: Planting, word: str) -> None:
    def repeat(right: Any, state: CoordinatorState) -> None:
        before = len(state.effects)
        right(state)
        kept = [e for e in state.effects[before:] if type(getattr(e, "message", None)).__name__ != word]
        state.effects[before:] = kept

    right = event_handlers.REPEAT
    planting.swap(event_handlers, "REPEAT", lambda state: repeat(right, state))


@mutant("4")
def no_repeated_views(planting: Planting) -> None:
    """Views are repeated until installed."""
    _repeat_without(planting, "View")


@mutant("4, 5")
def no_repeated_triggers(planting: Planting) -> None:
    """Triggers are repeated until acknowledged."""
    _repeat_without(planting, "Trigger")


@mutant("4")
def no_repeated_completions(planting: Planting) -> None:
    """Completions are repeated until a slot has heard of them."""
    _repeat_without(planting, "Completed")


@mutant("4")
def no_repeated_acknowledgements(planting: Planting) -> None:
    """Acknowledgements of checkpoints are repeated until the checkpoint is over."""

    def tick(right: Any, self: HostedTask) -> None:
        told, self.acknowledge_snapshots = self.acknowledge_snapshots, lambda: None  # type: ignore[method-assign]
        right(self)
        self.acknowledge_snapshots = told  # type: ignore[method-assign]

    planting.wrap(HostedTask, "tick", tick)


@mutant("6.2")
def views_name_an_older_checkpoint(planting: Planting) -> None:
    """A successor restores the last completed checkpoint, no earlier one."""

    def begun(right: Any, number: Any, task: Any, seat: Any, completed: Any, *arguments: Any) -> Any:
        return right(number, task, seat, _previous.get(id(completed), completed), *arguments)

    _previous: dict[int, CheckpointMetadata] = {}

    def complete(state: Any, event: Any) -> Any:
        after, effects = checkpoint_machine._complete(state, event)
        _previous[id(after.ledger.completed)] = after.ledger.previous
        return after, effects

    planting.wrap(view_machine, "_begun", begun)
    planting.swap_entry(
        checkpoint_machine.HANDLERS, (checkpoint_machine.Committing, checkpoint_machine.Durable), complete
    )


@mutant("7")
def keepers_that_were_let_go_count_as_ready(planting: Planting) -> None:
    """Only what a keeper says under the view that stands counts: one that was let go has thrown away what it held."""

    ever: dict[Any, Any] = {}

    def assignment_for(right: Any, state: CoordinatorState, view: Any, domains: Any) -> Any:
        ever.update({(slot, task): by for slot, said in state.statuses.items() for task, by in said.keepers})
        return right(state, view, domains)

    def place(right: Any, options: Any, domains: Any, assignment: Any, ready: Any, hosts: Any) -> Any:
        return right(options, domains, assignment, replace(ready, keepers=ever), hosts)

    planting.wrap(failover, "assignment_for", assignment_for)
    planting.wrap(failover, "place", place)


@mutant("7")
def keepers_of_the_dead_are_let_go(planting: Planting) -> None:
    """A view that begins an incarnation lets none go that kept for the one before: the others may be dead as well."""

    incarnations: list[Any] = []

    def assignment_for(right: Any, state: CoordinatorState, view: Any, domains: Any) -> Any:
        incarnations[:] = [placement.incarnation for placement in view.placements]
        return right(state, view, domains)

    def place(right: Any, options: Any, domains: Any, assignment: Any, ready: Any, hosts: Any) -> Any:
        return right(options, domains, assignment, replace(ready, incarnations=tuple(incarnations)), hosts)

    planting.wrap(failover, "assignment_for", assignment_for)
    planting.wrap(failover, "place", place)


@mutant("8")
def lost_is_ignored(planting: Planting) -> None:
    """A new generation begins when a task reports LOST."""
    from clonos.core.coordinator.coordinator import HANDLERS
    from clonos.core.coordinator.coordinator_state import Running
    from clonos.core.wire.recovery_messages import LogLost

    planting.swap_entry(HANDLERS, (Running, LogLost), lambda state, event: None)


@mutant("8")
def rollback_of_the_lost_task_only(planting: Planting) -> None:
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

    planting.swap_entry(view_machine.HANDLERS, (view_machine.Standing, view_machine.RollBack), roll_back)


@mutant("6.2")
def incarnations_are_used_again(planting: Planting) -> None:
    """A new incarnation bears a number that was never used."""

    def following(right: Any, view: Any) -> Any:
        return right(view)

    def begun(right: Any, number: Any, *arguments: Any) -> Any:
        placement = right(number, *arguments)
        fields = {name: getattr(placement, name) for name in placement.__struct_fields__}
        return type(placement)(**{**fields, "incarnation": (number >> 32 << 32) + 1})

    planting.wrap(view_machine, "_next_number", following)
    planting.wrap(view_machine, "_begun", begun)


@mutant("5")
def garbage_is_collected_too_early(planting: Planting) -> None:
    """Deletion keeps all that the last two checkpoints and what is pending need."""

    def collect(right: Any, book: Any, dropped: Any) -> Any:
        names, after = right(book, dropped)
        needed = {entry.objects[-1] for entry in book.completed.tasks if entry.objects}
        every = book.completed.objects() | book.previous.objects()
        return tuple(sorted({*names, *(every - needed)})), after

    planting.wrap(checkpoint_machine, "collect_garbage", collect)


@mutant("5")
def output_is_committed_twice(planting: Planting) -> None:
    """What a completed checkpoint has committed is not committed again."""

    def entry(right: Any, completed: CheckpointMetadata, message: Any) -> Any:
        earlier = completed.tasks[message.task].prepared
        found = right(completed, message)
        fields = {name: getattr(found, name) for name in found.__struct_fields__}
        return type(found)(**{**fields, "prepared": (*earlier, *found.prepared)})

    planting.wrap(ledger, "_entry", entry)


@mutant("6")
def poison_is_tried_for_ever(planting: Planting) -> None:
    """The same input element raising twice is a poison record."""
    planting.swap(failure_policy, "is_same_element", lambda one, other: False)


@mutant("9")
def terms_are_not_claimed(planting: Planting) -> None:
    """Who finds the number taken is coordinator no longer."""
    planting.swap(SimCoordinator, "is_current", property(lambda self: True))


@mutant("9")
def new_coordinators_ask_nobody(planting: Planting) -> None:
    """A new coordinator asks whoever it hears for its view, and waits for that."""
    planting.swap(startup, "_request_view", lambda state, phase, slot: False)


@mutant("6.9")
def slots_that_come_are_not_used(planting: Planting) -> None:
    """A task that lacks a standby or a keeper in another process gets one as soon as a slot registers."""

    def register(state: CoordinatorState, event: Any) -> None:
        is_due = state.is_mending_due
        startup.register(state, event)
        state.is_mending_due = is_due

    planting.swap_entry(coordinator.HANDLERS, (Running, Register), register)


@mutant("9")
def fenced_sinks_wait_for_a_view(planting: Planting) -> None:
    """A sink that its outside refuses says so: nobody who is alive may know of the life that it was refused for."""
    from clonos.core.external.output_gate import OutputGate

    planting.swap(OutputGate, "on_fenced", lambda self, generation, incarnation: None)


@mutant("9")
def fenced_sinks_begin_anew_only(planting: Planting) -> None:
    """What a later generation has let out an earlier one cannot go on from, whatever its incarnation."""
    from clonos.core.coordinator.coordinator import HANDLERS
    from clonos.core.coordinator.coordinator_state import Running
    from clonos.core.wire.recovery_messages import SinkFenced

    def take_fenced(state: Any, event: Any) -> None:
        fenced = event.message
        if state.is_current(fenced.task, fenced.incarnation):
            failover.fall(state, (fenced.task,), "its outside has registered a later life")

    planting.swap_entry(HANDLERS, (Running, SinkFenced), take_fenced)


@mutant("9")
def slots_obey_any_term(planting: Planting) -> None:
    """Slots obey the highest term."""
    from clonos.core.slot.slot import Slot

    def on_view(right: Any, self: Slot, sender: Any, view: Any, payload: Any) -> None:
        if view.number and view.number >> 32 < self.view.number >> 32:
            fields = {name: getattr(self.view, name) for name in self.view.__struct_fields__}
            self.view = type(self.view)(**{**fields, "number": view.number - 1})
        right(self, sender, view, payload)

    planting.wrap(Slot, "_on_view", on_view)
