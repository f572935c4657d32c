"""A slot's threads for the checkpoint store: one writes snapshots, one reads them: no recovery waits for a write.

A failure is tried again a few times, then it becomes an event: the slot's machine decides what it means.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from queue import SimpleQueue
from threading import Event, Thread
from typing import TypeVar

from msgspec import structs

from clonos.core.errors import EnvironmentFault
from clonos.core.failures import failure_of
from clonos.core.ids import Incarnation, TaskId
from clonos.core.messages import TaskFailed
from clonos.core.slot import Slot
from clonos.core.snapshots import Snapshot, SnapshotMalformed, decode_snapshot, encode_snapshot
from clonos.io.envelope import ObjectCorrupt
from clonos.io.fault_points import FaultPoints
from clonos.io.object_files import ObjectMissing, StoreFailed
from clonos.io.store import CheckpointStore
from clonos_standby.inbox import Inbox

logger = logging.getLogger("clonos.slot")

ATTEMPTS_MAX = 4
BACKOFF_FIRST_S = 0.05
BACKOFF_FACTOR = 4
CLOSE_TIMEOUT_S = 5.0

Result = TypeVar("Result")


class StoreThread:
    """Does one job after the other in a thread of its own. One that raises is a bug, which the I/O thread dies of."""

    def __init__(self, name: str, inbox: Inbox) -> None:
        self._inbox = inbox
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._end = Event()
        self._thread = Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

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
        backoff_s = BACKOFF_FIRST_S
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
        self._thread.join(CLOSE_TIMEOUT_S)


class SnapshotStore:
    """Snapshots in the background; outcomes are calls of the slot's machine."""

    def __init__(self, store: CheckpointStore, slot: Slot, inbox: Inbox, faults: FaultPoints | None = None) -> None:
        self._faults = faults
        self._store, self._slot, self._inbox = store, slot, inbox
        self._writer = StoreThread("store writer", inbox)
        self._reader = StoreThread("store reader", inbox)

    def write(self, name: str, snapshot: Snapshot) -> None:
        """``Slot.on_snapshot_written`` tells the outcome."""
        self._writer.put(lambda: self._write(name, snapshot))

    def _write(self, name: str, snapshot: Snapshot) -> None:
        encoded = encode_snapshot(snapshot)
        if self._faults is not None:
            self._faults.reach("snapshot begun", self._slot.plan.task_name(snapshot.task), str(snapshot.checkpoint))
        try:
            self._writer.persist(lambda: self._store.write_object(name, encoded))
        except StoreFailed as error:
            logger.warning("%s", error)
            self._inbox.put(self._slot.on_snapshot_written, name, b"", str(error))
        else:
            if self._faults is not None:
                self._faults.reach(
                    "snapshot written", self._slot.plan.task_name(snapshot.task), str(snapshot.checkpoint)
                )
            self._inbox.put(self._slot.on_snapshot_written, name, encoded, "")

    def read(self, token: tuple[str, int, int], names: tuple[str, ...]) -> None:
        """``Slot.on_objects_read`` tells the outcome."""
        self._reader.put(lambda: self._read(token, names))

    def _read(self, token: tuple[str, int, int], names: tuple[str, ...]) -> None:
        try:
            snapshots = [self._read_one(name) for name in names]
        except (ObjectMissing, ObjectCorrupt, SnapshotMalformed) as error:
            if token[0] == "task":  # reading again does not help, and going back further is for people to decide
                self._inbox.put(self._slot.on_raised, _unrestorable(token, error))
            else:  # a standby that lags may ask for what a later checkpoint has made superfluous
                logger.info("%s", error)
                self._inbox.put(self._slot.on_objects_read, token, None, str(error))
        except StoreFailed as error:
            logger.warning("%s", error)
            self._inbox.put(self._slot.on_objects_read, token, None, str(error))
        else:
            self._inbox.put(self._slot.on_objects_read, token, snapshots, "")

    def _read_one(self, name: str) -> Snapshot:
        return decode_snapshot(self._reader.persist(lambda: self._store.read_object(name)), name)

    def close(self) -> None:
        """Ends both threads."""
        self._writer.close()
        self._reader.close()


def _crash(error: BaseException) -> None:
    raise error


def _unrestorable(token: tuple[str, int, int], error: EnvironmentFault) -> TaskFailed:
    failed = failure_of(TaskId(token[1]), Incarnation(token[2]), error, is_fatal=True, with_traceback=False)
    return structs.replace(failed, is_unrestorable=True)
