"""Mutants of a change of widths: the cut, its metadata, and the view that follows it (protocol 6.12).

Each breaks one of the rules by which nothing of a generation is under way when the next one begins.
"""

from __future__ import annotations

from typing import Any

import msgspec

from clonos.core.coordinator import checkpoint_machine, failover, rescale
from clonos.core.coordinator.coordinator_state import CoordinatorState
from clonos.core.model.ids import CheckpointId
from clonos.core.task.task import Task
from clonos_chaos.project.mutants.mutation import Mutation, mutant
from clonos_chaos.sim.sim_coordinator import SimCoordinator


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
def cuts_begin_before_all_slots_know_them(mutation: Mutation) -> None:
    """The checkpoint of a cut begins when every slot has the view that names it."""
    mutation.swap(rescale, "IS_KNOWN", lambda state, checkpoint: state.view.cut == checkpoint)


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
        right(coordinator, msgspec.structs.replace(metadata, widths=()))

    mutation.wrap(SimCoordinator, "_make_durable", store)
