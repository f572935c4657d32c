"""Folder of one job of a server, and the files by which the server and the job's drivers understand each other.

A driver holds the lock of the folder for as long as it lives, so there is one at a time, and a server that has started
again sees whether one lives. Files are replaced whole. ``end.json`` exists only when the last driver has ended the job,
or its own part in it, in order.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from clonos.core.wire.decoding import DECODE_ERRORS
from clonos.server.register.job_record import DriverProcess

LOCK_RETRY_S: Final = 0.02
Found = TypeVar("Found")

REPORTED_DOCUMENTS: Final = ("", "status", "checkpoints", "recoveries", "history")
"""Documents of a job that are kept for the time when no driver lives, by their URLs; "" is the job itself."""

SOCKET_NAME: Final = "api.sock"
SOCKET_PATH_BYTES_MAX: Final = 100


class JobSpec(msgspec.Struct, frozen=True):
    """Job that a driver is to run. ``target``: FILE or FILE:NAME in the folder of the job's files. ``slots``: where its
    tasks run, as its check has found; a driver starts what they need before it loads the job."""

    id: str
    target: str
    options: dict[str, str]
    slots: str = "spark"


class DriverEnd(msgspec.Struct, frozen=True):
    """How a driver ended. ``ending``: "finished", "drained", "aborted" (also: before the job had begun) or "failed", of
    which the first three are those of ``Ending``.
    ``blame``: whose fault a failure is."""

    attempt: int
    ending: str
    checkpoint: int = 0
    blame: str = ""
    error: str = ""
    is_superseded: bool = False


class LastDocuments(msgspec.Struct, frozen=True):
    """Documents that a driver has reported last, by their names."""

    documents: dict[str, msgspec.Raw]


class JobFolder:
    """Paths of a job, and its lock."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.files = path / "files"
        self.store = path / "store"
        self.log = path / "driver.log"
        self.output = path / "driver.out"
        self.slots = path / "slots.json"

    def create(self) -> None:
        """Creates the folder, which only this user may read."""
        self.path.mkdir(mode=0o700, parents=True)
        self.files.mkdir(mode=0o700)

    def remove(self) -> None:
        """Deletes the folder with everything in it."""
        shutil.rmtree(self.path, ignore_errors=True)

    # ------------------------------------------------------------------ files

    def write_spec(self, spec: JobSpec) -> None:
        """Writes what drivers are to run."""
        self._write("job.json", msgspec.json.encode(spec))

    def read_spec(self) -> JobSpec:
        """Returns what drivers are to run."""
        return msgspec.json.decode((self.path / "job.json").read_bytes(), type=JobSpec)

    def write_driver(self, process: DriverProcess) -> None:
        """Writes which process is the driver; the driver itself does so when it has the lock."""
        self._write("driver.json", msgspec.json.encode(process))

    def read_driver(self) -> DriverProcess | None:
        """Returns the process that was the last driver."""
        return self._read("driver.json", DriverProcess)

    def write_end(self, end: DriverEnd) -> None:
        """Writes how the driver has ended."""
        self._write("end.json", msgspec.json.encode(end))

    def read_end(self) -> DriverEnd | None:
        """Returns how the last driver has ended; None if it was killed."""
        return self._read("end.json", DriverEnd)

    def clear_end(self) -> None:
        """Forgets the end and the documents of an earlier driver."""
        for name in ("end.json", "last.json"):
            (self.path / name).unlink(missing_ok=True)

    def write_last(self, documents: dict[str, bytes]) -> None:
        """Writes the last documents of a driver."""
        raw = {name: msgspec.Raw(document) for name, document in documents.items()}
        self._write("last.json", msgspec.json.encode(LastDocuments(raw)))

    def read_last(self) -> dict[str, bytes]:
        """Returns the last documents of a driver that has ended in order."""
        found = self._read("last.json", LastDocuments)
        return {} if found is None else {name: bytes(document) for name, document in found.documents.items()}

    def _write(self, name: str, data: bytes) -> None:
        new = self.path / f".{name}.{os.getpid()}"
        with new.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(new, self.path / name)

    def _read(self, name: str, kind: type[Found]) -> Found | None:
        try:
            return msgspec.json.decode((self.path / name).read_bytes(), type=kind)
        except (FileNotFoundError, *DECODE_ERRORS):  # other errors say nothing about what became of the driver
            return None

    # ------------------------------------------------------------------ the lock

    def lock(self, wait_s: float = 0.0) -> int | None:
        """Returns the descriptor that holds the lock until it is closed; None while another process has it."""
        descriptor = os.open(self.path / "driver.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        deadline_s, pause = time.monotonic() + wait_s, threading.Event()
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                if time.monotonic() >= deadline_s:
                    os.close(descriptor)
                    return None
                pause.wait(LOCK_RETRY_S)
            else:
                return descriptor

    def has_driver(self) -> bool:
        """Returns whether a driver lives."""
        descriptor = self.lock()
        if descriptor is None:
            return True
        os.close(descriptor)
        return False

    # ------------------------------------------------------------------ the socket

    @contextmanager
    def socket_path(self) -> Iterator[str]:
        """Context with the path of the driver's socket: a system limits it to about 100 bytes, so a longer one leads
        through the open folder."""
        path = self.path / SOCKET_NAME
        if len(os.fsencode(path)) <= SOCKET_PATH_BYTES_MAX:
            yield str(path)
            return
        descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            yield f"/proc/self/fd/{descriptor}/{SOCKET_NAME}"
        finally:
            os.close(descriptor)
