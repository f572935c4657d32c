"""Input files by URL: the keys that a pattern matches in a store, and reads of one version of an object or a file.

A read names the version that was opened, so an object that is replaced meanwhile gives an error and never other bytes.
"""

from __future__ import annotations

import errno
import io
from collections.abc import Callable, Mapping, Sequence
from posixpath import commonpath
from typing import Final, Protocol

from xxhash import xxh3_64_intdigest

from clonos.connectors.connector_errors import InputUnreadable, InvalidConnector
from clonos.connectors.object_stores.urls import SFTP, WEB_SCHEMES, WILDCARDS, ObjectUrl, split_url
from clonos.io.store.bucket import AnyBucket
from clonos.io.store.bucket_lists import readable_keys
from clonos.io.store.object_status import ObjectStatus

READ_AHEAD_BYTES_MIN: Final = 256 << 10
READ_AHEAD_BYTES_MAX: Final = 8 << 20
"""Size of one request of a reader that reads forward: large, because each request takes tens of milliseconds."""
NANOSECONDS: Final = 1_000_000_000


class RemoteFile(Protocol):
    """Open object or file of a server. ``has_ranges``: the server sends parts of it, from any byte on."""

    status: ObjectStatus
    has_ranges: bool

    def read(self, begin: int, end: int) -> bytes:
        """Returns the bytes from ``begin`` to ``end`` of the version that was opened.

        Raises: OSError: the server fails. ObjectReplaced: it has another version now.
        """

    def close(self) -> None:
        """Closes the connections that belong to it."""


class BucketFile:
    """Object of a bucket."""

    has_ranges = True

    def __init__(self, url: str) -> None:
        parts = split_url(url)
        self._bucket: AnyBucket = parts.store()
        self._key = parts.key
        self.status: ObjectStatus = self._bucket.status(parts.key)

    def read(self, begin: int, end: int) -> bytes:
        """See ``RemoteFile``."""
        return self._bucket.read(self._key, begin, end, self.status.e_tag)

    def close(self) -> None:
        """Does nothing, because the library keeps the connections."""


def open_remote(url: str) -> RemoteFile:
    """Opens an object or a file of a server.

    Raises: OSError: there is none, or the server fails.
    """
    scheme = split_url(url).scheme
    if scheme in WEB_SCHEMES:
        from clonos.connectors.object_stores.web_files import WebFile

        return WebFile(url)
    if scheme == SFTP:
        from clonos.connectors.object_stores.sftp_files import SftpFile  # its library takes long to load

        return SftpFile(url)
    return BucketFile(url)


class ObjectInput(io.RawIOBase):
    """Open object or file. Requests grow while it is read forward, and begin small after a seek."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self._remote = open_remote(url)
        self.status: ObjectStatus = self._remote.status
        self._position = 0
        self._begin, self._ahead = 0, b""
        self._request_bytes = READ_AHEAD_BYTES_MIN

    @property
    def has_ranges(self) -> bool:
        """Whether the server sends parts of the file."""
        return self._remote.has_ranges

    def close(self) -> None:
        """Closes the file."""
        if not self.closed and hasattr(self, "_remote"):
            self._remote.close()
        super().close()

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
        self._ahead = self._remote.read(self._position, end)
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


def statuses_of(urls: Sequence[str]) -> dict[str, ObjectStatus]:
    """Returns the status of those objects and files that a list of their folders shows, with few requests for many.

    Web servers list no files. Raises: InputUnreadable: a server fails.
    """
    folders: dict[tuple[str, str, str], list[str]] = {}
    for url in urls:
        parts = split_url(url)
        if parts.scheme not in WEB_SCHEMES:
            folders.setdefault((parts.scheme, parts.bucket, parts.options), []).append(parts.key)
    found: dict[str, ObjectStatus] = {}
    for (scheme, bucket, options), keys in folders.items():
        parts = ObjectUrl(scheme, bucket, commonpath([key.rpartition("/")[0] for key in keys]), options)
        try:
            listed = _listed(parts, keys)
        except OSError as error:
            raise InputUnreadable(parts.without_options, error.strerror or str(error)) from error
        found.update((parts.of(key), listed[key]) for key in keys if key in listed)
    return found


def _listed(folder: ObjectUrl, keys: Sequence[str]) -> Mapping[str, ObjectStatus]:
    if folder.scheme == SFTP:
        from clonos.connectors.object_stores.sftp_files import sftp_statuses  # its library takes long to load

        return sftp_statuses(folder, sorted({key.rpartition("/")[0] for key in keys}))
    return folder.store().statuses_below(folder.key)


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
            below = [key for key in bucket.keys_below("/".join(names[:fixed])) if matches(key.split("/"), names)]
            return [url.of(key) for key in readable_keys(url.without_options, below)]
        if url.key and _exists(bucket, url.key):
            return [url.of(url.key)]
        return in_folder(url.of(url.key))
    except PermissionError as error:
        raise InvalidConnector(
            connector, f"{url.without_options}: {error.strerror}", "Then start the job again."
        ) from error


def is_there(url: str) -> bool:
    """Returns whether there is an object or a file. Raises: OSError: the server fails."""
    try:
        open_remote(url).close()
    except FileNotFoundError:
        return False
    return True


def _exists(bucket: AnyBucket, key: str) -> bool:
    try:
        bucket.status(key)
    except FileNotFoundError:
        return False
    return True
