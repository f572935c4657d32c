"""State of the steps of a job in a checkpoint of its store, or in a savepoint: where it is, and its rows as JSON.

The code of the job is not needed. One task is in memory at a time.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from clonos.core.model.errors import EnvironmentFault, JobError

if TYPE_CHECKING:
    from clonos.core.checkpoint.checkpoint_metadata import CheckpointMetadata
    from clonos.spark.frames.state_rows import CheckpointedTask, StateRow

READS_MAX: Final = 10
"""Checkpoints that are read until one has stayed as long as that took. A running job removes the oldest ones."""

RESTORING_SHARE: Final = 0.1
"""Share of the time of reading a task's state, about, in which nothing is decoded yet."""


class StateUnknown(JobError):
    """A place has no such checkpoint, step or state."""

    place: str
    problem: str
    known: str

    def __str__(self) -> str:
        return f"{self.place} {self.problem}. It has {self.known}."


class CheckpointRemoved(EnvironmentFault):
    """The job has removed a checkpoint whose state is read. ``is_chosen``: the user has named it."""

    place: str
    checkpoint: int
    is_chosen: bool

    def __str__(self) -> str:
        if self.is_chosen:
            advice = "Read the last one, without --checkpoint, or raise checkpoints_retained of the job."
        else:
            advice = f"So were {READS_MAX - 1} before it: take a savepoint, which stays, and read that."
        return (
            f"checkpoint {self.checkpoint} of {self.place} was removed by its job before all of it was read. {advice}"
        )


class StateLost(EnvironmentFault):
    """An object of the last checkpoint is missing, which no job has removed."""

    place: str
    checkpoint: int
    name: str

    def __str__(self) -> str:
        return (
            f"the object {self.name} of checkpoint {self.checkpoint}, the last one, is missing from {self.place}."
            " Restore it from a backup, or read an earlier checkpoint or a savepoint."
        )


class StateLocation:
    """Checkpoint of a store, or savepoint."""

    def __init__(self, url: str, checkpoint: int | None) -> None:
        """Finds it. Raises: StateUnknown, NothingToResume, SavepointCorrupt, StoreFailed."""
        from clonos.core.checkpoint.checkpoint_metadata import decode_metadata
        from clonos.io.store.savepoint import SavepointReader, is_savepoint
        from clonos.io.store.store import CheckpointStore

        url = store_of(url)
        self.url, self._is_chosen = url, checkpoint is not None
        self.metadata: CheckpointMetadata
        self._read: Callable[[str], Iterable[bytes | memoryview]]
        if is_savepoint(url):
            reader = SavepointReader(url)
            self.metadata, self._read = reader.metadata(), reader.read_object
            if checkpoint not in (None, self.metadata.checkpoint):
                raise StateUnknown(
                    url,
                    f"is a savepoint, which has no checkpoint {checkpoint}",
                    f"checkpoint {self.metadata.checkpoint}",
                )
            return
        store = CheckpointStore(url)
        if store.read_job() is None:
            raise StateUnknown(url, "has no state to show", "neither a savepoint nor the checkpoint store of a job")
        store.find_job()
        known = store.checkpoints()
        if not known or checkpoint not in (None, *known):
            numbers = ", ".join(map(str, known)) or "none: the job has completed no checkpoint yet"
            raise StateUnknown(url, f"has no checkpoint {checkpoint or ''}".rstrip(), f"the checkpoints {numbers}")
        found = store.checkpoint_metadata(checkpoint)
        self.metadata, self._read = decode_metadata(found, f"the chain of {store.url}"), store.read_object

    def steps(self, wanted: str | None) -> list[str]:
        """Returns the names of the steps with state, or the wanted one. Raises: StateUnknown."""
        from clonos.spark.frames.state_rows import steps_with_state

        names = steps_with_state(self.metadata)
        if wanted is not None and wanted not in names:
            known = f"the steps {', '.join(names)}" if names else "no steps with state"
            raise StateUnknown(self.url, f"has no state of a step {wanted!r}", known)
        return names if wanted is None else [wanted]

    def rows(self, step: str) -> Iterator[StateRow]:
        """Yields the state of a step, task by task, and shows how far it is.

        Raises: CheckpointRemoved, StateLost and other faults of the store.
        """
        from clonos.io.system.shown_progress import Progress, WorkUnit, shown_progress
        from clonos.spark.frames.state_rows import rows_of_task, shown_text, tasks_of

        tasks = tasks_of(self.metadata, step)
        work = Progress(f"reading the state of {step} in {self.url}", 1.0, WorkUnit.SHARE)
        with self._explained(), shown_progress(work) as progress:
            for number, task in enumerate(tasks):
                restored, row_share = (number + RESTORING_SHARE) / len(tasks), 0.0

                def began(count: int, restored: float = restored) -> None:
                    nonlocal row_share
                    progress.reach(restored)
                    row_share = (1 - RESTORING_SHARE) / len(tasks) / max(count, 1)

                for row in rows_of_task(self._read, step, task, began, shown_text):
                    progress.add(row_share)
                    yield row

    def entries(self, step: str, task: CheckpointedTask) -> list[tuple[str, Any, Any]]:
        """Returns the state that a task has for a step, as (state, key, value).

        Raises: CheckpointRemoved, StateLost and other faults of the store.
        """
        from clonos.spark.frames.state_rows import entries_of_step, image_of_task

        with self._explained():
            return list(entries_of_step(image_of_task(self._read, task), step))

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Says of an object that is missing whether the job has removed it."""
        from clonos.io.store.object_files import ObjectMissing

        try:
            yield
        except ObjectMissing as error:
            number = self.metadata.checkpoint
            if StateLocation(self.url, None).metadata.checkpoint == number:
                raise StateLost(self.url, number, error.name) from None
            raise CheckpointRemoved(self.url, number, self._is_chosen) from None

    def __str__(self) -> str:
        return f"checkpoint {self.metadata.checkpoint} of job {self.metadata.job_id}"


def store_of(place: str) -> str:
    """Returns a place, or the store of the job of ``clonos run`` with this name."""
    from clonos.job.run_register import store_called
    from clonos.job.starting import default_store

    if "://" in place or os.path.exists(place):
        return place
    if os.path.basename(place) == place and os.path.exists(default_store(place)):
        return default_store(place)
    return store_called(place) or place
