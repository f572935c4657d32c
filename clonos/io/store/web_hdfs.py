"""Client of HDFS by its HTTP interface (WebHDFS), without Kerberos. Errors are ``OSError``.

The namenode answers itself, or redirects to a datanode for the content of a file.
"""

from __future__ import annotations

import getpass
import os
from collections.abc import Iterator
from typing import Annotated, Final, TypeVar
from urllib.parse import quote, urlencode

import msgspec
import urllib3

from clonos.core.wire.decoding import DECODE_ERRORS
from clonos.io.store.object_status import HadoopStatus

CONNECT_TIMEOUT_S: Final = 10.0
SILENCE_S_MAX: Final = 60.0
"""Seconds that one wait for bytes may take."""
ERRORS: Final = {"FileAlreadyExistsException": FileExistsError, "FileNotFoundException": FileNotFoundError}


DEPTH_MAX: Final = 64
"""Levels of folders that are listed: objects lie in few, and a faulty server could name them without end."""


class _Status(msgspec.Struct):
    """Status of a file or a folder. ``pathSuffix``: its name in the folder that was listed."""

    type: str
    length: int = 0
    modificationTime: int = 0  # noqa: N815  as WebHDFS has it
    pathSuffix: Annotated[str, msgspec.Meta(pattern=r"^(?!\.{1,2}\Z)[^/\x00]*\Z")] = ""  # noqa: N815  as WebHDFS has it


class _Statuses(msgspec.Struct):
    FileStatus: list[_Status]


class _Listing(msgspec.Struct):
    FileStatuses: _Statuses


class _Described(msgspec.Struct):
    FileStatus: _Status


class _Remote(msgspec.Struct):
    exception: str
    message: str | None = None


class _Failure(msgspec.Struct):
    RemoteException: _Remote


Answer = TypeVar("Answer")


class WebHdfs:
    """Client of the HTTP interface of the namenode at ``host:port``."""

    def __init__(self, address: str) -> None:
        self._root = f"http://{address}/webhdfs/v1"
        self._user = os.environ.get("HADOOP_USER_NAME", "") or getpass.getuser()
        timeout = urllib3.Timeout(connect=CONNECT_TIMEOUT_S, read=SILENCE_S_MAX)
        self._pool = urllib3.PoolManager(timeout=timeout, retries=False)

    def read(self, path: str) -> bytes:
        """Returns all bytes of a file. Raises: OSError when the length differs from the namenode's."""
        length_bytes = self._status(path).length
        content = self._ask("GET", path, "OPEN")
        if len(content) != length_bytes:
            raise OSError(f"{path} has {length_bytes} bytes, but {len(content)} were received")
        return content

    def read_range(self, path: str, begin: int, end: int) -> bytes:
        """Returns the bytes of a file from ``begin`` to ``end``."""
        return self._ask("GET", path, "OPEN", offset=str(begin), length=str(end - begin))

    def create(self, path: str, pieces: Iterator[bytes], size_bytes: int) -> None:
        """Creates a file and the folders above it."""
        self._ask("PUT", path, "CREATE", (pieces, size_bytes), overwrite="false")

    def make_folder(self, path: str) -> None:
        """Creates a folder and those above it, unless they exist."""
        self._ask("PUT", path, "MKDIRS")

    def rename(self, path: str, target: str, replaces: bool) -> None:
        """Renames a file by the namenode's ``rename2``, which is chosen by its options and answers nothing.

        Raises: OSError when the server knows only the older rename, which reports success but never replaces.
        """
        options = "OVERWRITE" if replaces else "NONE"
        answer = self._ask("PUT", path, "RENAME", destination=target, renameoptions=options)
        if answer:
            raise OSError(
                f"the server does not support renameoptions={options}: it answers {answer[:100]!r} to a rename"
            )

    def delete(self, path: str) -> None:
        """Removes a file or an empty folder, if it exists."""
        self._ask("DELETE", path, "DELETE")

    def status(self, path: str) -> HadoopStatus:
        """Returns the status of a file or a folder."""
        return _hadoop_status(self._status(path))

    def is_file(self, path: str) -> bool:
        """Returns True when the file exists."""
        try:
            return self._status(path).type == "FILE"
        except FileNotFoundError:
            return False

    def entries(self, folder: str) -> list[tuple[str, bool]]:
        """Returns the names in a folder, and whether each is a folder."""
        try:
            answer = self._ask("GET", folder, "LISTSTATUS")
        except FileNotFoundError:
            return []
        found = _decoded(answer, _Listing).FileStatuses.FileStatus
        return [(status.pathSuffix, status.type == "DIRECTORY") for status in found]

    def files_below(self, folder: str) -> dict[str, HadoopStatus]:
        """Returns the status of all files below a folder, by their paths.

        Raises: OSError when folders are nested more than 64 deep.
        """
        try:
            answer = self._ask("GET", folder, "LISTSTATUS")
        except FileNotFoundError:
            return {}
        if folder.count("/") > DEPTH_MAX:
            raise OSError(f"the folder {folder} is nested more than {DEPTH_MAX} levels deep")
        found: dict[str, HadoopStatus] = {}
        for status in _decoded(answer, _Listing).FileStatuses.FileStatus:
            path = f"{folder}/{status.pathSuffix}"
            found |= self.files_below(path) if status.type == "DIRECTORY" else {path: _hadoop_status(status)}
        return found

    def _status(self, path: str) -> _Status:
        return _decoded(self._ask("GET", path, "GETFILESTATUS"), _Described).FileStatus

    def _ask(
        self, method: str, path: str, operation: str, content: tuple[Iterator[bytes], int] | None = None, **options: str
    ) -> bytes:
        asked = urlencode({"op": operation, "user.name": self._user, **options})
        try:
            reply = self._pool.request(method, f"{self._root}{quote(path)}?{asked}")
            if reply.status == 307:
                body, headers = None, {}
                if content is not None:
                    body, size_bytes = content
                    headers = {"Content-Type": "application/octet-stream", "Content-Length": str(size_bytes)}
                reply = self._pool.request(method, _location(reply), body=body, headers=headers)
        except (urllib3.exceptions.HTTPError, ValueError) as error:  # ValueError: the Location header is no URL
            raise OSError(f"{type(error).__name__}: {error}") from None
        if reply.status >= 300:
            raise _error(reply.status, reply.data)
        return reply.data


def _hadoop_status(found: _Status) -> HadoopStatus:
    return HadoopStatus(found.type == "DIRECTORY", found.length, found.modificationTime)


def _location(reply: urllib3.BaseHTTPResponse) -> str:
    found = reply.headers.get("Location", "")
    if not found.startswith(("http://", "https://")):
        raise OSError(f"the namenode redirects to {found!r}")
    return found


def _decoded(answer: bytes, answer_type: type[Answer]) -> Answer:
    try:
        return msgspec.json.decode(answer, type=answer_type)
    except DECODE_ERRORS as error:
        raise OSError(f"the namenode's answer cannot be read: {error}: {answer[:200]!r}") from None


def _error(status_code: int, answer: bytes) -> OSError:
    try:
        remote = msgspec.json.decode(answer, type=_Failure).RemoteException
        return ERRORS.get(remote.exception, OSError)(f"{remote.exception}: {remote.message}")
    except DECODE_ERRORS:
        return OSError(f"HTTP status {status_code}: {answer[:200].decode(errors='replace')}")
