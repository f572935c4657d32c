"""Mutants of a change of widths: the cut, its metadata, and the view that follows it (protocol 6.12).

Each breaks one of the rules by which nothing of a generation is under way when the next one begins.
"""

from __future__ import annotations

from typing import Any

import msgspec

from clonos.core.checkpoint.warm_states import WarmStates
from clonos.core.coordinator import checkpoint_machine, failover
from clonos.core.coordinator.coordinator_state import CoordinatorState
from clonos.core.model.ids import CheckpointId
from clonos.core.slot.slot import Slot
from clonos.core.slot.warm_ups import WarmUps
from clonos.core.task.task import Task
from clonos_chaos.jobs import keyed_jobs
from clonos_chaos.jobs.keyed_chain import WAITING
from clonos_chaos.project.mutants.mutation import Mutation, mutant
from clonos_chaos.sim import sim_resume
from clonos_chaos.sim.sim_coordinator import SimCoordinator
from clonos_chaos.swarm.world import World


@mutant("6")
def tasks_go_on_after_the_cut(mutation: Mutation) -> None:
    """A task makes no step after the barrier of the cut."""
    mutation.swap(Task, "_is_cut", False)


@mutant("6")
def cuts_end_by_themselves(mutation: Mutation) -> None:
    """Only a view ends the pause at a cut."""

    def end(right: Any, task: Task, is_over: Any, kind: type) -> None:
        if task._is_cut and (command := task.port.receive(task.port.now_ns() + 1_000_000)) is not None:
            task.take(command)
        task.cut = CheckpointId(0)

    mutation.wrap(Task, "_hold_commands_until", end)


@mutant("6")
def tasks_begin_before_the_output_of_the_cut_is_committed(mutation: Mutation) -> None:
    """The view that follows a cut waits until the cut's output is committed."""

    def issue(state: CoordinatorState) -> None:
        failover._issue(state)

    mutation.swap_entry(failover.GATE, checkpoint_machine.Publishing, issue)


@mutant("6")
def widths_are_not_in_the_metadata(mutation: Mutation) -> None:
    """The widths are in the metadata of the cut, where a new coordinator finds them."""

    def store(right: Any, coordinator: SimCoordinator, metadata: Any) -> None:
        right(coordinator, msgspec.structs.replace(metadata, is_cut=False))

    mutation.wrap(SimCoordinator, "_make_durable", store)


@mutant("6")
def slots_check_all_messages_by_their_own_plan(mutation: Mutation) -> None:
    """A message of another generation is dropped before its ids are looked up in the plan."""
    mutation.swap(Slot, "_is_of_another_view", lambda slot, sender, message: False)


@mutant("6")
def log_offsets_outlive_the_plan(mutation: Mutation) -> None:
    """Logs of another plan begin at their first byte."""

    def adopt(right: Any, slot: Slot, *arguments: Any) -> Any:
        retained = dict(slot.context.log_offsets)
        journals = right(slot, *arguments)
        slot.context.log_offsets.update(retained)
        return journals

    mutation.wrap(Slot, "_adopt", adopt)


@mutant("6")
def state_of_a_cut_is_not_divided(mutation: Mutation) -> None:
    """The state of a cut is divided among the next tasks before they begin."""
    mutation.swap(World, "divided", lambda world, metadata, term: metadata)


@mutant("6")
def keys_are_divided_by_their_remainder(mutation: Mutation) -> None:
    """The owner of a key follows from its group, as routes have it."""
    mutation.swap(keyed_jobs, "task_of", lambda key, width: key % width)


@mutant("6")
def waiting_rows_are_dealt(mutation: Mutation) -> None:
    """Rows that wait without their keys leave before the barrier of the cut."""

    def deal(state: Any, rows: Any, place: tuple[int, int] | None) -> None:
        index, width = place or (0, 1)
        state[WAITING] = [*state.get(WAITING, []), *rows[index::width]]

    mutation.swap(Task, "_drain", lambda task: None)
    mutation.swap(keyed_jobs, "_take_waiting", deal)


@mutant("6")
def drains_are_not_recorded(mutation: Mutation) -> None:
    """The log says where waiting rows have left before a cut, because a cut may be given up."""
    mutation.swap(Task, "_drain", Task._let_go)


@mutant("6")
def numbers_of_returning_tasks_are_forgotten(mutation: Mutation) -> None:
    """Each checkpoint has the number of the next row of every task that does not run any more."""

    def forget(right: Any, *arguments: Any) -> Any:
        return msgspec.structs.replace(right(*arguments), retired={})

    mutation.wrap(checkpoint_machine, "metadata_of", forget)


@mutant("6")
def tasks_that_return_begin_at_zero(mutation: Mutation) -> None:
    """A task that returns goes on at the number of its next row."""

    def forget(right: Any, metadata: Any, *arguments: Any) -> Any:
        return right(msgspec.structs.replace(metadata, retired={}), *arguments)

    mutation.wrap(keyed_jobs, "_next_rows", forget)


@mutant("6")
def splits_that_others_have_found_are_forgotten(mutation: Mutation) -> None:
    """A source task knows the splits that any task has found."""

    def deal(right: Any, found: Any, index: int, width: int) -> Any:
        positions, _ = right(found, index, width)
        return positions, sorted(positions)

    mutation.wrap(keyed_jobs, "dealt", deal)


@mutant("6")
def splits_stay_with_their_tasks(mutation: Mutation) -> None:
    """The splits of all tasks of a source are dealt again."""

    def deal(right: Any, found: Any, index: int, width: int) -> Any:
        _, known = right(found, index, width)
        return (found[index][0] if index < len(found) else {}), known

    mutation.wrap(keyed_jobs, "dealt", deal)


@mutant("6")
def the_rest_of_a_chain_is_not_read(mutation: Mutation) -> None:
    """A task that begins with what was read for it reads what has come since."""

    def take(right: Any, warm: WarmStates, key: Any, names: Any, read: Any, new_mirror: Any) -> Any:
        _, restored = warm._states.pop(key, ((), None))
        return right(warm, key, names, read, new_mirror) if restored is None else restored

    mutation.wrap(WarmStates, "take", take)


@mutant("6")
def what_was_read_outlives_its_generation(mutation: Mutation) -> None:
    """A generation drops what was read for tasks of the next plan."""
    mutation.swap(WarmUps, "drop", lambda warm_ups: None)


@mutant("6")
def starts_withdraw_no_rows(mutation: Mutation) -> None:
    """A start with other widths withdraws the rows of tasks that do not run any more."""
    mutation.swap(sim_resume, "_withdraw", lambda *arguments: None)


@mutant("6")
def starts_commit_prepared_output_again(mutation: Mutation) -> None:
    """The checkpoint of a start with other widths has no output that an earlier one has committed."""
    mutation.swap(sim_resume, "_without_parts", lambda entry: entry)
