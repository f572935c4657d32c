"""Objects in HDFS: each is written under a name that nobody reads, and then gets its own by a rename.

A rename is one entry in the namenode's log. HDFS can also create a file exclusively, but such a file is there before
its content. ``pyarrow.fs`` is not used here: its ``move`` deletes what is in the way, which makes two steps of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Protocol
from urllib.parse import urlsplit

from clonos.io.store.hadoop_rpc import CALL_S_MAX, HadoopRpc
from clonos.io.store.object_files import ObjectMissing, StoreFailed, StoreUnsupported
from clonos.io.system.entropy import random_bytes

STACK_TRACES = ("\n\tat ", "\\n\\tat ")
"""How the namenode's begins behind the text of an error."""


class HadoopClient(Protocol):
    """HDFS by absolute paths. ``FileExistsError``, ``FileNotFoundError``; any other ``OSError``: it is not known."""

    def read(self, path: str) -> bytes:
        """All bytes of a file."""

    def create(self, path: str, data: bytes) -> None:
        """A new file, and the folders above it; closed when this returns."""

    def rename(self, path: str, target: str, replaces: bool) -> None:
        """At once or not at all; ``FileExistsError`` if it must not replace and there is something."""

    def delete(self, path: str) -> None:
        """Removes a file; one that is missing is no error."""

    def is_file(self, path: str) -> bool:
        """Whether there is such a file."""

    def files_below(self, folder: str) -> list[str]:
        """Paths of all files below a folder; of one that is missing there are none."""


class HadoopFiles:
    """``hdfs://namenode:port/folder``, ``hdfs://nameservice/folder`` or ``webhdfs://namenode:port/folder``."""

    def __init__(self, url: str, *, call_s_max: float = CALL_S_MAX) -> None:
        self.url = url
        parts = urlsplit(url)
        if parts.query or parts.username:
            reason = "the URL of a Hadoop store takes no options and no user: HADOOP_USER_NAME and HADOOP_CONF_DIR do"
            raise StoreUnsupported(url, reason)
        if not parts.hostname or not parts.path.strip("/"):
            raise StoreUnsupported(url, f"expected {parts.scheme}://namenode:port/folder")
        self._root = f"/{parts.path.strip('/')}"
        with self._failing("connect"):
            self._client = _connect(url, parts.scheme, parts.netloc, call_s_max)

    def read(self, name: str) -> bytes:
        """All bytes of a file."""
        with self._failing(f"read {name}", name):
            return self._client.read(self._path(name))

    def write(self, name: str, data: bytes) -> None:
        """The rename replaces."""
        with self._failing(f"write {name}"):
            self._put(name, data, replaces=True)

    def write_parts(self, name: str, parts: Iterable[bytes]) -> None:
        """At once: its clients take whole files."""
        self.write(name, b"".join(parts))

    def create_if_absent(self, name: str, data: bytes) -> bool:
        """The rename does not replace: of several the namenode lets one through."""
        with self._failing(f"create {name}"):
            try:
                self._put(name, data, replaces=False)
            except FileExistsError:
                return False
            return True

    def exists(self, name: str) -> bool:
        """Whether the file is there."""
        with self._failing(f"look for {name}"):
            return self._client.is_file(self._path(name))

    def delete(self, name: str) -> None:
        """Removes the file."""
        with self._failing(f"delete {name}"):
            self._client.delete(self._path(name))

    def list(self, folder: str) -> list[str]:
        """Files below the folder, but for those that are being written."""
        with self._failing(f"list {folder}"):
            found = self._client.files_below(self._path(folder))
        names = [path.removeprefix(f"{self._root}/") for path in found]
        return sorted(name for name in names if not name.rpartition("/")[2].startswith("."))

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}".rstrip("/")

    def _put(self, name: str, data: bytes, replaces: bool) -> None:
        folder, _, last = self._path(name).rpartition("/")
        part = f"{folder}/.{last}.{random_bytes(6).hex()}"
        try:
            self._client.create(part, data)
            self._client.rename(part, f"{folder}/{last}", replaces)
        except OSError:
            with suppress(OSError):
                self._client.delete(part)
            raise

    @contextmanager
    def _failing(self, action: str, name: str = "") -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if name and isinstance(error, FileNotFoundError):
                raise ObjectMissing(self.url, name) from None
            reason = str(error)
            for stack_trace in STACK_TRACES:
                reason = reason.partition(stack_trace)[0]
            raise StoreFailed(self.url, action, reason) from None


def _connect(url: str, scheme: str, address: str, call_s_max: float) -> HadoopClient:
    if scheme == "webhdfs":
        from clonos.io.store.web_hdfs import (
            WebHdfs,  # with an HTTP client that nobody else in a slot needs at its birth
        )

        return WebHdfs(address)
    try:
        return HadoopRpc(address, call_s_max=call_s_max)
    except ModuleNotFoundError:
        raise StoreUnsupported(url, "hdfs-native is not installed (pip install 'clonos[hdfs]')") from None
