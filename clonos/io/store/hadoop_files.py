"""Objects in HDFS: each is written under a temporary name and then renamed.

A rename is atomic, because it is one entry in the namenode's log. The exclusive create of HDFS is not used, because it
shows a file before its content; ``pyarrow.fs`` is not used, because its ``move`` first deletes the target.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Protocol
from urllib.parse import urlsplit

from clonos.io.store.hadoop_rpc import CALL_S_MAX, HadoopRpc
from clonos.io.store.object_files import ObjectMissing, StoreFailed, StoreUnsupported
from clonos.io.store.object_status import HadoopStatus
from clonos.io.system.entropy import random_bytes

STACK_TRACES = ("\n\tat ", "\\n\\tat ")
"""Beginnings of the stack trace that the namenode appends to the text of an error."""


class HadoopClient(Protocol):
    """Client of HDFS, by absolute paths.

    Raises: FileExistsError, FileNotFoundError; any other OSError leaves the outcome unknown.
    """

    def read(self, path: str) -> bytes:
        """Returns all bytes of a file."""

    def read_range(self, path: str, begin: int, end: int) -> bytes:
        """Returns the bytes of a file from ``begin`` to ``end``."""

    def create(self, path: str, pieces: Iterator[bytes], size_bytes: int) -> None:
        """Creates a file of this size and the folders above it; the file is closed on return."""

    def make_folder(self, path: str) -> None:
        """Creates a folder and those above it, unless they exist."""

    def rename(self, path: str, target: str, replaces: bool) -> None:
        """Renames a file atomically. Raises: FileExistsError when the target exists and ``replaces`` is False."""

    def delete(self, path: str) -> None:
        """Removes a file or an empty folder, if it exists."""

    def status(self, path: str) -> HadoopStatus:
        """Returns the status of a file or a folder. Raises: FileNotFoundError."""

    def is_file(self, path: str) -> bool:
        """Returns True when the file exists."""

    def entries(self, folder: str) -> list[tuple[str, bool]]:
        """Returns the names in a folder, and whether each is a folder; empty when the folder is missing."""

    def files_below(self, folder: str) -> dict[str, HadoopStatus]:
        """Returns the status of all files below a folder, by their paths; empty when the folder is missing."""


class HadoopFiles:
    """Objects below ``hdfs://namenode:port/folder``, ``hdfs://nameservice/folder`` or
    ``webhdfs://namenode:port/folder``."""

    def __init__(self, url: str, *, call_s_max: float = CALL_S_MAX) -> None:
        self.url = url
        parts = urlsplit(url)
        if parts.query or parts.username:
            reason = "a Hadoop URL takes no options and no user; set HADOOP_USER_NAME and HADOOP_CONF_DIR instead"
            raise StoreUnsupported(url, reason)
        if not parts.hostname or not parts.path.strip("/"):
            raise StoreUnsupported(url, f"expected {parts.scheme}://namenode:port/folder")
        self._root = f"/{parts.path.strip('/')}"
        with self._translating_errors("connect"):
            self._client = connect(url, parts.scheme, parts.netloc, call_s_max)

    def read(self, name: str) -> bytes:
        """Returns all bytes of a file."""
        with self._translating_errors(f"read {name}", name):
            return self._client.read(self._path(name))

    def write(self, name: str, data: bytes) -> None:
        """Writes a file; the rename replaces an existing one."""
        with self._translating_errors(f"write {name}"):
            self._put(name, data, replaces=True)

    def write_parts(self, name: str, parts: Iterable[bytes]) -> None:
        """Joins the parts and writes them at once, because the clients take whole files."""
        self.write(name, b"".join(parts))

    def create_if_absent(self, name: str, data: bytes) -> bool:
        """Writes a file unless it exists: of several renames that do not replace, the namenode accepts one."""
        with self._translating_errors(f"create {name}"):
            try:
                self._put(name, data, replaces=False)
            except FileExistsError:
                return False
            return True

    def exists(self, name: str) -> bool:
        """Returns True when the file exists."""
        with self._translating_errors(f"look for {name}"):
            return self._client.is_file(self._path(name))

    def delete(self, name: str) -> None:
        """Removes a file, if it exists."""
        with self._translating_errors(f"delete {name}"):
            self._client.delete(self._path(name))

    def list(self, folder: str) -> list[str]:
        """Returns the names of the files below a folder, without those that are being written."""
        return sorted(self._files_below(folder, are_hidden=False))

    def unfinished(self, folder: str) -> Sequence[str]:
        """Returns the names of the temporary files below a folder."""
        return sorted(self._files_below(folder, are_hidden=True))

    def _files_below(self, folder: str, are_hidden: bool) -> Iterator[str]:
        with self._translating_errors(f"list {folder}"):
            found = self._client.files_below(self._path(folder))
        names = [path.removeprefix(f"{self._root}/") for path in found]
        yield from (name for name in names if name.rpartition("/")[2].startswith(".") == are_hidden)

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}".rstrip("/")

    def _put(self, name: str, data: bytes, replaces: bool) -> None:
        folder, _, last = self._path(name).rpartition("/")
        part = f"{folder}/.{last}.{random_bytes(6).hex()}"
        try:
            self._client.create(part, iter((data,)), len(data))
            self._client.rename(part, f"{folder}/{last}", replaces)
        except OSError:
            with suppress(OSError):
                self._client.delete(part)
            raise

    @contextmanager
    def _translating_errors(self, action: str, name: str = "") -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if name and isinstance(error, FileNotFoundError):
                raise ObjectMissing(self.url, name) from None
            raise StoreFailed(self.url, action, without_stack_trace(str(error))) from None


def without_stack_trace(text: str) -> str:
    """Returns the text of an error without the stack trace of the namenode."""
    for stack_trace in STACK_TRACES:
        text = text.partition(stack_trace)[0]
    return text


def connect(url: str, scheme: str, address: str, call_s_max: float) -> HadoopClient:
    """Returns the client of a URL. Raises: StoreUnsupported: its package is not installed."""
    if scheme == "webhdfs":
        from clonos.io.store.web_hdfs import (
            WebHdfs,  # imports an HTTP client that a slot does not need at its start
        )

        return WebHdfs(address)
    try:
        return HadoopRpc(address, call_s_max=call_s_max)
    except ModuleNotFoundError:
        raise StoreUnsupported(url, "hdfs-native is not installed (pip install 'clonos[hdfs]')") from None
