"""Files that survive a crash of the machine: written under a temporary name, synced, then linked or renamed.

Every error of the disk is raised as ``OutputFailed``. A failed sync is not retried on the same file, because the kernel
may have dropped the data that it could not write.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count

import xxhash

from clonos.connectors.connector_errors import OutputFailed, OutputUnusable

WRITE_BYTES = 256 << 10
WRITING = ".writing"
"""Suffix of files that are not published yet."""
LINKS_MISSING = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS})
"""Errors of file systems without hard links."""


@contextmanager
def output_errors(path: str, doing: str) -> Iterator[None]:
    """Converts OSError to ``OutputFailed``; ``doing`` is a participle such as "written" or "created"."""
    try:
        yield
    except OSError as error:
        raise OutputFailed(path, doing, error.strerror or str(error)) from error


@contextmanager
def at_first_start() -> Iterator[None]:
    """Converts ``OutputFailed`` to ``OutputUnusable``: nothing is written yet, and there is nothing to resume."""
    try:
        yield
    except OutputFailed as error:
        raise OutputUnusable(error.path, error.doing, error.reason) from error


def sync_folder(folder: str) -> None:
    """Syncs the names in a folder to disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def lock(descriptor: int) -> bool:
    """Locks an open file until it is closed. Returns False if another process or file object holds the lock."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks: no file on it counts as in use
        return True
    return True


def is_in_use(path: str) -> bool:
    """Returns whether another process or file object holds the lock of the file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        return not lock(descriptor)
    finally:
        os.close(descriptor)


class DurableFile:
    """File that is written once, sequentially. It must not be read before ``publish``; ``discard`` removes it."""

    def __init__(self, path: str, flag: int = os.O_TRUNC) -> None:
        self.path = path
        self.size_bytes = 0
        self._checksum = xxhash.xxh3_64()
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        with output_errors(path, "created"):
            self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | flag, 0o666)
        lock(self._descriptor)

    @classmethod
    def create_beside(cls, final_path: str) -> DurableFile:
        """Creates a file with a temporary name beside ``final_path``; several processes may do so at once."""
        for number in count():
            try:
                return cls(f"{final_path}.{number}{WRITING}", os.O_EXCL)
            except OutputFailed as failed:
                if not isinstance(failed.__cause__, FileExistsError):
                    raise
        raise AssertionError("count() does not end")

    def write(self, data: bytes) -> int:
        """Appends data, which is on disk at the latest when ``publish`` returns."""
        self._pending.append(data)
        self._pending_bytes += len(data)
        if self._pending_bytes >= WRITE_BYTES:
            self._flush()
        return len(data)

    def publish(self, final_path: str) -> str:
        """Syncs the content and renames the file to ``final_path`` in the same folder.

        Returns the xxh3 of the content.
        """
        self._sync()
        with output_errors(final_path, "created"):
            self._close()
            os.replace(self.path, final_path)
            sync_folder(os.path.dirname(final_path))
        return self._checksum.hexdigest()

    def publish_if_absent(self, final_path: str) -> bool:
        """Syncs the content and links the file as ``final_path``.

        Returns False, and discards it, if that name exists.
        """
        self._sync()
        with output_errors(final_path, "created"):
            is_new = self._link(final_path)
            sync_folder(os.path.dirname(final_path))
        self.discard()
        return is_new

    def discard(self) -> None:
        """Removes the file unless it is published. May be called at any time, also after an error."""
        self._close()
        try:
            os.unlink(self.path)
        except FileNotFoundError:
            pass

    def _link(self, final_path: str) -> bool:
        try:
            os.link(self.path, final_path)
        except FileExistsError:
            return False
        except OSError as error:
            if error.errno not in LINKS_MISSING:
                raise
            # Without hard links, check and rename: the driver is the only writer here, so no other process interferes.
            if os.path.exists(final_path):
                return False
            os.rename(self.path, final_path)
        return True

    def _flush(self) -> None:
        if self._descriptor < 0:
            raise OutputFailed(self.path, "written", "an earlier attempt failed")
        data = memoryview(b"".join(self._pending))
        self._pending.clear()
        self._pending_bytes = 0
        self._checksum.update(data)
        self.size_bytes += len(data)
        with output_errors(self.path, "written"):
            try:
                while data:
                    data = data[os.write(self._descriptor, data) :]
            except OSError:
                self._close()  # so that an incomplete file is never published
                raise

    def _sync(self) -> None:
        self._flush()
        with output_errors(self.path, "synced"):
            try:
                os.fsync(self._descriptor)
            except OSError:
                self._close()
                raise

    def _close(self) -> None:
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            os.close(descriptor)
