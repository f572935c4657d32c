"""Resume of a job with other numbers of tasks: a checkpoint of its own, whose tasks take over the state of the last.

It is in the chain before a task runs, so that any later start knows which tasks may have written output, and after the
output of other tasks has been withdrawn (``withdrawal``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import msgspec

from clonos.core.checkpoint.checkpoint_metadata import CheckpointMetadata, encode_metadata, parts_by_vertex
from clonos.core.checkpoint.plan_shape import shape_of
from clonos.core.model.ids import CheckpointId
from clonos.core.model.plan import Plan
from clonos.io.store.metadata_chain import AppendOutcome
from clonos.io.store.store import AnotherCoordinator, CheckpointStore
from clonos.job.continuing.start_widths import WidthsRefused, as_stored, at_widths
from clonos.job.continuing.state_transfer import (
    StateTransfer,
    differences_of_transfer,
    sources_of,
    write_moved,
)
from clonos.operators.connector_contract import TransactionalSink
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
