"""Blocking I/O of the driver in background threads: checkpoint metadata, commits of output, deletions.

Each outcome is an event of the coordinator. A failure is an event too, which the coordinator answers by a retry.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace

from clonos.connectors.connector_errors import OutputClosed
from clonos.core.checkpoint.checkpoint_metadata import CheckpointMetadata, encode_metadata
from clonos.core.coordinator.coordinator_effects import CommitOutput, DeleteObjects, DivideState, WriteMetadata
from clonos.core.coordinator.coordinator_events import (
    Event,
    MetadataWritten,
    OutputCommitFailed,
    OutputCommitted,
    StateDivided,
    WriteOutcome,
)
from clonos.core.model.errors import ClonosError, EnvironmentFault, JobError
from clonos.io.process.fault_points import FaultPoint, FaultPoints
from clonos.io.store.metadata_chain import AppendOutcome
from clonos.io.store.object_files import ObjectMissing, StoreFailed
from clonos.io.store.store import CheckpointStore
from clonos.operators.chain_outputs import close_output
from clonos.operators.connector_contract import TransactionalSink
from clonos_standby.driver.abandoned_output import AbandonedOutput, Lives
from clonos_standby.inbox import Inbox
from clonos_standby.store_thread import StoreThread

logger = logging.getLogger("clonos.coordinator")

Divide = Callable[[CheckpointMetadata], CheckpointMetadata]
"""Stores the state of a cut for the tasks of its widths; returns the cut with these tasks.

Raises: StoreFailed; JobError: the state cannot be divided.
"""


class BackgroundIo:
    """Background threads of the driver. ``on_event`` is called with each outcome, in the thread that did the work."""

    def __init__(
        self,
        store: CheckpointStore,
        sinks: Mapping[int, TransactionalSink],
        job_id: str,
        now_ns: Callable[[], int],
        on_event: Callable[[Event], None],
        inbox: Inbox,
        divide: Divide,
        faults: FaultPoints | None = None,
    ) -> None:
        self._faults, self._divide = faults, divide
        self._store, self._sinks, self._job_id = store, sinks, job_id
        self._now_ns, self._on_event = now_ns, on_event
        self._abandoned = AbandonedOutput()
        self._chain = StoreThread("checkpoint chain", inbox)
        self._committer = StoreThread("output committer", inbox)
        self._remover = StoreThread("object remover", inbox)

    def write_metadata(self, effect: WriteMetadata) -> None:
        """Appends the metadata of a checkpoint to the chain, which completes the checkpoint."""
        self._chain.put(lambda: self._write_metadata(effect))

    def _write_metadata(self, effect: WriteMetadata) -> None:
        checkpoint = effect.metadata.checkpoint
        outcome, text = WriteOutcome.DURABLE, ""
        if self._faults is not None:
            self._faults.reach(FaultPoint.METADATA_BEGUN, detail=str(checkpoint))
        try:
            if self._store.append_checkpoint(checkpoint, encode_metadata(effect.metadata)) is AppendOutcome.TAKEN:
                outcome = WriteOutcome.TAKEN
        except StoreFailed as error:
            outcome, text = WriteOutcome.FAILED, str(error)
        if self._faults is not None:
            self._faults.reach(FaultPoint.METADATA_WRITTEN, detail=str(checkpoint))
        self._on_event(MetadataWritten(checkpoint, outcome, text, self._now_ns()))

    def commit_output(self, effect: CommitOutput, lives: Lives) -> None:
        """Commits the prepared output of a checkpoint, and removes what no checkpoint will commit any more."""
        self._committer.put(lambda: self._commit_output(effect, lives))

    def _commit_output(self, effect: CommitOutput, lives: Lives) -> None:
        for vertex, parts in ((entry.vertex, entry.parts) for entry in effect.parts):
            try:
                self._sinks[vertex].commit(self._job_id, effect.checkpoint, list(parts))
            except (JobError, OutputClosed) as error:  # a repetition would fail in the same way
                self._on_event(OutputCommitFailed(effect.checkpoint, str(error), self._now_ns(), error.blame))
                return
            except Exception as error:
                text = f"the output of vertex {vertex} was not committed: {type(error).__name__}: {error}"
                if not isinstance(error, ClonosError):
                    logger.warning("checkpoint %d: %s", effect.checkpoint, text, exc_info=True)
                self._on_event(OutputCommitFailed(effect.checkpoint, text, self._now_ns()))
                return
        if self._faults is not None:
            self._faults.reach(FaultPoint.COMMITTED, detail=str(effect.checkpoint))
        self._on_event(OutputCommitted(effect.checkpoint, self._now_ns()))
        self._abandoned.remove(self._sinks.values(), self._job_id, effect.checkpoint, lives)

    def divide_state(self, effect: DivideState) -> None:
        """Divides the state of a cut among the next tasks. Objects of an earlier attempt are written again."""
        self._chain.put(lambda: self._divide_state(effect))

    def _divide_state(self, effect: DivideState) -> None:
        checkpoint = effect.metadata.checkpoint
        if self._faults is not None:
            self._faults.reach(FaultPoint.DIVISION_BEGUN, detail=str(checkpoint))
        try:
            metadata = self._chain.persist(lambda: self._divide(effect.metadata))
            divided = StateDivided(checkpoint, metadata)
        except ClonosError as error:
            is_passing = isinstance(error, StoreFailed) and not isinstance(error, ObjectMissing)
            divided = StateDivided(checkpoint, None, str(error), blame=None if is_passing else error.blame)
        if self._faults is not None:
            self._faults.reach(FaultPoint.DIVIDED, detail=str(checkpoint))
        self._on_event(replace(divided, now_ns=self._now_ns()))

    def delete_objects(self, effect: DeleteObjects) -> None:
        """Deletes objects that no checkpoint needs any more."""
        self._remover.put(lambda: self._delete_objects(effect))

    def _delete_objects(self, effect: DeleteObjects) -> None:
        for name in effect.names:
            try:
                self._remover.persist(lambda name=name: self._store.delete_objects([name]))  # type: ignore[misc]
            except EnvironmentFault as error:  # an object that remains only takes disk space
                logger.warning("%s", error)

    def close(self) -> None:
        """Ends the threads, each after its current work."""
        for thread in (self._chain, self._committer, self._remover):
            thread.close()
        if not self._committer.thread.is_alive():
            close_output(self._sinks.values())
