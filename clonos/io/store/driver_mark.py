"""Mark of a running driver in its store, by which a second start learns who runs the job.

The mark protects a running job from a start by mistake. It is not what keeps two drivers apart: that is the metadata
chain. A driver on this machine is recognized by its process; any other one renews its mark within ``SILENT_AFTER_S``.

Marks have numbers. A driver replaces those of dead ones by creating the next, which the store does for one of several.
Then it looks again: a mark that came meanwhile, because all marks had been removed, makes it step back.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime
from types import MappingProxyType
from typing import Final

import msgspec

from clonos.core.model.errors import JobError
from clonos.core.wire.decoding import DECODE_ERRORS
from clonos.io.store.object_files import ObjectFiles, ObjectMissing, StoreFailed
from clonos.io.system.process_identity import machine, started_at
from clonos.io.system.wall_clock import wall_ns

logger = logging.getLogger("clonos.run")

MARKS_FOLDER: Final = "drivers"
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
        return (self.pid, self.machine, self.born) == (os.getpid(), machine(), started_at(os.getpid()))

    def is_of_run(self, other: MarkRecord) -> bool:
        """Returns whether both are marks of one run."""
        return msgspec.structs.replace(self, renewals=0) == msgspec.structs.replace(other, renewals=0)


Marks = Mapping[int, MarkRecord | None]
"""Marks by number; None for an unreadable one."""

NO_MARKS: Final[Marks] = MappingProxyType({})


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
    job: str, url: str, files: ObjectFiles, dead: Marks = NO_MARKS, wait: Callable[[float], object] = time.sleep
) -> Marks:
    """Refuses to go on while a driver runs the job of the store. Returns the marks of all drivers that do not.

    ``dead``: marks that are known to be of such drivers. ``wait``: called with the seconds to wait for signs of life of
    drivers on other machines.

    Raises: JobRunning.
    """
    found = _marks(files)
    unknown = {number: mark for number, mark in found.items() if mark is not None and dead.get(number) != mark}
    later = found
    if far := [mark for mark in unknown.values() if mark.machine != machine()]:
        logger.warning(
            "process %d on host %s was running job %s: waiting %.0f s to see whether it still does",
            *(far[-1].pid, far[-1].host, job, SILENT_AFTER_S),
        )
        wait(SILENT_AFTER_S)
        later = _marks(files)
    for number, mark in unknown.items():
        is_here = mark.machine == machine()
        if started_at(mark.pid) == mark.born if is_here else later.get(number, mark) not in (None, mark):
            raise _running(job, url, mark)
    return found


def _running(job: str, url: str, mark: MarkRecord) -> JobRunning:
    since = datetime.fromtimestamp(mark.since_ns // 1_000_000_000).astimezone().strftime("%Y-%m-%d %H:%M:%S %Z")
    return JobRunning(job, url, mark.host, mark.pid, since, mark.is_of_this_process)


class DriverMark:
    """Mark of this process, renewed by a thread until ``close`` removes it."""

    def __init__(self, files: ObjectFiles, number: int, record: MarkRecord, renew_every_s: float) -> None:
        """Takes over the mark ``number``, which has been written."""
        self._files, self._renew_every_s = files, renew_every_s
        self._name, self._record = _name(number), record
        self._is_closing = threading.Event()
        self._thread = threading.Thread(target=self._renew_on, name="driver mark", daemon=True)
        self._thread.start()

    @classmethod
    def claimed(
        cls, job: str, url: str, files: ObjectFiles, dead: Marks = NO_MARKS, renew_every_s: float = RENEW_EVERY_S
    ) -> DriverMark:
        """Writes the mark, unless a driver that runs has written its own. ``dead``: marks of drivers that do not.

        Raises: JobRunning. StoreFailed.
        """
        record = _own_record()
        while True:
            dead = refuse_running(job, url, files, dead)
            number = max(dead, default=0) + 1
            is_created = files.create_if_absent(_name(number), msgspec.json.encode(record))
            if is_created or _read(files, _name(number)) == record:  # a repeated request finds its own mark
                break
        try:
            others = refuse_running(job, url, files, {**dead, number: record})
        except BaseException:
            files.delete(_name(number))
            raise
        for other in others:
            if other != number:
                files.delete(_name(other))
        return cls(files, number, record, renew_every_s)

    def _renew_on(self) -> None:
        while not self._is_closing.wait(self._renew_every_s) and self.renew():
            pass

    def renew(self) -> bool:
        """Renews the mark; returns False when another driver has replaced it."""
        try:
            found = _read(self._files, self._name)
            if found is None or not found.is_of_run(self._record):
                return False
            self._record = msgspec.structs.replace(self._record, renewals=self._record.renewals + 1)
            self._files.write(self._name, msgspec.json.encode(self._record))
        except StoreFailed as error:  # the next renewal may succeed, and the job itself reports a failing store
            logger.debug("the driver's mark was not renewed: %s", error)
        return True

    def close(self) -> None:
        """Removes the mark, unless another driver has replaced it. May be called again."""
        self._is_closing.set()
        self._thread.join()
        with suppress(StoreFailed):
            found = _read(self._files, self._name)
            if found is not None and found.is_of_run(self._record):
                self._files.delete(self._name)


def has_living_driver(files: ObjectFiles) -> bool:
    """Returns whether a driver seems to run the job of the store, without waiting: one of another machine counts as
    living as long as its mark is there.

    Raises: StoreFailed.
    """
    marks = [mark for mark in _marks(files).values() if mark is not None]
    return any(mark.machine != machine() or started_at(mark.pid) == mark.born for mark in marks)


def _own_record() -> MarkRecord:
    pid = os.getpid()
    return MarkRecord(socket.gethostname(), pid, machine(), started_at(pid), wall_ns())


def _name(number: int) -> str:
    return f"{MARKS_FOLDER}/{number:06}"


def _marks(files: ObjectFiles) -> Marks:
    numbers = [name.rpartition("/")[2] for name in files.list(MARKS_FOLDER)]
    return {int(number): _read(files, _name(int(number))) for number in numbers if number.isdecimal()}


def _read(files: ObjectFiles, name: str) -> MarkRecord | None:
    try:
        return msgspec.json.decode(files.read(name), type=MarkRecord)
    except (ObjectMissing, *DECODE_ERRORS):
        return None
