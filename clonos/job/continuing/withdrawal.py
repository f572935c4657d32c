"""Withdrawal of rows from external systems by a start, before any task of the job runs (protocol 6.12 and 7.1).

A task that goes on withdraws its own rows when it registers. This is for what that does not cover: rows of tasks that
do not run any more, and rows that replace others by a key, if the key has come to another task since. Of such a key the
last row must be withdrawn first, and all of them before the next one is written.

A start withdraws before it stores a checkpoint of its own. So all rows that one can find after the checkpoint from
which it resumes are of the plans since that checkpoint, and of those that a checkpoint made void after which none is
complete. Between two changes of widths they are of one plan, in which a key has one task.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise

from clonos.core.checkpoint.checkpoint_metadata import CheckpointMetadata, TaskEntry
from clonos.core.checkpoint.plan_shape import PlanShape, shape_of
from clonos.core.coordinator.coordinator_effects import Alarm
from clonos.core.external.repeated_output import repeated_output
from clonos.core.model.errors import JobError
from clonos.core.model.ids import view_number
from clonos.core.ports.task_snapshot import Snapshot
from clonos.io.store.object_files import ObjectMissing
from clonos.job.continuing.state_transfer import external_numbers
from clonos.operators.connector_contract import ImmediateSink, WriterIdentity
from clonos.operators.job_image import JobImage

logger = logging.getLogger("clonos.run")

Stage = tuple[tuple[str, int], ...]
"""Tasks with output outside the job, and the number of the next row of each. All rows from there on are withdrawn."""


class WithdrawalImpossible(JobError):
    """Rows of tasks that do not run any more cannot be withdrawn, because nothing says how far they are."""

    checkpoint: int
    name: str

    def __str__(self) -> str:
        return (
            f"the numbers of tasks have changed after checkpoint {self.checkpoint}, and its snapshot {self.name} is"
            " missing, so the rows that were written after it cannot be withdrawn in their order. Resume from a later"
            " checkpoint, or restore the snapshot from a backup of the checkpoint store."
        )


def retired_since(chosen: CheckpointMetadata, later: Iterable[CheckpointMetadata]) -> dict[str, int]:
    """Returns the tasks with external output that ran at ``later`` checkpoints or before one and not at it, with the
    number of the next row of each as of that: 0 for those that had not begun."""
    names = [name for each in later for name in (*each.retired, *_tasks_of(each))] + [*_tasks_of(chosen)]
    running = external_tasks(chosen.plan)
    return {name: number for name, number in (dict.fromkeys(names, 0) | chosen.retired).items() if name not in running}


def external_tasks(shape: PlanShape, widths: Mapping[str, int] | None = None) -> dict[str, None]:
    """Returns the names of the tasks of a stored plan that have output outside the job. ``widths``: the numbers of
    tasks of vertices that have others than in the plan."""
    external = {edge.source for edge in shape.edges if not edge.target}
    return {
        f"{was.name}/{index}": None
        for was in shape.vertices
        if was.name in external
        for index in range((widths or {}).get(was.name, was.parallelism))
    }


def _tasks_of(metadata: CheckpointMetadata) -> dict[str, None]:
    """Returns the tasks with external output of a checkpoint, and of the generation that goes on from it."""
    return external_tasks(metadata.plan) | external_tasks(metadata.plan, dict(metadata.widths))


def stages_of(
    checkpoints: Sequence[CheckpointMetadata], has_change: bool, head_of: Callable[[TaskEntry], Snapshot | None]
) -> tuple[Stage, ...]:
    """Returns what a start withdraws that resumes from the first of some ``checkpoints``, which ascend: for each change
    of widths after it, the last one first, all later rows; then all rows after the checkpoint.

    ``has_change``: the start itself changes widths. ``head_of`` reads the last snapshot of a task.

    Raises: WithdrawalImpossible: a snapshot of a later checkpoint is missing. What ``head_of`` raises.
    """
    chosen = checkpoints[0]
    stages = [_stage_of_change(before, after, head_of) for before, after in pairwise(checkpoints)]
    found = [stage for stage in reversed(stages) if stage]
    last = external_numbers(chosen, head_of) if found or has_change else {}
    last |= retired_since(chosen, checkpoints[1:])
    have_run = {name for each in checkpoints for name in _tasks_of(each)}  # others have no rows after the checkpoint
    last = {name: number for name, number in last.items() if name in have_run}
    return (*found, tuple(sorted(last.items()))) if last else ()


def _stage_of_change(
    before: CheckpointMetadata, after: CheckpointMetadata, head_of: Callable[[TaskEntry], Snapshot | None]
) -> Stage:
    later = {was.name: was.parallelism for was in after.plan.vertices}
    external = {edge.source for edge in before.plan.edges if not edge.target}
    changed = {
        was.name
        for was in before.plan.vertices
        if was.name in external and later.get(was.name, was.parallelism) != was.parallelism
    }
    if not changed:
        return ()
    try:
        numbers = external_numbers(before, head_of)
    except ObjectMissing as missing:
        raise WithdrawalImpossible(before.checkpoint, missing.name) from missing
    numbers |= retired_since(before, [after])
    return tuple(item for item in sorted(numbers.items()) if item[0].rpartition("/")[0] in changed)


def stages_of_begun(begun_as: Sequence[PlanShape], image: JobImage) -> tuple[Stage, ...]:
    """Returns what a start withdraws that begins the input of a job again, after starts with these plans: all rows, if
    one of them had other tasks."""
    now, *before = [external_tasks(shape) for shape in (shape_of(image.plan), *begun_as)]
    if all(each == now for each in before):
        return ()
    return (tuple(sorted((name, 0) for name in {name for each in before for name in each})),)


def withdraw_rows(image: JobImage, job_id: str, term: int, stages: Sequence[Stage]) -> list[Alarm]:
    """Registers with external systems in place of tasks, one stage after the other. Each stage is a generation of its
    own term; ``term`` is that of the last stage.

    So their later rows are withdrawn, and what may still run of a task writes nothing. May be repeated, also after it
    was interrupted. Returns alarms of the rows that stay and may come again.

    Raises: what sinks raise.
    """
    alarms: list[Alarm] = []
    number_of = {vertex.name: number for number, vertex in enumerate(image.plan.vertices)}
    running = {image.plan.task_name(task) for task in image.plan.tasks}
    for stage_term, rows in enumerate(stages, term + 1 - len(stages)):
        generation = view_number(stage_term, 1)
        for name, next_row in rows:
            sink = image.sinks.get(number_of.get(name.rpartition("/")[0], -1))
            if not isinstance(sink, ImmediateSink):
                continue
            if not _replaces_rows(sink) and (stage_term != term or name in running):
                continue
            writer = sink.immediate_writer()
            try:
                found = writer.register(WriterIdentity(job_id, name, generation, generation), next_row)
            finally:
                writer.close()
            if (alarm := repeated_output(name, generation, *found)) is not None:
                text, fields = alarm
                logger.warning("%s %s", text, fields)
                alarms.append(Alarm(text, tuple(fields.items())))
    return alarms


def _replaces_rows(sink: object) -> bool:
    """Returns whether the rows of a sink are withdrawn in an order, because one may replace that of another task."""
    return bool(getattr(sink, "can_roll_back", False)) and bool(getattr(sink, "replaces_rows", True))
