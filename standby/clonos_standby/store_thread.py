"""A slot's threads for the checkpoint store: one writes snapshots, one reads them: no recovery waits for a write.

A failure is tried again a few times, then it becomes an event: the slot's machine decides what it means.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from queue import SimpleQueue
from threading import Event, Thread
from typing import TypeVar

from clonos.core.checkpoint.snapshot import STANDBY_BYTES_MAX, Snapshot, encode_snapshot, restore_from, standby_payload
from clonos.core.model.errors import ClonosError, EnvironmentFault, PeerError
from clonos.core.model.ids import TaskId
from clonos.core.ports.operator_chain import Mirror, Pieces
from clonos.core.ports.slot_shell import ReadPurpose, TaskRead
from clonos.core.ports.task_failure import failure_of
from clonos.core.slot.slot import Slot
from clonos.core.wire.recovery_messages import Recourse, TaskFailed
from clonos.io.process.fault_points import FaultPoint, FaultPoints
from clonos.io.store.object_files import ObjectMissing, StoreFailed
from clonos.io.store.store import CheckpointStore
from clonos_standby.inbox import Inbox

logger = logging.getLogger("clonos.slot")

ATTEMPTS_MAX = 4
BACKOFF_FIRST_S = 0.05
BACKOFF_FACTOR = 4
CLOSE_TIMEOUT_S = 5.0

Result = TypeVar("Result")


class StoreThread:
    """Does one job after the other in a thread of its own. One that raises is a bug, which the I/O thread dies of."""

    def __init__(self, name: str, inbox: Inbox, *, backoff_first_s: float = BACKOFF_FIRST_S) -> None:
        self._inbox = inbox
        self._backoff_first_s = backoff_first_s
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._end = Event()
        self.thread = Thread(target=self._run, name=name, daemon=True)
        self.thread.start()

    def put(self, job: Callable[[], None]) -> None:
        """Queues a job."""
        self._jobs.put(job)

    def _run(self) -> None:
        try:
            while (job := self._jobs.get()) is not None and not self._end.is_set():
                job()
        except Exception as error:  # noqa: BLE001 raised again where it ends the process
            self._inbox.put(_crash, error)

    def persist(self, call: Callable[[], Result]) -> Result:
        """Makes the call, a few times if the store fails; the last failure is raised."""
        backoff_s = self._backoff_first_s
        for _ in range(ATTEMPTS_MAX - 1):
            try:
                return call()
            except ObjectMissing:
                raise
            except StoreFailed as error:
                logger.info("%s Trying again in %.2f s", error, backoff_s)
                if self._end.wait(backoff_s):
                    raise
                backoff_s *= BACKOFF_FACTOR
        return call()

    def close(self) -> None:
        """Ends after the job that is being done."""
        self._end.set()
        self._jobs.put(None)
        self.thread.join(CLOSE_TIMEOUT_S)


class SnapshotStore:
    """Snapshots in the background; outcomes are calls of the slot's machine.

    What nobody waits for, all of the state of a task, has a thread of its own: no checkpoint waits for it.
    """

    def __init__(
        self,
        store: CheckpointStore,
        slot: Slot,
        inbox: Inbox,
        new_mirror: Callable[[TaskId], Mirror],
        faults: FaultPoints | None = None,
        *,
        backoff_first_s: float = BACKOFF_FIRST_S,
        standby_bytes_max: int = STANDBY_BYTES_MAX,
    ) -> None:
        self._faults = faults
        self._standby_bytes_max = standby_bytes_max
        self._store, self._slot, self._inbox, self._new_mirror = store, slot, inbox, new_mirror
        self._writer, self._writer_of_wholes, self._reader = (
            StoreThread(name, inbox, backoff_first_s=backoff_first_s)
            for name in ("store writer", "store writer of whole states", "store reader")
        )

    def write(self, name: str, snapshot: Snapshot, more: Pieces | None) -> None:
        """``Slot.on_snapshot_written`` tells the outcome."""
        self._writer.put(lambda: self._write(name, snapshot, more))

    def _write(self, name: str, snapshot: Snapshot, more: Pieces | None) -> None:
        self._reach(FaultPoint.SNAPSHOT_BEGUN, snapshot)
        pieces = _Kept(snapshot, more, self._standby_bytes_max)
        try:
            self._writer.persist(lambda: self._store.write_object(name, pieces))
        except StoreFailed as error:
            logger.warning("%s", error)
            self._inbox.put(self._slot.on_snapshot_written, name, b"", str(error))
        except ClonosError as error:
            self._give_up(snapshot, error)
        else:
            if more is not None:
                more.release()
            self._reach(FaultPoint.SNAPSHOT_WRITTEN, snapshot)
            self._inbox.put(self._slot.on_snapshot_written, name, standby_payload(pieces.kept), "")

    def write_whole(self, name: str, snapshot: Snapshot, whole: Pieces) -> None:
        """``Slot.on_whole_written`` tells it, if it is stored."""
        self._writer_of_wholes.put(lambda: self._write_whole(name, snapshot, whole))

    def _write_whole(self, name: str, snapshot: Snapshot, whole: Pieces) -> None:
        self._reach(FaultPoint.WHOLE_STATE_BEGUN, snapshot)
        try:
            self._store.write_object(name, chain((encode_snapshot(snapshot),), whole))
        except StoreFailed as error:
            logger.warning("%s The next snapshots build on the earlier ones; it is tried again later.", error)
        except ClonosError as error:
            self._give_up(snapshot, error)
        else:
            self._reach(FaultPoint.WHOLE_STATE_WRITTEN, snapshot)
            self._inbox.put(self._slot.on_whole_written, name)
        finally:
            whole.release()

    def _give_up(self, snapshot: Snapshot, error: ClonosError) -> None:
        """Something in the state cannot be kept: the task fails by it, as it does where it encodes it itself."""
        failed = failure_of(snapshot.task, snapshot.incarnation, error, Recourse.NONE)
        self._inbox.put(self._slot.on_failed, failed)

    def _reach(self, point: FaultPoint, snapshot: Snapshot) -> None:
        if self._faults is not None:
            self._faults.reach(point, self._slot.plan.task_name(snapshot.task), str(snapshot.checkpoint))

    def read(self, purpose: ReadPurpose, names: tuple[str, ...]) -> None:
        """``Slot.on_objects_read`` tells the outcome."""
        self._reader.put(lambda: self._read(purpose, names))

    def _read(self, purpose: ReadPurpose, names: tuple[str, ...]) -> None:
        objects = ((name, self._reader.persist(partial(self._store.read_object, name))) for name in names)
        try:
            restored = restore_from(objects, self._new_mirror(purpose.task))
        except (EnvironmentFault, PeerError) as error:  # the latter: values that this process cannot read
            if isinstance(error, StoreFailed) and not isinstance(error, ObjectMissing):
                logger.warning("%s", error)
                self._inbox.put(self._slot.on_objects_read, purpose, None, str(error))
            elif isinstance(
                purpose, TaskRead
            ):  # reading again does not help, and going back further is for people to decide
                self._inbox.put(self._slot.on_failed, _unrestorable(purpose, error))
            else:  # a standby that lags may ask for what a later checkpoint has made superfluous
                logger.info("%s", error)
                self._inbox.put(self._slot.on_objects_read, purpose, None, str(error))
        else:
            self._inbox.put(self._slot.on_objects_read, purpose, restored, "")

    def close(self) -> None:
        """Ends the threads."""
        self._writer.close()
        self._writer_of_wholes.close()
        self._reader.close()


class _Kept:
    """The pieces of a snapshot, as often as they are asked for; those of the last time are kept for standbys, unless
    they are too many."""

    def __init__(self, snapshot: Snapshot, more: Pieces | None, bytes_max: int) -> None:
        self._snapshot, self._more, self._bytes_max = snapshot, more, bytes_max
        self.kept: list[bytes] = []

    def __iter__(self) -> Iterator[bytes]:
        self.kept = []
        size_bytes = 0
        for piece in chain((encode_snapshot(self._snapshot),), self._more or ()):
            size_bytes += len(piece)
            if size_bytes <= self._bytes_max:
                self.kept.append(piece)
            else:
                self.kept = []
            yield piece


def _crash(error: BaseException) -> None:
    raise error


def _unrestorable(purpose: TaskRead, error: EnvironmentFault | PeerError) -> TaskFailed:
    return failure_of(purpose.task, purpose.incarnation, error, Recourse.STANDBY, with_traceback=False)
