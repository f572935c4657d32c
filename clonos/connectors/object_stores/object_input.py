"""Input files in object stores: the keys that a pattern matches, and reads of one version of an object.

A read names the version that was opened, so an object that is replaced meanwhile gives an error and never other bytes.
"""

from __future__ import annotations

import errno
import io
from collections.abc import Callable
from typing import Final

from xxhash import xxh3_64_intdigest

from clonos.connectors.connector_errors import InvalidConnector
from clonos.connectors.object_stores.urls import WILDCARDS, ObjectUrl, split_url
from clonos.io.store.bucket import Bucket, ObjectStatus

READ_AHEAD_BYTES_MIN: Final = 256 << 10
READ_AHEAD_BYTES_MAX: Final = 8 << 20
"""Size of one request of a reader that reads forward: large, because each request takes tens of milliseconds."""
NANOSECONDS: Final = 1_000_000_000


class ObjectInput(io.RawIOBase):
    """Open object. Requests grow while it is read forward, and begin small after a seek."""

    def __init__(self, url: str) -> None:
        super().__init__()
        parts = split_url(url)
        self._bucket: Bucket = parts.store()
        self._key = parts.key
        self.status: ObjectStatus = self._bucket.status(parts.key)
        self._position = 0
        self._begin, self._ahead = 0, b""
        self._request_bytes = READ_AHEAD_BYTES_MIN

    def readable(self) -> bool:
        """Returns True."""
        return True

    def seekable(self) -> bool:
        """Returns True."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Moves the position; the next read requests the bytes there."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self.status.size_bytes}[whence]
        self._position = max(0, base + offset)
        return self._position

    def readinto(self, buffer: object) -> int:
        """Reads bytes into a buffer; returns their number, 0 at the end.

        Raises: OSError: the store fails, or the object has been replaced or removed.
        """
        target = memoryview(buffer)  # type: ignore[arg-type]
        wanted = min(len(target), self.status.size_bytes - self._position)
        if wanted <= 0:
            return 0
        if not self._begin <= self._position < self._begin + len(self._ahead):
            self._request(wanted)
        start = self._position - self._begin
        piece = self._ahead[start : start + wanted]
        target[: len(piece)] = piece
        self._position += len(piece)
        return len(piece)

    def _request(self, wanted: int) -> None:
        is_forward = self._ahead != b"" and self._position == self._begin + len(self._ahead)
        self._request_bytes = min(2 * self._request_bytes, READ_AHEAD_BYTES_MAX) if is_forward else READ_AHEAD_BYTES_MIN
        end = min(self._position + max(wanted, self._request_bytes), self.status.size_bytes)
        self._ahead = self._bucket.read(self._key, self._position, end, self.status.e_tag)
        self._begin = self._position
        if len(self._ahead) != end - self._position:
            self._ahead, reason = b"", f"the store returned {len(self._ahead)} bytes of {end - self._position}"
            raise OSError(errno.EIO, reason)


def stamp_ns(status: ObjectStatus) -> int:
    """Returns the time of an object in nanoseconds, in which a hash of its version replaces the fraction of a second.

    Stores give times in whole seconds, in which an object may be replaced by another one of its size.
    """
    if not status.e_tag:
        return status.modified_ns
    return status.modified_ns // NANOSECONDS * NANOSECONDS + xxh3_64_intdigest(status.e_tag.encode()) % NANOSECONDS


def find_objects(
    connector: str,
    url: ObjectUrl,
    in_folder: Callable[[str], list[str]],
    matches: Callable[[list[str], list[str]], bool],
) -> list[str]:
    """Returns the URLs that match a URL: an object, those of a folder (``in_folder``), or those of a pattern.

    Raises: InvalidConnector: the store cannot be listed for a reason that a retry does not remove. OSError.
    """
    bucket = url.store()
    try:
        if WILDCARDS.search(url.key):
            names = url.key.split("/")
            fixed = next(index for index, name in enumerate(names) if WILDCARDS.search(name))
            below = bucket.keys_below("/".join(names[:fixed]))
            return [url.of(key) for key in below if matches(key.split("/"), names)]
        if url.key and _exists(bucket, url.key):
            return [url.of(url.key)]
        return in_folder(url.of(url.key))
    except PermissionError as error:
        raise InvalidConnector(connector, f"{url.without_options}: {error.strerror}", "Correct them.") from error


def _exists(bucket: Bucket, key: str) -> bool:
    try:
        bucket.status(key)
    except FileNotFoundError:
        return False
    return True
