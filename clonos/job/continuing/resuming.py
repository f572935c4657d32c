"""Checkpoint from which a job resumes: found in its store, and checked."""

from __future__ import annotations

from collections import deque

import msgspec

from clonos.config import RunOptions
from clonos.core.checkpoint.checkpoint_metadata import (
    CheckpointMetadata,
    MetadataMalformed,
    check_resumable,
    decode_metadata,
)
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
    if run.checkpoint is None:
        check_resumable(as_stored(plan, latest.plan), latest)
        return latest
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
    return msgspec.structs.replace(chosen, highest_checkpoint=latest.highest_checkpoint)


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
