"""Start of a simulated job whose processes have all died, with other numbers of tasks (protocol 6.12).

What ``WidthChange`` and ``withdrawal`` do on a store: output of the checkpoint is committed, later rows are withdrawn,
and a checkpoint of the start's own has the tasks that go on.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import structs

from clonos.core.checkpoint.checkpoint_metadata import CheckpointMetadata, TaskEntry, parts_by_vertex
from clonos.core.checkpoint.snapshot import decode_snapshot
from clonos.core.external.repeated_output import repeated_output
from clonos.core.model.ids import CheckpointId, view_number
from clonos.core.model.plan import Plan
from clonos.job.continuing.state_transfer import external_numbers
from clonos_chaos.sim.environment import NO_VIEW, SimEnvironment
from clonos_chaos.sim.external_systems import SimExternalSystem
from clonos_chaos.sim.rare_situations import RESUMED_AT

Divide = Callable[[CheckpointMetadata, Plan, Plan, dict[str, tuple[bytes, ...]], int], CheckpointMetadata]
"""Returns metadata of the first plan with the tasks of the second one, for a term. Writes snapshots to a store."""


def resume_at(
    world: SimEnvironment, resumed: CheckpointMetadata, before: Plan, plan: Plan, term: int, divide: Divide
) -> None:
    """Divides the state of a checkpoint, which is not the final one, among the tasks of another plan.

    ``before``: the plan with the widths of the checkpoint. ``term``: that of the start.
    """
    widths = {vertex.name: vertex.parallelism for vertex in plan.vertices}
    world.note(f"resumes from checkpoint {resumed.checkpoint} with the widths {widths}")
    world.count(RESUMED_AT)
    world.commit(resumed.checkpoint, parts_by_vertex(before, resumed))
    checkpoint = CheckpointId(resumed.highest_checkpoint + 1)
    moved = divide(structs.replace(resumed, checkpoint=checkpoint), before, plan, world.store, term)
    own = structs.replace(
        moved,
        term=term,
        tasks=tuple(map(_without_parts, moved.tasks)),
        highest_checkpoint=checkpoint,
        widths=(),
        is_cut=False,
        is_placed_anew=False,
    )
    world.declared = plan
    world.take_plan(plan)
    world.views.append(NO_VIEW)  # the last one has the tasks of the plan before
    numbers = external_numbers(own, lambda entry: decode_snapshot(world.store[entry.objects[-1]][0], entry.objects[-1]))
    for external in world.externals.every:
        _withdraw(world, external, numbers.get(external.task_name, 0), term)
    world.chain[checkpoint] = own
    world.outcome.checkpoints += 1
    world.note(f"checkpoint {checkpoint} has the tasks that go on")
    world.oracle.completed(own)


def _without_parts(entry: TaskEntry) -> TaskEntry:
    """Returns the entry of a task whose prepared output is committed."""
    return structs.replace(entry, prepared=())


def _withdraw(world: SimEnvironment, external: SimExternalSystem, next_row: int, term: int) -> None:
    is_running = any(each is external for each in world.externals.values())
    if is_running and not external.withdraws:
        return  # the task does so when it registers
    generation = view_number(term, 1)
    number, superseded_next = external.register(generation, generation, next_row)
    alarm = repeated_output(external.task_name, generation, number, superseded_next, external.knows_output)
    if alarm is not None:
        text, fields = alarm
        world.warnings.append((text, {**fields, "name": external.task_name}))
