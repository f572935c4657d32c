"""Requested checkpoints of a running job, and savepoints, which are copies of them.

The coordinator keeps the objects of a requested checkpoint until it is released, however long the copy takes.
"""

from __future__ import annotations

import itertools
import logging
import threading
import time
from concurrent.futures import wait
from typing import Final

from clonos.core.checkpoint.checkpoint_metadata import CheckpointMetadata
from clonos.core.coordinator.coordinator import Coordinator
from clonos.core.coordinator.coordinator_effects import Ending, JobDone
from clonos.core.coordinator.coordinator_events import CheckpointReleased, CheckpointRequested
from clonos.core.model.errors import ClonosError, JobError
from clonos.io.store.object_files import LocalFiles
from clonos.io.store.savepoint import Savepoint, check_free, write_savepoint, writing_of
from clonos.io.store.store import CheckpointStore
from clonos.io.system.shown_progress import Progress
from clonos.io.system.wall_clock import wall_ns
from clonos.status import SavepointProgress
from clonos_standby.driver.driver import Driver

logger = logging.getLogger("clonos.run")

LOOK_EVERY_S: Final = 0.02


class NoCheckpoint(JobError):
    """A requested checkpoint cannot be had any more."""

    job: str
    what: str

    def __str__(self) -> str:
        return f"job {self.job} has ended {self.what}. Start it again with --resume, and take it then."


class RequestedCheckpoints:
    """Requests of one job, from any thread."""

    def __init__(self, job: str, driver: Driver, store: CheckpointStore) -> None:
        self._job, self._driver, self._store = job, driver, store
        self._requests = itertools.count(1)
        self._saving: list[threading.Thread] = []
        self._written_now: dict[Progress, str] = {}

    def begin(self, timeout: float | None) -> int:
        """Begins a checkpoint; returns its number. Raises: NoCheckpoint: the job has ended. TimeoutError."""
        request, deadline_s = self._request(), _deadline_s(timeout)
        try:
            while (held := self._driver.ask(lambda coordinator: coordinator.requested(request))) is None:
                self._wait(deadline_s, "begun")
            return held.number
        finally:
            self._driver.post(CheckpointReleased(request))

    def save(self, url: str, timeout: float | None) -> Savepoint:
        """Takes a checkpoint, waits until its output is committed, and copies it into a savepoint.

        Raises: SavepointExists: the place is taken. NoCheckpoint: the job has ended. TimeoutError: the checkpoint did
        not complete in time. StoreFailed, StoreUnsupported, ObjectCorrupt.
        """
        check_free(url)
        request = self._request()
        try:
            return self._written(self._completed(request, _deadline_s(timeout)), url)
        finally:
            self._driver.post(CheckpointReleased(request))

    def begin_save(self, url: str) -> None:
        """Takes a savepoint in a thread, while the job runs. The log says that it is written, or why it is not."""
        thread = threading.Thread(target=self._save_and_log, args=(url,), name="savepoint", daemon=True)
        self._saving.append(thread)
        thread.start()

    def finish(self) -> None:
        """Waits for what ``begin_save`` has begun, if the job has ended."""
        while self._saving and self._driver.result.done():
            self._saving.pop().join()

    def save_last(self, url: str) -> Savepoint:
        """Copies the last checkpoint of a job that has ended. Raises: as ``save``."""
        return self._written(self._driver.ask(lambda coordinator: coordinator.completed), url)

    def written_now(self) -> tuple[SavepointProgress, ...]:
        """Returns the savepoints that are being written, oldest first."""
        return tuple(
            SavepointProgress(url, int(each.done), int(each.total), each.left_s, each.text())
            for each, url in tuple(self._written_now.items())
        )

    def default_url(self) -> str:
        """Returns a new place for a savepoint, beside the store. Raises: JobError: the store is no folder."""
        if not isinstance(self._store.files, LocalFiles):
            raise JobError(f"name the place of the savepoint: the store {self._store.url} is no folder.")
        return f"{self._store.files.root}.savepoints/{wall_ns() // 1_000_000}"

    def _save_and_log(self, url: str) -> None:
        try:
            self.save(url, None)
        except (ClonosError, TimeoutError) as error:
            logger.error("no savepoint was written to %s: %s", url, error)

    def _written(self, metadata: CheckpointMetadata, url: str) -> Savepoint:
        writing = writing_of(metadata, url)
        self._written_now[writing] = url
        try:
            savepoint = write_savepoint(self._store, metadata, url, writing)
        finally:
            del self._written_now[writing]
        logger.warning(
            "savepoint of %s written to %s: checkpoint %d, %d bytes",
            *(self._job, url, savepoint.checkpoint, savepoint.size_bytes),
        )
        return savepoint

    def _request(self) -> int:
        request = next(self._requests)
        self._driver.post(CheckpointRequested(request))
        return request

    def _completed(self, request: int, deadline_s: float | None) -> CheckpointMetadata:
        while True:
            is_over = self._driver.result.done()
            if (found := self._driver.ask(lambda coordinator: coordinator.committed(request))) is not None:
                return found
            if is_over and self._has_ended_well():
                return self._driver.ask(_last_completed)
            self._wait(deadline_s, "completed")

    def _has_ended_well(self) -> bool:
        """Returns whether the job has ended with a final checkpoint, whose output is committed."""
        result = self._driver.result
        if result.cancelled() or result.exception() is not None:
            return False
        end = result.result()
        return isinstance(end, JobDone) and end.ending is not Ending.ABORTED

    def _wait(self, deadline_s: float | None, what: str) -> None:
        """Waits a moment. Raises: NoCheckpoint: the job has ended. TimeoutError."""
        if self._driver.result.done():
            raise NoCheckpoint(self._job, f"before the requested checkpoint had {what}")
        if deadline_s is not None and time.monotonic() >= deadline_s:
            raise TimeoutError(f"the requested checkpoint of {self._job} has not {what} in time")
        wait([self._driver.result], LOOK_EVERY_S)


def _last_completed(coordinator: Coordinator) -> CheckpointMetadata:
    return coordinator.completed


def _deadline_s(timeout: float | None) -> float | None:
    return None if timeout is None else time.monotonic() + timeout
