"""HDFS by its HTTP interface (WebHDFS), without Kerberos. Errors are ``OSError``.

The namenode answers itself, or sends on to a datanode with what is to be read or written.
"""

from __future__ import annotations

import getpass
import os
from typing import Any, Final
from urllib.parse import quote, urlencode

import msgspec
import urllib3

CONNECT_TIMEOUT_S: Final = 10.0
SILENCE_S_MAX: Final = 60.0
"""One wait for bytes."""
ERRORS: Final = {"FileAlreadyExistsException": FileExistsError, "FileNotFoundException": FileNotFoundError}


class WebHdfs:
    """``host:port`` of a namenode's HTTP interface."""

    def __init__(self, address: str) -> None:
        self._root = f"http://{address}/webhdfs/v1"
        self._user = os.environ.get("HADOOP_USER_NAME", "") or getpass.getuser()
        timeout = urllib3.Timeout(connect=CONNECT_TIMEOUT_S, read=SILENCE_S_MAX)
        self._pool = urllib3.PoolManager(timeout=timeout, retries=False)

    def read(self, path: str) -> bytes:
        """All bytes of a file, whose length the namenode knows."""
        length_bytes = self._status(path)["length"]
        content = self._ask("GET", path, "OPEN")
        if len(content) != length_bytes:
            raise OSError(f"{path} has {length_bytes} bytes, {len(content)} came")
        return content

    def create(self, path: str, data: bytes) -> None:
        """A new file, and the folders above it."""
        self._ask("PUT", path, "CREATE", data, overwrite="false")

    def rename(self, path: str, target: str, replaces: bool) -> None:
        """With options the namenode's ``rename2``, which answers nothing; a server that knows only the older one says
        whether it has renamed, and never replaces."""
        options = "OVERWRITE" if replaces else "NONE"
        answer = self._ask("PUT", path, "RENAME", destination=target, renameoptions=options)
        if answer:
            raise OSError(f"it does not know renameoptions={options}, and answers {answer[:100]!r} to a rename")

    def delete(self, path: str) -> None:
        """Removes a file."""
        self._ask("DELETE", path, "DELETE")

    def is_file(self, path: str) -> bool:
        """Whether there is such a file."""
        try:
            return bool(self._status(path)["type"] == "FILE")
        except FileNotFoundError:
            return False

    def files_below(self, folder: str) -> list[str]:
        """Paths of all files below a folder."""
        try:
            answer = self._ask("GET", folder, "LISTSTATUS")
        except FileNotFoundError:
            return []
        found = []
        for status in msgspec.json.decode(answer)["FileStatuses"]["FileStatus"]:
            path = f"{folder}/{status['pathSuffix']}"
            found += self.files_below(path) if status["type"] == "DIRECTORY" else [path]
        return found

    def _status(self, path: str) -> dict[str, Any]:
        status: dict[str, Any] = msgspec.json.decode(self._ask("GET", path, "GETFILESTATUS"))["FileStatus"]
        return status

    def _ask(self, method: str, path: str, operation: str, data: bytes | None = None, **options: str) -> bytes:
        asked = urlencode({"op": operation, "user.name": self._user, **options})
        try:
            reply = self._pool.request(method, f"{self._root}{quote(path)}?{asked}")
            if reply.status == 307:
                headers = {} if data is None else {"Content-Type": "application/octet-stream"}
                reply = self._pool.request(method, reply.headers["Location"], body=data, headers=headers)
        except urllib3.exceptions.HTTPError as error:
            raise OSError(f"{type(error).__name__}: {error}") from None
        if reply.status >= 300:
            raise _error(reply.status, reply.data)
        return reply.data


def _error(status_code: int, answer: bytes) -> OSError:
    try:
        told = msgspec.json.decode(answer)["RemoteException"]
        return ERRORS.get(told["exception"], OSError)(f"{told['exception']}: {told['message']}")
    except (msgspec.DecodeError, KeyError, TypeError):
        return OSError(f"HTTP status {status_code}: {answer[:200].decode(errors='replace')}")
