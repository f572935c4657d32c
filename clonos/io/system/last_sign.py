"""Last sign of life of a process on this machine: an instant in shared memory, which outlives the process.

A process that is killed says nothing, and the kernel takes its memory apart before it closes its sockets: others notice
the death some milliseconds later, under load many. From the last sign they know when it came. A sign costs one store
into memory. Where there is no ``/dev/shm`` there are no signs.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import re
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

MEMORY: Final = Path("/dev/shm")
NAME: Final = re.compile(r"clonos-([0-9]+)-[0-9a-f]{16}\.alive", re.ASCII)
SIGN_BYTES: Final = 8
LEFT_S: Final = 3600.0
"""Seconds after which the sign of a dead process that nobody has read is removed."""

_FLAGS: Final = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC


class SignOfLife:
    """Signs of one process. ``give`` may be called after ``close``, and does nothing where there is no memory."""

    def __init__(self, number: int, memory: Path = MEMORY) -> None:
        self._path, self._descriptor = _path(memory, number), -1
        self._cell: memoryview | None = None
        with suppress(OSError):
            _remove_old(memory)
            self._descriptor = os.open(self._path, _FLAGS | os.O_CREAT | os.O_EXCL, 0o600)
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(self._descriptor, SIGN_BYTES)
            self._map = mmap.mmap(self._descriptor, SIGN_BYTES)
            self._cell = memoryview(self._map).cast("q")

    def give(self, now_ns: int) -> None:
        """Says that the process lives. ``now_ns``: monotonic clock."""
        if self._cell is not None:
            self._cell[0] = now_ns

    def close(self) -> None:
        """Removes the sign. May be called again."""
        if self._cell is not None:
            self._cell.release()
            self._cell = None
            self._map.close()
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
            self._path.unlink(missing_ok=True)


def last_sign_ns(number: int, memory: Path = MEMORY) -> int | None:
    """Returns when a process gave its last sign (monotonic clock); None if it gave none on this machine."""
    with suppress(OSError):
        descriptor = os.open(_path(memory, number), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            if os.fstat(descriptor).st_uid == os.getuid():
                return int.from_bytes(os.read(descriptor, SIGN_BYTES), "little") or None
        finally:
            os.close(descriptor)
    return None


def remove_sign(number: int, memory: Path = MEMORY) -> None:
    """Removes the sign of a process that has ended."""
    with suppress(OSError):
        _path(memory, number).unlink()


def _path(memory: Path, number: int) -> Path:
    return memory / f"clonos-{os.getuid()}-{number:016x}.alive"


def _remove_old(memory: Path) -> None:
    """Removes what dead processes of this user have left, if their driver died too."""
    for name in os.listdir(memory):
        match = NAME.fullmatch(name)
        if match is None or int(match[1]) != os.getuid():
            continue
        path = memory / name
        with suppress(OSError):
            if time.time() - path.stat().st_mtime < LEFT_S:
                continue
            descriptor = os.open(path, _FLAGS)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)  # a living process has it
                path.unlink()
            finally:
                os.close(descriptor)
