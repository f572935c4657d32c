"""Mark of a running driver in its store, by which a second start learns who runs the job.

The mark protects a running job from a start by mistake. It is not what keeps two drivers apart: that is the metadata
chain. A driver on this machine is recognized by its process; any other one renews its mark within ``SILENT_AFTER_S``.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Final

import msgspec

from clonos.core.model.errors import JobError
from clonos.core.wire.decoding import DECODE_ERRORS
from clonos.io.store.object_files import ObjectFiles, ObjectMissing, StoreFailed
from clonos.io.system.wall_clock import wall_ns

logger = logging.getLogger("clonos.run")

MARK_NAME: Final = "driver"
RENEW_EVERY_S: Final = 4.0
SILENT_AFTER_S: Final = 13.0
"""Seconds without a renewal after which a driver on another machine counts as dead."""


class MarkRecord(msgspec.Struct, frozen=True):
    """Mark of one driver. ``machine``: equal for processes that see each other. ``born``: start time of the process,
    which tells it from a later process with its number."""

    host: str
    pid: int
    machine: str
    born: str
    since_ns: int
    renewals: int = 0

    @property
    def is_of_this_process(self) -> bool:
        """Whether this process wrote the mark."""
        return (self.pid, self.machine, self.born) == (os.getpid(), _machine(), _born(os.getpid()))

    def is_of_run(self, other: MarkRecord) -> bool:
        """Returns whether both are marks of one run."""
        return msgspec.structs.replace(self, renewals=0) == msgspec.structs.replace(other, renewals=0)


class JobRunning(JobError):
    """The job runs already."""

    job: str
    url: str
    host: str
    pid: int
    since: str
    is_here: bool

    def __str__(self) -> str:
        where = "in this process" if self.is_here else f"on host {self.host} as process {self.pid}"
        how = "close its handle" if self.is_here else f"stop it there, for example with: kill -INT {self.pid}"
        return (
            f"job {self.job} is running {where}, since {self.since}, with the checkpoint store {self.url}."
            f" To start it again, first {how}. To run it twice, give the second one another store and other outputs."
        )


def refuse_running(
    job: str, url: str, files: ObjectFiles, wait: Callable[[float], object] = time.sleep
) -> MarkRecord | None:
    """Refuses to go on while a driver runs the job of the store. Returns the mark of a dead driver, if there is one.

    ``wait``: called with the seconds to wait for signs of life of a driver on another machine.

    Raises: JobRunning.
    """
    found = _read(files)
    if found is None:
        return None
    if found.machine == _machine():
        is_running = _born(found.pid) == found.born
    else:
        logger.warning(
            "process %d on host %s was running job %s: waiting %.0f s to see whether it still does",
            *(found.pid, found.host, job, SILENT_AFTER_S),
        )
        wait(SILENT_AFTER_S)
        later = _read(files)
        is_running = later is not None and later != found
        found = found if later is None else later
    if is_running:
        since = datetime.fromtimestamp(found.since_ns // 1_000_000_000).astimezone().strftime("%Y-%m-%d %H:%M:%S %Z")
        raise JobRunning(job, url, found.host, found.pid, since, found.is_of_this_process)
    return found


class DriverMark:
    """Mark of this process, renewed by a thread until ``close`` removes it."""

    def __init__(
        self, files: ObjectFiles, renew_every_s: float = RENEW_EVERY_S, record: MarkRecord | None = None
    ) -> None:
        """Writes the mark; with ``record``, it has been written. Raises: StoreFailed."""
        self._files, self._renew_every_s = files, renew_every_s
        self._record = record or _own_record()
        if record is None:
            files.write(MARK_NAME, msgspec.json.encode(self._record))
        self._is_closing = threading.Event()
        self._thread = threading.Thread(target=self._renew_on, name="driver mark", daemon=True)
        self._thread.start()

    @classmethod
    def claimed(cls, job: str, url: str, files: ObjectFiles, dead: MarkRecord | None) -> DriverMark:
        """Writes the mark, unless a driver that runs has written its own. ``dead``: the mark of a driver that does not.

        Raises: JobRunning. StoreFailed.
        """
        record = _own_record()
        if not files.create_if_absent(MARK_NAME, msgspec.json.encode(record)):
            found = _read(files)
            if found is not None and found not in (dead, record):
                refuse_running(job, url, files)
            files.write(MARK_NAME, msgspec.json.encode(record))
        return cls(files, record=record)

    def _renew_on(self) -> None:
        while not self._is_closing.wait(self._renew_every_s) and self.renew():
            pass

    def renew(self) -> bool:
        """Renews the mark; returns False when another driver has replaced it."""
        try:
            found = _read(self._files)
            if found is None or not found.is_of_run(self._record):
                return False
            self._record = msgspec.structs.replace(self._record, renewals=self._record.renewals + 1)
            self._files.write(MARK_NAME, msgspec.json.encode(self._record))
        except StoreFailed as error:  # the next renewal may succeed, and the job itself reports a failing store
            logger.debug("the driver's mark was not renewed: %s", error)
        return True

    def close(self) -> None:
        """Removes the mark, unless another driver has replaced it. May be called again."""
        self._is_closing.set()
        self._thread.join()
        with suppress(StoreFailed):
            found = _read(self._files)
            if found is not None and found.is_of_run(self._record):
                self._files.delete(MARK_NAME)


def _own_record() -> MarkRecord:
    pid = os.getpid()
    return MarkRecord(socket.gethostname(), pid, _machine(), _born(pid), wall_ns())


def _read(files: ObjectFiles) -> MarkRecord | None:
    try:
        return msgspec.json.decode(files.read(MARK_NAME), type=MarkRecord)
    except (ObjectMissing, *DECODE_ERRORS):
        return None


def _machine() -> str:
    """Returns what the processes that can see each other have in common: the boot and the namespace of processes."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return socket.gethostname()


def _born(pid: int) -> str:
    """Returns the start time of a process in ticks since the boot; "" if there is no such process, or only a zombie."""
    if not Path("/proc/self/stat").exists():
        return "unknown" if _exists(pid) else ""
    try:
        state, *numbers = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if state in "ZX" else numbers[18]


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True
