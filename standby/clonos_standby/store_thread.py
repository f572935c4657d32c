"""Threads for the checkpoint store: in a slot one writes snapshots, one whole states, one reads, so that no recovery
waits for a write, and one reads ahead for tasks of the next plan.

A failed call is retried up to 3 times; then the failure is an event for the slot's machine. A whole state that cannot
be written is a warning: it is written again later.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import chain
from queue import SimpleQueue
from threading import Event, Thread
from typing import TypeVar

from clonos.core.checkpoint.snapshot import (
    STANDBY_BYTES_MAX,
    ReadObject,
    RestoredState,
    encode_snapshot,
    is_moved,
    restore_moved,
    standby_payload,
)
from clonos.core.checkpoint.warm_states import (
    WARM_BYTES_MAX,
    ReadAheadEnded,
    ReadAheadFull,
    WarmKey,
    WarmStates,
    read_ahead,
    restorer,
)
from clonos.core.model.errors import ClonosError, EnvironmentFault, PeerError
from clonos.core.model.ids import Incarnation, TaskId
from clonos.core.ports.operator_chain import Mirror, Pieces
from clonos.core.ports.slot_effects import ReadAhead, ReadPurpose, TaskRead
from clonos.core.ports.task_failure import failure_of
from clonos.core.ports.task_snapshot import Snapshot
from clonos.core.slot.slot_events import PartFailed, SnapshotsRead, SnapshotWritten, WarmedUp, WholeStateWritten
from clonos.core.wire.recovery_messages import Recourse, TaskFailed
from clonos.io.process.fault_points import FaultPoint
from clonos.io.store.object_files import ObjectMissing, StoreFailed
from clonos.io.store.store import CheckpointStore
from clonos.operators.job_image import JobImage
from clonos_standby.inbox import Inbox
from clonos_standby.slot.surroundings import SlotSurroundings

logger = logging.getLogger("clonos.slot")

ATTEMPTS_MAX = 4
BACKOFF_FIRST_S = 0.05
BACKOFF_FACTOR = 4
CLOSE_TIMEOUT_S = 5.0

Result = TypeVar("Result")


SIZES_REMEMBERED = 256
"""Objects whose size is remembered, for the acknowledgements of snapshots, which are repeated."""


class StoreThread:
    """Thread that runs one function after the other. An exception of a function is a bug and ends the process."""

    def __init__(self, name: str, inbox: Inbox, *, backoff_first_s: float = BACKOFF_FIRST_S) -> None:
        self._inbox = inbox
        self._backoff_first_s = backoff_first_s
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._end = Event()
        self.thread = Thread(target=self._run, name=name, daemon=True)
        self.thread.start()

    def put(self, job: Callable[[], None]) -> None:
        """Enqueues a function."""
        self._jobs.put(job)

    def _run(self) -> None:
        try:
            while self._run_next():
                pass
        except Exception as error:  # noqa: BLE001 raised again in the I/O thread, which ends the process
            self._inbox.put(_crash, error)

    def _run_next(self) -> bool:
        """Runs the next function; returns whether there was one. What it refers to is free when this returns, and not
        when the next function comes: that may be state of hundreds of megabytes."""
        job = self._jobs.get()
        if job is None or self._end.is_set():
            return False
        job()
        return True

    def persist(self, call: Callable[[], Result]) -> Result:
        """Returns the result of ``call``, retried with backoff when the store fails. Raises: StoreFailed of the last
        attempt."""
        backoff_s = self._backoff_first_s
        for _ in range(ATTEMPTS_MAX - 1):
            try:
                return call()
            except ObjectMissing:
                raise
            except StoreFailed as error:
                logger.info("%s Retrying in %.2f s", error, backoff_s)
                if self._end.wait(backoff_s):
                    raise
                backoff_s *= BACKOFF_FACTOR
        return call()

    def close(self) -> None:
        """Ends the thread after the function that it is running."""
        self._end.set()
        self._jobs.put(None)
        self.thread.join(CLOSE_TIMEOUT_S)


class SnapshotStore:
    """Background writes and reads of snapshots; each outcome is an event of the slot's machine.

    Full states of tasks are written by a separate thread, so that no checkpoint waits for them.
    """

    def __init__(
        self,
        store: CheckpointStore,
        context: SlotSurroundings,
        new_mirror: Callable[[TaskId], Mirror],
        *,
        backoff_first_s: float = BACKOFF_FIRST_S,
        standby_bytes_max: int = STANDBY_BYTES_MAX,
        warm_bytes_max: int = WARM_BYTES_MAX,
    ) -> None:
        self._store, self._context, self._new_mirror = store, context, new_mirror
        self._post, self._faults = context.post, context.faults
        self._standby_bytes_max, self._warm_bytes_max = standby_bytes_max, warm_bytes_max
        self._sizes: dict[str, int] = {}  # of the objects written last
        self._permille: dict[tuple[TaskId, Incarnation], int] = {}  # of the state of the task that is being restored
        self._warm = WarmStates({})
        self._writer, self._writer_of_wholes, self._reader, self._reader_ahead = (
            StoreThread(name, context.inbox, backoff_first_s=backoff_first_s)
            for name in ("store writer", "store writer of whole states", "store reader", "store reader ahead")
        )

    def write(self, name: str, snapshot: Snapshot, more: Pieces | None) -> None:
        """Writes a snapshot; the outcome is ``SnapshotWritten``."""
        task = self._context.name_of(snapshot.task)
        self._writer.put(lambda: self._write(name, snapshot, more, task))

    def _write(self, name: str, snapshot: Snapshot, more: Pieces | None, task: str) -> None:
        self._reach(FaultPoint.SNAPSHOT_BEGUN, snapshot, task)
        pieces = _RecordedPieces(snapshot, more, self._standby_bytes_max)
        try:
            stored_as = self._writer.persist(lambda: self._store.write_object(name, pieces))
        except StoreFailed as error:
            logger.warning("%s", error)
            self._post(SnapshotWritten(name, b"", str(error)))
        except ClonosError as error:
            self._fail_task(snapshot, error)
        else:
            if more is not None:
                more.release()
            self._sizes[stored_as] = pieces.size_bytes
            for old in list(self._sizes)[:-SIZES_REMEMBERED]:
                del self._sizes[old]
            self._reach(FaultPoint.SNAPSHOT_WRITTEN, snapshot, task)
            self._post(SnapshotWritten(name, standby_payload(pieces.recorded), "", stored_as))

    def size_bytes(self, stored_as: str) -> int:
        """Returns the size of an object that was written not long ago; 0 for others. Any thread may call this."""
        return self._sizes.get(stored_as, 0)

    def write_whole(self, name: str, snapshot: Snapshot, whole: Pieces) -> None:
        """Writes the full state of a task; a success is ``WholeStateWritten``."""
        task = self._context.name_of(snapshot.task)
        self._writer_of_wholes.put(lambda: self._write_whole(name, snapshot, whole, task))

    def _write_whole(self, name: str, snapshot: Snapshot, whole: Pieces, task: str) -> None:
        self._reach(FaultPoint.WHOLE_STATE_BEGUN, snapshot, task)
        try:
            stored_as = self._store.write_object(name, chain((encode_snapshot(snapshot),), whole))
        except StoreFailed as error:
            logger.warning(
                "%s The next snapshots build on the earlier ones, and the full state is written again later.", error
            )
        except ClonosError as error:
            self._fail_task(snapshot, error)
        else:
            self._reach(FaultPoint.WHOLE_STATE_WRITTEN, snapshot, task)
            self._post(WholeStateWritten(name, stored_as))
        finally:
            whole.release()

    def _fail_task(self, snapshot: Snapshot, error: ClonosError) -> None:
        """Fails the task, because its state cannot be encoded; the same happens when the task encodes it itself."""
        failed = failure_of(snapshot.task, snapshot.incarnation, error, Recourse.NONE)
        self._post(PartFailed(failed))

    def _reach(self, point: FaultPoint, snapshot: Snapshot, task: str) -> None:
        if self._faults is not None:
            self._faults.reach(point, task, str(snapshot.checkpoint))

    def read(self, purpose: ReadPurpose, names: tuple[str, ...]) -> None:
        """Reads snapshots; the outcome is ``SnapshotsRead``."""
        image = self._context.image  # that of the view in force, to which the number of the task belongs
        warm = (
            self._warm if isinstance(purpose, TaskRead) and self._warm.widths == image.plan.widths else WarmStates({})
        )
        self._reader.put(lambda: self._read(purpose, names, image, warm))

    def read_ahead(self, asked: ReadAhead) -> None:
        """Reads the state of tasks of the next plan; the outcome is ``WarmedUp``."""
        image = self._context.image
        image = replace(image, plan=image.plan.with_widths(dict(asked.widths)))
        if self._warm.is_ended or self._warm.widths != image.plan.widths:
            self.drop_read_ahead()
            self._warm = WarmStates(image.plan.widths, self._warm_bytes_max)
        warm = self._warm
        self._reader_ahead.put(lambda: self._read_ahead(asked, image, warm))

    def drop_read_ahead(self) -> None:
        """Drops what was read for tasks of the next plan, but for what reads that were asked for before may take."""
        self._warm.is_ended = True
        self._warm = WarmStates({})

    def _read_ahead(self, asked: ReadAhead, image: JobImage, warm: WarmStates) -> None:
        read = self._read_for(warm)
        for name, source in [(task.task, source) for task in asked.tasks for source in task.sources]:
            number = image.plan.task_named(name)
            if number is None:
                continue
            if self._faults is not None:
                self._faults.reach(FaultPoint.READ_AHEAD, name)
            try:
                read_ahead(warm, name, source, image.new_union(number), partial(self._new_mirror, number), read)
            except ReadAheadEnded:
                return
            except ReadAheadFull as error:
                logger.info("the state of %s and of later tasks was not read ahead: %s", name, error)
                break
            except ClonosError as error:  # the task that begins here meets it again, and says it
                logger.info("the state of %s was not read ahead: %s", name, error)
        self._post(WarmedUp(asked.number))

    def _read_for(self, warm: WarmStates) -> ReadObject:
        """Returns a reader of objects whose pieces end when nothing more is to be read ahead."""

        def read(name: str) -> Iterator[bytes | memoryview]:
            pieces = self._reader_ahead.persist(lambda: self._store.read_object(name))
            for piece in pieces:
                if warm.is_ended:
                    raise ReadAheadEnded(name)
                yield piece

        return read

    def restored_permille(self, task: TaskId, incarnation: Incarnation) -> int | None:
        """Returns how much of the state of a task has been read; None unless it is being read. Any thread may call
        this."""
        return self._permille.get((task, incarnation))

    def _read_object(self, purpose: ReadPurpose, name: str, number: int, count: int) -> Iterator[bytes | memoryview]:
        def reached(share: float) -> None:
            if isinstance(purpose, TaskRead):
                self._permille[purpose.task, purpose.incarnation] = int(1_000 * (number + share) / count)

        reached(0.0)
        return self._reader.persist(partial(self._store.read_object, name, reached))

    def _restored(
        self, purpose: ReadPurpose, names: tuple[str, ...], image: JobImage, warm: WarmStates
    ) -> RestoredState:
        places = {name: number for number, name in enumerate(names)}

        def read(name: str) -> Iterator[bytes | memoryview]:
            return self._read_object(purpose, name, places[name], len(names))

        task = image.plan.task_name(purpose.task)
        try:
            if is_moved(names[-1]):
                return restore_moved(names, read, image.union_of, restorer(warm, task, read))
            return warm.take(WarmKey(task), names, read, lambda: self._new_mirror(purpose.task))
        finally:
            self._permille.clear()

    def _read(self, purpose: ReadPurpose, names: tuple[str, ...], image: JobImage, warm: WarmStates) -> None:
        try:
            restored = self._restored(purpose, names, image, warm)
        except ClonosError as error:  # a PeerError: values that this process cannot decode; a JobError: StateUndivided
            if isinstance(error, StoreFailed) and not isinstance(error, ObjectMissing):
                logger.warning("%s", error)
                self._post(SnapshotsRead(purpose, None, str(error)))
            elif isinstance(purpose, TaskRead):
                # A retry does not help, and to resume from an earlier checkpoint is the user's decision.
                self._post(PartFailed(_unrestorable(purpose, error)))
            else:  # a late standby may request an object that a later checkpoint has removed
                logger.info("%s", error)
                self._post(SnapshotsRead(purpose, None, str(error)))
        else:
            self._post(SnapshotsRead(purpose, restored, ""))

    def close(self) -> None:
        """Ends the threads."""
        self._writer.close()
        self._writer_of_wholes.close()
        self._warm.is_ended = True
        self._reader.close()
        self._reader_ahead.close()


class _RecordedPieces:
    """Pieces of a snapshot, which may be iterated again for a retry. ``recorded``: the pieces of the last iteration,
    for standbys; empty when they exceed ``STANDBY_BYTES_MAX``."""

    def __init__(self, snapshot: Snapshot, more: Pieces | None, bytes_max: int) -> None:
        self._snapshot, self._more, self._bytes_max = snapshot, more, bytes_max
        self.recorded: list[bytes] = []
        self.size_bytes = 0

    def __iter__(self) -> Iterator[bytes]:
        self.recorded = []
        self.size_bytes = 0
        for piece in chain((encode_snapshot(self._snapshot),), self._more or ()):
            self.size_bytes += len(piece)
            if self.size_bytes <= self._bytes_max:
                self.recorded.append(piece)
            else:
                self.recorded = []
            yield piece


def _crash(error: BaseException) -> None:
    raise error


def _unrestorable(purpose: TaskRead, error: ClonosError) -> TaskFailed:
    recourse = Recourse.STANDBY if isinstance(error, EnvironmentFault | PeerError) else Recourse.NONE
    return failure_of(purpose.task, purpose.incarnation, error, recourse, with_traceback=False)
