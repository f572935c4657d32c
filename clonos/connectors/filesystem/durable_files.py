"""Files that survive a crash of the machine: written whole under another name, synced, then shown by one link.

Every fault of the disk surfaces as ``OutputFailed``. A sync that failed is never tried again on the same file: the
kernel may have dropped what it could not write.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count

import xxhash

from clonos.connectors.connector_errors import OutputFailed

WRITE_BYTES = 256 << 10
WRITING = ".writing"
"""The end of the name of a file that is not published yet."""
LINKS_MISSING = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS})
"""What file systems without hard links answer."""


@contextmanager
def outputs_fail_as(path: str, doing: str) -> Iterator[None]:
    """Turns what the disk says into ``OutputFailed``; ``doing`` is a participle: written, made."""
    try:
        yield
    except OSError as error:
        raise OutputFailed(path, doing, error.strerror or str(error)) from error


def sync_folder(folder: str) -> None:
    """Makes names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def lock(descriptor: int) -> bool:
    """Marks an open file as in use until it is closed, by whomever. False: another process or file object has it."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks: then nothing on it counts as in use
        return True
    return True


def is_in_use(path: str) -> bool:
    """Whether somebody holds the file locked."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        return not lock(descriptor)
    finally:
        os.close(descriptor)


class DurableFile:
    """A file written forward. Nobody shall read it before ``publish``; ``discard`` leaves nothing behind."""

    def __init__(self, path: str, flag: int = os.O_TRUNC) -> None:
        self.path = path
        self.size_bytes = 0
        self._checksum = xxhash.xxh3_64()
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        with outputs_fail_as(path, "made"):
            self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | flag, 0o666)
        lock(self._descriptor)

    @classmethod
    def beside(cls, final_path: str) -> DurableFile:
        """Under a name of its own, next to the one that it shall get, for several processes that may do so at once."""
        for number in count():
            try:
                return cls(f"{final_path}.{number}{WRITING}", os.O_EXCL)
            except OutputFailed as failed:
                if not isinstance(failed.__cause__, FileExistsError):
                    raise
        raise AssertionError("count() does not end")

    def write(self, data: bytes) -> int:
        """Appends; reaches the disk some time before ``publish`` returns."""
        self._pending.append(data)
        self._pending_bytes += len(data)
        if self._pending_bytes >= WRITE_BYTES:
            self._flush()
        return len(data)

    def publish(self, final_path: str) -> str:
        """Makes the content durable and gives it its name, in the same folder. Returns the xxh3 of the content."""
        self._sync()
        with outputs_fail_as(final_path, "made"):
            self._close()
            os.replace(self.path, final_path)
            sync_folder(os.path.dirname(final_path))
        return self._checksum.hexdigest()

    def publish_if_absent(self, final_path: str) -> bool:
        """The same, unless the name is taken: then False, and the content is gone."""
        self._sync()
        with outputs_fail_as(final_path, "made"):
            is_new = self._link(final_path)
            sync_folder(os.path.dirname(final_path))
        self.discard()
        return is_new

    def discard(self) -> None:
        """Removes what is not published. May be called at any time, also after a fault."""
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
            # A file system without hard links: the driver is the only writer here, so nobody comes in between.
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
        with outputs_fail_as(self.path, "written"):
            try:
                while data:
                    data = data[os.write(self._descriptor, data) :]
            except OSError:
                self._close()  # so that nothing publishes a part of it
                raise

    def _sync(self) -> None:
        self._flush()
        with outputs_fail_as(self.path, "made durable"):
            try:
                os.fsync(self._descriptor)
            except OSError:
                self._close()
                raise

    def _close(self) -> None:
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            os.close(descriptor)
