"""Other numbers of tasks: the tasks that go on take over the state of a checkpoint.

A resume has a checkpoint of its own for that. It is in the chain before a task runs, so that any later start knows
which tasks may have written output, and after the output of other tasks has been withdrawn (``withdrawal``). After a
cut the job goes on from the checkpoint itself, which has the next widths.
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
    """Change of the widths of a job that goes on from a checkpoint of its store."""

    def __init__(self, store: CheckpointStore, resumed: CheckpointMetadata, before: Plan, image: JobImage) -> None:
        """``before``: the plan with the widths of the checkpoint.

        Raises: WidthsRefused: something in the checkpoint keeps the widths from changing.
        """
        self._store, self._resumed, self.before, self._image = store, resumed, before, image
        source_of = sources_of(resumed.plan, tuple(image.splits))
        reasons = differences_of_transfer(resumed, image, source_of)
        self._transfer = StateTransfer(resumed, image, source_of, store.read_object, is_same_job=True)
        if reasons := reasons or tuple(self._transfer.refusals()):
            raise WidthsRefused(image.plan.job_name, reasons)

    def write(self, job_id: str) -> CheckpointMetadata:
        """Commits the output of the checkpoint, and completes the one with which the job goes on; returns that.

        Raises: AnotherCoordinator, StoreFailed, and what sinks raise.
        """
        self._commit(job_id)
        checkpoint = CheckpointId(self._resumed.highest_checkpoint + 1)
        metadata = msgspec.structs.replace(
            self._moved(checkpoint),
            term=self._store.term,
            checkpoint=checkpoint,
            highest_checkpoint=checkpoint,
            widths=(),
            is_cut=False,
            is_placed_anew=False,
        )
        if self._store.append_checkpoint(checkpoint, encode_metadata(metadata)) is AppendOutcome.TAKEN:
            raise AnotherCoordinator(self._store.url)
        return metadata

    @property
    def follows_cut(self) -> bool:
        """Whether the checkpoint is a cut, and the job goes on with its widths."""
        widths = dict(self._resumed.widths)
        return self._resumed.is_cut and self._image.plan == self.before.with_widths(widths)

    def take_over(self, job_id: str) -> CheckpointMetadata:
        """Commits the output of the checkpoint, which is a cut from which tasks that live go on; returns it with the
        tasks of its widths.

        Raises: StoreFailed, and what sinks raise.
        """
        self._commit(job_id)
        return self.divided()

    def divided(self) -> CheckpointMetadata:
        """Returns the checkpoint, which is a cut, with the tasks of its widths. Raises: StoreFailed."""
        return self._moved(self._resumed.checkpoint)

    def _commit(self, job_id: str) -> None:
        for each in parts_by_vertex(self.before, self._resumed):  # it may be committed already
            sink = self._image.sinks[each.vertex]
            assert isinstance(sink, TransactionalSink), sink
            sink.commit(job_id, self._resumed.checkpoint, list(each.parts))

    def _moved(self, checkpoint: CheckpointId) -> CheckpointMetadata:
        """Returns the metadata with the tasks that go on, whose snapshots for ``checkpoint`` are written."""
        return msgspec.structs.replace(
            self._resumed,
            tasks=self._transfer.entries(checkpoint, partial(write_moved, self._store)),
            plan=shape_of(self._image.plan),
            retired=self._transfer.retired,
        )


def divided_cut(store: CheckpointStore, image: JobImage, cut: CheckpointMetadata) -> CheckpointMetadata:
    """Returns a cut of a running job with the tasks of its widths. It reads the heads of snapshots, and writes a
    snapshot without state for each task.

    ``image``: the job, with any widths.

    Raises: WidthsRefused: something in the cut keeps the widths from changing. StoreFailed.
    """
    before = as_stored(image.plan, cut.plan)
    return WidthChange(store, cut, before, replace(image, plan=image.plan.with_widths(dict(cut.widths)))).divided()


def changed_widths(
    store: CheckpointStore, resumed: CheckpointMetadata, image: JobImage, asked: Sequence[str]
) -> tuple[JobImage, WidthChange | None]:
    """Returns a job that resumes with the numbers of its tasks; the change, if the checkpoint has others.

    Raises: WidthMalformed, WidthsRefused.
    """
    before = as_stored(image.plan, resumed.plan)
    if resumed.is_final:
        return replace(image, plan=before), None
    image = at_widths(image, asked, resumed.plan, dict(resumed.widths))
    is_same = [v.parallelism for v in before.vertices] == [v.parallelism for v in image.plan.vertices]
    # The metadata of a cut may have widths with which the job does not go on.
    has_these_widths = is_same and image.plan.with_widths(dict(resumed.widths)) == image.plan
    return image, None if has_these_widths else WidthChange(store, resumed, before, image)
