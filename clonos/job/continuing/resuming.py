"""Checkpoint from which a job resumes: found in its store, and checked."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import msgspec

from clonos.config import RunOptions
from clonos.core.checkpoint.checkpoint_metadata import (
    CheckpointMetadata,
    MetadataMalformed,
    check_resumable,
    decode_metadata,
)
from clonos.core.checkpoint.plan_shape import PlanShape
from clonos.core.model.errors import JobError
from clonos.core.model.plan import Plan
from clonos.io.store.object_files import ObjectMissing
from clonos.io.store.store import CheckpointStore, StoredJob
from clonos.io.system.shown_progress import Progress, WorkUnit, shown_progress
from clonos.job.continuing.start_widths import as_stored


def retained_before(
    store: CheckpointStore, record: StoredJob, resumed: CheckpointMetadata, retained: int
) -> tuple[CheckpointMetadata, ...]:
    """Returns the completed checkpoints before the one to resume from whose objects are to be kept, ascending."""
    earlier = [number for number in store.checkpoints() if number < resumed.checkpoint]
    return tuple(metadata_of(store, record, number) for number in earlier[-max(1, retained - 1) :])


def checkpoint_to_resume(
    store: CheckpointStore, record: StoredJob, run: RunOptions, plan: Plan
) -> CheckpointMetadata | None:
    """Returns the metadata to resume from. None for a job that failed before its first checkpoint, which starts again
    with its recorded splits.

    Raises: JobError: an object of the checkpoint is missing. NothingToResume. PlanChanged.
    """
    if not store.checkpoints():
        if run.checkpoint is not None:
            store.checkpoint_metadata(run.checkpoint)
        return None
    latest = metadata_of(store, record)
    # The start that went back from these may have ended before it had withdrawn the rows of their tasks.
    undone = [decode_metadata(each, f"the chain of {store.url}") for each in store.undone_metadata()]
    if run.checkpoint is None:
        check_resumable(as_stored(plan, latest.plan), latest)
        return msgspec.structs.replace(latest, retired=retired_since(latest, undone))
    chosen = metadata_of(store, record, run.checkpoint)
    check_resumable(as_stored(plan, chosen.plan), chosen)
    names, missing = sorted(chosen.objects()), []
    work = Progress(f"verifying checkpoint {run.checkpoint} of {store.url}", len(names), WorkUnit.OBJECTS)
    with shown_progress(work) as progress:
        for name in names:
            if not _is_complete(store, name):
                missing.append(name)
            progress.add(1)
    if missing:
        raise JobError(
            f"checkpoint {run.checkpoint} of {store.url} is incomplete: its object {missing[0]} has been removed."
            f" The checkpoints are: {', '.join(map(str, store.checkpoints()))};"
            " as many of the last ones are complete as checkpoints_retained says."
        )
    # A number is never reused: the next checkpoint is numbered above every earlier one.
    retired = retired_since(chosen, [latest, *undone])
    return msgspec.structs.replace(chosen, highest_checkpoint=latest.highest_checkpoint, retired=retired)


def retired_since(chosen: CheckpointMetadata, later: Sequence[CheckpointMetadata]) -> dict[str, int]:
    """Returns the tasks with external output that ran at ``later`` checkpoints or before one and not at it, with the
    number of the next row of each as of that: 0 for those that had not begun."""
    names = [name for each in later for name in (*each.retired, *_external_tasks(each.plan))]
    running = _external_tasks(chosen.plan)
    return {name: number for name, number in (dict.fromkeys(names, 0) | chosen.retired).items() if name not in running}


def _external_tasks(shape: PlanShape) -> dict[str, None]:
    """Returns the names of the tasks of a stored plan that have output outside the job."""
    external = {edge.source for edge in shape.edges if not edge.target}
    return {
        f"{was.name}/{index}": None
        for was in shape.vertices
        if was.name in external
        for index in range(was.parallelism)
    }


def checkpoints_from(store: CheckpointStore, record: StoredJob, first: int) -> list[CheckpointMetadata]:
    """Returns the metadata of the completed checkpoints from one on, ascending."""
    return [metadata_of(store, record, number) for number in store.checkpoints() if number >= first]


def metadata_of(store: CheckpointStore, record: StoredJob, checkpoint: int | None = None) -> CheckpointMetadata:
    """Returns the metadata of a checkpoint of this job; by default, of the last one.

    Raises: MetadataMalformed: it cannot be read, or belongs to another job.
    """
    name = f"the chain of {store.url}"
    found = decode_metadata(store.checkpoint_metadata(checkpoint), name)
    if found.job_id != record.job_id:
        raise MetadataMalformed(
            name, f"checkpoint {found.checkpoint} belongs to job {found.job_id}, not to job {record.job_id}"
        )
    return found


def _is_complete(store: CheckpointStore, name: str) -> bool:
    try:
        deque(store.read_object(name), maxlen=0)  # verifies each piece
    except ObjectMissing:
        return False
    return True
