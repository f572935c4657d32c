"""Program of a driver process: ``python -m clonos.server.supervision.driver_main``.

It takes the lock of the job's folder, runs the job from what its store has, serves the job's API on a Unix socket in
the folder, and writes there how it ended. It outlives the server. A SIGTERM ends it with a final checkpoint, from which
a later driver continues: only a request over the API ends the job.

It begins as a spare driver, which learns the folder from its standard input (``spare_driver.py``).
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from logging.handlers import MemoryHandler, RotatingFileHandler
from pathlib import Path
from typing import TYPE_CHECKING, Final

from clonos.config import SlotKind
from clonos.core.model.errors import Blame, ClonosError, short_report
from clonos.core.model.progress import SETTLED_PHASES
from clonos.io.process.fork_server_process import WARM_MODULES, offered
from clonos.io.process.retained_slots import RetainedSlots, retaining_slots
from clonos.io.system.collections_paused import collect_rarely
from clonos.io.system.process_identity import machine, started_at
from clonos.job.script.job_file import load_job, put_on_path
from clonos.server.register.job_record import DriverProcess
from clonos.server.supervision.job_folder import REPORTED_DOCUMENTS, DriverEnd, JobFolder, JobSpec
from clonos.server.supervision.waiting_driver import SpareSlots, waited_for_a_job

if TYPE_CHECKING:
    from clonos.job import Handle, Result

logger = logging.getLogger("clonos.server")

LOCK_WAIT_S: Final = 2.0
"""Seconds for which a server that looks at the lock may have it."""
ANOTHER_DRIVER: Final = 5
"""Exit code of a driver that found another one in the folder."""
LOG_BYTES_MAX: Final = 16 << 20
LOGS_RETAINED: Final = 2
LOG_FORMAT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"
EARLY_LINES_MAX: Final = 1_000
API_AFTER_S: Final = 5.0
API_LOOK_EVERY_S: Final = 0.05


def main(lock_wait_s: float = LOCK_WAIT_S) -> int:
    """Runs one driver and returns its exit code: 0, or 5 if another driver has the folder."""
    taken = waited_for_a_job()
    if taken is None:
        return 0
    folder, attempt = taken.folder, taken.attempt
    lock = folder.lock(lock_wait_s)
    if lock is None:
        return ANOTHER_DRIVER
    folder.clear_end()
    folder.write_driver(DriverProcess(os.getpid(), started_at(os.getpid()), machine(), attempt))
    os.chdir(folder.files)
    folder.write_end(_end_of(folder, attempt, _log_to(folder), taken.slots))
    return 0


def _log_to(folder: JobFolder) -> MemoryHandler:
    """Writes log lines, and what tasks print, into the folder's log, which has a limit. Returns a handler that collects
    them for the API."""
    handler = RotatingFileHandler(folder.log, maxBytes=LOG_BYTES_MAX, backupCount=LOGS_RETAINED, encoding="utf-8")
    handler.setFormatter(logging.Formatter(LOG_FORMAT))
    early = MemoryHandler(EARLY_LINES_MAX, flushLevel=logging.CRITICAL + 1)
    logging.basicConfig(level=logging.WARNING, handlers=[handler, early])
    logging.getLogger("clonos").setLevel(logging.INFO)
    from clonos_standby.driver.printed_lines import PRINTED_LINES

    PRINTED_LINES.handlers = [handler, early]
    return early


def _end_of(folder: JobFolder, attempt: int, early: MemoryHandler, slots: SpareSlots) -> DriverEnd:
    """Runs the job and returns its end."""
    try:
        return _run(folder, attempt, folder.read_spec(), early, slots)
    except ClonosError as error:
        logger.error("%s", short_report(error))
        from clonos.io.store.savepoint import SavepointNotWritten
        from clonos.job import JobSuperseded

        if isinstance(error, SavepointNotWritten):  # the next driver gets the request
            return DriverEnd(attempt, "aborted")
        is_superseded = isinstance(error, JobSuperseded)
        return DriverEnd(attempt, "failed", 0, error.blame, short_report(error), is_superseded)
    except KeyboardInterrupt:
        return DriverEnd(attempt, "aborted")
    except Exception as error:
        logger.exception("the driver has failed")
        return DriverEnd(attempt, "failed", 0, Blame.LIBRARY, f"{type(error).__name__}: {error}")


def _run(folder: JobFolder, attempt: int, spec: JobSpec, early: MemoryHandler, slots: SpareSlots) -> DriverEnd:
    # The first driver finds the job's own store empty; a store that the user names may have an earlier run.
    has_earlier_run = attempt > 1 or "store" in spec.options
    options: dict[str, object] = {"store": str(folder.store), **spec.options, "resume": has_earlier_run}
    if attempt > 1:
        options["widths"] = ()  # the job may have got others since the first driver began
    put_on_path(spec.target)
    retained = RetainedSlots(folder.slots) if spec.slots == SlotKind.PROCESS and hasattr(os, "pidfd_open") else None
    with _fork_server(folder, spec.slots, slots), retaining_slots(retained):
        collect_rarely()
        handle = load_job(spec.target).start(command_line=options)
    with handle, handle.handling_signals(), _serving(handle, folder, early, spec.slots):
        result: Result = handle.wait()
    return DriverEnd(attempt, result.ending.value, result.checkpoint)


def _begin_class_archives() -> None:
    """Starts a program of low priority, by whose work a local Spark of the next driver starts faster, unless that is
    done. It ends by itself."""
    from clonos.spark.class_archive import has_archives
    from clonos.spark.session import active_context, is_local

    context = active_context()
    if context is None or not is_local(context) or has_archives():
        return
    command = [sys.executable, "-m", "clonos.spark.make_class_archives"]
    subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )


def _fork_server(folder: JobFolder, kind: str, slots: SpareSlots) -> AbstractContextManager[None]:
    """Returns a context in which the fork server that was started ahead of the job waits for it."""
    if kind == SlotKind.PROCESS:
        with suppress(BrokenPipeError):  # it has ended, so the job starts another one
            return offered(slots.hash_seed, slots.fork_server.move_to(slots.hash_seed, WARM_MODULES, folder.output))
    slots.fork_server.discard()
    return nullcontext()


@contextmanager
def _serving(handle: Handle, folder: JobFolder, early: MemoryHandler, slots: str) -> Iterator[None]:
    """Context in which the API of the job is served. At its end the last documents are written.

    The API takes longer to import than the coordinator, so it waits until the tasks run: output comes first. ``early``:
    the log lines until then.
    """
    has_ended = threading.Event()
    with ExitStack() as stack:
        given = handle, folder, early, slots, has_ended, stack
        opening = threading.Thread(target=_open_api, args=given, name="api start")
        opening.start()
        try:
            yield
        finally:
            has_ended.set()
            opening.join()
            handle.finish_savepoints()
            _keep_last(handle, folder)


def _open_api(
    handle: Handle,
    folder: JobFolder,
    early: MemoryHandler,
    slots: str,
    has_ended: threading.Event,
    stack: ExitStack,
) -> None:
    """Opens the API when all tasks run, or the job has ended, or after a limit."""
    deadline_s = time.monotonic() + API_AFTER_S
    while not has_ended.wait(API_LOOK_EVERY_S) and time.monotonic() < deadline_s:
        tasks = handle.status().tasks
        if tasks and all(task.phase in SETTLED_PHASES for task in tasks):
            break
    if slots == SlotKind.SPARK and not has_ended.is_set():
        _begin_class_archives()
    from clonos.server.job_api.log_ring import log_ring
    from clonos.server.job_api.server_thread import served_job_at

    try:
        path = stack.enter_context(folder.socket_path())
        logs = stack.enter_context(log_ring())
        for each in (logging.getLogger(), logging.getLogger("clonos.printed")):
            each.removeHandler(early)
        early.setTarget(logs)
        early.close()
        stack.enter_context(served_job_at(handle, logs, Path(path)))
    except ClonosError as error:  # the job goes on, and the server says that its driver does not answer
        logger.error("the API of the job is not served: %s", error)


def _keep_last(handle: Handle, folder: JobFolder) -> None:
    """Writes the last documents, as the API gives them, for the time when nobody serves it."""
    from clonos.server.supervision.driver_link import DriverLink, DriverRefused, DriverSilent

    link = DriverLink(folder)
    try:
        folder.write_last({name: link.document(handle.job_id, name) for name in REPORTED_DOCUMENTS})
    except (DriverSilent, DriverRefused) as error:
        logger.warning("the last documents of the job were not kept: %s", error)


if __name__ == "__main__":
    sys.exit(main())
