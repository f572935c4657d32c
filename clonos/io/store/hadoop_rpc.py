"""HDFS by its own protocol, through hdfs-native: no JVM, no libhdfs. Errors are ``OSError``.

High availability and Kerberos come from the files in ``HADOOP_CONF_DIR``, the user from ``HADOOP_USER_NAME``. The
library waits for a silent namenode for ever, so each call is made in a thread of its own, which is left behind when it
takes too long; the next call has a new connection. (Its client for asyncio panics when a connection is refused.)
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from threading import Thread
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from hdfs_native import Client

ONE_NAMENODE: Final = {
    "dfs.client.failover.max.attempts": "3",
    "dfs.client.failover.sleep.base.millis": "100",
    "dfs.client.failover.sleep.max.millis": "1000",
}
"""There is no other to wait for; who calls tries again by itself. A name without a port is configured by its files."""

CALL_S_MAX: Final = 60.0
BYTES_PER_S_MIN: Final = 1 << 20
"""What content adds to the deadline of its call."""

Result = TypeVar("Result")


class HadoopRpc:
    """``host:port`` of a namenode, or the name of a service that the configuration knows."""

    def __init__(self, address: str, *, call_s_max: float = CALL_S_MAX) -> None:
        self._address, self._call_s_max = address, call_s_max
        self._client = self._connect()

    def _connect(self) -> Client:
        from hdfs_native import Client

        try:
            return Client(f"hdfs://{self._address}", ONE_NAMENODE if ":" in self._address else None)
        except RuntimeError as error:
            raise OSError(str(error)) from None

    def read(self, path: str) -> bytes:
        """All bytes of a file."""
        length_bytes = self._run(lambda client: client.get_file_info(path)).length
        return self._run(lambda client: client.read(path).read(), length_bytes)

    def create(self, path: str, data: bytes) -> None:
        """A new file, and the folders above it."""
        from hdfs_native import WriteOptions

        def create(client: Client) -> None:
            with client.create(path, WriteOptions(create_parent=True, overwrite=False)) as file:
                file.write(data)

        self._run(create, len(data))

    def rename(self, path: str, target: str, replaces: bool) -> None:
        """The namenode's ``rename2``."""
        self._run(lambda client: client.rename(path, target, replaces))

    def delete(self, path: str) -> None:
        """Removes a file."""
        self._run(lambda client: client.delete(path))

    def is_file(self, path: str) -> bool:
        """Whether there is such a file."""
        try:
            return not self._run(lambda client: client.get_file_info(path)).isdir
        except FileNotFoundError:
            return False

    def files_below(self, folder: str) -> list[str]:
        """Paths of all files below a folder."""
        try:
            return self._run(
                lambda client: [found.path for found in client.list_status(folder, True) if not found.isdir]
            )
        except FileNotFoundError:
            return []

    def _run(self, call: Callable[[Client], Result], content_bytes: int = 0) -> Result:
        outcome: Future[Result] = Future()
        client = self._client

        def run() -> None:
            try:
                outcome.set_result(call(client))
            except BaseException as error:  # noqa: BLE001 raised again in the caller's thread
                outcome.set_exception(error)

        Thread(target=run, name="hdfs call", daemon=True).start()
        try:
            return outcome.result(self._call_s_max + content_bytes / BYTES_PER_S_MIN)
        except TimeoutError:
            self._client = self._connect()
            raise TimeoutError("the namenode or a datanode is silent") from None
        except RuntimeError as error:  # what the library has no class of Python's for
            raise OSError(str(error)) from None
