"""HDFS by its own protocol, through hdfs-native: no JVM, no libhdfs. Errors are ``OSError``.

High availability and Kerberos come from the files in ``HADOOP_CONF_DIR``, the user from ``HADOOP_USER_NAME``.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

ONE_NAMENODE: Final = {
    "dfs.client.failover.max.attempts": "3",
    "dfs.client.failover.sleep.base.millis": "100",
    "dfs.client.failover.sleep.max.millis": "1000",
}
"""There is no other to wait for; who calls tries again by itself. A name without a port is configured by its files."""


class HadoopRpc:
    """``host:port`` of a namenode, or the name of a service that the configuration knows."""

    def __init__(self, address: str) -> None:
        from hdfs_native import Client

        with _os_errors():
            self._client = Client(f"hdfs://{address}", ONE_NAMENODE if ":" in address else None)

    def read(self, path: str) -> bytes:
        """All bytes of a file."""
        with _os_errors():
            return self._client.read(path).read()

    def create(self, path: str, data: bytes) -> None:
        """A new file, and the folders above it."""
        from hdfs_native import WriteOptions

        with _os_errors(), self._client.create(path, WriteOptions(create_parent=True, overwrite=False)) as file:
            file.write(data)

    def rename(self, path: str, target: str, replaces: bool) -> None:
        """The namenode's ``rename2``."""
        with _os_errors():
            self._client.rename(path, target, replaces)

    def delete(self, path: str) -> None:
        """Removes a file."""
        with _os_errors():
            self._client.delete(path)

    def is_file(self, path: str) -> bool:
        """Whether there is such a file."""
        with _os_errors():
            try:
                return not self._client.get_file_info(path).isdir
            except FileNotFoundError:
                return False

    def files_below(self, folder: str) -> list[str]:
        """Paths of all files below a folder."""
        with _os_errors():
            try:
                return [found.path for found in self._client.list_status(folder, True) if not found.isdir]
            except FileNotFoundError:
                return []


@contextmanager
def _os_errors() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:  # what it has no class of Python's for
        raise OSError(str(error)) from None
