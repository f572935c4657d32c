"""Resume of a job with other numbers of tasks: a checkpoint of its own, whose tasks take over the state of the last.

It is in the chain before a task runs, so that any later start knows which tasks may have written output.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise

import msgspec

from clonos.core.checkpoint.checkpoint_metadata import CheckpointMetadata, encode_metadata, parts_by_vertex
from clonos.core.checkpoint.plan_shape import shape_of
from clonos.core.model.ids import CheckpointId, view_number
from clonos.core.model.plan import Plan
from clonos.io.store.metadata_chain import AppendOutcome
from clonos.io.store.store import AnotherCoordinator, CheckpointStore
from clonos.job.continuing.resuming import retired_since
from clonos.job.continuing.start_widths import WidthsRefused, as_stored, at_widths
from clonos.job.continuing.state_transfer import (
    ReadObject,
    StateTransfer,
    differences_of_transfer,
    external_numbers,
    head_of,
    sources_of,
    write_moved,
)
from clonos.operators.connector_contract import ImmediateSink, TransactionalSink, WriterIdentity
from clonos.operators.job_image import JobImage


class WidthChange:
    """Change of the widths of a job that resumes from a checkpoint of its store."""

    def __init__(self, store: CheckpointStore, resumed: CheckpointMetadata, before: Plan, image: JobImage) -> None:
        """``before``: the plan with the widths of the checkpoint.

        Raises: WidthsRefused: something in the checkpoint keeps the widths from changing.
        """
        self._store, self._resumed, self._before, self._image = store, resumed, before, image
        source_of = sources_of(resumed.plan, tuple(image.splits))
        reasons = differences_of_transfer(resumed, image, source_of)
        self._transfer = StateTransfer(resumed, image, source_of, store.read_object, is_same_job=True)
        if reasons := reasons or tuple(self._transfer.refusals()):
            raise WidthsRefused(image.plan.job_name, reasons)

    def write(self, job_id: str) -> CheckpointMetadata:
        """Commits the output of the checkpoint, and completes the one with which the job goes on; returns that.

        Raises: AnotherCoordinator, StoreFailed, and what sinks raise.
        """
        resumed = self._resumed
        for each in parts_by_vertex(self._before, resumed):  # it may be committed already
            sink = self._image.sinks[each.vertex]
            assert isinstance(sink, TransactionalSink), sink
            sink.commit(job_id, resumed.checkpoint, list(each.parts))
        checkpoint = CheckpointId(resumed.highest_checkpoint + 1)
        metadata = msgspec.structs.replace(
            resumed,
            term=self._store.term,
            checkpoint=checkpoint,
            highest_checkpoint=checkpoint,
            tasks=self._transfer.entries(checkpoint, partial(write_moved, self._store)),
            plan=shape_of(self._image.plan),
            widths=(),
            is_cut=False,
            retired=self._transfer.retired,
        )
        if self._store.append_checkpoint(checkpoint, encode_metadata(metadata)) is AppendOutcome.TAKEN:
            raise AnotherCoordinator(self._store.url)
        return metadata


def changed_widths(
    store: CheckpointStore, resumed: CheckpointMetadata, image: JobImage, asked: Sequence[str]
) -> tuple[JobImage, WidthChange | None]:
    """Returns a job that resumes with the numbers of its tasks, and the change if the checkpoint has others.

    Raises: WidthMalformed, WidthsRefused.
    """
    before = as_stored(image.plan, resumed.plan)
    if resumed.is_final:
        return replace(image, plan=before), None
    image = at_widths(image, asked, resumed.plan, dict(resumed.widths))
    is_same = [v.parallelism for v in before.vertices] == [v.parallelism for v in image.plan.vertices]
    return image, None if is_same else WidthChange(store, resumed, before, image)


def rows_after(checkpoints: Sequence[CheckpointMetadata], read_object: ReadObject) -> list[list[tuple[str, int]]]:
    """Returns what a start from the first of some ``checkpoints`` withdraws before any task runs, in stages: for each
    change of widths after it, the last one first, the tasks with external output, and the number of the next row of
    each at that change.

    Of a key whose task has changed, the later row must be withdrawn first. Tasks have ascending key groups: with more
    tasks a key can only have come to a higher index, with fewer to a lower one.
    """
    stages = [_rows_between(before, after, read_object) for before, after in pairwise(checkpoints)]
    return [stage for stage in reversed(stages) if stage]


def _rows_between(
    before: CheckpointMetadata, after: CheckpointMetadata, read_object: ReadObject
) -> list[tuple[str, int]]:
    later = {was.name: was.parallelism for was in after.plan.vertices}
    changed = {
        was.name: later.get(was.name, was.parallelism) - was.parallelism
        for was in before.plan.vertices
        if any(edge.source == was.name and not edge.target for edge in before.plan.edges)
    }
    if not any(changed.values()):
        return []
    numbers = external_numbers(before, [head_of(entry, read_object) for entry in before.tasks])
    numbers |= retired_since(before, [after])

    def place(name: str) -> tuple[str, int]:
        vertex, _, index = name.rpartition("/")
        return vertex, -int(index) if changed.get(vertex, 0) > 0 else int(index)

    return [(name, numbers[name]) for name in sorted(numbers, key=place) if changed.get(name.rpartition("/")[0])]


def withdraw_rows(image: JobImage, job_id: str, term: int, stages: Sequence[Sequence[tuple[str, int]]]) -> None:
    """Registers with external systems in place of tasks, in this order. A stage has tasks and the number of the next
    row of each. Each stage is a generation of its own term; ``term`` is that of the last stage.

    So their later rows are withdrawn, and what may still run of a task writes nothing.
    """
    number_of = {vertex.name: number for number, vertex in enumerate(image.plan.vertices)}
    for stage_term, rows in enumerate(stages, term + 1 - len(stages)):
        generation = view_number(stage_term, 1)
        for name, next_row in rows:
            sink = image.sinks.get(number_of.get(name.rpartition("/")[0], -1))
            if not isinstance(sink, ImmediateSink):
                continue
            writer = sink.immediate_writer()
            try:
                writer.register(WriterIdentity(job_id, name, generation, generation), next_row)
            finally:
                writer.close()
