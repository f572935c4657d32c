"""Supervisor of all jobs that have not ended: one thread that is woken up by the end of a driver.

It notices the end of a driver at once, by a descriptor of its process, and looks after each job every ``TICK_S``
besides. Requests to drivers run in other threads, so a driver that does not answer delays no other job.
"""

from __future__ import annotations

import logging
import os
import select
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Final

from clonos.core.model.errors import EnvironmentFault
from clonos.job.continuing.restart_strategy import RestartStrategy
from clonos.server.register.register import JobRegister, JobUnknown
from clonos.server.supervision.job_folder import JobFolder
from clonos.server.supervision.spare_driver import SpareDriver
from clonos.server.supervision.supervised_job import SupervisedJob

logger = logging.getLogger("clonos.server")

TICK_S: Final = 0.1
LINKS_MAX: Final = 8
"""Threads for requests to drivers."""
WARN_EVERY_S: Final = 10.0


class Supervisor:
    """Supervisor of the jobs of a register. ``folder``: where each job has a folder of its id. ``spare``: starts
    drivers."""

    def __init__(self, register: JobRegister, folder: Path, strategy: RestartStrategy, spare: SpareDriver) -> None:
        self._register, self._folder, self._strategy = register, folder, strategy
        self._spare = spare
        self._jobs: dict[str, SupervisedJob] = {}
        self._wanted: dict[str, None] = {}  # jobs to look at, until the register has answered
        self._inbox: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_write, False)
        os.set_blocking(self._wake_read, False)
        self._links = ThreadPoolExecutor(LINKS_MAX, thread_name_prefix="driver link")
        self._is_closing = False
        self._warn_due_s = 0.0
        self._thread = threading.Thread(target=self._run, name="supervisor", daemon=True)

    def start(self) -> None:
        """Begins: adopts drivers that live, and starts those that are missing. Raises: RegisterFailed."""
        for record in self._register.jobs():
            if not record.status.is_final:
                self._add(record.id)
        self._thread.start()

    def look_at(self, job_id: str) -> None:
        """Takes up a new job, or what a user has asked of one; the register has it. Any thread may call this."""
        self._post(lambda: self._want(job_id))

    def summary(self, job_id: str) -> dict[str, Any] | None:
        """Returns the latest report of a job's living driver; None if there is none. Any thread may call this."""
        job = self._jobs.get(job_id)
        return None if job is None else job.summary

    def folder_of(self, job_id: str) -> JobFolder:
        """Returns the folder of a job."""
        return JobFolder(self._folder / job_id)

    def close(self) -> None:
        """Ends the supervision. Drivers go on."""
        self._post(self._begin_close)
        if self._thread.ident is not None:
            self._thread.join()
        self._links.shutdown()
        self._spare.close()
        for job in self._jobs.values():
            job.close()
        os.close(self._wake_read)
        os.close(self._wake_write)

    def _begin_close(self) -> None:
        self._is_closing = True

    def _post(self, call: Callable[[], None]) -> None:
        self._inbox.put(call)
        with suppress(BlockingIOError):  # then it is about to wake up
            os.write(self._wake_write, b"\0")

    # ------------------------------------------------------------------ the thread

    def _run(self) -> None:
        while not self._is_closing:
            self._wait()
            self._drain()
            for job_id in tuple(self._wanted):
                self._guard(partial(self._look_at, job_id))
            for job in list(self._jobs.values()):
                self._guard(partial(self._tick, job))
                if job.has_ended:
                    del self._jobs[job.record.id]
                    job.close()
            self._guard(partial(self._spare.tick, time.monotonic(), is_wanted=bool(self._jobs)))

    def _tick(self, job: SupervisedJob) -> None:
        job.tick(time.monotonic())

    def _wait(self) -> None:
        """Waits for a call, for the end of a driver, or for the next tick."""
        poller = select.poll()
        poller.register(self._wake_read, select.POLLIN)
        for job in self._jobs.values():
            if job.descriptor is not None:
                poller.register(job.descriptor, select.POLLIN)
        poller.poll(TICK_S * 1_000)
        with suppress(BlockingIOError):
            os.read(self._wake_read, 4096)

    def _drain(self) -> None:
        with suppress(Empty):
            while True:
                self._guard(self._inbox.get_nowait())

    def _guard(self, call: Callable[[], None]) -> None:
        """Calls it. What fails because of the register or the system is tried again by a later tick."""
        try:
            call()
        except (EnvironmentFault, OSError) as error:
            if time.monotonic() >= self._warn_due_s:
                self._warn_due_s = time.monotonic() + WARN_EVERY_S
                logger.warning("the supervision of jobs tries again: %s", error)
        except Exception:
            logger.exception("the supervision of a job has failed")

    def _want(self, job_id: str) -> None:
        self._wanted[job_id] = None

    def _look_at(self, job_id: str) -> None:
        """Raises: RegisterFailed: it is done by the next look."""
        with suppress(JobUnknown):  # it has been removed
            if job_id not in self._jobs:
                self._add(job_id)
            else:
                self._jobs[job_id].reload()
        del self._wanted[job_id]

    def _add(self, job_id: str) -> None:
        record = self._register.job(job_id)
        self._jobs[job_id] = SupervisedJob(
            record, self.folder_of(job_id), self._register, self._strategy, self._background, self._spare.spawn
        )

    def _background(self, work: Callable[[], Callable[[], None] | None]) -> None:
        def run() -> None:
            try:
                then = work()
            except Exception as error:  # noqa: BLE001 it is logged by the thread of the supervisor
                failed = error
                self._post(lambda: _raise(failed))
                return
            if then is not None:
                self._post(then)

        with suppress(RuntimeError):  # the pool has been shut down
            self._links.submit(run)


def _raise(error: Exception) -> None:
    raise error
